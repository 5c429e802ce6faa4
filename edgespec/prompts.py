"""Conversations to prompts that keep the tokens of what was read and said before, so that only new text is decoded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from edgespec.events import Done, Event, Notice, Text
from edgespec.protocols import THOUGHT_ENDS, THOUGHT_OPENS, ChatTemplate, Message, Vocabulary
from edgespec.settings import ThinkChoice
from edgespec.thoughts import ThoughtText

THINK = {"auto": None, "on": True, "off": False}


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A prompt as text and as tokens.

    `seams` are (characters, tokens) where both can be cut: the ends of the prompts and answers that it grew from. A
    tokenizer might write the text as a whole with other tokens than these, which the model has read or said.
    """

    text: str = ""
    tokens: tuple[int, ...] = ()
    seams: tuple[tuple[int, int], ...] = ()

    def followed_by(self, text: str, tokens: Sequence[int]) -> ChatPrompt:
        """This and more text, with a seam at its end."""
        whole, ids = self.text + text, (*self.tokens, *tokens)
        return ChatPrompt(whole, ids, (*self.seams, (len(whole), len(ids))))

    def shared_with(self, text: str) -> ChatPrompt | None:
        """As much of this, up to a seam, as `text` begins with."""
        for at, (characters, tokens) in reversed(list(enumerate(self.seams))):
            if text.startswith(self.text[:characters]):
                return ChatPrompt(self.text[:characters], self.tokens[:tokens], self.seams[: at + 1])
        return None


class ChatPrompts:
    """Writes the prompts of conversations, and reads the answers to them.

    It remembers the last prompt and its answer. That is about text alone: it stays true whatever becomes of a cache,
    and a prompt that is told by another history shares with it what it shares.
    """

    def __init__(self, template: ChatTemplate, vocabulary: Vocabulary) -> None:
        self._template = template
        self._vocabulary = vocabulary
        self._known = ChatPrompt()
        self._warned = False

    def write(self, messages: Sequence[Message], think: ThinkChoice) -> ChatPrompt:
        """The prompt that asks for the next message."""
        text = self._template.render(messages, THINK[think])
        return self._continued(text) or self._whole(text)

    def read(self, prompt: ChatPrompt, think: ThinkChoice, events: Iterator[Event]) -> Iterator[Event]:
        """The events of an answer to `prompt`, with its thoughts told apart; what was said is remembered at the end."""
        if think != "auto" and not self._template.has_think_switch and not self._warned:
            self._warned = True
            yield Notice(f"This model's chat template cannot turn thinking on or off: think {think} has no effect.")
        parts = ThoughtText(prompt.text.rstrip().endswith(THOUGHT_OPENS)) if self._template.has_thoughts else None
        thoughts, said = "", ""
        for event in events:
            if parts is not None and isinstance(event, Text):
                thought, text = parts.push(event.text)
                thoughts, said = thoughts + thought, said + text
                event = replace(event, text=text, thought=thought)
            elif isinstance(event, Done):
                self._remember(prompt, event)
                if parts is not None:
                    thought, text = parts.finish()
                    if thought or text:
                        yield Text(text, (), "", thought)
                    # A thought that was cut off is closed: a template strips no other from the history.
                    raw = event.raw + (THOUGHT_ENDS if parts.open else "")
                    event = replace(event, text=said + text, thought=thoughts + thought, raw=raw)
            yield event

    def _continued(self, text: str) -> ChatPrompt | None:
        """The prompt as a continuation of what is known; None where there is nothing that it could continue."""
        known = self._known.shared_with(text)
        if known is None:
            return None
        if not (rest := text[len(known.text) :]):
            return known
        tokens = self._vocabulary.tokenize(rest, add_special=False)
        # Some tokenizers put a space before a text that begins with a word: no part of a conversation may change so.
        spoken = b"".join(takewhile(bool, map(self._vocabulary.piece, tokens)))
        return known.followed_by(rest, tokens) if rest.encode("utf-8", "replace").startswith(spoken) else None

    def _whole(self, text: str) -> ChatPrompt:
        tokens = self._vocabulary.tokenize(text, add_special=not self._template.begins_itself(text))
        return ChatPrompt().followed_by(text, tokens)

    def _remember(self, prompt: ChatPrompt, done: Done) -> None:
        """Keep the answer's tokens where they are its text, not with a cut, half a character or a control token."""
        pieces = [self._vocabulary.piece(token) for token in done.tokens]
        whole = all(pieces) and b"".join(pieces) == done.raw.encode()
        self._known = prompt.followed_by(done.raw, done.tokens) if whole and pieces else prompt
