"""A small model drafts, one token after the other, and keeps its cache of what was accepted."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from edgespec.errors import BackendError, RollbackRefused
from edgespec.protocols import Choose, Distribution, Draft, LanguageModel, Logits


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
        self._model = model
        self._ends = end_tokens
        self._clock = clock
        self._cached: list[int] = []
        self._base = 0  # tokens of the history when the last draft began
        self._calls = 0
        self._seconds = 0.0

    def begin(self, history: Sequence[int]) -> None:
        self._keep(min(common_prefix(self._cached, history), len(history) - 1))

    def draft(self, history: Sequence[int], k: int, choose: Choose) -> Draft:
        room = self._model.n_ctx - len(history) + 1  # the last drafted token is not decoded
        if room < 1:
            raise BackendError(f"The draft's context of {self._model.n_ctx} tokens is full.")
        self._base = len(history)
        self._calls, self._seconds = 0, 0.0
        tokens: list[int] = []
        q: list[Distribution | None] = []
        row = self._read(history[len(self._cached) :])
        while True:
            token, distribution = choose(row, tokens)
            tokens.append(token)
            q.append(distribution)
            if len(tokens) >= min(k, room) or token in self._ends:
                return Draft(tuple(tokens), tuple(q), self._calls, self._seconds)
            row = self._read([token])

    def settle(self, accepted: int) -> None:
        self._keep(min(len(self._cached), self._base + accepted))

    def interrupt(self, on: bool = True) -> None:
        self._model.interrupt(on)

    def close(self) -> None:
        self._model.close()

    def _read(self, tokens: Sequence[int]) -> Logits:
        """Decode `tokens`, in batches; return the last one's row (n_vocab,)."""
        size = self._model.n_batch
        rows: Logits | None = None
        started = self._clock()
        for at in range(0, len(tokens), size):
            chunk = tokens[at : at + size]
            try:
                rows = self._model.decode(chunk, len(self._cached), int(at + size >= len(tokens)))
            except BaseException:
                self._model.trim(len(self._cached))
                raise
            self._cached.extend(chunk)
            self._calls += 1
        self._seconds += self._clock() - started
        if rows is None:
            raise BackendError("The draft was asked to continue a history that it has already decoded.")
        row: Logits = rows[-1]
        return row

    def _keep(self, length: int) -> None:
        """Keep the first `length` cached tokens; where the model cannot take single tokens back, forget all."""
        if length == len(self._cached):
            return
        try:
            self._model.trim(length)
        except RollbackRefused:
            length = 0
            self._model.trim(0)
        del self._cached[length:]


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens `a` and `b` have in common from the start."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
