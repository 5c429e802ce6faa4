"""How far a download is: a bar with size, rate and time left on a terminal, a line now and then elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.progress import Progress

_STEP = 0.1  # of the whole, between two lines where there is no terminal


class Download:
    """Shows one download on stderr; `size` is in bytes, `live` says whether there is a terminal to draw on."""

    def __init__(self, name: str, size: int, *, live: bool) -> None:
        self._name, self._size, self._live = name, size, live
        self._bar: Progress | None = None
        self._told = 0.0

    def show(self, fraction: float) -> None:
        if self._live:
            self._draw(int(fraction * self._size))
        elif fraction >= self._told + _STEP:
            self._told = fraction
            click.echo(f"{self._name}: {fraction:.0%} of {self._size / 1e6:,.0f} MB", err=True)

    def end(self) -> None:
        if self._bar is not None:
            self._bar.stop()
        self._bar = None

    def _draw(self, done: int) -> None:
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
            from rich.progress import TransferSpeedColumn as Rate

            columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), Rate(), TimeRemainingColumn())
            self._bar = Progress(*columns, console=Console(stderr=True), redirect_stdout=False, redirect_stderr=False)
            self._bar.add_task(self._name, total=self._size, completed=done)  # what was there is no part of the rate
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], completed=done)
