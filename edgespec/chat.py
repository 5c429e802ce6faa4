"""A conversation: what was said, what of it goes into the next prompt, and a file to keep it in."""

from __future__ import annotations

import json
import os
import tempfile
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgespec.engine import Engine
from edgespec.errors import UsageError
from edgespec.events import Done, Event, Notice
from edgespec.protocols import Message
from edgespec.settings import Request

KIND, VERSION = "edgespec conversation", 1


@dataclass(frozen=True, slots=True)
class Turn:
    """A question and its answer, raw: with the thoughts that the template may strip."""

    question: str
    answer: str


class Conversation:
    """Asks an engine, turn after turn, with all that was said before.

    When it no longer fits the context, the oldest turns are left out of the prompt, several at once, so that the next
    prompts still begin alike and stay cached. They are neither forgotten nor missing in the file.
    """

    def __init__(self, engine: Engine, system: str | None = None) -> None:
        self.system = system
        self._engine = engine
        self._turns: tuple[Turn, ...] = ()
        self._left_out = 0
        self._said = False  # that something is left out

    @property
    def turns(self) -> tuple[Turn, ...]:
        return self._turns

    @property
    def left_out(self) -> int:
        """How many of the oldest turns the last prompt had no room for."""
        return self._left_out

    @property
    def messages(self) -> list[Message]:
        """All of it, what is left out of the prompt too."""
        return self._written(self._turns)

    def ask(self, text: str, *, wait: bool = False, **options: Any) -> Iterator[Event]:
        """Answer `text` as the next message; events and options are those of Engine.chat.

        A cancelled answer is kept as far as it came. Where nothing came, where an exception ends the answer or its
        events are not read to the end, the conversation is as it was before.
        """
        return self._answer(self._turns, text, self._engine.request(**options), wait)

    def regenerate(self, *, wait: bool = False, **options: Any) -> Iterator[Event]:
        """Answer the last message once more; the new answer takes the old one's place when it is there."""
        if not self._turns:
            raise UsageError("There is no answer yet to write again: say something first.")
        return self._answer(self._turns[:-1], self._turns[-1].question, self._engine.request(**options), wait)

    def reset(self) -> None:
        """Forget everything but the system prompt."""
        self._turns, self._left_out, self._said = (), 0, False

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all of it to a file, whole or not at all. Raises UsageError; a file of another kind is left alone."""
        file = Path(os.path.realpath(path))
        try:
            if file.exists():
                _parsed(file)
            document = {"kind": KIND, "version": VERSION, "messages": self.messages}
            _replace(file, json.dumps(document, ensure_ascii=False, indent=1) + "\n")
        except _Bad as bad:
            raise UsageError(f"{path} exists and is no saved conversation ({bad}): choose another name.") from bad
        except OSError as error:
            raise UsageError(
                f"The conversation cannot be saved to {path} ({_reason(error)}): try another place."
            ) from error

    def load(self, path: str | os.PathLike[str]) -> None:
        """Go on with a saved conversation in this one's place. Raises UsageError, and this one stays."""
        try:
            system, turns = _parsed(Path(path))
        except _Bad as bad:
            raise UsageError(f"{path} is no saved conversation: {bad}.") from bad
        except OSError as error:
            raise UsageError(f"{path} cannot be read ({_reason(error)}): check the path.") from error
        self.reset()
        self.system, self._turns = system, turns

    def _answer(self, before: tuple[Turn, ...], question: str, request: Request, wait: bool) -> Iterator[Event]:
        left_out = self._fitting(before, question, request)
        messages = self._written(before[left_out:], question)
        events = self._engine.chat(messages, request=request, wait=wait)

        def heard() -> Iterator[Event]:
            if left_out and not self._said:
                self._said = True
                yield Notice(
                    "The conversation is longer than the context: its oldest messages are left out from here on."
                )
            for event in events:
                if isinstance(event, Done) and (event.tokens or event.finish_reason != "cancelled"):
                    self._turns, self._left_out = (*before, Turn(question, event.raw)), left_out
                yield event

        return heard()

    def _fitting(self, before: tuple[Turn, ...], question: str, request: Request) -> int:
        """How many of the oldest turns must be left out, so that an answer has room."""

        def size(left_out: int) -> int:
            return len(self._engine.prompt(self._written(before[left_out:], question), request=request))

        context = self._engine.n_ctx
        least = min(self._left_out, len(before))
        if size(least) + min(context // 4, request.max_tokens or context) <= context:
            return least
        return bisect_left(range(len(before)), True, least, key=lambda left_out: size(left_out) <= context // 2)

    def _written(self, turns: Sequence[Turn], question: str | None = None) -> list[Message]:
        messages = [] if self.system is None else [{"role": "system", "content": self.system}]
        for turn in turns:
            messages.append({"role": "user", "content": turn.question})
            messages.append({"role": "assistant", "content": turn.answer})
        return messages if question is None else [*messages, {"role": "user", "content": question}]


class _Bad(Exception):
    """What is wrong with a file, as the middle of a sentence."""


def _parsed(file: Path) -> tuple[str | None, tuple[Turn, ...]]:
    """The system prompt and the turns in a file. Raises _Bad, OSError."""
    if file.exists() and not file.is_file():
        raise _Bad("it is no file")
    try:
        document = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise _Bad("it is not JSON") from error
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise _Bad(f'it has no "kind": "{KIND}"')
    if document.get("version") != VERSION:
        raise _Bad(f"its version is {document.get('version')!r} and this edgespec reads {VERSION}")
    messages = document.get("messages")
    if not isinstance(messages, list):
        raise _Bad("its messages are not a list")
    for number, message in enumerate(messages, 1):
        if not isinstance(message, dict) or not isinstance(message.get("content"), str):
            raise _Bad(f"message {number} has no text as its content")
    system = messages.pop(0)["content"] if messages and messages[0].get("role") == "system" else None
    for at, message in enumerate(messages):
        if message.get("role") != (expected := ("user", "assistant")[at % 2]):
            number = at + 1 + (system is not None)
            raise _Bad(f"message {number} has the role {message.get('role')!r} where {expected!r} is due")
    if len(messages) % 2:
        raise _Bad("its last message has no answer")
    pairs = zip(messages[::2], messages[1::2], strict=True)
    return system, tuple(Turn(user["content"], assistant["content"]) for user, assistant in pairs)


def _replace(file: Path, text: str) -> None:
    """Write beside the file and put it in its place, so that it is never half written."""
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with open(handle, "wb") as part:
            part.write(text.encode("utf-8", "replace"))
            part.flush()
            os.fsync(part.fileno())
        os.replace(name, file)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def _reason(error: OSError) -> str:
    return error.strerror or type(error).__name__
