"""Waiting for the network with open eyes: the one who waits looks up several times a second, and may leave."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from typing import TypeVar

Item = TypeVar("Item")

LOOK = 0.1
"""Seconds between two looks."""

# How many items are fetched ahead of the one in work.
_AHEAD = 64


class Late(Exception):
    """Nothing has come for too long."""


def attended(
    work: Callable[[], Iterable[Item]], tick: Callable[[], None], patience: float, name: str
) -> Generator[Item, None, None]:
    """The items of `work()`, made in a thread called `name`; `tick` is called here while there are none.

    No call to the operating system that hangs (looking up a name, for one) can hold the one who waits: what `tick`
    raises, or a signal, goes up at once, and the thread ends by itself when its call returns, without a further item.
    Raises Late when nothing comes for `patience` seconds, and what `work` raises.
    """
    items: queue.Queue[tuple[Item, ...]] = queue.Queue(_AHEAD)  # the empty one is the end
    failures: list[BaseException] = []
    left = threading.Event()

    def put(item: tuple[Item, ...]) -> None:
        while not left.is_set():
            with suppress(queue.Full):
                return items.put(item, timeout=LOOK)

    def run() -> None:
        try:
            for item in work():
                put((item,))
                if left.is_set():
                    return
        except BaseException as error:
            failures.append(error)
        finally:
            put(())

    threading.Thread(target=run, name=name, daemon=True).start()
    until = time.monotonic() + patience
    try:
        while True:
            try:
                item = items.get(timeout=LOOK)
            except queue.Empty:
                tick()
                if time.monotonic() > until:
                    raise Late from None
                continue
            if not item:
                break
            yield item[0]
            until = time.monotonic() + patience
    finally:
        left.set()
    for failure in failures:
        raise failure


def paused(seconds: float, tick: Callable[[], None]) -> None:
    """Wait, calling `tick` meanwhile."""
    until = time.monotonic() + seconds
    while (rest := until - time.monotonic()) > 0:
        tick()
        time.sleep(min(LOOK, rest))
