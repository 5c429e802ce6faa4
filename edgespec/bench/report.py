"""What a person reads after a run: a heading and tables, from measurements and figures."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from textwrap import wrap
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from edgespec.bench.figures import Figures, Speedup
from edgespec.bench.records import PLAIN, Fork, Measurements, Run
from edgespec.bench.sheets import Sheet, clean, draw, escaped, markdown
from edgespec.bench.tables import (
    SIGNS,
    Index,
    by_kind,
    curve,
    each_arm,
    kind_of,
    marked,
    no_ties,
    number,
    overlaps,
    positions,
    ratio,
    speeds,
    synthetic,
)

NO_ANSWERS = "No answers were measured."
BARE = ("processor", "features", "gpus", "system", "build")
COUNTED = ("cores", "memory", "prompts")


def report(
    measurements: Measurements, figures: Sequence[Figures], width: int = 100, *, each_kind: bool = False
) -> Group:
    """All that was measured, in lines of at most `width` cells. What was not measured is left out.

    `each_kind` adds the table of the arms on each kind to the one over all.
    """
    run = measurements.run
    parts: list[RenderableType] = [_heading(measurements, figures), Text()]
    if not any(figure.answers for figure in figures):
        parts += [Text(NO_ANSWERS), Text()]
    parts += [draw(sheet, width) for sheet in _on_answers(measurements, figures, each_kind)]
    if measurements.forks:
        parts += [_forks(measurements.forks), Text()]
    if any(not fork.honest for fork in measurements.forks):
        parts.append(draw(no_ties(measurements.forks, run), width))
    if measurements.curve is not None:
        parts.append(draw(curve(measurements.curve, run), width))
    if measurements.overlaps:
        parts.append(draw(overlaps(measurements.overlaps, run), width))
    return Group(*parts)


def as_markdown(measurements: Measurements, figures: Sequence[Figures]) -> str:
    """What was measured, on what, the speed-ups and the arms, as GitHub's Markdown."""
    facts = [f"- {name}: {escaped(fact)}" for name, fact in _facts(measurements, figures)]
    sheets = [markdown(sheet) for sheet in islice(_on_answers(measurements, figures), 2)] or [NO_ANSWERS]
    return "\n\n".join(["\n".join(facts), *sheets]) + "\n"


def compare(runs: Sequence[tuple[Measurements, Sequence[Figures]]], width: int = 100) -> RenderableType:
    """Several runs side by side: the speed-ups of the arms and kinds that all of them have.

    Runs agree where their intervals have a point in common. `all` is compared where the kinds are the same.
    """
    if not runs:
        return Text("There is nothing to compare.")
    indexes = [_index(figures) for _, figures in runs]
    asked = [{kind for _, kind in index} for index in indexes]
    same = all(kinds == asked[0] for kinds in asked)  # else what is "all" differs from run to run
    keys = [key for key, figure in indexes[0].items() if figure.speedup and (same or key[1] is not None)]
    shared = [key for key in keys if all(key in index and index[key].speedup for index in indexes)]
    if not shared:
        return Text("These runs have no arm and kind in common: there is nothing to compare.")
    rows: list[tuple[Text, ...]] = []
    if all((PLAIN, None) in index for index in indexes):
        levels = [Text(f" {number(index[PLAIN, None].tokens_per_second)} tokens/s") for index in indexes]
        rows.append((Text(PLAIN), kind_of(None), Text(), *levels))
    breaks = set()
    for arm in dict.fromkeys(arm for arm, _ in shared):
        breaks.add(len(rows) - 1)
        kinds = sorted((kind for name, kind in shared if name == arm), key=lambda kind: kind is None)  # all comes last
        for i, kind in enumerate(kinds):
            speedups = [index[arm, kind].speedup for index in indexes]
            name = Text("" if i else clean(arm))
            rows.append((name, kind_of(kind), _agreement(speedups), *map(ratio, speedups)))
    runs_alone = [measurements.run for measurements, _ in runs]
    several = len({run.target for run in runs_alone}) > 1
    words = [row[2].plain for row in rows]
    return draw(
        Sheet(
            " / ".join(dict.fromkeys(marked("Speed-up against plain, run by run", run) for run in runs_alone)),
            ("arm", "kind", "intervals", *(_column(run, several) for run in runs_alone)),
            tuple(rows),
            f"Intervals agree in {words.count('agree')} of {words.count('agree') + words.count('differ')}. {SIGNS}",
            fixed=3,
            left=True,
            breaks=frozenset(breaks),
        ),
        width,
    )


def _index(figures: Sequence[Figures]) -> Index:
    return {(figure.arm, figure.kind): figure for figure in figures}


def _on_answers(measurements: Measurements, figures: Sequence[Figures], each_kind: bool = False) -> Iterator[Sheet]:
    index, run = _index(figures), measurements.run
    arms = [arm for arm in run.arms if (arm.name, None) in index and index[arm.name, None].answers]
    if arms:
        yield speeds(index, arms, run)
        yield each_arm(index, arms, run)
        kinds = list(dict.fromkeys(kind for _, kind in index if kind is not None))
        if len(kinds) > 1:
            yield by_kind(index, arms, run)
        for kind in kinds if each_kind else ():
            yield each_arm(index, arms, run, kind)
        if any(index[arm.name, None].drafted_per_position for arm in arms):
            yield positions(index, arms, run)


def _heading(measurements: Measurements, figures: Sequence[Figures]) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for name, fact in _facts(measurements, figures):
        grid.add_row(Text(name, style="bold"), Text(fact))
    return grid


def _facts(measurements: Measurements, figures: Sequence[Figures]) -> Iterator[tuple[str, str]]:
    """A name and a line for each of the things that figures mean nothing without."""
    run = measurements.run
    if run.synthetic is not None:
        yield "beware", synthetic(run.synthetic)
    yield "target", clean(run.target) + (f" (pair {clean(run.pair)})" if run.pair else "")
    yield "draft", clean(run.draft) if run.draft else "none"
    for name, values in (("machine", run.machine), ("build", run.versions), ("settings", run.settings)):
        if described := _described(values):
            yield name, described
    utc = " UTC" if run.started.endswith(("+00:00", "Z")) else ""
    totals = [figure for figure in figures if figure.kind is None]
    answers, tokens = sum(figure.answers for figure in totals), sum(figure.tokens for figure in totals)
    yield "measured", f"{_date(run)}{utc}, {answers:,} answers, {tokens:,} tokens"


def _described(values: Mapping[str, Any]) -> str:
    """Names and values in a line, without what is unknown or not there; some values say themselves what they are."""
    shown = [(name, _value(name, value)) for name, value in values.items()]
    parts = {
        name: f"{value} {name}" if name in COUNTED else f"{name.replace('_', ' ')} {value}" for name, value in shown
    }
    return clean(", ".join(value if name in BARE else parts[name] for name, value in shown if value))


def _value(name: str, value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "yes" if value else ""
    if name == "memory":
        return f"{value / 1e9:.1f} GB"
    if isinstance(value, float):
        return f"{value:g}"
    return " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _date(run: Run) -> str:
    return clean(run.started[:16].replace("T", " "))


def _column(run: Run, with_target: bool) -> str:
    """A run's name over a column of speed-ups: when, where, and with what."""
    processor = clean(re.sub(r"\((R|TM)\)", "", str(run.machine.get("processor") or "")))
    names = [processor, clean(run.target)] if with_target else [processor]
    return "\n".join(f" {line}" for line in [_date(run), *(line for name in names for line in wrap(name, 18)[:2])])


def _agreement(speedups: Sequence[Speedup | None]) -> Text:
    bounds = [(one.low, one.high) for one in speedups if one is not None]
    lows, highs = [low for low, _ in bounds if low is not None], [high for _, high in bounds if high is not None]
    if len(lows) < len(bounds):
        return Text("?")
    return Text("agree") if max(lows) <= min(highs) else Text("differ", style="yellow")


def _forks(forks: Sequence[Fork]) -> Text:
    arms = dict.fromkeys(fork.arm for fork in forks)
    counts = ", ".join(f"{clean(arm)} {sum(fork.arm == arm for fork in forks)}" for arm in arms)
    wrong = sum(not fork.honest for fork in forks)
    text = Text(f"Texts that leave plain's: {counts}. ")
    if not wrong:
        return text.append("Each parts where the two tokens are a near-tie on this build.")
    text.append(f"{wrong} of them {'is a proven difference' if wrong == 1 else 'are proven differences'}", "bold red")
    return text.append(f"; {'the others are near-ties' if wrong < len(forks) else 'none is a near-tie'} on this build.")
