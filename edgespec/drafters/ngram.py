"""Drafting by looking back: what followed these tokens the last time they stood in the prompt or the answer."""

from __future__ import annotations

from collections.abc import Sequence

from edgespec.protocols import Choose, Draft

SIZES = (12, 6, 3)
"""Lengths of the ends of the history that are looked up, the longest first."""


class NgramDrafter:
    """Proposes what followed the newest earlier occurrence of the longest known end of the history.

    An index maps every n-gram to the position behind its newest occurrence; it grows with the history, at constant
    cost for each token. A copy that reaches the end of the history goes on in what it has proposed itself, so a
    repeating pattern is continued. (Prompt lookup: Saxena 2023; Yang et al., arXiv 2304.04487.)
    """

    name = "ngram"

    def __init__(self, sizes: Sequence[int] = SIZES) -> None:
        self._sizes = tuple(sorted(sizes, reverse=True))
        self._index: dict[tuple[int, ...], int] = {}
        self._indexed: list[int] = []

    def begin(self, history: Sequence[int]) -> None:
        if self._indexed != list(history[: len(self._indexed)]):
            self._index.clear()
            self._indexed.clear()

    def draft(self, history: Sequence[int], k: int, choose: Choose) -> Draft:
        self._extend(history)
        start = self._newest(history)
        if start is None:
            return Draft()
        tokens: list[int] = []
        for at in range(start, start + k):
            tokens.append(history[at] if at < len(history) else tokens[at - len(history)])
        return Draft(tuple(tokens), (None,) * k)

    def settle(self, accepted: int) -> None:
        pass

    def interrupt(self, on: bool = True) -> None:
        pass

    def close(self) -> None:
        pass

    def _newest(self, history: Sequence[int]) -> int | None:
        for n in self._sizes:
            if n <= len(history) and (start := self._index.get(tuple(history[-n:]))) is not None:
                return start
        return None

    def _extend(self, history: Sequence[int]) -> None:
        """Index every n-gram that has a successor by now: the one that ends the history has none yet."""
        for at in range(len(self._indexed), len(history)):
            for n in self._sizes:
                if n <= at:
                    self._index[tuple(history[at - n : at])] = at
        self._indexed.extend(history[len(self._indexed) :])
