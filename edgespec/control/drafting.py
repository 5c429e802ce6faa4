"""What it is worth to let the draft model draft: whether at all, how far, and when to stop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edgespec.control.chances import Array, Chances, log_odds
from edgespec.control.cost import CostModel
from edgespec.protocols import Round

MARGIN = 1.02
"""What it must promise, over plain decoding, to be used."""
STAKE = 2.0
"""Plain rounds' time that it may lose, each time that it is tried, before hopes count no more."""
HOPE = 1.0
"""Standard deviations by which it is judged better than is known, while it is tried."""
PAUSE_FIRST, PAUSE_LAST = 48, 1536
"""Tokens for which a draft model that did not pay is left alone: it doubles each time."""
CHANGED = 1.0
"""How far the mood of what is copied must have moved for the text to be of another kind."""
DEEPEST = 24
"""Tokens that a draft model is asked for at most."""
SMALL_STEP = 0.004
"""Seconds of a draft's step under which its confidence is not asked: it would cost a good part of that."""
HORIZON = 256
"""Tokens over which what a draft must read first is spread, where nothing says that fewer are wanted."""
LASTING, SEEN_BEFORE = 0.95, 10.0
"""What is kept, round by round, of how rounds came out against what was expected; and the tokens that this begins
with."""

# log odds that a token is kept: a constant, and for the log odds of the draft's confidence.
CONFIDENCE_WEIGHTS = (0.1, 0.8)
# The same before anything is drafted: a constant, and for each doubling of the depth.
DEPTH_WEIGHTS = (1.2, 0.3)


@dataclass(slots=True)
class DraftPlan:
    """Draft up to `k` tokens: rounds of this kind give `speed` tokens a second, where the draft has read everything;
    `extra` seconds are for what it must read first. `chances` are that each token is kept, if those before it are."""

    k: int
    tokens: float
    speed: float
    extra: float
    chances: Array


class Drafting:
    """Judges a draft model by what it has drafted, token by token up to the first rejection.

    It stops by its own confidence where a step is long enough for asking (stop where going on adds fewer tokens than
    the time it takes is worth; look ahead over stairs). Where it does not pay it is left alone, and tried again after
    pauses that grow, sooner when the text changes kind. A trial is hopeful, but not at any price.
    """

    def __init__(self, costs: CostModel, most: int, allowed: npt.NDArray[np.intp]) -> None:
        self.confident = Chances(CONFIDENCE_WEIGHTS, doubt=0.6)
        self.deep = Chances(DEPTH_WEIGHTS, restless=0.01)
        self._costs = costs
        self._allowed = allowed
        self._depths = np.stack([np.ones(most), np.log2(np.arange(1.0, most + 1.0))], axis=1)
        self._plan: DraftPlan | None = None
        self._confidences: list[float] = []  # at each token of this round, where it was asked
        self._kept = 1.0  # probability that all that this round has drafted is kept
        self._came, self._expected = SEEN_BEFORE, SEEN_BEFORE  # tokens, of late
        self._stint: float | None = None  # seconds that it has gained since it came into use
        self._pause, self._paused = PAUSE_FIRST, 0
        self._left = False  # the pause is not over, or its end was not noticed yet
        self._mood = 0.0  # of what is copied, when it was left alone

    def begin(self) -> None:
        """An answer begins: perhaps with another kind of text."""
        self._paused //= 2
        self.deep.forget(0.3)

    def plan(self, longest: int, unread: int, wanted: int, mood: float) -> DraftPlan | None:
        """What to draft where at most `longest` tokens can be, with `unread` ones to read first, in an answer of which
        `wanted` tokens may still come; `mood` is that of what is copied. None where it is left alone."""
        self._plan = None
        if self._paused > 0 and abs(mood - self._mood) < CHANGED:
            return None
        if self._left:
            self._left = False
            self.deep.forget(0.5)  # what it did before the pause was on another text
        costs = self._costs
        least = MARGIN / costs.plain
        plan = self._best(min(longest, DEEPEST), 0.0)
        if plan.speed < least and -(self._stint or 0.0) < STAKE * costs.plain:
            plan = self._best(min(longest, DEEPEST), HOPE)
        if plan.speed < least:
            self._leave(mood)
            return None
        plan.extra = costs.reading(unread) - costs.step
        saved = (costs.plain - 1.0 / plan.speed) * min(wanted, HORIZON)
        return plan if saved > plan.extra else None

    def use(self, plan: DraftPlan | None) -> None:
        """This plan is carried out, or none is."""
        self._plan = plan
        self._confidences.clear()
        self._kept = 1.0

    def goes_on(self, drafted: int, confidence: Callable[[], float]) -> bool:
        """Whether to draft another token behind `drafted` ones."""
        plan, step = self._plan, self._costs.step
        if plan is None:
            return True
        if step < SMALL_STEP:
            self._kept *= float(plan.chances[drafted - 1])
        else:
            self._confidences.append(confidence())
            self._kept *= self.confident.one((1.0, log_odds(self._confidences[-1])))
        first, last = self._allowed.searchsorted((drafted, plan.k), "right")
        stops = self._allowed[first:last]
        if not len(stops):
            return drafted < plan.k
        if not first or self._allowed[first - 1] != drafted:
            return True
        more = self._kept * np.cumsum(np.cumprod(plan.chances[drafted : plan.k]))[stops - drafted - 1]
        passes = self._costs.passes
        return bool((more > plan.speed * ((stops - drafted) * step + passes[stops] - passes[drafted])).any())

    def observe(self, round_: Round) -> None:
        """Learn from a round, whoever drafted in it."""
        self._paused -= round_.emitted
        plan = self._plan
        if plan is None or not round_.drafted:
            return
        for i in range(min(round_.accepted + 1, round_.drafted)):
            kept = i < round_.accepted
            self.deep.learn(self._depths[i].tolist(), kept)
            if i < len(self._confidences):
                self.confident.learn((1.0, log_odds(self._confidences[i])), kept)
        seconds = max(round_.seconds - plan.extra, 1e-9)
        self._came = LASTING * self._came + round_.emitted
        self._expected = LASTING * self._expected + seconds * plan.speed / self._bonus
        self._stint = (self._stint or 0.0) + round_.emitted * self._costs.plain - seconds

    @property
    def _bonus(self) -> float:
        """How much faster rounds are than the chances by depth say: stopping by confidence is not in these."""
        return min(max(self._came / self._expected, 0.7), 1.5)

    def _best(self, longest: int, hope: float) -> DraftPlan:
        """The length that gives most tokens a second."""
        chances = self.deep.of(self._depths[:longest], hope)
        kept = np.cumprod(chances)
        ks = self._allowed[: int(self._allowed.searchsorted(longest, "right"))]
        if not len(ks):
            ks = np.array([longest])
        tokens = 1.0 + np.cumsum(kept)[ks - 1]
        speeds = tokens / (self._costs.passes[ks] + self._costs.step * ks)
        at = int(speeds.argmax())
        k = int(ks[at if self._costs.step < SMALL_STEP else -1])  # else it is confidence that stops
        return DraftPlan(k, float(tokens[at]), float(speeds[at]) * self._bonus, 0.0, chances)

    def _leave(self, mood: float) -> None:
        """It does not pay: for a while it is not asked."""
        if self._stint is not None:
            self._pause = PAUSE_FIRST if self._stint > 0.0 else min(2 * self._pause, PAUSE_LAST)
        self._paused, self._stint, self._mood, self._left = self._pause, None, mood, True
