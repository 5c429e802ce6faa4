"""Text as it streams: whole characters, nothing of a stop string."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from edgespec.text import StopText


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
