"""A language model together with the tokens that it has cached."""

from __future__ import annotations

from collections.abc import Sequence

from edgespec.errors import RollbackRefused
from edgespec.protocols import LanguageModel, Logits


class CachedModel:
    """Keeps book of a model's cache, which it empties first: `tokens` are decoded and sound, come what may."""

    def __init__(self, model: LanguageModel) -> None:
        model.trim(0)
        self.model = model
        self.tokens: list[int] = []

    def read(self, tokens: Sequence[int], outputs: int) -> Logits:
        """Decode `tokens` behind those that are cached; return the last `outputs` rows. After an error, `repair`."""
        rows = self.model.decode(tokens, len(self.tokens), outputs)
        self.tokens.extend(tokens)
        return rows

    def reuse(self, history: Sequence[int]) -> int:
        """Keep what `history` begins with, but for its last token, which is to be decoded; return how much that is."""
        self.keep(max(0, min(_common_prefix(self.tokens, history), len(history) - 1)))
        return len(self.tokens)

    def keep(self, length: int) -> bool:
        """Keep the first `length` tokens; a model that cannot take the others back forgets all. Whether it could."""
        return length >= len(self.tokens) or self._trim(length)

    def repair(self) -> None:
        """Drop what a decode that did not finish may have left behind."""
        self._trim(len(self.tokens))

    def _trim(self, length: int) -> bool:
        try:
            self.model.trim(length)
        except RollbackRefused:
            self.model.trim(0)
            self.tokens.clear()
            return False
        del self.tokens[length:]
        return True


def _common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
