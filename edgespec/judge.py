"""One answer's acceptance rule at work: what the drafters draw with, and what the target keeps."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import numpy as np

from edgespec import sampling, verify
from edgespec.protocols import Distribution, Draft, Logits
from edgespec.settings import Request


class Judge:
    """Binds sampling and verification to an answer: its settings, its seed, its history.

    `history` is the answer's own list, which grows as tokens are committed. `n_vocab` is the target's; ids beyond it
    and those in `masked` are taken out of the draft's row before anything is drawn from it.
    """

    def __init__(self, request: Request, history: Sequence[int], n_vocab: int, masked: frozenset[int]) -> None:
        self.rule = request.rule
        self.seed = secrets.randbits(32) if request.seed is None else request.seed
        self._sampling = request.sampling
        self._history = history
        self._n_vocab = n_vocab
        self._masked = np.array(sorted(masked), np.int64)
        self._rng = np.random.default_rng(self.seed)

    def choose(self, row: Logits, drafted: Sequence[int]) -> tuple[int, Distribution | None]:
        """The next token to propose from one row of a draft's logits, with its q.

        Sampled from q for the `token` rule. For `match` it is what the target would draw if its logits were these: the
        same noise for the same position makes equal draws likely (Gumbel coupling, Daliri et al., arXiv 2408.07978).
        """
        row = row[: self._n_vocab]
        if len(self._masked):
            row = row.copy()
            row[self._masked[self._masked < len(row)]] = -np.inf
        window = self._window(drafted)
        if self.rule == "argmax":
            return sampling.argmax(row, self._sampling, window), None
        q = sampling.distribution(row, self._sampling, window)
        if self.rule == "match":
            return sampling.keyed_draw(q, self.seed, len(self._history) + len(drafted)), None
        return sampling.draw(q, self._rng), q

    def verdict(self, draft: Draft, rows: Logits) -> verify.Verdict:
        """What the target's rows (len(draft.tokens) + 1, n_vocab) make of a draft."""

        def window(i: int) -> Sequence[int]:
            return self._window(draft.tokens[:i])

        def p(i: int) -> Distribution:
            return sampling.distribution(rows[i], self._sampling, window(i))

        def own(i: int) -> int:
            if self.rule == "argmax":
                return sampling.argmax(rows[i], self._sampling, window(i))
            return sampling.keyed_draw(p(i), self.seed, len(self._history) + i)

        if self.rule == "token":
            return verify.token(draft, p, self._rng)
        return verify.match(draft.tokens, own)

    def _window(self, drafted: Sequence[int]) -> Sequence[int]:
        """The tokens that the penalties look at: the end of history and draft."""
        if not self._sampling.penalises:
            return ()
        n = self._sampling.repeat_last_n
        if n < 0:
            return [*self._history, *drafted]
        return [*self._history[-n:], *drafted][-n:]
