"""Whether a draft is better drawn from the draft's distribution, or taken as its argmax."""

from __future__ import annotations

# What a round tells fades by this much with each one after it.
_KEPT = 0.95


class DraftMode:
    """Follows whichever way would have had more tokens accepted of late; it begins with drawing.

    Neither is better everywhere: the argmax is accepted with p(argmax q), a draw with Σ min(p, q), and a draft that is
    less sure than the target favours the first. Once the target has judged a position, both are known there, whichever
    was used, so nothing has to be tried out. The choice looks at tokens already kept, so the output stays exact.
    """

    def __init__(self) -> None:
        self._lead = 0.0

    @property
    def draws(self) -> bool:
        """Whether the next draft is to be drawn."""
        return self._lead >= 0.0

    def learn(self, drawn: float, argmax: float) -> None:
        """Take the acceptances of both ways at a position that the target has judged."""
        self._lead = _KEPT * self._lead + drawn - argmax
