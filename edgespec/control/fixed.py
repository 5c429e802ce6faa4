"""The policy that does not think: one drafter, one k."""

from __future__ import annotations

from collections.abc import Callable

from edgespec.protocols import Choice, Round, Situation


class FixedPolicy:
    """Asks the same drafter for the same number of tokens in every round; no drafter is plain decoding."""

    plain_seconds: float | None = None

    def __init__(self, drafter: str | None, k: int) -> None:
        self._choice = Choice(drafter, k) if drafter is not None and k > 0 else Choice()

    def choose(self, situation: Situation) -> Choice:
        return self._choice

    def goes_on(self, drafted: int, confidence: Callable[[], float]) -> bool:
        return True

    def observe(self, round_: Round) -> None:
        pass

    def remark(self, temperature: float) -> str | None:
        return None
