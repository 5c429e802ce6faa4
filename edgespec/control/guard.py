"""The promise never to be slower: a clock that runs against plain decoding (CONTRACT.md 5)."""

from __future__ import annotations

TOLERANCE = 0.02
GRANT_SECONDS, GRANT_ROUNDS = 0.3, 5.0


class Guard:
    """Keeps book of an answer's time and of what plain decoding would have taken, from the end of its first round.

    At any point: elapsed ≤ 1.02 × plain + grant, give or take the round in flight.
    """

    def __init__(self) -> None:
        self.tokens = 0
        self.elapsed = 0.0
        self.plain = 0.0
        self._grant = GRANT_SECONDS

    def begin(self) -> None:
        """An answer's first round is over."""
        self.tokens, self.elapsed, self.plain = 0, 0.0, 0.0

    def count(self, seconds: float, tokens: int, plain: float) -> None:
        """A round took `seconds` for `tokens`, at a time when one takes `plain` seconds by plain decoding."""
        self.tokens += tokens
        self.elapsed += seconds
        self.plain += tokens * plain
        self._grant = max(GRANT_SECONDS, GRANT_ROUNDS * plain)

    def affords(self, extra: float) -> bool:
        """Whether the promise holds now, and would with `extra` seconds more: then a round may be risked."""
        return self.elapsed + extra <= (1.0 + TOLERANCE) * self.plain + self._grant
