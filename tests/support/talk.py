"""Conversations with the fake model: engines, answers and a loader that know what will be said."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from edgespec.control.fixed import FixedPolicy
from edgespec.drafters.ngram import NgramDrafter
from edgespec.engine import Engine
from edgespec.events import Done, Event, Notice
from edgespec.settings import About, Request
from edgespec.text import StopText
from tests.support.fakes import ChatWords, FakeModel, WordVocabulary, saying

WORDS = (b"Hello", b" there", b"Good", b"bye", "é".encode(), "😀".encode()[:2])
GREEDY = {"temperature": 0.0}
THOUGHTS = (b"<thi", b"nk>\nHm", b", well.\n", b"\n</", b"think>", b"\n\n", b"Good", b"bye")


class Talk:
    """An engine over a fake model, and the conversation with it."""

    def __init__(
        self,
        *answers: Sequence[bytes | int],
        vocabulary: WordVocabulary | None = None,
        template: ChatWords | None = None,
        n_ctx: int = 4096,
        k: int = 3,
    ) -> None:
        self.vocabulary = vocabulary or WordVocabulary(WORDS, ChatWords.CONTROLS)
        said = [[self.vocabulary.words[w] if isinstance(w, bytes) else w for w in answer] for answer in answers]
        self.model = FakeModel(saying(self.vocabulary, *said), self.vocabulary.n_tokens, n_ctx=n_ctx, n_batch=64)
        self.engine = Engine(
            self.model,
            self.vocabulary,
            FixedPolicy("ngram", k),
            lambda stops: StopText(self.vocabulary.piece, stops),
            drafters={"ngram": NgramDrafter()},
            template=template or ChatWords(),
        )
        self.messages: list[dict[str, str]] = []

    def ask(self, text: str, **options) -> Done:
        self.messages.append({"role": "user", "content": text})
        done = finish(self.engine.chat(self.messages, **GREEDY, **options))
        self.messages.append({"role": "assistant", "content": done.raw})
        return done

    def prompt(self) -> str:
        """What the model has read and said."""
        return self.vocabulary.spell(self.model.tokens)


class Thinking(ChatWords):
    """Strips thoughts from history and has a switch, as Qwen3's template does."""

    has_thoughts = True
    has_think_switch = True

    def __init__(self, opens: bool = False) -> None:
        self.opens = opens
        self.asked: list[bool | None] = []

    def render(self, messages: Sequence[dict[str, str]], think: bool | None = None) -> str:
        self.asked.append(think)
        stripped = [{**m, "content": m["content"].rpartition("</think>")[2].lstrip("\n")} for m in messages]
        return super().render(stripped) + ("<think>\n" if self.opens else "<think>\n\n</think>\n\n" * (think is False))


def thinking(*answers: Sequence[bytes], template: ChatWords) -> Talk:
    return Talk(*answers, vocabulary=WordVocabulary(THOUGHTS, ChatWords.CONTROLS), template=template)


def finish(events: Iterator[Event]) -> Done:
    *_, last = events
    assert isinstance(last, Done)
    return last


class Loader:
    """Stands in for edgespec.load; remembers the engine that it made, and what it was asked for."""

    def __init__(self) -> None:
        self.vocabulary = WordVocabulary((*WORDS, *THOUGHTS[:-2]), ChatWords.CONTROLS)
        self.answers: list[tuple[bytes, ...]] = [(b"Hello", b" there"), (b"Good", b"bye"), (b"bye",)]
        self.template: ChatWords | None = ChatWords()
        self.n_ctx = 4096
        self.asked: dict[str, Any] = {}
        self.before_decode: Any = lambda model: None

    def __call__(self, pair: str | None = None, *, on_event: Any, **options: Any) -> Engine:
        self.asked = options
        on_event(Notice("Something to know."))
        answers = [[self.vocabulary.words[word] for word in answer] for answer in self.answers]
        self.model = FakeModel(saying(self.vocabulary, *answers), self.vocabulary.n_tokens, self.n_ctx, n_batch=64)
        self.model.before_decode = lambda: self.before_decode(self.model)
        kept = {k: v for k, v in options.items() if k in ("temperature", "max_tokens", "seed", "think", "stop")}
        return Engine(
            self.model,
            self.vocabulary,
            FixedPolicy(None, 0),
            lambda stops: StopText(self.vocabulary.piece, stops),
            template=self.template,
            about=About("big", None, pair),
            defaults=Request().having(**kept),
        )

    @property
    def read(self) -> str:
        """What the model has read and said in all."""
        return self.vocabulary.spell(self.model.tokens)
