"""The n-gram drafter against a search through the whole history."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgespec.drafters.ngram import NgramDrafter
from edgespec.protocols import Distribution, Evidence, Logits


def never(row: Logits, drafted: Sequence[int]) -> tuple[int, Distribution | None]:
    raise AssertionError("an n-gram drafter has no logits")


def slow(history: list[int], k: int, n: int) -> list[int]:
    """What follows the longest match among the newest 8 places behind the last n tokens, newest first on ties."""
    places = [end for end in range(len(history) - 1, n - 1, -1) if history[end - n : end] == history[-n:]][:8]

    def length(end: int) -> int:
        return next((i for i in range(end) if history[end - 1 - i] != history[-1 - i]), end)

    if not places:
        return []
    end, text = max(places, key=length), list(history)
    for i in range(k):
        text.append(text[end + i])
    return text[len(history) :]


@given(st.lists(st.integers(0, 2), min_size=1, max_size=40), st.integers(1, 4), st.integers(1, 9))
def test_longest_match_of_the_prompt_first_newest_first(prompt: list[int], n: int, k: int) -> None:
    drafter = NgramDrafter(n)
    drafter.begin(prompt)
    assert list(drafter.draft(prompt, k, never).tokens) == slow(prompt, k, n)


@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=30),
    st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=4), max_size=12),
    st.integers(1, 4),
)
def test_what_is_offered_is_what_comes_or_not(prompt: list[int], rounds: list[list[int]], n: int) -> None:
    """Outcomes say of every committed token whether it was proposed just before, however many came in a round."""
    drafter, single = NgramDrafter(n), NgramDrafter(n)
    history, outcomes, expected = list(prompt), [], []
    drafter.begin(history)
    single.begin(history)
    for tokens in rounds:
        outcomes += drafter.offer(history).outcomes
        for token in tokens:
            offer, proposed = single.offer(history), single.draft(history, 1, never).tokens
            assert bool(proposed) == bool(offer.longest) == (offer.evidence is not None)
            if offer.evidence is not None:
                expected.append((offer.evidence, proposed == (token,)))
            history.append(token)
    assert outcomes + list(drafter.offer(history).outcomes) == expected
    assert drafter.draft(history, 5, never) == single.draft(history, 5, never)


@given(st.lists(st.integers(0, 2), min_size=1), st.lists(st.integers(0, 2), min_size=1))
def test_another_conversation_is_not_remembered(first: list[int], second: list[int]) -> None:
    used, fresh = NgramDrafter(2), NgramDrafter(2)
    used.begin(first)
    used.draft(first, 4, never)
    used.begin(second)
    fresh.begin(second)
    assert used.offer(second) == fresh.offer(second)
    assert used.draft(second, 4, never) == fresh.draft(second, 4, never)


def test_a_copy_goes_on_in_what_it_proposed() -> None:
    drafter = NgramDrafter(2)
    history = [1, 2, 3, 1, 2]
    drafter.begin(history)
    draft = drafter.draft(history, 8, never)
    assert draft.tokens == (3, 1, 2, 3, 1, 2, 3, 1)
    assert draft.q == (None,) * 8


@pytest.mark.parametrize("instead", [[90], [90, 91], [90, 91, 92]], ids=len)
def test_a_long_copy_goes_on_behind_a_changed_token(instead: list[int]) -> None:
    text = list(range(1, 30))
    drafter, history = NgramDrafter(), [*text, 50]
    drafter.begin(history)
    for token in [*text[:12], *instead]:  # token 13 becomes another, or several
        history.append(token)
        drafter.offer(history)
    assert drafter.offer(history).longest == 0  # not before it is known to go on
    history.append(14)
    assert drafter.draft(history, 3, never).tokens == (15, 16, 17)
    evidence = drafter.offer(history).evidence
    assert evidence is not None and evidence.match == 3 + 12 // 4


def test_a_copy_that_went_wrong_for_long_is_given_up() -> None:
    text = list(range(1, 30))
    drafter, history = NgramDrafter(), [*text, 50]
    drafter.begin(history)
    for token in [*text[:12], 90, 91, 92, 93, 94, 14]:
        history.append(token)
        drafter.offer(history)
    assert drafter.draft(history, 3, never).tokens == ()


def test_a_short_match_that_goes_wrong_is_given_up() -> None:
    text = list(range(1, 30))
    drafter, history = NgramDrafter(), [*text, 50]
    drafter.begin(history)
    for token in [*text[:5], 90, 7]:
        history.append(token)
        drafter.offer(history)
    assert drafter.draft(history, 3, never).tokens == ()


def test_other_places_that_look_alike_agree_or_not() -> None:
    drafter = NgramDrafter()
    history = [1, 2, 3, 7, 1, 2, 3, 8, 5, 1, 2, 3, 7, 9, 1, 2, 3]
    drafter.begin(history)
    evidence = drafter.offer(history).evidence
    assert evidence == Evidence(3, 2 / 3)  # 7 twice, 8 once, and the newest says 7
    history += [7]
    evidence = drafter.offer(history).evidence
    assert evidence == Evidence(4, 1 / 2)  # behind 2 3 7 stand a 1 and a 9
