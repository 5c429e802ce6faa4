"""A run's tables and its verdict, on stdout."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click
from rich.console import Console

from edgespec.bench.figures import Figures
from edgespec.bench.records import Measurements
from edgespec.bench.report import report
from edgespec.bench.verdict import verdict

WIDTH = 100


def console() -> Console:
    """Where tables go: as wide as the terminal, but no wider than can be read well."""
    usual = Console(highlight=False, emoji=False, markup=False)
    usual.width = min(usual.width, WIDTH) if sys.stdout.isatty() else WIDTH
    return usual


def show(measured: Measurements, found: Sequence[Figures]) -> None:
    """Print what a run measured, the verdict last: it is what people look for at the end."""
    paper = console()
    paper.print(report(measured, found, paper.width))
    for sentence in verdict(measured, list(found)):
        click.echo(sentence)
