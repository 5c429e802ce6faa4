"""One answer's acceptance rule at work: what the drafters draw with, and what the target keeps."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence

import numpy as np

from edgespec import sampling, verify
from edgespec.control.mode import DraftMode
from edgespec.errors import UsageError
from edgespec.protocols import Distribution, Draft, Logits
from edgespec.settings import Request, VerifyRule


class Judge:
    """Binds sampling and verification to an answer: its settings, its seed, its history.

    `history` is the answer's own list, which grows as tokens are committed. `n_vocab` is the target's; ids beyond it
    and those in `masked` are taken out of the draft's row before anything is drawn from it. `mode` remembers, from
    answer to answer, which way of drafting the target accepts.
    """

    def __init__(
        self,
        request: Request,
        history: Sequence[int],
        n_vocab: int,
        masked: frozenset[int],
        mode: DraftMode | None = None,
    ) -> None:
        if any(token >= n_vocab for token, _ in request.sampling.logit_bias):
            raise UsageError(f"logit-bias names a token that this vocabulary of {n_vocab} tokens does not have.")
        self.rule: VerifyRule = request.rule
        self.seed = secrets.randbits(32) if request.seed is None else request.seed
        self._auto = request.verify == "auto"
        self._sampling = request.sampling
        self._history = history
        self._n_vocab = n_vocab
        self._masked = np.array(sorted(masked), np.int64)
        self._mode = mode or DraftMode()
        # Of its own for each answer of a conversation, also where they share a seed.
        self._stream: verify.Stream = sampling.RandomStream(self.seed, len(history))
        self._row: Logits | None = None  # what the newest drafted token was chosen from
        self._newest: Distribution | None = None
        self._first: Distribution | None = None  # q of the draft's first token, also where it takes the argmax

    def choose(self, row: Logits, drafted: Sequence[int]) -> tuple[int, Distribution | None]:
        """The next token to propose from one row of a draft's logits, with its q.

        Either the argmax, or drawn: for `token` and `block` from q with fresh randomness; for `match` what the target
        would draw if its logits were these, because the same noise for the same position makes equal draws likely
        (Gumbel coupling, Daliri et al., arXiv 2408.07978). Which of the two was settled before the draft began.
        """
        row = row[: self._n_vocab]
        if len(self._masked):
            row = row.copy()
            row[self._masked[self._masked < len(row)]] = -np.inf
        window = self._window(drafted)
        self._row, self._newest = row, None
        if self.rule == "argmax":
            return sampling.argmax(row, self._sampling, window), None
        q = self._newest = sampling.distribution(row, self._sampling, window)
        if not drafted:
            self._first = q
        if not self._mode.draws:
            return q.mode, None
        if self.rule == "match":
            return sampling.keyed_draw(q, self.seed, len(self._history) + len(drafted)), None
        return self._stream.draw(q), q

    def confidence(self) -> float:
        """The draft's highest probability where it chose last: of q, or at temperature 0 of the row as it is.

        To be asked before the draft decodes again.
        """
        if self._newest is not None:
            return float(self._newest.p.max())
        if self._row is None:
            return 0.0
        return float(1.0 / np.exp(self._row - self._row.max()).sum())

    def verdict(self, draft: Draft, rows: Logits) -> verify.Verdict:
        """What the target's rows (len(draft.tokens) + 1, n_vocab) make of a draft."""
        looked_at: list[Distribution] = []

        def p(i: int) -> Distribution:
            if i == len(looked_at):
                looked_at.append(sampling.distribution(rows[i], self._sampling, self._window(draft.tokens[:i])))
            return looked_at[i]

        def own(i: int) -> int:
            if self.rule == "argmax":
                return sampling.argmax(rows[i], self._sampling, self._window(draft.tokens[:i]))
            return sampling.keyed_draw(p(i), self.seed, len(self._history) + i)

        verdict = self._verified(draft, p, own)
        if draft.tokens and self._first is not None:
            self._learn(looked_at[0], self._first, draft.tokens[0] if verdict.accepted else verdict.token)
        self._first = None
        return verdict

    def _verified(self, draft: Draft, p: Callable[[int], Distribution], own: Callable[[int], int]) -> verify.Verdict:
        """Apply the rule: `p` is what the target says at a row, `own` what it chooses there; asked for in order."""
        rule = self._rule_for(draft)
        if rule in ("argmax", "match"):
            return verify.match(draft.tokens, own)
        return (verify.block if rule == "block" else verify.token)(draft, p, self._stream)

    def _rule_for(self, draft: Draft) -> VerifyRule:
        """What judges a draft: where all of it is certain, each rule accepts as much and `match` is quickest."""
        certain = self._auto and all(q is None for q in draft.q)
        return "match" if certain and self.rule != "argmax" else self.rule

    def _learn(self, p: Distribution, q: Distribution, emitted: int) -> None:
        """Tell how both ways of drafting would have fared with the draft's first token, whichever was used."""
        if self.rule == "match":  # there is no quick formula, but what would have been drawn is known
            drawn = float(sampling.keyed_draw(q, self.seed, len(self._history)) == emitted)
        else:
            drawn = verify.overlap(p, q)
        self._mode.learn(drawn, p[q.mode])

    def _window(self, drafted: Sequence[int]) -> Sequence[int]:
        """The tokens that the penalties look at: the end of history and draft."""
        if not self._sampling.penalises:
            return ()
        n = self._sampling.repeat_last_n
        if n < 0:
            return [*self._history, *drafted]
        return [*self._history[-n:], *drafted][-n:]
