"""Waiting with open eyes, whatever the one who is waited for does."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from edgespec.models.hub.attended import Late, attended, paused


class Enough(Exception):
    pass


def test_items_come_in_order_and_then_what_went_wrong() -> None:
    def work() -> Iterator[int]:
        yield from range(1000)  # more than are fetched ahead
        raise ValueError("broken")

    seen: list[int] = []
    with pytest.raises(ValueError, match="broken"):
        seen.extend(attended(work, lambda: None, 30, "test-work"))
    assert seen == list(range(1000))


def test_the_one_who_waits_looks_up_and_may_leave_at_once() -> None:
    over, ticks = threading.Event(), []

    def tick() -> None:
        ticks.append(1)
        if len(ticks) == 3:
            raise Enough

    with pytest.raises(Enough):
        list(attended(lambda: [over.wait(60)], tick, 30, "test-work"))
    assert "test-work" in [thread.name for thread in threading.enumerate()], "the work was waited for"
    over.set()


def test_nothing_more_is_made_for_one_who_has_left() -> None:
    made, ended = [], threading.Event()

    def work() -> Iterator[int]:
        try:
            for n in range(10**9):
                made.append(n)
                yield n
        finally:
            ended.set()

    items = attended(work, lambda: None, 30, "test-work")
    assert next(items) == 0
    items.close()
    assert ended.wait(30) and len(made) < 200


def test_patience_ends() -> None:
    over = threading.Event()
    with pytest.raises(Late):
        list(attended(lambda: [over.wait(60)], lambda: None, 0.1, "test-work"))
    over.set()


def test_a_pause_looks_up() -> None:
    def tick() -> None:
        raise Enough

    with pytest.raises(Enough):
        paused(60, tick)
    paused(0, tick)
