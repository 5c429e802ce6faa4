"""What it is worth to follow a copy: how far, or to wait and see."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edgespec.control.chances import Array, Chances
from edgespec.protocols import Evidence

# log odds that a copied token is right: a constant, for each doubling of the match, and for the agreement.
WEIGHTS = (-3.8, 0.86, 3.05)
LATER_AGREEMENT = 0.92
"""What counts as agreement behind a draft's first token, where it was not looked up."""
LONGEST_MATCH = 64
"""Tokens from which a longer match says no more."""
STALE_MOOD, STALE_COSTS = 0.05, 0.03
"""Changes from which the values of matches are worked out anew."""


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """Draft `k` copied tokens (0: none): `tokens` are expected of the round; it is worth `gain` tokens more than to
    wait for what the next token shows."""

    k: int
    tokens: float
    gain: float


class Copying:
    """Judges drafts that are copied, from every guess that a drafter made, used or not.

    Where a copied token is right the match is longer behind it, and what follows is likelier. So a round that ends with
    its draft accepted has more coming, and to do without a draft may be worth it for the evidence alone. A second costs
    as many tokens as can be had in it otherwise, `price`:

        gain(L, k) = E[tokens] - price seconds + P(all k are kept) V(L + k + 1)
        V(L) = max over k of (E[tokens] - price seconds) / (1 - P(all k are kept)), as if L remained as it is

    (Renewal reward; Howard 1960.)
    """

    def __init__(self, most: int, allowed: npt.NDArray[np.intp]) -> None:
        """`allowed` are the lengths of drafts that may be chosen, ascending, up to `most`."""
        self.chances = Chances(WEIGHTS)
        self._allowed = allowed
        lengths = np.arange(1.0, LONGEST_MATCH + most + 1.0)
        matches = np.log2(np.minimum(lengths, LONGEST_MATCH))
        self._features = np.stack([np.ones(len(lengths)), matches, np.full(len(lengths), LATER_AGREEMENT)], axis=1)
        starts = np.arange(LONGEST_MATCH)
        self._windows = starts[:, None] + np.arange(most + 1)[None, :]
        self._values = np.zeros(LONGEST_MATCH)
        self._chances = np.ones(len(lengths))
        self._mood, self._prices = math.inf, np.zeros(0)

    def begin(self) -> None:
        """An answer begins: perhaps with another kind of text."""
        self.chances.forget(0.3)

    def learn(self, outcomes: Sequence[tuple[Evidence, bool]]) -> None:
        """Guesses came out right, or not."""
        self.chances.learn([_first(evidence) for evidence, _ in outcomes], [right for _, right in outcomes])

    def plan(self, evidence: Evidence, longest: int, prices: Array) -> CopyPlan:
        """What to draft where at most `longest` tokens can be; rounds with 0, 1, … of them cost `prices`, in tokens."""
        self._refresh(prices)
        at = min(evidence.match, LONGEST_MATCH) - 1
        chances = self._chances[at : at + longest].copy()
        chances[0] = self.chances.one(_first(evidence))
        kept = np.cumprod(chances)
        tokens = 1.0 + np.cumsum(kept)
        ks = self._allowed[: int(self._allowed.searchsorted(longest, "right"))]
        if not len(ks):
            ks = np.array([longest])
        after = self._values[np.minimum(at + 1 + ks, LONGEST_MATCH - 1)]
        gains = tokens[ks - 1] - prices[ks] + kept[ks - 1] * after
        best = int(gains.argmax())
        wait = chances[0] * self._values[min(at + 1, LONGEST_MATCH - 1)]
        k = int(ks[best])
        return CopyPlan(k, float(tokens[k - 1]), float(gains[best] - wait))

    def _refresh(self, prices: Array) -> None:
        """Work out the values of matches, if what they rest on has changed."""
        prices = prices[self._allowed]
        stale = abs(self.chances.mood - self._mood) > STALE_MOOD
        if not stale and (np.abs(prices - self._prices) < STALE_COSTS * prices).all():
            return
        self._mood, self._prices = self.chances.mood, prices
        self._chances = self.chances.of(self._features)
        summed = np.concatenate(([0.0], np.cumsum(np.log(self._chances))))
        kept = np.exp(summed[self._windows] - summed[:LONGEST_MATCH, None])  # (matches, 0 … most)
        tokens = np.cumsum(kept, axis=1)[:, self._allowed]
        lasting = np.minimum(kept[:, self._allowed], 0.995)
        self._values = np.maximum(((tokens - prices) / (1.0 - lasting)).max(axis=1), 0.0)


def _first(evidence: Evidence) -> tuple[float, float, float]:
    return 1.0, math.log2(min(evidence.match, LONGEST_MATCH)), evidence.agreement
