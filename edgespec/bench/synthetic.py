"""Verification replaced by chance, so that speed can be studied apart from text. What comes out means nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from edgespec import sampling, verify
from edgespec.control.mode import DraftMode
from edgespec.judge import Judge
from edgespec.protocols import Draft, Logits
from edgespec.settings import Request


class SyntheticJudge(Judge):
    """Accepts each drafted token with probability `rate`, up to the first that fails; an end token always fails.

    The rows that verification would have looked at for that outcome are made distributions all the same, so that a
    round costs what it costs. Chance is keyed by seed and place, so that runs repeat.
    """

    def __init__(
        self,
        request: Request,
        history: Sequence[int],
        n_vocab: int,
        masked: frozenset[int],
        mode: DraftMode | None = None,
        *,
        rate: float,
        ends: frozenset[int],
    ) -> None:
        super().__init__(request, history, n_vocab, masked, mode)
        self._rate, self._ends = rate, ends
        self._place = history

    def verdict(self, draft: Draft, rows: Logits) -> verify.Verdict:
        rng = np.random.default_rng([self.seed, len(self._place)])
        accepted = 0
        for token in draft.tokens:
            if token in self._ends or rng.random() >= self._rate:
                break
            accepted += 1
        looked_at = len(draft.tokens) if self.rule == "block" else accepted
        # As much of the draft as chance accepts, verified in earnest and thrown away.
        part = Draft(draft.tokens[:looked_at], draft.q[:looked_at])
        super().verdict(part, rows[: looked_at + 1])
        token = sampling.argmax(rows[accepted], self._sampling)
        return verify.Verdict(accepted, token)


def synthetic(rate: float, ends: frozenset[int]) -> Callable[..., SyntheticJudge]:
    """What makes such judges for an engine whose answers any of `ends` would end."""

    def make(
        request: Request, history: Sequence[int], n_vocab: int, masked: frozenset[int], mode: DraftMode
    ) -> SyntheticJudge:
        return SyntheticJudge(request, history, n_vocab, masked, mode, rate=rate, ends=ends)

    return make
