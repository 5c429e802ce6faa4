"""A run's tables and its verdict, on stdout."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from edgespec.bench.figures import Figures
from edgespec.bench.records import Measurements
from edgespec.bench.report import renderables
from edgespec.bench.verdict import verdict


def show(measured: Measurements, found: Sequence[Figures]) -> None:
    """Print what a run measured, the verdict last: it is what people look for at the end."""
    from rich.console import Console

    terminal = sys.stdout.isatty()
    console = Console(width=None if terminal else 100, highlight=False, emoji=False, markup=False)
    for part in renderables(measured, found):
        console.print(part)
    for sentence in verdict(measured, list(found)):
        click.echo(sentence)
