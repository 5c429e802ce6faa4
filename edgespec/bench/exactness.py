"""Is a difference between two texts honest? (CONTRACT 4)

Where a build gives a row the same logits at every batch width, texts must be identical. Elsewhere two texts may part at
a near-tie: the perturbed logits of the two tokens differ by less than six times the measured width noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from edgespec.protocols import Logits
from edgespec.sampling import adjusted, distribution, exponential_noise
from edgespec.settings import Sampling

TIMES_NOISE = 6.0


def parting(plain: Sequence[int], other: Sequence[int]) -> int | None:
    """The first index at which two texts differ, be it that one ends there; None where they are the same."""
    if tuple(plain) == tuple(other):
        return None
    pairs = zip(plain, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(plain), len(other)))


def candidates(tokens: Sequence[int], at: int, ends: Iterable[int]) -> list[int]:
    """What a text's token at `at` was: the token, or where it ended there any of the end tokens."""
    return [tokens[at]] if at < len(tokens) else sorted(ends)


def gap(
    row: Logits, one: int, other: int, band: float, settings: Sampling, seed: int, position: int,
    window: Sequence[int] = (),
) -> float:  # fmt: skip
    """By how much two tokens' perturbed logits differ (temperature 0: their logits) in plain's row (n_vocab,).

    Infinite where a token would not pass the filters even if its logit were `band` higher. `window` is what the
    penalties look at.
    """
    values = adjusted(row, settings, window)
    difference = float(values[one]) - float(values[other])
    if settings.greedy:
        return abs(difference)
    for token in (one, other):
        raised = row.copy()
        raised[token] += band
        if distribution(raised, settings, window)[token] == 0.0:
            return math.inf
    noise = -np.log(exponential_noise(np.array([one, other]), seed, position))
    return abs(difference + settings.temperature * float(noise[0] - noise[1]))
