"""`edgespec bench`: plain decoding against drafting on this machine, with a verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from edgespec.cli.bench.report import command as report
from edgespec.cli.options import ANSWER, LOADING, OUTPUT, PAIR, option, options

FILE = click.Path(dir_okay=False, path_type=Path)


class Share(click.types.FloatParamType):
    """A number from 0 to 1."""

    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if not 0.0 <= number <= 1.0:
            self.fail(f"{value} is not from 0 to 1.", param, ctx)
        return number


BENCH = (
    option("--suite", help="quick, spec-bench, humaneval, or a file of your own prompts: a line of text or of JSON for "
           "each.", default="quick", show_default=True),
    option("--kinds", help="Only these kinds of prompts, with commas between.  [default: all]"),
    option("--limit", help="At most so many prompts of each kind.  [default: all]", type=click.IntRange(min=1)),
    option("--arms", help="What is compared, with commas between: plain (twice shows the noise), auto, model:K, "
           "ngram:K.  [default: plain,plain,auto,ngram:8]"),
    option("--peer", help="Another program to compare with: NAME=URL of an OpenAI-compatible server, or NAME=COMMAND "
           "that starts one on {port}; can be given several times.", multiple=True),
    option("--repeat", help="Times that each prompt is asked; two or more narrow the intervals.", default=2,
           show_default=True, type=click.IntRange(min=1)),
    option("--curve/--no-curve", help="Measure what checking several tokens at once costs.", default=True,
           show_default=True),
    option("--overlap", is_flag=True, help="Measure how alike draft and target are on the answers."),
    option("--synthetic-acceptance", help="Accept drafted tokens by chance, each with this probability: times without "
           "meaning of the text.", type=Share()),
    option("--price-per-hour", help="What the machine costs in an hour: adds the cost of a million tokens.",
           type=click.FloatRange(min=0.0)),
    option("--json", "as_json", help="Write all that was measured to this file, as JSON lines.", type=FILE,
           envvar="EDGESPEC_BENCH_JSON"),  # EDGESPEC_JSON is a switch of other commands
    option("--rounds", help="Write every round to this file, as JSON lines.", type=FILE),
    option("--plot", help="Draw the figures into this file (.png, .svg).", type=FILE),
    option("--require", help="Exit 1 unless auto (or the best arm) is surely this many times as fast as plain.",
           type=click.FloatRange(min=0.0)),
)  # fmt: skip


@click.group("bench", invoke_without_command=True)
@options(BENCH, PAIR, LOADING, ANSWER, OUTPUT)
def command(**_: Any) -> None:
    """Find out what drafting gives on this machine, for your pair and your kind of text.

    Every prompt is answered in several ways, one after the other on the same load, so that what else happens on the
    machine hits all of them alike. Speed-ups are medians of paired ratios, with 95 % intervals. Temperature is 0 and
    answers have 128 tokens where nothing else is said. Ctrl-C ends the run and reports what was measured.
    """
    ctx = click.get_current_context()
    if ctx.invoked_subcommand is None:
        from edgespec.cli.bench.session import Session

        ctx.exit(Session(ctx).run())


command.add_command(report)
