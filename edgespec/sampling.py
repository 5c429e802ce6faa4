"""Logits to a distribution, and drawing from it: pure functions over numpy rows.

The filters, their order and their meaning are llama.cpp's: logit bias, penalties, top-k, top-p, min-p, temperature
(CONTRACT 4).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from edgespec.errors import BadLogits
from edgespec.protocols import Distribution, Logits
from edgespec.settings import Sampling

Ids = npt.NDArray[np.int64]

_DEPTH = 32
_MASK64 = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15


def argmax(logits: Logits, settings: Sampling, window: Sequence[int] = ()) -> int:
    """The most probable token of a row (n_vocab,), the lowest id on ties, after bias and penalties."""
    row = adjusted(logits, settings, window)
    token = int(row.argmax())
    _require_finite(float(row[token]))
    return token


def distribution(logits: Logits, settings: Sampling, window: Sequence[int] = ()) -> Distribution:
    """What a row (n_vocab,) of logits says the next token is, after all filters of `settings`.

    `window` holds the tokens that the penalties look at. At temperature ≤ 0 all mass is on the argmax.
    Raises BadLogits where the row is not finite.
    """
    if settings.greedy:
        return Distribution(np.array([argmax(logits, settings, window)], np.int64), np.ones(1))
    row = adjusted(logits, settings, window)
    tokens = _top_k(row, settings.top_k)
    values = (row if len(tokens) == len(row) else row[tokens]).astype(np.float64)
    values -= values.max()
    if settings.top_p < 1.0 or settings.min_p > 0.0:
        kept = _probable(np.exp(values), settings)
        tokens, values = tokens[kept], values[kept]
    values /= settings.temperature
    weights = np.exp(values, out=values)
    weights /= weights.sum()
    return Distribution(tokens, weights)


def draw(p: Distribution, rng: np.random.Generator) -> int:
    """A token drawn from `p` with the next number of a stream."""
    sums = p.p.cumsum()
    at = int(sums.searchsorted(rng.random() * sums[-1], side="right"))
    return int(p.tokens[min(at, len(p.tokens) - 1)])


class RandomStream:
    """Fresh randomness for one answer (`verify.Stream`), never rewound; `start` is where in the text it begins."""

    def __init__(self, seed: int, start: int) -> None:
        self._rng = np.random.default_rng([seed, start])

    def happens(self, probability: float) -> bool:
        return self._rng.random() < probability

    def draw(self, p: Distribution) -> int:
        return draw(p, self._rng)


def keyed_draw(p: Distribution, seed: int, position: int) -> int:
    """The token drawn from `p` by the Gumbel-max rule with noise from a hash of (seed, position, token).

    The draw depends on nothing else, so it is the same whatever was drafted; and because each token keeps its own
    noise, a small change of the logits rarely changes it. As p/E is largest where log p - log E is, and -log E is
    Gumbel noise, no logarithm of p is needed; a token of probability 0 is never drawn.
    """
    return int(p.tokens[int((p.p / exponential_noise(p.tokens, seed, position)).argmax())])


def exponential_noise(tokens: npt.NDArray[np.int64], seed: int, position: int) -> npt.NDArray[np.float64]:
    """The standard exponential noise E of each token, by which `keyed_draw` divides its probability."""
    return -np.log(_uniform(tokens, seed, position))


def adjusted(logits: Logits, settings: Sampling, window: Sequence[int]) -> Logits:
    """The row with logit bias and penalties; the given one itself where there are none."""
    penalises = bool(window) and settings.penalises
    if not (penalises or settings.logit_bias):
        return logits
    row = logits.copy()
    for token, bias in settings.logit_bias:
        if token < len(row):  # a draft may lack some of the target's tokens
            row[token] += bias
    if penalises:
        counts = Counter(window)
        tokens = np.fromiter(counts.keys(), np.int64, len(counts))
        times = np.fromiter(counts.values(), np.float32, len(counts))
        values = row[tokens]
        values = np.where(values <= 0, values * settings.repeat_penalty, values / settings.repeat_penalty)
        row[tokens] = values - times * settings.frequency_penalty - settings.presence_penalty
    return row


def _top_k(row: Logits, k: int) -> Ids:
    """The ids of the k largest logits, ascending; the lowest ids on ties. All ids where k ≤ 0.

    The row is cut into columns of ids that are equal modulo their number. The k-th largest of the columns' maxima is
    a lower bound for the k-th largest logit, so only the few columns that reach it need a closer look: half of the
    time of a partition of a row of 152k, most of it for reading the row once.
    """
    n = len(row)
    if k <= 0 or k >= n:
        _require_finite(float(row.max()))
        return np.arange(n, dtype=np.int64)
    columns = n // _DEPTH
    if columns < 2 * k:
        candidates = np.arange(n, dtype=np.int64)
    else:
        maxima = row[: columns * _DEPTH].reshape(_DEPTH, columns).max(axis=0)
        largest = np.partition(maxima, columns - k)[columns - k :]  # anything that is no number is among them
        _require_finite(float(largest.max()))
        reaching = (maxima >= largest[0]).nonzero()[0]
        candidates = (np.arange(0, columns * _DEPTH, columns)[:, None] + reaching).ravel()
        if columns * _DEPTH < n:
            candidates = np.concatenate([candidates, np.arange(columns * _DEPTH, n)])
    values = row.take(candidates)
    largest = np.partition(values, len(values) - k)[len(values) - k :]
    _require_finite(float(largest.max()))
    found: Ids = candidates[(values >= largest[0]).nonzero()[0]]
    found.sort()
    if len(found) > k:  # of those that are equal to the k-th the lowest ids stay
        equal = (row[found] == largest[0]).nonzero()[0]
        found = np.delete(found, equal[k - len(found) :])
    return found


def _probable(weights: npt.NDArray[np.float64], settings: Sampling) -> Ids:
    """Where in `weights` (the largest is 1) the tokens are that top-p and then min-p keep, ascending.

    top-p keeps the smallest set of most probable tokens that reaches it (the lowest ids on ties), min-p those of at
    least so much of the first one's probability: both keep a beginning of the ranking, so the shorter one counts.
    """
    if settings.top_p >= 1.0:
        return (weights >= settings.min_p).nonzero()[0]
    ranked = np.sort(weights)[::-1]
    sums = ranked.cumsum()
    count = int(sums.searchsorted(settings.top_p * sums[-1])) + 1
    least = ranked[min(count, len(ranked)) - 1]
    kept: Ids = (weights >= max(least, settings.min_p)).nonzero()[0]
    if len(kept) > count:
        equal = (weights[kept] == least).nonzero()[0]
        kept = np.delete(kept, equal[count - len(kept) :])
    return kept


def _uniform(tokens: npt.NDArray[np.int64], seed: int, position: int) -> npt.NDArray[np.float64]:
    """A number in (0, 1) for each token: SplitMix64 (Steele, Lea & Flood 2014), keyed by seed and position."""
    key = _mix(_mix(seed) ^ position)
    z = tokens.astype(np.uint64) * np.uint64(_GOLDEN) + np.uint64(key)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return ((z >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


def _mix(x: int) -> int:
    z = (x + _GOLDEN) & _MASK64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK64
    return z ^ (z >> 31)


def _require_finite(largest: float) -> None:
    if not math.isfinite(largest):
        raise BadLogits("Its output is not a number: fetch the file again, or make another build of llama.cpp.")
