"""The n-gram drafter against a search through the whole history."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from edgespec.drafters.ngram import NgramDrafter
from edgespec.protocols import Distribution, Logits


def never(row: Logits, drafted: Sequence[int]) -> tuple[int, Distribution | None]:
    raise AssertionError("an n-gram drafter has no logits")


def slow(history: list[int], k: int, sizes: tuple[int, ...]) -> list[int]:
    for n in sorted(sizes, reverse=True):
        for end in range(len(history) - 1, n - 1, -1):
            if history[end - n : end] == history[-n:]:
                text = list(history)
                for i in range(k):
                    text.append(text[end + i])
                return text[len(history) :]
    return []


@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=40), st.lists(st.integers(0, 2), max_size=20), st.integers(1, 9)
)
def test_longest_match_first_newest_first(prompt: list[int], answer: list[int], k: int) -> None:
    drafter = NgramDrafter((3, 2, 1))
    history = list(prompt)
    drafter.begin(history)
    for token in [None, *answer]:
        if token is not None:
            history.append(token)
        assert list(drafter.draft(history, k, never).tokens) == slow(history, k, (3, 2, 1))


@given(st.lists(st.integers(0, 2), min_size=1), st.lists(st.integers(0, 2), min_size=1))
def test_another_conversation_is_not_remembered(first: list[int], second: list[int]) -> None:
    used, fresh = NgramDrafter((2, 1)), NgramDrafter((2, 1))
    used.begin(first)
    used.draft(first, 4, never)
    used.begin(second)
    fresh.begin(second)
    assert used.draft(second, 4, never) == fresh.draft(second, 4, never)


def test_a_copy_goes_on_in_what_it_proposed() -> None:
    drafter = NgramDrafter((2,))
    history = [1, 2, 3, 1, 2]
    drafter.begin(history)
    draft = drafter.draft(history, 8, never)
    assert draft.tokens == (3, 1, 2, 3, 1, 2, 3, 1)
    assert draft.q == (None,) * 8
