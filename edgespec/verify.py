"""The acceptance rules: pure mathematics on distributions.

Each rule looks at the target's rows in order and only as far as it must: row i is what the target says after the
first i drafted tokens, so there is one row more than there are drafted tokens. A drafted token's q is the distribution
it was drawn from, or None where it was certain (one-hot); a draft may mix both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from edgespec.protocols import Distribution, Draft

Weights = npt.NDArray[np.float64]


class Stream(Protocol):
    """Fresh randomness: no outcome depends on any other, nor is ever used twice."""

    def happens(self, probability: float) -> bool:
        """True with `probability` (1 or more: always)."""

    def draw(self, p: Distribution) -> int:
        """A token drawn from `p`."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How many drafted tokens are accepted, and the target's own token behind them (correction or bonus)."""

    accepted: int
    token: int


def match(drafted: Sequence[int], chosen: Callable[[int], int]) -> Verdict:
    """A drafted token is accepted where it is the target's own choice for that row.

    Right for every drafter and sampler, because what comes out is what the target chose; at temperature 0 the choice
    is the argmax. `chosen(i)` is called once for each row looked at.
    """
    for i, token in enumerate(drafted):
        own = chosen(i)
        if own != token:
            return Verdict(i, own)
    return Verdict(len(drafted), chosen(len(drafted)))


def token(draft: Draft, p: Callable[[int], Distribution], stream: Stream) -> Verdict:
    """Token verification: accept x with probability min(1, p(x)/q(x)), else draw from the residual max(p - q, 0).

    Leviathan et al. (arXiv 2211.17192), Chen et al. (arXiv 2302.01318). What comes out follows p exactly if x was drawn
    from q, with `stream` too.
    """
    for i, (x, q) in enumerate(zip(draft.tokens, draft.q, strict=True)):
        row = p(i)
        if not stream.happens(_ratio(row, x, q)):
            return Verdict(i, stream.draw(residual(row, x, q)))
    return Verdict(len(draft.tokens), stream.draw(p(len(draft.tokens))))


def block(draft: Draft, p: Callable[[int], Distribution], stream: Stream) -> Verdict:
    """Block verification: like `token`, but the draft is judged as a whole, which in expectation accepts no less.

    Sun et al. (arXiv 2403.10444), algorithm 2. How far a prefix of the draft is covered by the target is
    c_i = min(1, c_(i-1) p(x_i)/q(x_i)); the longest prefix that passes its test with probability s/(s + 1 - c), where s
    is the mass of the residual max(c p - q, 0) behind it, is accepted, and what follows it is drawn from that residual.
    """
    covered = [1.0]
    rows: list[Distribution] = []
    for x, q in zip(draft.tokens, draft.q, strict=True):
        if covered[-1] == 0.0:
            break  # no longer prefix can be accepted
        rows.append(p(len(rows)))
        covered.append(min(1.0, covered[-1] * _ratio(rows[-1], x, q)))
    if len(covered) > len(draft.tokens) and stream.happens(covered[-1]):
        return Verdict(len(draft.tokens), stream.draw(p(len(draft.tokens))))
    for i in range(len(rows) - 1, 0, -1):
        left = _left(rows[i], draft.tokens[i], draft.q[i], covered[i])
        mass = float(left.sum())
        short = 1.0 - covered[i]
        if stream.happens(mass / (mass + short) if mass + short > 0.0 else 1.0):
            return Verdict(i, stream.draw(_normed(left, rows[i])))
    return Verdict(0, stream.draw(residual(rows[0], draft.tokens[0], draft.q[0])))


def residual(p: Distribution, x: int, q: Distribution | None) -> Distribution:
    """norm(max(p - q, 0)) after `x` was rejected; `q` None is one-hot on x.

    Where nothing is left (p equals q up to rounding) it is p itself.
    """
    return _normed(_left(p, x, q, 1.0), p)


def overlap(p: Distribution, q: Distribution) -> float:
    """Σ min(p, q): the chance that `token` accepts what is drawn from q."""
    return float(np.minimum(p.p, _at(q, p.tokens)).sum())


def _ratio(p: Distribution, x: int, q: Distribution | None) -> float:
    return p[x] if q is None else p[x] / q[x]


def _left(p: Distribution, x: int, q: Distribution | None, covered: float) -> Weights:
    """max(covered p - q, 0) at the tokens of p, float64; elsewhere it is 0 in any case."""
    if q is None:
        return np.where(p.tokens == x, 0.0, covered * p.p)
    return np.maximum(covered * p.p - _at(q, p.tokens), 0.0)


def _normed(left: Weights, p: Distribution) -> Distribution:
    mass = left.sum()
    return Distribution(p.tokens, left / mass) if mass > 0.0 else p


def _at(q: Distribution, tokens: npt.NDArray[np.int64]) -> Weights:
    """The probabilities that q gives to `tokens`, which are ascending."""
    last = int(q.tokens[-1])
    if len(q.tokens) == last + 1:  # q lists every id up to its last, so that no search is needed
        if int(tokens[-1]) <= last:
            return q.p if len(tokens) == last + 1 else q.p[tokens]
        return np.where(tokens <= last, q.p[np.minimum(tokens, last)], 0.0)
    at = np.minimum(q.tokens.searchsorted(tokens), len(q.tokens) - 1)
    return np.where(q.tokens[at] == tokens, q.p[at], 0.0)
