"""`edgespec bench report`: what earlier runs measured, printed, compared, drawn."""

from __future__ import annotations

from pathlib import Path

import click

from edgespec.cli.options import OUTPUT, option, options


@click.command("report")
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@option("--plot", help="Draw the figures of the first file (.png, .svg).", type=click.Path(path_type=Path))
@option("--markdown", is_flag=True, help="Print tables for a README or an issue.")
@option("--each-kind", is_flag=True, help="All figures of the arms on each kind of prompt, too.")
@option("--price-per-hour", help="What the machine costs in an hour.", type=click.FloatRange(min=0.0))
@options(OUTPUT)
def command(
    files: tuple[Path, ...],
    plot: Path | None,
    markdown: bool,
    each_kind: bool,
    price_per_hour: float | None,
    verbose: bool,
    quiet: bool,
) -> None:
    """Print what FILES of --json hold; of several, also what they have in common."""
    from edgespec.bench.figures import figures
    from edgespec.bench.records import gather, read_lines
    from edgespec.bench.report import as_markdown, compare
    from edgespec.cli.bench.show import put, show

    measured = [gather(read_lines(path)) for path in files]
    runs = [(run, figures(run, price_per_hour)) for run in measured]
    for run, found in runs:
        if markdown:
            click.echo(as_markdown(run, found))
        else:
            show(run, found, each_kind=each_kind)
    if len(runs) > 1 and not markdown:
        put(lambda width: compare(runs, width))
    if plot is not None:
        from edgespec.bench.plots import plot as draw

        draw(*runs[0], plot)
        click.echo(f"Drawn into {plot}.", err=True)
