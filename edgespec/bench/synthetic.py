"""Verification replaced by chance, so that speed can be studied apart from text. What comes out means nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import takewhile

import numpy as np

from edgespec import verify
from edgespec.control.mode import DraftMode
from edgespec.judge import Judge
from edgespec.protocols import Distribution, Draft, Logits
from edgespec.settings import Request


class SyntheticJudge(Judge):
    """Accepts each drafted token with probability `rate`, up to the first that fails.

    The rule does all the work that it would have had with that outcome, so that a round costs what it costs. No token
    of `ends` is proposed, accepted or emitted, so that no answer ends by itself. Chance has a stream of its own for
    each answer, from its seed and the length of its prompt, so that runs with a seed repeat.
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
        self._never = np.array(sorted(masked | ends), np.int64)
        self._chance = np.random.default_rng([self.seed, len(history), 1])  # apart from the judge's own stream

    def choose(self, row: Logits, drafted: Sequence[int]) -> tuple[int, Distribution | None]:
        token, q = super().choose(row, drafted)
        return (self._going_on(row[: self._n_vocab]), None) if token in self._ends else (token, q)

    def verdict(self, draft: Draft, rows: Logits) -> verify.Verdict:
        verdict = super().verdict(draft, rows)
        if verdict.token in self._ends:
            return verify.Verdict(verdict.accepted, self._going_on(rows[verdict.accepted]))
        return verdict

    def _verified(self, draft: Draft, p: Callable[[int], Distribution], own: Callable[[int], int]) -> verify.Verdict:
        if not draft.tokens:
            return super()._verified(draft, p, own)
        accepted = sum(1 for _ in takewhile(self._passes, draft.tokens))
        rule = self._rule_for(draft)
        if rule == "block":
            verify.block(draft, p, self._stream)  # it judges a draft as a whole, so that chance cannot lead it
            rows = [p(i) for i in range(max(len(draft.tokens), accepted + 1))]
            return verify.Verdict(accepted, self._stream.draw(rows[accepted]))
        if rule == "token":
            return verify.token(draft, p, _Fated(accepted, self._stream))
        return verify.Verdict(accepted, [own(i) for i in range(accepted + 1)][-1])

    def _passes(self, token: int) -> bool:
        return token not in self._ends and self._chance.random() < self._rate

    def _going_on(self, row: Logits) -> int:
        """The most probable token of a row that may come and ends nothing."""
        row = row.copy()
        row[self._never[self._never < len(row)]] = -np.inf
        return int(row.argmax())


class _Fated:
    """A stream in which the first `times` things happen, and no more."""

    def __init__(self, times: int, stream: verify.Stream) -> None:
        self._left, self._stream = times, stream

    def happens(self, probability: float) -> bool:
        self._left -= 1
        return self._left >= 0

    def draw(self, p: Distribution) -> int:
        return self._stream.draw(p)


def synthetic(rate: float, ends: frozenset[int]) -> Callable[..., SyntheticJudge]:
    """What makes such judges for an engine whose answers any of `ends` would end."""

    return partial(SyntheticJudge, rate=rate, ends=ends)
