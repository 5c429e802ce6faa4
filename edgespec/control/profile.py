"""What passes cost on this machine: measured once when models are loaded, and kept as ratios."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Profile:
    """Costs of passes as pairs of (width, ratio), ascending from width 1, in units of the target's pass over one token.

    That one took `plain` seconds when it was measured: a level that drifts, while ratios last. `draft` is empty where
    there is no draft model.
    """

    plain: float
    target: tuple[tuple[int, float], ...]
    draft: tuple[tuple[int, float], ...] = ()
