"""Two rules of thumb from the literature and from other programs, for comparison: they look at acceptance alone."""

from __future__ import annotations

from collections import deque

from edgespec.control.fixed import FixedPolicy
from edgespec.protocols import Choice, Round, Situation

START = 5


class _RulePolicy(FixedPolicy):
    """One drafter, with a k that a rule moves."""

    def __init__(self, drafter: str | None) -> None:
        super().__init__(drafter, START)
        self._drafter = drafter
        self.k = START

    def choose(self, situation: Situation) -> Choice:
        return Choice(self._drafter, self.k) if self._drafter is not None else Choice()


class ThresholdPolicy(_RulePolicy):
    """k grows by one above 80 % acceptance and shrinks by one below 60 %, judged over ten drafting rounds with it."""

    FEWEST, MOST = 2, 10
    WINDOW = 10
    HIGH, LOW = 0.8, 0.6

    def __init__(self, drafter: str | None) -> None:
        super().__init__(drafter)
        self._rounds: deque[Round] = deque(maxlen=self.WINDOW)

    def observe(self, round_: Round) -> None:
        if not round_.drafted:
            return
        self._rounds.append(round_)
        if len(self._rounds) < self.WINDOW:
            return
        rate = sum(each.accepted for each in self._rounds) / sum(each.drafted for each in self._rounds)
        step = 1 if rate > self.HIGH else -1 if rate < self.LOW else 0
        moved = min(max(self.k + step, self.FEWEST), self.MOST)
        if moved != self.k:
            self.k = moved
            self._rounds.clear()


class HeuristicPolicy(_RulePolicy):
    """k grows by two when a whole draft is accepted, else it shrinks by one (as in transformers' assisted decoding)."""

    FEWEST, MOST = 1, 63

    def observe(self, round_: Round) -> None:
        if round_.drafted:
            step = 2 if round_.accepted == round_.drafted else -1
            self.k = min(max(self.k + step, self.FEWEST), self.MOST)
