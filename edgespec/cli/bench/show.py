"""A run's tables and its verdict, on stdout."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import click
from rich.console import Console, Group, RenderableType
from rich.text import Text

from edgespec.bench.figures import Figures
from edgespec.bench.records import Measurements
from edgespec.bench.report import report
from edgespec.bench.sheets import as_text
from edgespec.bench.verdict import verdict

WIDTH = 100
"""Lines no longer than that can be read well."""


def show(measured: Measurements, found: Sequence[Figures], *, each_kind: bool = False) -> None:
    """Print what a run measured, the verdict last: it is what people look for at the end."""
    sentences = [Text(sentence) for sentence in verdict(measured, found)]
    put(lambda width: Group(report(measured, found, width, each_kind=each_kind), *sentences))


def put(drawn: Callable[[int], RenderableType]) -> None:
    """Print what is `drawn` for a width: in colour on a terminal, else in letters that the other end understands."""
    if sys.stdout.isatty():
        console = Console(highlight=False, emoji=False, markup=False)
        console.width = min(console.width, WIDTH)
        console.print(drawn(console.width))
    else:
        click.echo(as_text(drawn(WIDTH), WIDTH, sys.stdout.encoding or "utf-8"), nl=False)
