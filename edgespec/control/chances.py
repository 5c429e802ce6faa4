"""How likely a proposed token is to be kept, from what is known before it is drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

LEARNING = 0.01
"""How far a single outcome moves the weights, which stand for texts of all kinds."""


class Chances:
    """Logistic regression whose intercept follows the text at hand.

    log odds = weights · features + mood. The weights start from what was measured on other texts and move slowly; the
    mood is a Gaussian that an extended Kalman filter keeps, so that it learns fast where little is known of this text
    and forgets by itself.
    """

    def __init__(self, weights: Sequence[float], doubt: float = 0.8, restless: float = 0.02) -> None:
        """`doubt` is the mood's standard deviation to begin with, `restless` the variance that it gains by a token."""
        self._weights = list(weights)
        self._doubt, self._restless = doubt**2, restless
        self.mood, self.variance = 0.0, self._doubt

    def of(self, features: Array, hope: float = 0.0) -> Array:
        """The probabilities for rows of features (n, weights), if the mood is better by `hope` standard deviations."""
        odds = features @ np.array(self._weights) + (self.mood + hope * math.sqrt(self.variance))
        return _logistic(odds * self._caution)

    def one(self, features: Sequence[float]) -> float:
        """The probability for one row of features."""
        return _squashed(self._odds(features) * self._caution)

    def learn(self, features: Sequence[Sequence[float]], kept: Sequence[bool]) -> None:
        """Take outcomes that the target has judged, a row of features and whether it was kept for each."""
        mood, variance, weights = self.mood, self.variance, self._weights
        for row, right in zip(features, kept, strict=True):
            odds = mood
            for weight, feature in zip(weights, row, strict=True):
                odds += weight * feature
            p = _squashed(odds)
            error = 1.0 - p if right else -p
            variance /= 1.0 + variance * max(p * (1.0 - p), 0.02)
            mood += variance * error
            variance = min(variance + self._restless, self._doubt)
            step = LEARNING * error
            weights = [weight + step * feature for weight, feature in zip(weights, row, strict=True)]
        self.mood, self.variance, self._weights = mood, variance, weights

    def forget(self, part: float) -> None:
        """Let the text at hand count for less by `part`, from 0 to 1: it has changed, or it was long ago."""
        self.mood *= 1.0 - part
        self.variance += part * (self._doubt - self.variance)

    def _odds(self, features: Sequence[float]) -> float:
        odds = self.mood
        for weight, feature in zip(self._weights, features, strict=True):
            odds += weight * feature
        return odds

    @property
    def _caution(self) -> float:
        """What is uncertain is nearer to even odds (MacKay 1992)."""
        return 1.0 / math.sqrt(1.0 + math.pi * self.variance / 8.0)


def _squashed(odds: float) -> float:
    return 1.0 / (1.0 + math.exp(-odds)) if odds > -30.0 else 0.0


def _logistic(odds: Array) -> Array:
    result: Array = 1.0 / (1.0 + np.exp(-np.clip(odds, -30.0, 30.0)))
    return result


def log_odds(p: float) -> float:
    """The logarithm of p / (1 - p), for p from 0 to 1, bounded to what a model's confidence can mean."""
    p = min(max(p, 0.001), 0.9995)
    return math.log(p / (1.0 - p))
