"""Fake models whose passes take known times on a clock that only they move."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from edgespec.control.fixed import FixedPolicy
from edgespec.drafters.model import ModelDrafter
from edgespec.engine import Engine
from edgespec.protocols import Drafter, Logits
from edgespec.settings import About
from edgespec.text import StopText
from tests.support.fakes import FakeModel, FakeVocabulary, PlainTemplate, Table, hashed_table

N_VOCAB = 16


class Clock:
    """Seconds that pass when somebody says so; `level` makes all work slower or faster as time goes by."""

    def __init__(self, level: Callable[[float], float] = lambda now: 1.0) -> None:
        self.now = 0.0
        self._level = level

    def __call__(self) -> float:
        return self.now

    def work(self, seconds: float) -> None:
        self.now += seconds * self._level(self.now)


class TimedModel(FakeModel):
    """A pass over n tokens takes cost(n) seconds."""

    def __init__(self, table: Table, clock: Clock, cost: Callable[[int], float], **options: Any) -> None:
        super().__init__(table, **options)
        self._clock, self._cost = clock, cost

    def decode(self, tokens: Sequence[int], position: int, outputs: int) -> Logits:
        self._clock.work(self._cost(len(tokens)))
        return super().decode(tokens, position, outputs)


def timed_engine(
    clock: Clock,
    drafters: Mapping[str, Drafter],
    *,
    table: Table | None = None,
    cost: Callable[[int], float] = lambda n: 0.08 + 0.02 * n,
    draft_cost: float | None = None,
    draft_table: Table | None = None,
    about: About | None = None,
) -> Engine:
    """An engine whose plain token takes 0.1 s; with a `draft_cost` it has a draft model, too."""
    table = table or hashed_table(N_VOCAB, end=-99.0)
    vocabulary = FakeVocabulary(N_VOCAB)
    crew = dict(drafters)
    if draft_cost is not None:
        small = TimedModel(draft_table or table, clock, lambda n: draft_cost * n)
        crew["model"] = ModelDrafter(small, vocabulary.end_tokens, clock)
    return Engine(
        TimedModel(table, clock, cost),
        vocabulary,
        FixedPolicy("model", 4),
        lambda stops: StopText(vocabulary.piece, stops),
        drafters=crew,
        template=PlainTemplate(),
        about=about or About("big", "small" if draft_cost is not None else None),
        clock=clock,
    )
