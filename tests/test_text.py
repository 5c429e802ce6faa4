"""Text as it streams: whole characters, nothing of a stop string."""

from __future__ import annotations

import re
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from edgespec.text import StopText, ThoughtText


def stream(data: bytes, cuts: list[int], stops: tuple[str, ...]) -> tuple[str, bool, list[str]]:
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    parts = [data[a:b] for a, b in pairwise(edges)]
    text = StopText(lambda token: parts[token], stops)
    shown = []
    for token in range(len(parts)):
        shown.append(text.push(token))
        if text.stopped:
            break
    shown.append(text.finish())
    return "".join(shown), text.stopped, shown


@given(st.text(), st.lists(st.integers(0, 500)))
def test_without_stops_all_bytes_come_out(text: str, cuts: list[int]) -> None:
    assert stream(text.encode(), cuts, ())[0] == text


@given(st.text("ab c"), st.lists(st.integers(0, 500)), st.lists(st.text("ab c", min_size=1, max_size=4), max_size=3))
def test_text_ends_before_a_stop_string(text: str, cuts: list[int], stops: list[str]) -> None:
    shown, stopped, _ = stream(text.encode(), cuts, tuple(stops))
    assert text.startswith(shown)
    assert stopped == any(stop in text for stop in stops)
    if stopped:
        assert any(text[len(shown) :].startswith(stop) for stop in stops)
    else:
        assert shown == text
    assert not any(stop in shown for stop in stops)


def test_nothing_of_a_stop_string_leaks_while_streaming() -> None:
    text = StopText(lambda token: [b"one ", b"\nUs", b"er", b":"][token], ("\nUser:",))
    assert [text.push(i) for i in range(4)] == ["one ", "", "", ""]
    assert text.stopped and text.finish() == "" == text.push(0)


def test_a_false_start_is_shown_as_soon_as_it_is_certain() -> None:
    text = StopText(lambda token: [b"<|e", b"nough"][token], ("<|end|>",))
    assert [text.push(0), text.push(1)] == ["", "<|enough"]


def test_what_is_withheld_is_flushed() -> None:
    text = StopText(lambda token: b"wait <", ("<end>",))
    assert text.push(0) == "wait " and text.finish() == "<"


def test_broken_bytes_are_replaced_once() -> None:
    text = StopText(lambda token: [b"a\xf0\x9f", b"b"][token])
    assert text.push(0) + text.push(1) + text.finish() == "a\ufffdb"


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
