"""What it is worth to let the draft model draft: whether at all, how far, and when to stop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log, log2

import numpy as np
import numpy.typing as npt

from edgespec.control.chances import Array, Chances, log_odds
from edgespec.control.cost import CostModel
from edgespec.protocols import Round

MARGIN = 1.02
"""What it must promise, over plain decoding, to be used."""
SURE = 1.1
"""What it must promise to delay an answer's first token."""
STAKE = 2.5
"""Plain rounds' time that it may lose on end before it is left alone, if it is not expected to win that back."""
HOPE = 1.0
"""Standard deviations by which what is not known of it is taken for better."""
PAUSE_FIRST, PAUSE_LAST = 24, 1536
"""Tokens for which a draft model that did not pay is left alone: it doubles each time, unless it has credit."""
CREDIT = 12.0
"""Plain rounds' time: what a draft model can win at most that counts when it loses later."""
RECONSIDER = 8
"""Tokens after which one looks again at a draft model that is not even worth a trial."""
CHANGED = 1.0
"""How far the mood of what is copied must have moved for the text to be of another kind."""
DEEPEST = 24
"""Tokens that a draft model is asked for at most."""
SHALLOW = 8
"""Tokens of a draft from which one learns how depth matters; farther on it does little."""
SMALL_STEP = 0.002
"""Seconds of a draft's step under which its confidence is not asked: it would cost a good part of that."""
HORIZON = 256
"""Tokens over which what a draft must read first is spread, where nothing says that fewer are wanted."""
CERTAIN = 1.5
"""What the chances must promise for hope not to matter."""
BELIEF = 4.0
"""Plain rounds' time for which the speed that is expected by the chances counts, beside what came of late."""
LASTING = 0.95
"""What is kept, round by round, of what came of late; and of what is typical, token by token."""
REMEMBERED = 0.3
"""What is kept of that when an answer begins or a pause is over: the text is another."""

# log odds that a token is kept: a constant, and for the log odds of the draft's confidence.
CONFIDENCE_WEIGHTS = (0.1, 0.8)
# The same before anything is drafted: a constant, and for each doubling of the depth.
DEPTH_WEIGHTS = (1.2, 0.3)


@dataclass(frozen=True, slots=True)
class DraftPlan:
    """Draft up to `k` tokens: rounds of this kind are expected to bring `tokens`, at `speed` tokens a second where the
    draft has read everything (`hoped`: if what is not known is better); `extra` seconds are for what it must read
    first."""

    k: int
    tokens: float
    speed: float
    hoped: float
    extra: float


class Drafting:
    """Judges a draft model by what it has drafted, token by token up to the first rejection, and by its speed.

    It stops by its own confidence where a step is long enough for asking: where going on adds fewer tokens than the
    time it takes is worth, looking ahead over stairs (Dinkelbach 1967). A draft model that loses more on end than its
    stake (CUSUM; Page 1954) is left alone, and tried again after pauses that grow, sooner when the text changes kind.
    """

    def __init__(self, costs: CostModel, most: int, allowed: npt.NDArray[np.intp]) -> None:
        """`allowed` are the lengths of drafts that may be chosen, ascending, up to `most` tokens."""
        self.confident = Chances(CONFIDENCE_WEIGHTS, doubt=0.6)
        self.deep = Chances(DEPTH_WEIGHTS, restless=0.01)
        self._costs = costs
        self._allowed = allowed[allowed <= DEEPEST]
        self._rows = [(1.0, log2(depth)) for depth in range(1, most + 1)]
        self._depths = np.array(self._rows)
        drafted = np.arange(DEEPEST + 1)
        self._ahead = self._allowed[None, :] - drafted[:, None]  # (drafted, stops)
        self._may_stop = np.isin(drafted, self._allowed)
        self._typical = 0.75  # chance of a token that nothing is known of, behind ones that are kept
        self._plan: DraftPlan | None = None
        self._needed: list[float] = []  # probability that all is kept, from which to go on behind 0, 1, … tokens
        self._needed_for = (0, 0, 0)
        self._confidences: list[float] = []  # at each token of this round, where it was asked
        self._kept = 1.0  # probability that all that this round has drafted is kept
        self._came, self._spent = 0.0, 0.0  # tokens, and plain rounds' time, of late
        self._slump, self._credit = 0.0, 0.0  # plain rounds' time: lost on end, and won in all
        self._at_work = False
        self._pause, self._paused = PAUSE_FIRST, 0
        self._mood = 0.0  # of what is copied, when it was left alone

    def begin(self) -> None:
        """An answer begins: perhaps with another kind of text."""
        self._paused //= 2
        self._forget()

    def plan(self, longest: int, unread: int, wanted: int, mood: float, sure: bool) -> DraftPlan | None:
        """What to draft where at most `longest` tokens can be, with `unread` ones to read first, in an answer of which
        `wanted` tokens may still come; `mood` is that of what is copied. None where it does not pay. `sure` is for a
        round in which nothing may be tried."""
        if self._paused > 0 and abs(mood - self._mood) < CHANGED:
            return None
        costs = self._costs
        plan = self._best(min(longest, DEEPEST), costs.reading(unread) - costs.step)
        promised = plan.speed / SURE if sure else plan.hoped / MARGIN
        if promised * costs.plain < 1.0:
            if not self._at_work:
                self._paused, self._mood = RECONSIDER, mood
            return None
        saved = (costs.plain - 1.0 / promised) * min(wanted, HORIZON)
        if saved < plan.extra:
            return None
        return plan

    def use(self, plan: DraftPlan | None, mood: float = 0.0) -> None:
        """This plan is carried out, or none is."""
        self._plan, self._mood = plan, mood if plan is not None else self._mood
        self._confidences.clear()
        self._kept = 1.0
        if plan is not None and not self._at_work:
            self._at_work, self._slump = True, 0.0
        if plan is not None and self._asks:
            key = (plan.k, round(50.0 * log(plan.speed * self._costs.plain)), round(50.0 * self._typical))
            if key != self._needed_for:
                self._needed, self._needed_for = self._thresholds(plan), key

    def goes_on(self, drafted: int, confidence: Callable[[], float]) -> bool:
        """Whether to draft another token behind `drafted` ones."""
        plan = self._plan
        if plan is None or not self._asks:
            return True
        if drafted >= plan.k:
            return False
        self._confidences.append(confidence())
        chance = self.confident.one((1.0, log_odds(self._confidences[-1])))
        self._typical += (1.0 - LASTING) * (chance - self._typical)
        self._kept *= chance
        return self._kept > self._needed[drafted]

    def observe(self, round_: Round) -> None:
        """Learn from a round, whoever drafted in it."""
        self._paused -= round_.emitted
        plan = self._plan
        if plan is None or not round_.drafted:
            return
        judged = min(round_.accepted + 1, round_.drafted)
        kept = [i < round_.accepted for i in range(judged)]
        self.deep.learn(self._rows[: min(judged, SHALLOW)], kept[:SHALLOW])
        seen = [(1.0, log_odds(confidence)) for confidence in self._confidences[:judged]]
        self.confident.learn(seen, kept[: len(seen)])
        plain = self._costs.plain
        seconds = max(round_.seconds - plan.extra, 1e-9)
        self._came = LASTING * self._came + round_.emitted
        self._spent = LASTING * self._spent + seconds / plain
        self._slump = max(0.0, self._slump + seconds / plain - round_.emitted)
        self._credit = min(self._credit + round_.emitted - round_.seconds / plain, CREDIT)
        if self._slump > STAKE and (self._slump > 2.0 * STAKE or plan.speed * plain < MARGIN):
            self._leave()

    @property
    def _asks(self) -> bool:
        """Whether the draft is asked for its confidence."""
        return self._costs.step >= SMALL_STEP

    def _best(self, longest: int, extra: float) -> DraftPlan:
        """The length that gives most tokens a second, by the chances; the speed by these and by what came of late."""
        costs = self._costs
        ks = self._allowed[: int(self._allowed.searchsorted(longest, "right"))]
        if not len(ks):
            ks = np.array([longest])
        per_second = 1.0 / (costs.passes[ks] + costs.step * ks)
        tokens = self._tokens(ks, 0.0)
        speeds = tokens * per_second
        at = int(speeds.argmax())
        sober, hoped = float(speeds[at]), float(speeds[at])
        if sober * costs.plain < CERTAIN:
            hoped = float((self._tokens(ks, HOPE) * per_second).max())
        came, spent = self._came, self._spent * costs.plain
        belief = BELIEF * costs.plain
        return DraftPlan(
            k=int(ks[-1 if self._asks else at]),  # where it is asked, it stops by itself
            tokens=float(tokens[at]),
            speed=(sober * belief + came) / (belief + spent),
            hoped=(hoped * belief + came) / (belief + spent),
            extra=extra,
        )

    def _tokens(self, ks: npt.NDArray[np.intp], hope: float) -> Array:
        """Tokens that are expected of rounds with `ks` drafted ones."""
        kept: Array = 1.0 + np.cumsum(np.cumprod(self.deep.of(self._depths[: ks[-1]], hope)))[ks - 1]
        return kept

    def _thresholds(self, plan: DraftPlan) -> list[float]:
        """For 0, 1, … drafted tokens, what the probability that all are kept must be for going on to pay."""
        costs, k = self._costs, plan.k
        stops = self._allowed[: int(self._allowed.searchsorted(k, "right"))]
        if not len(stops):
            return [0.0] * k
        ahead = self._ahead[:k, : len(stops)]
        summed = np.cumsum(self._typical ** np.arange(1.0, k + 1.0))
        total = costs.step * np.arange(k + 1) + costs.passes[: k + 1]
        seconds = total[stops][None, :] - total[:k, None]
        needed = np.where(ahead > 0, seconds / summed[np.maximum(ahead, 1) - 1], np.inf).min(axis=1)
        result: list[float] = (needed * max(plan.speed, 1.0 / costs.plain) * self._may_stop[:k]).tolist()
        return result

    def _leave(self) -> None:
        """It does not pay: for a while it is not asked."""
        self._pause = PAUSE_FIRST if self._credit > 0.0 else min(2 * self._pause, PAUSE_LAST)
        self._credit = max(self._credit, 0.0)
        self._paused, self._at_work = self._pause, False
        self._forget()

    def _forget(self) -> None:
        self._came *= REMEMBERED
        self._spent *= REMEMBERED
        self.deep.forget(0.5)
