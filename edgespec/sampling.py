"""Logits to a distribution, and drawing from it: pure functions over numpy rows.

The filters, their order and their meaning are llama.cpp's: penalties, top-k, top-p, min-p, temperature (CONTRACT 4).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from edgespec.errors import BadLogits
from edgespec.protocols import Distribution, Logits
from edgespec.settings import Sampling

_DEPTH = 32
_MASK64 = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15


def argmax(logits: Logits, settings: Sampling, window: Sequence[int] = ()) -> int:
    """The most probable token of a row (n_vocab,), the lowest id on ties, after the penalties of `window`."""
    row = _penalised(logits, settings, window)
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
    row = _penalised(logits, settings, window)
    tokens = _top_k(row, settings.top_k)
    values = row[tokens].astype(np.float64)
    values -= values.max()
    if settings.top_p < 1.0:
        tokens, values = _top_p(tokens, values, settings.top_p)
    if settings.min_p > 0.0:
        keep = values >= np.log(settings.min_p)
        tokens, values = tokens[keep], values[keep]
    weights = np.exp(values / settings.temperature)
    return Distribution(tokens, weights / weights.sum())


def draw(p: Distribution, rng: np.random.Generator) -> int:
    """A token drawn from `p` with the next number of a stream."""
    sums = p.p.cumsum()
    at = int(sums.searchsorted(rng.random() * sums[-1], side="right"))
    return int(p.tokens[min(at, len(p.tokens) - 1)])


def keyed_draw(p: Distribution, seed: int, position: int) -> int:
    """The token drawn from `p` by the Gumbel-max rule with noise from a hash of (seed, position, token).

    The draw depends on nothing else, so it is the same whatever was drafted; and because each token keeps its own
    noise, a small change of the logits rarely changes it.
    """
    with np.errstate(divide="ignore"):  # a token of probability 0 has a score of -inf and is never drawn
        scores = np.log(p.p) + gumbel_noise(p.tokens, seed, position)
    return int(p.tokens[int(scores.argmax())])


def gumbel_noise(tokens: npt.NDArray[np.int64], seed: int, position: int) -> npt.NDArray[np.float64]:
    """The standard Gumbel noise that `keyed_draw` adds to each token's log probability."""
    return -np.log(-np.log(_uniform(tokens, seed, position)))


def _penalised(logits: Logits, settings: Sampling, window: Sequence[int]) -> Logits:
    if not window or not settings.penalises:
        return logits
    counts = Counter(window)
    tokens = np.fromiter(counts.keys(), np.int64, len(counts))
    times = np.fromiter(counts.values(), np.float32, len(counts))
    row = logits.copy()
    values = row[tokens]
    values = np.where(values <= 0, values * settings.repeat_penalty, values / settings.repeat_penalty)
    row[tokens] = values - times * settings.frequency_penalty - settings.presence_penalty
    return row


def _top_k(row: Logits, k: int) -> npt.NDArray[np.int64]:
    """The ids of the k largest logits, ascending; the lowest ids on ties. All ids where k ≤ 0.

    The row is cut into columns of ids that are equal modulo their number. The k-th largest of the columns' maxima is
    a lower bound for the k-th largest logit, so only the few columns that reach it need a closer look: a third of the
    time of a partition of a row of 152k.
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
        _require_finite(float(maxima.max()))
        reaching = np.flatnonzero(maxima >= np.partition(maxima, -k)[-k])
        inside = (np.arange(0, columns * _DEPTH, columns)[:, None] + reaching).ravel()
        candidates = np.concatenate([inside, np.arange(columns * _DEPTH, n)])
    values = row[candidates]
    _require_finite(float(values.max()))
    kth = np.partition(values, -k)[-k]
    above, ties = candidates[values > kth], candidates[values == kth]
    return np.sort(np.concatenate([above, ties[: k - len(above)]]))


def _top_p(
    tokens: npt.NDArray[np.int64], values: npt.NDArray[np.float64], top_p: float
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """The smallest set of most probable tokens whose probability reaches `top_p` (`values` are logits)."""
    order = np.argsort(-values, kind="stable")
    weights = np.exp(values[order])
    reached = weights.cumsum() >= top_p * weights.sum()
    kept = np.sort(order[: int(reached.argmax()) + 1])
    return tokens[kept], values[kept]


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
    if not np.isfinite(largest):
        raise BadLogits("The model's output is not a number: the file or the build of llama.cpp is broken.")
