"""What the commands share when they talk to a person: progress on stderr, and answers that Ctrl-C can end."""

from __future__ import annotations

import logging
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import click

from edgespec.cli.download import Download
from edgespec.events import Loading, Notice

Item = TypeVar("Item")


class Console:
    """Says on stderr what is going on: one line that is rewritten on a terminal, a line for each stage elsewhere.

    Leaving it takes the progress line away, however that comes.
    """

    def __init__(self, *, quiet: bool = False, verbose: bool = False) -> None:
        self._quiet = quiet
        screen = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self.live = screen and not verbose  # whether a line can be rewritten
        self._dim = screen and not os.environ.get("NO_COLOR")
        self._thinking = False
        self._stage = ""
        self._shown = 0.0
        self._open = False
        self._download: Download | None = None
        self._verbose = verbose
        if verbose:
            handler = logging.StreamHandler(sys.stderr)
            handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
            logger = logging.getLogger("edgespec")
            logger.addHandler(handler)
            logger.setLevel(logging.DEBUG)
            logging.getLogger("edgespec.llama").setLevel(logging.INFO)  # its debug lines are thousands

    def __enter__(self) -> Console:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def tell(self, event: Loading | Notice) -> None:
        if isinstance(event, Notice):
            self.say(event.message)
        elif not self._quiet:
            self._progress(event)

    def say(self, sentence: str) -> None:
        """A line of its own."""
        if not self._quiet:
            self.clear()
            click.echo(sentence, err=True)

    def detail(self, sentence: str) -> None:
        """A line for those who asked for more."""
        if self._verbose:
            self.say(sentence)

    def reply(self, text: str) -> None:
        """What was asked for with a command, even where all else is quiet."""
        click.echo(text, err=True)

    def think(self, thought: str) -> None:
        """More of what the model thinks: between words that say so, and dim on a terminal."""
        if self._quiet or not thought:
            return
        if not self._thinking:
            self._thinking = True
            click.echo("Thinking:", err=True)
        click.echo(click.style(thought, dim=True) if self._dim else thought, nl=False, err=True)

    def stop_thinking(self) -> None:
        if self._thinking:
            click.echo("\nDone thinking.", err=True)
        self._thinking = False

    def after_interrupt(self) -> None:
        """Leave the line where the terminal has just written ^C."""
        if sys.stderr.isatty() and not self._quiet:
            click.echo(err=True)

    def clear(self) -> None:
        """Take the progress line away."""
        if self._download is not None:
            self._download.end()
        if self._open:
            click.echo("\r\x1b[2K", nl=False, err=True)
        self._download, self._open, self._stage = None, False, ""

    def _progress(self, event: Loading) -> None:
        changed = event.stage != self._stage
        if changed:
            self.clear()
        if event.size is not None and event.fraction is not None:
            self._download = self._download or Download(event.stage, event.size, live=self.live)
            self._download.show(event.fraction)
            self._stage = event.stage
            return
        if not self.live:
            if changed and event.fraction != 0.0:  # what has not begun to move was announced in a sentence
                click.echo(event.stage, err=True)
                self._stage = event.stage
            return
        now = time.monotonic()
        if not changed and event.fraction not in (None, 1.0) and now - self._shown < 0.1:
            return
        share = "" if event.fraction is None else f" {event.fraction:4.0%}"
        click.echo(f"\r\x1b[2K{event.stage}{share}", nl=False, err=True)
        self._stage, self._shown, self._open = event.stage, now, True


def cancellable(cancel: Callable[[], None], events: Iterator[Item]) -> Iterator[Item]:
    """The events of an answer, where Ctrl-C calls `cancel`, which ends it at once, and keeps what came.

    The answer is made in a thread of its own: while the main thread is inside a long decode, Python could not react.
    For its duration Ctrl-C raises nothing: an exception between two lines here could lose an event.
    """
    line: queue.SimpleQueue[Item | BaseException | None] = queue.SimpleQueue()
    over = False

    def work() -> None:
        try:
            for event in events:
                line.put(event)
            line.put(None)
        except BaseException as error:
            line.put(error)

    before = signal.signal(signal.SIGINT, lambda *_: cancel())
    worker = threading.Thread(target=work, name="edgespec-answer", daemon=True)
    worker.start()
    try:
        while (event := line.get()) is not None:
            if isinstance(event, BaseException):
                over = True
                raise event
            yield event
        over = True
    finally:
        if not over:  # whoever reads has left; a worker that is about to end is not to be cancelled
            cancel()
        worker.join()
        signal.signal(signal.SIGINT, before)
