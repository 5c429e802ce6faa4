"""What a round would cost at this moment, learned from a profile and from every round that is run."""

from __future__ import annotations

from math import exp, log, sqrt

import numpy as np
import numpy.typing as npt

from edgespec.control.profile import Profile
from edgespec.protocols import Round

NOISE = 0.06**2
"""Variance of the logarithm of a pass's time around what it takes."""
DRIFT = 6e-4
"""What that of the level gains in a second: other programs, heat, a growing context."""
WEAR = 1e-4
"""What that of a ratio gains each time that it is seen."""
SURPRISE = 3.0
"""Standard deviations from which a time is not believed before it comes again."""
LONG_READ = 8
"""Tokens from which the draft's catching up is a thing of its own, apart from its steps."""

Array = npt.NDArray[np.float64]


class CostModel:
    """Times of passes, as a level (the target's pass over one token, in seconds) times ratios that last.

    All are kept as logarithms with their covariance, and a Kalman filter shares out what a time differs by: among the
    level, which drifts, and the ratio of that width, which takes its neighbours along. So a pass over many tokens that
    takes longer than before means either that the machine has become slower or that this width was misjudged, and the
    next plain round settles it. A surprise counts only when it comes twice.
    """

    def __init__(self, profile: Profile | None, most: int) -> None:
        """`most` tokens are drafted in a round. Without a profile all begins with a guess, held loosely."""
        self._most = most
        widths = np.arange(2, most + 2)
        near = np.abs(widths[:, None] - widths[None, :])
        # [level, ratio of width 2, …, ratio of width most + 1, draft's step, draft's reading of many tokens]
        size = most + 3
        self._step, self._read = size - 2, size - 1
        self._x = np.zeros(size)
        self._p = np.zeros((size, size))
        if profile is None:
            self._x[1:-2] = np.log(1.0 + 0.35 * (widths - 1.0) ** 0.7)
            self._p[1:-2, 1:-2] = 0.3**2 + 0.3**2 * np.exp(-near / 4.0)
            steps: tuple[tuple[int, float], ...] = ((1, 0.3), (16, 1.5))
            loose = 0.6
        else:
            self._x[0] = log(profile.plain)
            self._x[1:-2] = np.log(_between(profile.target, widths.astype(np.float64)))
            self._p[1:-2, 1:-2] = 0.1**2 + 0.12**2 * np.exp(-near / 2.0)
            steps = profile.draft or ((1, 1.0), (16, 4.0))
            loose = 0.15
        self._reads = steps
        self._p[0, 0] = 0.3**2 if profile is not None else 1.0
        self._p[self._step, self._step] = loose**2
        self._p[self._read, self._read] = 0.4**2  # long batches are cheaper a token, by how much is not measured
        self._known = profile is not None
        self._ours = [0.0, 0.0]  # seconds of our own part: of a plain round, of one that drafts
        self._passes: Array | None = None  # and the step: worked out once a round
        self._steps = 0.0
        self.surprised = False

    @property
    def known(self) -> bool:
        """Whether there is any idea of the level."""
        return self._known

    @property
    def doubt(self) -> float:
        """Standard deviation of the level, as a part of it."""
        return sqrt(float(self._p[0, 0]))

    @property
    def plain(self) -> float:
        """Seconds of a round of plain decoding."""
        return exp(float(self._x[0])) + self._ours[0]

    @property
    def passes(self) -> Array:
        """Seconds of rounds with 0, 1, … `most` drafted tokens, but for what drafting them takes."""
        return self._work_out() if self._passes is None else self._passes

    @property
    def step(self) -> float:
        """Seconds of the draft's pass over one token."""
        if self._passes is None:
            self._work_out()
        return self._steps

    def _work_out(self) -> Array:
        passes: Array = np.exp(self._x[0] + np.concatenate(([0.0], self._x[1:-2])))
        passes[1:] += self._ours[1]
        passes[0] += self._ours[0]
        self._passes, self._steps = passes, self._reads[0][1] * exp(float(self._x[0] + self._x[self._step]))
        return passes

    def reading(self, tokens: int) -> float:
        """Seconds in which the draft reads `tokens` of history, the first step of a draft included."""
        if tokens <= 2:
            return self.step
        at = min(tokens, self._reads[-1][0])
        seconds = float(_between(self._reads, np.array([float(at)]))[0]) * max(1.0, tokens / self._reads[-1][0])
        long = float(self._x[self._read]) if tokens > LONG_READ else 0.0
        return seconds * exp(float(self._x[0] + self._x[self._step]) + long)

    def observe(self, round_: Round, unread: int) -> None:
        """Learn from a round, in which the draft had `unread` tokens to read."""
        self._p[0, 0] += DRIFT * max(round_.seconds, 1e-3)
        drafting = bool(round_.draft_calls or round_.width > 1)
        # A hiccup in our own part is forgotten soon, and is no reason to change one's ways.
        ours = min(round_.overhead_seconds, 0.1 * self.plain if self._known else 0.005)
        self._ours[drafting] += 0.1 * (ours - self._ours[drafting])
        if round_.width <= self._most + 1 and round_.verify_seconds > 0.0:
            self._take(log(round_.verify_seconds), round_.width - 1 if round_.width > 1 else None)
        if round_.draft_calls and round_.draft_seconds > 0.0:
            first, more = self.reading(unread), (round_.draft_calls - 1) * self.step
            if unread > LONG_READ:
                if round_.draft_seconds > more:
                    self._take(log((round_.draft_seconds - more) / first), self._read, relative=True)
            else:
                self._take(log(round_.draft_seconds / (first + more)), self._step, relative=True)
        self._passes = None

    def _take(self, seen: float, ratio: int | None, relative: bool = False) -> None:
        """A time's logarithm: of the level times a ratio (None: 1), or of what it was by what it was expected to be."""
        x, p = self._x, self._p
        if ratio is None and not self._known:
            x[0], self._known = seen, True
            p[0, 0] = NOISE
            return
        if not self._known:
            return
        if ratio is not None:
            p[ratio, ratio] += WEAR
        error = seen if relative else seen - float(x[0]) - (float(x[ratio]) if ratio is not None else 0.0)
        row = p[0] + p[ratio] if ratio is not None else p[0].copy()
        variance = float(row[0] + (row[ratio] if ratio is not None else 0.0)) + NOISE
        self.surprised = error * error > SURPRISE**2 * variance
        if self.surprised:
            p[0, 0] += (error / 2.0) ** 2
            if ratio is not None:
                p[ratio, ratio] += (error / 2.0) ** 2
            return
        gain = row / variance
        x += gain * error
        p -= np.outer(gain, row)


def _between(points: tuple[tuple[int, float], ...], at: Array) -> Array:
    """Straight lines between the points, and on behind the last as between the last two."""
    xs, ys = np.array(points, np.float64).T
    inside: Array = np.interp(at, xs, ys)
    if len(xs) > 1:
        slope = max(0.0, (ys[-1] - ys[-2]) / (xs[-1] - xs[-2]))
        inside = inside + np.maximum(at - xs[-1], 0.0) * slope
    return inside
