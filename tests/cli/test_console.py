"""Ctrl-C while an answer streams: wherever it falls, the answer ends, and nothing is lost."""

from __future__ import annotations

import contextlib
import io
import signal
import sys
import threading
from collections.abc import Iterator

import pytest

from edgespec.cli.console import Console, cancellable
from edgespec.control.fixed import FixedPolicy
from edgespec.engine import Engine
from edgespec.events import Done, Loading, Notice, Text
from edgespec.text import StopText
from tests.support.fakes import FakeModel, FakeVocabulary, hashed_table


def engine(target: FakeModel) -> Engine:
    vocabulary = FakeVocabulary()
    return Engine(target, vocabulary, FixedPolicy(None, 0), lambda stops: StopText(vocabulary.piece, stops))


@pytest.mark.parametrize("at", [1, 2, 5, 30])
def test_ctrl_c_ends_the_answer_and_keeps_what_came(at: int) -> None:
    target = FakeModel(hashed_table(16, end=-99.0))
    model = engine(target)
    target.before_decode = lambda: signal.raise_signal(signal.SIGINT) if target.calls + 1 == at else None
    handler = signal.getsignal(signal.SIGINT)
    events = list(cancellable(model.cancel, model.generate([1, 2, 3], max_tokens=500)))
    done = events[-1]
    assert isinstance(done, Done) and done.finish_reason == "cancelled"
    assert done.tokens == tuple(token for event in events if isinstance(event, Text) for token in event.tokens)
    assert signal.getsignal(signal.SIGINT) is handler


def test_ctrl_c_hammered_from_outside_loses_nothing() -> None:
    """Every event arrives, the last one is Done, and no exception escapes, however often the signal comes."""
    for _ in range(20):
        model = engine(FakeModel(hashed_table(16, end=-99.0)))
        stop = threading.Event()

        def hammer(stop: threading.Event = stop) -> None:
            while not stop.is_set():
                signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

        events = []
        hammering = threading.Thread(target=hammer)
        try:
            for event in cancellable(model.cancel, model.generate([1, 2, 3], max_tokens=50)):
                events.append(event)
                if len(events) == 3:
                    hammering.start()
                if isinstance(event, Done):
                    stop.set()
                    hammering.join()
        finally:
            stop.set()
        assert isinstance(events[-1], Done)


@pytest.mark.parametrize("ending", [None, ValueError("broken")])
def test_what_has_ended_by_itself_is_not_cancelled(ending: Exception | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long its worker takes to go."""
    cancelled: list[bool] = []
    left = threading.Event()

    class Lingering(threading.Thread):
        def run(self) -> None:
            super().run()
            left.wait(10)

        def is_alive(self) -> bool:
            return True

        def join(self, timeout: float | None = None) -> None:
            left.set()
            super().join(timeout)

    def items() -> Iterator[int]:
        yield 1
        if ending is not None:
            raise ending

    monkeypatch.setattr(threading, "Thread", Lingering)
    with contextlib.suppress(ValueError):
        assert list(cancellable(lambda: cancelled.append(True), items())) == [1]
    assert left.is_set() and not cancelled


def test_what_is_left_early_is_cancelled() -> None:
    model = engine(FakeModel(hashed_table(16, end=-99.0)))
    for _ in cancellable(model.cancel, model.generate([1, 2, 3], max_tokens=100_000)):
        break
    *_, done = model.generate([1, 2, 3], max_tokens=3)
    assert isinstance(done, Done) and done.finish_reason == "length"


def test_an_error_in_the_answer_comes_out_here() -> None:
    target = FakeModel(hashed_table(16))

    def fail() -> None:
        raise ValueError("broken")

    target.before_decode = fail
    model = engine(target)
    with pytest.raises(ValueError, match="broken"):
        list(cancellable(model.cancel, model.generate([1, 2, 3])))


def test_leaving_early_ends_the_answer() -> None:
    target = FakeModel(hashed_table(16, end=-99.0))
    model = engine(target)
    for event in cancellable(model.cancel, model.generate([1, 2, 3], max_tokens=100_000)):
        if isinstance(event, Text):
            break
    target.interrupt(False)
    assert [e for e in model.generate([1, 2, 3], max_tokens=2, wait=True) if isinstance(e, Done)]


def test_progress_without_a_terminal_is_a_line_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console()
    console.tell(Loading("Fetching big (100 MB) from here."))
    for done in (0, 4, 9, 10, 15, 60, 100):
        console.tell(Loading("fetching big", done / 100, 100_000_000))
    console.tell(Loading("loading big", 0.0))
    console.tell(Loading("loading big", 0.5))
    console.tell(Loading("loading big", 1.0))
    console.tell(Notice("Done."))
    assert capsys.readouterr().err.splitlines() == [
        "Fetching big (100 MB) from here.", "fetching big: 10% of 100 MB", "fetching big: 60% of 100 MB",
        "fetching big: 100% of 100 MB", "loading big", "Done.",
    ]  # fmt: skip


def test_progress_on_a_terminal_is_one_line_that_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    console = Console()
    console.tell(Loading("fetching big", 0.5, 100_000_000))
    console.tell(Loading("fetching big", 1.0, 100_000_000))
    console.tell(Loading("loading big", 0.5))
    console.say("Ready.")
    shown = screen.getvalue()
    assert "100.0/100.0 MB" in shown and "loading big  50%" in shown
    assert shown.endswith("\r\x1b[2KReady.\n") and shown.count("\x1b[?25l") == shown.count("\x1b[?25h")
