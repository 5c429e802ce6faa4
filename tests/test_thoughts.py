"""Thoughts told apart from what is said, wherever the tokens split the tags."""

from __future__ import annotations

import re
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from edgespec.thoughts import ThoughtText


def parted(parts: list[str], opened: bool = False) -> tuple[str, str, list[tuple[str, str]]]:
    text = ThoughtText(opened)
    shown = [*map(text.push, parts), text.finish()]
    return "".join(thought for thought, _ in shown), "".join(said for _, said in shown), shown


def expected(text: str, opened: bool) -> tuple[str, str]:
    """The same, of the whole text at once."""
    found = re.fullmatch(r"(\s*<think>)?\s*(.*?)(?:\s*</think>\s*(.*)|\s*)", text, re.DOTALL)
    if opened:
        found = re.fullmatch(r"()\s*(.*?)(?:\s*</think>\s*(.*)|\s*)", text, re.DOTALL)
    assert found is not None
    return ("", text) if found[1] is None else (found[2], found[3] or "")


PARTS = st.lists(st.sampled_from(["<think>", "</think>", "\n", " ", "a", "b <", "</", "<thin", "think>"]), max_size=8)


@given(PARTS, st.lists(st.integers(0, 60)), st.booleans())
def test_thoughts_are_told_apart_wherever_tokens_split(words: list[str], cuts: list[int], opened: bool) -> None:
    text = "".join(words)
    edges = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    assert parted([text[a:b] for a, b in pairwise(edges)], opened)[:2] == expected(text, opened)


def test_a_pair_of_tags_may_split_at_any_place() -> None:
    text = " \n<think>\nHm, a < b.\n</think>\n\nYes </think>."
    for cut in range(len(text) + 1):
        for second in range(cut, len(text) + 1):
            parts = [text[:cut], text[cut:second], text[second:]]
            assert parted(parts)[:2] == ("Hm, a < b.", "Yes </think>."), parts


def test_nothing_of_a_tag_leaks_and_the_rest_is_shown_at_once() -> None:
    _, _, shown = parted(["<thi", "nk>", "Let me", " see", "\n", "</th", "ink>", "\n", "So", "<think>"])
    assert shown == [
        ("", ""), ("", ""), ("Let me", ""), (" see", ""), ("", ""), ("", ""), ("", ""), ("", ""), ("", "So"),
        ("", "<think>"), ("", ""),
    ]  # fmt: skip


def test_a_false_start_of_a_tag_is_text() -> None:
    assert parted(["<th", "ere>"])[1:] == ("<there>", [("", ""), ("", "<there>"), ("", "")])
    assert parted(["  <th"])[:2] == ("", "  <th")
    assert parted(["<think>a</thing>", "</thin"])[:2] == ("a</thing></thin", "")
