"""What the set-up says while it works: on stderr only, live on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

QUIET_SECONDS = 60.0  # without a terminal, a long step gives a sign of life this often


class Report:
    """Prints steps as they start and end, and those that run now in one line that is redrawn. Safe across threads."""

    def __init__(self, stream: TextIO, live: bool | None = None) -> None:
        self._stream = stream
        self._live = (stream.isatty() and os.environ.get("TERM") != "dumb") if live is None else live
        self._lock = threading.RLock()
        self._running: dict[str, tuple[float, str]] = {}
        self._spoke = time.monotonic()
        self._begun: float | None = None
        self._end = threading.Event()

    @contextmanager
    def working(self) -> Iterator[None]:
        """Around everything: keeps the live line moving, and says at the end how long it all took."""
        ticker = threading.Thread(target=self._tick, daemon=True)
        ticker.start()
        try:
            yield
            if self._begun is not None:
                self.say(f"ready in {duration(time.monotonic() - self._begun)}")
        finally:
            self._end.set()
            ticker.join()
            self._erase()

    def say(self, sentence: str) -> None:
        """One sentence for the user, above the live line."""
        with self._lock:
            self._erase()
            for line in sentence.splitlines():
                print(f"edgespec: {line}", file=self._stream)
            self._spoke = time.monotonic()
            self._draw()

    @contextmanager
    def step(self, title: str, detail: str = "") -> Iterator[Progress]:
        """A step that takes time; `detail` is said as it starts. What it yields takes notes on how far it is."""
        begun = time.monotonic()
        self._begun = self._begun or begun
        with self._lock:
            self._running[title] = (begun, "")
            if detail or not self._live:
                self.say(f"{title}{detail} …")
            self._draw()
        try:
            yield Progress(self, title)
        except BaseException:
            self._finish(title)
            raise
        self._finish(title)
        self.say(f"{title}: {duration(time.monotonic() - begun)}")

    def _finish(self, title: str) -> None:
        with self._lock:
            self._running.pop(title, None)

    def _note(self, title: str, note: str) -> None:
        with self._lock:
            if title in self._running:
                self._running[title] = (self._running[title][0], note)
                self._draw()

    def _tick(self) -> None:
        while not self._end.wait(1.0):
            with self._lock:
                self._draw()
                if not self._live and self._running and time.monotonic() - self._spoke > QUIET_SECONDS:
                    self.say(f"{self._line()} …")

    def _line(self) -> str:
        now = time.monotonic()
        return "; ".join(
            f"{title}: {note + ', ' if note else ''}{duration(now - begun)}"
            for title, (begun, note) in self._running.items()
        )

    def _draw(self) -> None:
        if self._live and self._running and not self._end.is_set():
            width = _width(self._stream)
            line = f"edgespec: {self._line()}"
            self._stream.write("\r\x1b[K" + (line if len(line) < width else line[: width - 2] + "…"))
            self._stream.flush()

    def _erase(self) -> None:
        if self._live:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


class Progress:
    """How far a step is; given out by Report.step."""

    def __init__(self, report: Report, title: str) -> None:
        self._report = report
        self._title = title

    def note(self, note: str) -> None:
        self._report._note(self._title, note)


def duration(seconds: float) -> str:
    """As people say it: "0.4 s", "12 s", "5 min 12 s"."""
    if seconds < 1:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _width(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80
