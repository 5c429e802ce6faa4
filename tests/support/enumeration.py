"""Every execution of a random process, with its exact weight: what a proof needs instead of many runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from itertools import pairwise
from typing import TypeVar

from edgespec.protocols import Distribution

Outcome = TypeVar("Outcome", bound=Hashable)


class Chance:
    """Randomness that takes one given path through the tree of outcomes, and notes where else it could have gone.

    It stands in for `verify.Stream` (each outcome is fresh) and for `sampling.keyed_draw` (all draws at one position
    share one uniform number, of which only the interval that earlier draws have left is known).
    """

    def __init__(self, path: tuple[int, ...] = ()) -> None:
        self.weight = 1.0
        self.others: list[tuple[int, ...]] = []
        self._path, self._taken = path, 0
        self._known: dict[tuple[int, int], tuple[float, float]] = {}

    def happens(self, probability: float) -> bool:
        return self._fork([max(0.0, 1.0 - probability), min(1.0, probability)]) == 1

    def draw(self, p: Distribution) -> int:
        return int(p.tokens[self._fork([float(w) for w in p.p])])

    def keyed_draw(self, p: Distribution, seed: int, position: int) -> int:
        low, high = self._known.get((seed, position), (0.0, 1.0))
        ends = [0.0, *(float(end) for end in p.p.cumsum())]
        ends[-1] = 1.0
        parts = [(max(low, a), min(high, b)) for a, b in pairwise(ends)]
        chosen = self._fork([max(0.0, b - a) / (high - low) for a, b in parts])
        self._known[(seed, position)] = parts[chosen]
        return int(p.tokens[chosen])

    def _fork(self, weights: list[float]) -> int:
        possible = [i for i, weight in enumerate(weights) if weight > 0.0]
        if len(possible) == 1:
            return possible[0]
        if self._taken == len(self._path):
            self.others += [(*self._path, other) for other in possible[1:]]
            self._path = (*self._path, possible[0])
        chosen = self._path[self._taken]
        self._taken += 1
        self.weight *= weights[chosen]
        return chosen


def enumerate_all(run: Callable[[Chance], Outcome]) -> tuple[dict[Outcome, float], int]:
    """The law of what `run` returns, over all that chance can do, and how many executions there are."""
    law: Counter[Outcome] = Counter()
    waiting: list[tuple[int, ...]] = [()]
    count = 0
    while waiting:
        chance = Chance(waiting.pop())
        law[run(chance)] += chance.weight  # type: ignore[assignment]
        waiting += chance.others
        count += 1
    return dict(law), count
