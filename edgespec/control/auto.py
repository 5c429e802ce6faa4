"""The policy that measures: the drafter and k with the most tokens a second, and plain decoding where none pays."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from edgespec.control.copying import Copying
from edgespec.control.cost import CostModel
from edgespec.control.drafting import Drafting
from edgespec.control.guard import Guard
from edgespec.control.profile import Profile
from edgespec.protocols import Choice, Round, Situation

PROBE_FIRST, PROBE_LAST = 16, 128
"""Rounds between two measurements of plain decoding: it doubles from the first to the last while they agree."""
DOUBT = 0.12
"""Of the level, from which plain decoding is measured at once."""
LEAST_GAIN = 0.05
"""Tokens that a copied draft must promise over what can be had without it."""


class AutoPolicy:
    """Picks by expected tokens a second, within what the guard allows: plain decoding, the draft model, or a copy."""

    def __init__(self, profile: Profile | None, *, most: int = 63, widths: tuple[int, ...] | None = None) -> None:
        """`most` tokens are drafted in a round. Where `widths` are given, the target makes passes of these alone."""
        allowed = np.array([k for k in range(1, most + 1) if widths is None or k + 1 in widths], np.intp)
        self.costs = CostModel(profile, most)
        self.guard = Guard()
        self.copying = Copying(most, allowed)
        self.drafting = Drafting(self.costs, most, allowed)
        self._most = most
        self._unread = 0  # what the drafter of this round has to read first
        self._first = True
        self._measured = False  # plain decoding, in this run
        self._since_plain, self._probe = 0, PROBE_FIRST
        self._remarked: set[str] = set()

    @property
    def plain_seconds(self) -> float | None:
        return self.guard.plain / self.guard.tokens if self.guard.tokens and self._measured else None

    def choose(self, situation: Situation) -> Choice:
        self._first = situation.first
        if situation.first:
            self.copying.begin()
            self.drafting.begin()
        for offer in situation.offers.values():
            self.copying.learn(offer.outcomes)
        self._unread = 0
        self.drafting.use(None)
        return self._choice(situation)

    def goes_on(self, drafted: int, confidence: Callable[[], float]) -> bool:
        return self.drafting.goes_on(drafted, confidence)

    def observe(self, round_: Round) -> None:
        costs = self.costs
        costs.observe(round_, self._unread)
        if round_.width == 1 and not round_.draft_calls:
            if self._since_plain >= PROBE_FIRST:
                self._probe = PROBE_FIRST if costs.surprised else min(2 * self._probe, PROBE_LAST)
            self._measured, self._since_plain = True, 0
        else:
            self._since_plain += 1
        self.drafting.observe(round_)
        if self._first:
            self.guard.begin()
        else:
            self.guard.count(round_.seconds, round_.emitted, costs.plain)

    def remark(self, temperature: float) -> str | None:
        return None

    def _choice(self, situation: Situation) -> Choice:
        costs, guard = self.costs, self.guard
        offers = {name: offer for name, offer in situation.offers.items() if offer.longest}
        riding = situation.pending > 1  # the end of the prompt is in the pass
        if riding:  # a guess there delays the first token, and only a draft model could have a good one
            offers = {name: offer for name, offer in offers.items() if offer.evidence is None}
        if situation.room < 1 or not offers:
            return Choice(why="nothing to propose")
        if not riding and (not self._measured or costs.doubt > DOUBT or self._since_plain >= self._probe):
            return Choice(why="plain decoding is measured")
        if not costs.known:
            return Choice(why="nothing is known yet")
        if not riding and not guard.affords(0.0):
            return Choice(why="the guard is overdrawn")
        choice, speed = Choice(why="nothing pays"), 1.0 / costs.plain
        mood = self.copying.chances.mood
        for name, offer in offers.items():
            if offer.evidence is None:
                longest = min(situation.room, offer.longest, self._most)
                plan = self.drafting.plan(longest, offer.unread, situation.wanted, mood, riding)
                if plan is None or not (riding or guard.affords(plan.extra)):
                    continue
                choice = Choice(name, plan.k, f"{plan.tokens:.1f} tokens expected, at {plan.speed * costs.plain:.2f}×")
                speed = max(speed, plan.speed)
                self.drafting.use(plan, mood)
                self._unread = offer.unread
        for name, offer in offers.items():
            if offer.evidence is not None and situation.room:
                longest = min(situation.room, offer.longest, self._most)
                copy = self.copying.plan(offer.evidence, longest, costs.passes * speed)
                if copy.gain > LEAST_GAIN:
                    self.drafting.use(None)
                    self._unread = 0
                    return Choice(name, copy.k, f"{offer.evidence.match} tokens match, {copy.tokens:.1f} expected")
        return choice
