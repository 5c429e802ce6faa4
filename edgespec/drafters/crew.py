"""The drafters of one answer, where one that fails is dropped and the answer goes on without it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from edgespec.errors import EdgespecError, Interrupted
from edgespec.protocols import Choose, Draft, Drafter, GoesOn, Offer, always

Result = TypeVar("Result")


class Crew:
    """Stands between the loop and the drafters: checks what they propose, and survives what they raise.

    `notices` collects a sentence for each drafter that was dropped. Interrupted is no failure and goes through.
    """

    def __init__(
        self,
        drafters: Mapping[str, Drafter],
        n_vocab: int,
        end_tokens: frozenset[int],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.notices: list[str] = []
        self._drafters = dict(drafters)
        self._n_vocab = n_vocab
        self._ends = end_tokens
        self._clock = clock

    def begin(self, history: Sequence[int]) -> None:
        for drafter in list(self._drafters.values()):
            self._trying(drafter, partial(drafter.begin, history))

    def offers(self, history: Sequence[int]) -> dict[str, Offer]:
        """What each of them could draft to follow `history`."""
        found = {name: self._trying(drafter, partial(drafter.offer, history))
                 for name, drafter in list(self._drafters.items())}  # fmt: skip
        return {name: offer for name, offer in found.items() if offer is not None}

    def draft(
        self, name: str | None, history: Sequence[int], k: int, choose: Choose, goes_on: GoesOn = always
    ) -> Draft:
        """Up to `k` tokens from the drafter called `name`; none where there is no such drafter, or no room."""
        drafter = self._drafters.get(name or "")
        if drafter is None or k < 1:
            return Draft()
        started = self._clock()
        draft = self._trying(drafter, lambda: self._checked(drafter.draft(history, k, choose, goes_on), k))
        # What a failure took was the drafter's time, not ours.
        return Draft(seconds=self._clock() - started) if draft is None else draft

    def settle(self, name: str | None, accepted: int) -> None:
        drafter = self._drafters.get(name or "")
        if drafter is not None:
            self._trying(drafter, partial(drafter.settle, accepted))

    def dismiss(self, reason: str) -> None:
        """Go on without any of them."""
        if self._drafters:
            self._drafters.clear()
            self.notices.append(reason)

    def _trying(self, drafter: Drafter, work: Callable[[], Result]) -> Result | None:
        try:
            return work()
        except Interrupted:
            raise
        except Exception as error:
            reason = str(error) if isinstance(error, EdgespecError) else f"{type(error).__name__}: {error}"
            self.notices.append(f"Drafting with {drafter.name} stopped for this answer: {reason}")
            del self._drafters[drafter.name]
            return None

    def _checked(self, draft: Draft, k: int) -> Draft:
        """The draft up to k tokens and up to its first end token; ids that the target lacks are a fault."""
        if len(draft.q) != len(draft.tokens):
            raise EdgespecError("it gave a q for some tokens only.")
        tokens = draft.tokens[:k]
        if bad := [token for token in tokens if not 0 <= token < self._n_vocab]:
            raise EdgespecError(f"it proposed token {bad[0]}, which the target does not have.")
        if any(q is not None and not q[token] > 0.0 for token, q in zip(tokens, draft.q, strict=False)):
            raise EdgespecError("it proposed a token that its own q says is impossible.")
        length = next((i + 1 for i, token in enumerate(tokens) if token in self._ends), len(tokens))
        return Draft(tokens[:length], draft.q[:length], draft.calls, draft.seconds)
