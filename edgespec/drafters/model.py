"""A small model drafts, one token after the other, and keeps its cache of what was accepted."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from edgespec.cached import CachedModel
from edgespec.errors import BackendError
from edgespec.protocols import Choose, Distribution, Draft, GoesOn, LanguageModel, Logits, Offer, always


class ModelDrafter:
    """Drafts with a language model that has the target's vocabulary.

    Its cache holds a prefix of the history, so each token is decoded once: after a rejection only the rejected cells
    are dropped; after full acceptance the last drafted token, which was never decoded, rides with the next one. What
    plain rounds added since is caught up in one batch.
    """

    name = "model"

    def __init__(
        self, model: LanguageModel, end_tokens: frozenset[int], clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.model = model
        self._cached = CachedModel(model)
        self._ends = end_tokens
        self._clock = clock
        self._base = 0  # tokens of the history when the last draft began
        self._calls = 0
        self._seconds = 0.0

    def begin(self, history: Sequence[int]) -> None:
        self._cached.reuse(history)

    def offer(self, history: Sequence[int]) -> Offer:
        room = self.model.n_ctx - len(history) + 1
        return Offer(max(0, room), unread=len(history) - len(self._cached.tokens))

    def draft(self, history: Sequence[int], k: int, choose: Choose, goes_on: GoesOn = always) -> Draft:
        room = self.model.n_ctx - len(history) + 1  # the last drafted token is not decoded
        if room < 1:
            raise BackendError(f"The draft's context of {self.model.n_ctx} tokens is full.")
        self._base = len(history)
        self._calls, self._seconds = 0, 0.0
        tokens: list[int] = []
        q: list[Distribution | None] = []
        row = self._read(history[len(self._cached.tokens) :])
        while True:
            token, distribution = choose(row, tokens)
            tokens.append(token)
            q.append(distribution)
            if len(tokens) >= min(k, room) or token in self._ends or not goes_on(len(tokens)):
                return Draft(tuple(tokens), tuple(q), self._calls, self._seconds)
            row = self._read([token])

    def settle(self, accepted: int) -> None:
        self._cached.keep(self._base + accepted)

    def interrupt(self, on: bool = True) -> None:
        self.model.interrupt(on)

    def close(self) -> None:
        self.model.close()

    def _read(self, tokens: Sequence[int]) -> Logits:
        """Decode `tokens`, at least one, in batches; return the last one's row (n_vocab,)."""
        size = self.model.n_batch
        started = self._clock()
        try:
            for at in range(0, len(tokens), size):
                rows = self._cached.read(tokens[at : at + size], outputs=int(at + size >= len(tokens)))
                self._calls += 1
        except BaseException:
            self._cached.repair()
            raise
        finally:
            self._seconds += self._clock() - started
        row: Logits = rows[-1]
        return row
