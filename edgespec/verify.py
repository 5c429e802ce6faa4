"""The acceptance rules: pure mathematics on distributions.

Each rule looks at the target's rows in order and only as far as it must: row i is what the target says after the
first i drafted tokens, so there is one row more than there are drafted tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from edgespec.protocols import Distribution, Draft
from edgespec.sampling import draw


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


def token(draft: Draft, p: Callable[[int], Distribution], rng: np.random.Generator) -> Verdict:
    """Token verification: accept x with probability min(1, p(x)/q(x)), else draw from the residual max(p - q, 0).

    Leviathan et al. (arXiv 2211.17192), Chen et al. (arXiv 2302.01318); a one-hot q has q(x) = 1. What comes out
    follows p exactly if x was drawn from q. `rng` is one stream for drafting, accepting and residuals.
    """
    for i, (x, q) in enumerate(zip(draft.tokens, draft.q, strict=True)):
        row = p(i)
        qx = 1.0 if q is None else q[x]
        if rng.random() * qx >= row[x]:
            return Verdict(i, draw(residual(row, x, q), rng))
    return Verdict(len(draft.tokens), draw(p(len(draft.tokens)), rng))


def residual(p: Distribution, x: int, q: Distribution | None) -> Distribution:
    """norm(max(p - q, 0)) after `x` was rejected; `q` None is one-hot on x.

    Where nothing is left (p equals q up to rounding) it is p itself.
    """
    if q is None:
        left = np.where(p.tokens == x, 0.0, p.p)
    else:
        at = np.minimum(q.tokens.searchsorted(p.tokens), len(q.tokens) - 1)
        left = np.maximum(p.p - np.where(q.tokens[at] == p.tokens, q.p[at], 0.0), 0.0)
    total = left.sum()
    return Distribution(p.tokens, left / total) if total > 0.0 else p
