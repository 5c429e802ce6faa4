"""A run as one picture: speed-up by kind, what a target pass costs, from where drafting pays, what is accepted."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from edgespec.bench.curve import DrafterKind, break_even, cost
from edgespec.bench.figures import Figures
from edgespec.bench.records import Arm, CostCurve, Measurements, Run
from edgespec.bench.sheets import WIDEST, clean
from edgespec.bench.tables import accepted, synthetic, title
from edgespec.errors import UsageError

SUFFIXES = (".png", ".svg")
# Okabe and Ito's colours, which colour-blind people tell apart, with shapes besides.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
SHAPES = "osD^vPX"
INK, QUIET, FAINT = "#333333", "#999999", "#E4E4E4"
SMALL, NORMAL = 8.5, 10
POSITIONS = 16
STEPS = (0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 4, 5, 7, 10, 15, 20, 30, 50)
FINE_STEPS = tuple(n / 10 for n in range(1, 21))
LINES = ((0.12, NORMAL + 1.5, "bold"), (0.38, NORMAL, "normal"), (0.6, NORMAL, "normal"))
"""Of the heading: inches from the top, size, weight."""
HEAD = 0.95
"""Inches of the heading in all."""

Axes = Any  # matplotlib is optional, and its types come with it
Draw = Callable[[Axes], None]
Look = tuple[str, str]
"""Colour and shape."""


def check(path: Path) -> None:
    """Raise UsageError where `plot` could not draw into `path`: better asked before an hour is spent measuring."""
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"A plot goes into a file that ends in .png or .svg: {path.name} does not.")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"{path} cannot be written: there is no folder {path.parent}.")
    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError(f"Plots need matplotlib: install it with {sys.executable} -m pip install matplotlib.")


def plot(measurements: Measurements, figures: Sequence[Figures], path: Path) -> None:
    """Draw what was measured into `path`, a .png or .svg; panels with nothing to show are left out.

    Raises UsageError for another ending, without matplotlib, with nothing to show, or where `path` cannot be written.
    """
    check(path)
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    panels = _panels(measurements, figures)
    if not panels:
        raise UsageError("There is nothing to plot: neither a speed-up nor a cost curve was measured.")
    kinds = len({figure.kind for figure in figures if figure.speedup})
    mosaic, size, ratios = _layout(list(panels), kinds * (0.15 + 0.1 * len(_arms(measurements.run, figures))) + 1.0)
    width, height = size[0], size[1] + HEAD
    picture = Figure(figsize=(width, height))
    picture.set_layout_engine(
        ConstrainedLayoutEngine(rect=(0.01, 0.01, 0.98, 0.99 - HEAD / height), wspace=0.05, hspace=0.06)
    )
    for name, axes in picture.subplot_mosaic(mosaic, **ratios).items():
        axes.tick_params(labelsize=SMALL, colors=INK, length=3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color(QUIET)
        axes.grid(color=FAINT, linewidth=0.7)
        axes.set_axisbelow(True)
        panels[name](axes)
    for line, (down, points, weight) in zip(_heading(measurements.run), LINES, strict=True):
        fitting = line[: int(115 * width / points)]
        picture.text(0.15 / width, 1 - down / height, fitting, va="top", color=INK, fontsize=points, fontweight=weight)
    try:
        picture.savefig(path, format=path.suffix[1:].lower(), dpi=160)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}.") from error


def _panels(measurements: Measurements, figures: Sequence[Figures]) -> dict[str, Draw]:
    """What there is to draw, by name."""
    arms = _arms(measurements.run, figures)
    curve = measurements.curve
    lines = {
        arm: shares for arm in arms for f in figures if f.arm == arm.name and f.kind is None and (shares := accepted(f))
    }
    panels: dict[str, Draw] = {}
    if arms:
        panels["speed"] = partial(_speed_panel, figures=figures, arms=arms)
    if curve is not None and len(curve.widths) > 1:
        panels |= {"cost": partial(_cost_panel, curve=curve), "even": partial(_even_panel, curve=curve, arms=arms)}
    if lines:
        panels["positions"] = partial(_position_panel, lines=lines, arms=arms)
    return panels


def _arms(run: Run, figures: Sequence[Figures]) -> dict[Arm, Look]:
    """The arms that stand beside plain, each with its look; the null arm is grey."""
    measured = {figure.arm for figure in figures if figure.speedup}
    arms = [arm for arm in run.arms if arm.name in measured]
    others = [arm for arm in arms if arm.kind != "null"]
    looks = {arm: (COLOURS[i % len(COLOURS)], SHAPES[i % len(SHAPES)]) for i, arm in enumerate(others)}
    return {arm: looks.get(arm, (QUIET, "o")) for arm in arms}


def _layout(names: list[str], speed: float) -> tuple[Any, tuple[float, float], dict[str, Any]]:
    """Where the panels stand, the picture's width and height in inches, and how the space is shared.

    Speed-ups, which want to be `speed` inches high, stand beside the other panels, or above them where they are few.
    """
    side, low = [name for name in names if name != "speed"], 2.7
    if len(side) == len(names):
        return [side], (4.0 * len(side), low + 0.6), {}
    if not side:
        return [["speed"]], (8.0, speed), {}
    if speed < low * 1.5:
        return [["speed"] * len(side), side], (4.0 * max(2, len(side)), speed + low), {"height_ratios": (speed, low)}
    return [["speed", name] for name in side], (12.0, max(speed, low * len(side))), {"width_ratios": (1.35, 1.0)}


def _heading(run: Run) -> tuple[str, str, str]:
    """Target; draft; machine and date, behind what must not be missed."""
    beware = "" if run.synthetic is None else synthetic(run.synthetic)
    machine = [str(run.machine.get("processor") or ""), *map(str, run.machine.get("gpus") or ())]
    facts = ", ".join(part for part in (beware, *machine, run.started[:10]) if part)
    return (
        _shown(run.target),
        _shown(f"drafted by {run.draft}" if run.draft else "without a draft model"),
        _shown(facts),
    )


def _speed_panel(axes: Axes, figures: Sequence[Figures], arms: Mapping[Arm, Look]) -> None:
    """Dots with their intervals, kinds down; hollow where nothing is proven."""
    index = {(figure.arm, figure.kind): figure.speedup for figure in figures}
    kinds = sorted(dict.fromkeys(f.kind for f in figures if f.speedup), key=lambda kind: kind is None)
    step = 0.76 / len(arms)
    seen = []
    for row, kind in enumerate(kinds):
        if row % 2 == 0:
            axes.axhspan(row - 0.5, row + 0.5, color="#F6F6F6", zorder=0, linewidth=0)
        for place, (arm, (colour, shape)) in enumerate(arms.items()):
            speedup = index.get((arm.name, kind))
            if speedup is None:
                continue
            low, high = speedup.low or speedup.value, speedup.high or speedup.value
            proven = speedup.faster or speedup.slower
            y = row + (place - (len(arms) - 1) / 2) * step
            axes.plot((low, high), (y, y), color=colour, linewidth=1.3, solid_capstyle="butt")
            axes.plot(
                speedup.value, y, shape, color=colour, markersize=4.6, markerfacecolor=colour if proven else "white"
            )
            seen += [low, high]
    axes.axvline(1.0, color=INK, linewidth=0.9, zorder=1)
    axes.set_xscale("log")
    axes.set_xlim(min(*seen, 0.92) * 0.97, max(*seen, 1.08) * 1.03)
    _ticks(axes)
    axes.set_ylim(len(kinds) - 0.5, -0.5)
    axes.set_yticks(range(len(kinds)), ["all" if kind is None else _name(kind) for kind in kinds])
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    if kinds[-1] is None:
        axes.get_yticklabels()[-1].set_fontweight("bold")
    _title(axes, "Speed-up by kind", "plain = 1; bars are 95 % intervals; hollow: nothing is proven")
    _legend(axes, [(_name(title(arm)), *look, "none") for arm, look in arms.items()], below=True)


def _cost_panel(axes: Axes, curve: CostCurve) -> None:
    """v(n)/v(1), between costing nothing more and costing as much as one by one."""
    first = cost(curve, 1)
    ratios = [seconds / first for seconds in curve.seconds]
    widest, top = max(curve.widths), 1.15 * max(ratios)
    axes.plot(curve.widths, ratios, "o-", color=INK, markersize=4, linewidth=1.5)
    axes.plot((1, widest), (1, 1), "--", color=QUIET, linewidth=1)
    axes.plot((1, widest), (1, widest), ":", color=QUIET, linewidth=1.2)
    axes.set_xlim(0.5, widest + 0.5)
    axes.set_ylim(0, max(top, 2))
    _title(axes, "Cost of a target pass", f"v(n)/v(1); v(1) = {1000 * first:.1f} ms")
    axes.set_xlabel("tokens in the pass, n", fontsize=SMALL, color=INK)
    looks = [("measured", INK, "o", "-"), ("one by one", QUIET, "", ":"), ("as if free", QUIET, "", "--")]
    _legend(axes, looks)


def _even_panel(axes: Axes, curve: CostCurve, arms: Mapping[Arm, Look]) -> None:
    """The acceptance from which drafting k tokens pays, by drafter, which looks like its arm."""
    lengths = [width - 1 for width in curve.widths if width > 1]
    usual_looks: dict[DrafterKind, Look] = {"ngram": (COLOURS[2], "D"), "model": (COLOURS[1], "s")}
    looks = []
    for drafter, usual in usual_looks.items():
        if drafter == "model" and curve.draft_step is None:
            continue
        look = next((look for arm, look in arms.items() if arm.name.startswith(f"{drafter}:")), usual)
        needed = [break_even(curve, k, drafter) for k in lengths]
        shares = [float("nan") if share is None else 100 * share for share in needed]
        never = [k for k, share in zip(lengths, needed, strict=True) if share is None]
        axes.plot(lengths, shares, f"{look[1]}-", color=look[0], markersize=4, linewidth=1.5)
        axes.plot(never, [104] * len(never), "x", color=look[0], markersize=5)
        looks.append((drafter, *look, "-"))
    axes.set_ylim(0, 108)
    axes.set_xlim(0, max(lengths) + 1)
    _title(axes, "From where drafting pays", "how likely each drafted token must be accepted, in %; ×: never")
    axes.set_xlabel("tokens drafted, k", fontsize=SMALL, color=INK)
    _legend(axes, looks)


def _position_panel(axes: Axes, lines: Mapping[Arm, Sequence[float | None]], arms: Mapping[Arm, Look]) -> None:
    for arm, shares in lines.items():
        colour, shape = arms[arm]
        heights = [float("nan") if share is None else 100 * share for share in shares[:POSITIONS]]
        axes.plot(range(1, len(heights) + 1), heights, f"{shape}-", color=colour, markersize=4, linewidth=1.5)
    axes.set_ylim(0, 104)
    axes.set_xlim(0.5, min(POSITIONS, max(map(len, lines.values()))) + 0.5)
    axes.xaxis.get_major_locator().set_params(integer=True)
    _title(axes, "Accepted by position", "% of the tokens drafted there")
    axes.set_xlabel("position in the draft", fontsize=SMALL, color=INK)
    _legend(axes, [(_name(title(arm)), *arms[arm], "-") for arm in lines])


def _title(axes: Axes, name: str, what: str) -> None:
    axes.set_title(name, loc="left", fontsize=NORMAL, fontweight="bold", color=INK, pad=18)
    axes.annotate(
        what, (0, 1), (0, 5), "axes fraction", "offset points", fontsize=SMALL, color="#666666", va="bottom"
    )  # fmt: skip


def _ticks(axes: Axes) -> None:
    """Round speed-ups, finer ones where there are few of them."""
    low, high = axes.get_xlim()
    shown = [step for step in STEPS if low <= step <= high]
    if len(shown) < 4:
        shown = [step for step in FINE_STEPS if low <= step <= high]
    axes.set_xticks(shown, [f"{step:g}×" for step in shown])
    axes.set_xticks([], minor=True)


def _legend(axes: Axes, looks: Sequence[tuple[str, str, str, Any]], below: bool = False) -> None:
    """Names with colour, shape and line."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=colour, marker=shape, linestyle=line, markersize=5, linewidth=1.3)
        for _, colour, shape, line in looks
    ]
    names = [name for name, *_ in looks]
    place = {}
    if below:
        columns = max(1, 90 // (6 + max(map(len, names))))
        place = {"loc": "upper left", "bbox_to_anchor": (0, 0), "borderaxespad": 2.5, "ncols": columns}
    axes.legend(handles, names, fontsize=SMALL, frameon=False, labelcolor=INK, **place)


def _name(text: str) -> str:
    """A user's name, no longer than in the tables."""
    return _shown(text if len(text) <= WIDEST else f"{text[: WIDEST - 2]}..")


def _shown(text: str) -> str:
    """Text in characters that matplotlib's own font has, and nothing that it reads as mathematics."""
    known = re.sub("[^ -~\u00a0-\u024f\u2013\u00d7]", "?", clean(text))
    return known.replace("$", r"\$")
