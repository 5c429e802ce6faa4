"""Drafting by looking back: what followed these tokens when they last stood in the prompt or the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgespec.protocols import Choose, Draft, Evidence, GoesOn, Offer, always

SHORTEST = 3
"""Tokens that must match before what followed them is proposed."""
PLACES = 8
"""Earlier occurrences that are compared, the newest ones."""
LONGEST = 64
"""Tokens of a match that are counted."""
TRUSTED = 8
"""A match of this length is a copy: where it goes wrong, it is expected to go on behind the fault."""
PATIENCE = 4
"""Tokens that a fault may last before the copy is given up."""
KEPT_OUTCOMES = 256


@dataclass(slots=True)
class _Copy:
    """The next token is expected to be the one at `source` of the history: the `length` tokens before them match.

    `agreement` is that of other places that look alike, see Evidence. `wrong` > 0: for so many tokens the copy has
    been at fault, and nothing is proposed until it hits again.
    """

    source: int
    length: int
    agreement: float = 1.0
    wrong: int = 0

    @property
    def evidence(self) -> Evidence:
        return Evidence(self.length, self.agreement)


class NgramDrafter:
    """Proposes what followed the longest match of the history's end among its newest earlier occurrences.

    An index maps every n-gram of `shortest` tokens to the places behind its occurrences; it grows with the history. A
    match is followed token by token. Where a long one goes wrong, as at a name that is changed in code that is copied,
    it is taken up again as soon as the token behind the changed one has come. A copy that reaches the end of the
    history goes on in what it has proposed itself, so a repeating pattern is continued. (Prompt lookup: Saxena 2023;
    Yang et al., arXiv 2304.04487. Going on behind a fault is ours.)

    What it would have proposed is compared with every token that is committed, whether it was asked or not, so that an
    offer tells how good its guesses have been, at no cost.
    """

    name = "ngram"

    def __init__(self, shortest: int = SHORTEST) -> None:
        self._shortest = shortest
        self._index: dict[tuple[int, ...], list[int]] = {}
        self._indexed: list[int] = []
        self._copy: _Copy | None = None
        self._outcomes: list[tuple[Evidence, bool]] = []
        self._watched = 0  # from this position on guesses are compared with what came

    def begin(self, history: Sequence[int]) -> None:
        if self._indexed != list(history[: len(self._indexed)]):
            self._index.clear()
            self._indexed.clear()
        self._copy = None
        self._outcomes.clear()
        self._watched = len(history)
        if len(self._indexed) == len(history):
            self._look_up()

    def offer(self, history: Sequence[int]) -> Offer:
        self._follow(history)
        outcomes, self._outcomes = tuple(self._outcomes[-KEPT_OUTCOMES:]), []
        if self._copy is None or self._copy.wrong:
            return Offer(0, outcomes=outcomes)
        return Offer(LONGEST, evidence=self._copy.evidence, outcomes=outcomes)

    def draft(self, history: Sequence[int], k: int, choose: Choose, goes_on: GoesOn = always) -> Draft:
        self._follow(history)
        if self._copy is None or self._copy.wrong:
            return Draft()
        tokens: list[int] = []
        for at in range(self._copy.source, self._copy.source + k):
            tokens.append(history[at] if at < len(history) else tokens[at - len(history)])
        return Draft(tuple(tokens), (None,) * k)

    def settle(self, accepted: int) -> None:
        pass

    def interrupt(self, on: bool = True) -> None:
        pass

    def close(self) -> None:
        pass

    def _follow(self, history: Sequence[int]) -> None:
        """Index what is new of the history, and move the copy along it."""
        n, known = self._shortest, self._indexed
        for at in range(len(known), len(history)):
            token = history[at]
            if at >= self._watched:
                self._compare(token, at)
            known.append(token)
            if at >= n:  # the n-gram before this token has a successor by now
                places = self._index.setdefault(tuple(known[at - n : at]), [])
                places.append(at)
                if len(places) > PLACES:
                    del places[0]
            if at >= self._watched - 1:
                self._look_up()

    def _compare(self, token: int, at: int) -> None:
        """Move the copy over the token that was committed at `at`, and note whether it had foreseen it."""
        copy = self._copy
        if copy is None:
            return
        right = self._indexed[copy.source] == token
        if not copy.wrong:
            self._outcomes.append((copy.evidence, right))
        if right:
            copy.source += 1
            copy.length = copy.length // 4 + self._shortest if copy.wrong else copy.length + 1
            copy.wrong = 0
        elif not copy.wrong and copy.length >= TRUSTED:
            copy.source += 1
            copy.wrong = 1
        elif 0 < copy.wrong < PATIENCE:  # the change is longer than what it replaces
            copy.wrong += 1
        else:
            self._copy = None

    def _look_up(self) -> None:
        """Take the longest match of the end of what is known, if there is none that is followed, and see what other
        places say."""
        known, n = self._indexed, self._shortest
        places = self._index.get(tuple(known[-n:]), ())
        if self._copy is None or self._copy.wrong:
            best, most = None, 0
            for place in reversed(places):
                length = n
                while length < LONGEST and length < place and known[place - 1 - length] == known[-1 - length]:
                    length += 1
                if length > most:
                    best, most = place, length
            if best is None:
                return
            self._copy = _Copy(best, most)
        expected = known[self._copy.source]
        alike = sum(known[place] == expected for place in places)
        self._copy.agreement = alike / len(places) if alike else 1.0 / (len(places) + 1)
