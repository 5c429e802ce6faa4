"""How much faster, and how sure that is: pairs of answers, their middle, and a bootstrap interval around it.

The prompts are the suite's; what varies is the machine. So where each prompt of a group has two pairs or more, a
resample keeps every prompt's mean log-ratio and adds residuals around such means, drawn from all prompts of the arm:
a kind of one or two prompts has too few of its own (its intervals would hold the truth in 60 to 80 % of runs, not 95).
R pairs lie closer to their own mean than to the truth, so residuals are enlarged by √(R/(R-1)): the modified residuals
of Davison & Hinkley, "Bootstrap Methods and their Application", chapter 6. Where some prompt has a single pair, whole
pairs are resampled instead, and the interval covers the choice of prompts, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

RESAMPLES = 2000
FEWEST_PAIRS, FEWEST_RESIDUALS = 5, 8
"""With fewer to draw from an interval would be narrower than it should be: of two pairs it holds the truth every other
time."""
_SEED = 8  # a fixed one: a report of the same file always prints the same
_BOUNDS = (0.025, 0.975)


@dataclass(frozen=True, slots=True)
class Pair:
    """An arm's answer beside plain's to the same prompt in the same block.

    `tokens` are the lesser speed_tokens of both, `plain` is what a token of plain's takes, in seconds, and `ratio` how
    many times shorter a token of the arm's is.
    """

    prompt: str
    tokens: int
    plain: float
    ratio: float


def residuals(pairs: Sequence[Pair]) -> Floats:
    """The log-ratios around their prompt's mean, enlarged, of all prompts with two pairs or more."""
    logs, means, counts = _by_prompt(pairs)
    many = counts > 1
    enlarged: Floats = (logs - means)[many] * np.sqrt(counts[many] / (counts[many] - 1.0))
    return enlarged


def estimate(
    pairs: Sequence[Pair], noise: Floats, *, summed: bool, resamples: int = RESAMPLES
) -> tuple[float, float | None, float | None]:
    """The speed-up of a group of pairs (at least one) with its 95 % interval, None and None where that is too few.

    It is the median of the ratios, or where `summed` the ratio of summed times over the same number of tokens. `noise`
    are the residuals of all of the arm's pairs.
    """
    ratios = np.array([pair.ratio for pair in pairs])
    weights = np.array([pair.tokens * pair.plain for pair in pairs]) if summed else None
    value = float(_middle(ratios, weights))
    _, means, counts = _by_prompt(pairs)
    if (len(pairs) < FEWEST_PAIRS and counts.min() < 2) or (len(noise) < FEWEST_RESIDUALS and counts.min() > 1):
        return value, None, None
    rng, shape = np.random.default_rng(_SEED), (resamples, len(pairs))
    if counts.min() > 1:
        drawn = np.exp(means + noise[rng.integers(len(noise), size=shape)])
    else:
        chosen = rng.integers(len(pairs), size=shape)
        drawn = ratios[chosen]
        weights = None if weights is None else weights[chosen]  # a pair's weight is part of what was chosen
    low, high = np.quantile(_middle(drawn, weights), _BOUNDS)
    return value, min(float(low), value), max(float(high), value)


def _middle(ratios: Floats, weights: Floats | None) -> Floats:
    """Over the last axis: the median, or plain's summed times (the weights) over the arm's."""
    if weights is None:
        return np.asarray(np.median(ratios, axis=-1))
    return np.asarray(weights.sum(axis=-1) / (weights / ratios).sum(axis=-1))


def _by_prompt(pairs: Sequence[Pair]) -> tuple[Floats, Floats, Floats]:
    """For each pair its log-ratio, its prompt's mean of these, and how many pairs its prompt has."""
    if not pairs:
        return np.empty(0), np.empty(0), np.empty(0)
    logs = np.log([pair.ratio for pair in pairs])
    _, prompt, counts = np.unique([pair.prompt for pair in pairs], return_inverse=True, return_counts=True)
    means = np.bincount(prompt, weights=logs) / counts
    return logs, means[prompt], counts[prompt].astype(np.float64)
