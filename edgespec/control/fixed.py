"""The policy that does not think: one drafter, one k."""

from __future__ import annotations

from edgespec.protocols import Choice, Round


class FixedPolicy:
    """Asks the same drafter for the same number of tokens in every round; no drafter is plain decoding."""

    def __init__(self, drafter: str | None, k: int) -> None:
        self._choice = Choice(drafter, k) if drafter is not None and k > 0 else Choice()

    def choose(self, room: int) -> Choice:
        return self._choice

    def observe(self, round_: Round) -> None:
        pass
