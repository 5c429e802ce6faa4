"""The tables of a report, each from its part of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest

from rich.text import Text

from edgespec.bench.curve import DrafterKind, break_even, cost, speedup_at
from edgespec.bench.figures import ENOUGH_TOKENS, Figures, Speedup
from edgespec.bench.records import PLAIN, Arm, CostCurve, Fork, Overlap, Run
from edgespec.bench.sheets import Sheet, clean
from edgespec.bench.verdict import ENOUGH_OVERLAP

LOW_ACCEPTANCE = 0.6
POSITIONS = 8
FORKS_SHOWN = 10
NONE = "–"
SIGNS = (
    f"▲ faster, ▼ slower than plain: the 95 % interval leaves out 1. ? under {ENOUGH_TOKENS} tokens or too few pairs."
)

Index = Mapping[tuple[str, str | None], Figures]
"""Figures by arm and kind."""


def synthetic(acceptance: float) -> str:
    return f"synthetic acceptance {acceptance:.2f}: times only"


def marked(title: str, run: Run) -> str:
    """A title that says so where texts mean nothing."""
    return title if run.synthetic is None else f"{title} ({synthetic(run.synthetic)})"


def speeds(index: Index, arms: Sequence[Arm], run: Run) -> Sheet:
    """Speed-ups with their intervals: kinds down, arms across; plain as tokens/s."""
    kinds = list(dict.fromkeys(kind for _, kind in index if kind is not None))
    others = [arm for arm in arms if arm.kind != "plain"]
    measured = (PLAIN, None) in index
    rows = []
    for kind in [*kinds, None]:
        figures = [index.get((arm.name, kind)) for arm in others]
        plain = index.get((PLAIN, kind))
        level = [Text(number(plain.tokens_per_second if plain else None).rjust(len(PLAIN)))] if measured else []
        rows.append((kind_of(kind), *level, *(ratio(figure.speedup if figure else None) for figure in figures)))
    return Sheet(
        marked("Speed-up against plain (plain itself in tokens/s)", run),
        ("kind", *([PLAIN] if measured else []), *(f" {title(arm)}" for arm in others)),
        tuple(rows),
        SIGNS,
        left=True,
        breaks=frozenset({len(kinds) - 1}),
    )


def by_kind(index: Index, arms: Sequence[Arm], run: Run) -> Sheet:
    """Tokens/s of every arm on every kind, and of what it drafted the share that was accepted."""
    kinds = list(dict.fromkeys(kind for _, kind in index if kind is not None))
    rows = []
    for kind in kinds:
        figures = [index.get((arm.name, kind)) for arm in arms]
        rows.append((kind_of(kind), *(_cell(_pace(figure)) for figure in figures)))
    return Sheet(marked("Tokens/s, and how much of what was drafted was accepted", run),
                 ("kind", *map(title, arms)), tuple(rows))  # fmt: skip


def each_arm(index: Index, arms: Sequence[Arm], run: Run, kind: str | None = None) -> Sheet:
    """The arms side by side, on a kind or on all: a line for each thing that is known of any."""
    lines: list[tuple[str, Callable[[Figures], str | None]]] = [
        ("answers", lambda f: f"{f.answers:,}"),
        ("tokens", lambda f: f"{f.tokens:,}"),
        ("tokens/s", lambda f: _known(f.tokens_per_second, number)),
        ("acceptance rate", lambda f: _known(f.acceptance_rate, lambda rate: _low(rate, LOW_ACCEPTANCE))),
        ("mean acceptance length", lambda f: _known(f.mean_acceptance_length, "{:.2f}".format)),
        ("drafted", lambda f: f"{f.drafted:,}" if f.drafted else None),
        ("accepted", lambda f: f"{f.accepted or 0:,}" if f.drafted else None),
        ("rounds", lambda f: _known(f.rounds, "{:,}".format)),
        ("time to first token", lambda f: _known(f.ttft_ms, _time)),
        ("prompt tokens/s", lambda f: _known(f.prompt_tokens_per_second, number)),
        ("% draft/verify/overhead", _split),
        ("memory, all models", lambda f: _known(f.memory, lambda size: f"{size / 1e9:.1f} GB")),
        ("J/token", lambda f: _known(f.joules_per_token, "{:.2f}".format)),
        ("cost of 1M tokens", lambda f: _known(f.cost_per_million, "{:.2f}".format)),
        ("saving", lambda f: _saving(f)),
    ]
    rows = []
    for name, say in lines:
        cells = [say(index[arm.name, kind]) for arm in arms]
        if any(cell is not None for cell in cells):
            rows.append((Text(name), *(_cell(cell) for cell in cells)))
    where = "over all kinds" if kind is None else f"on {clean(kind)}"
    return Sheet(marked(f"The arms, {where}", run), ("", *map(title, arms)), tuple(rows))


def positions(index: Index, arms: Sequence[Arm], run: Run) -> Sheet:
    """How many of the tokens drafted at each position were accepted."""
    rows = []
    for arm in arms:
        shares = [_known(share, "{:.0%}".format) for share in accepted(index[arm.name, None])]
        if shares:
            padded = [*shares, *[""] * POSITIONS][:POSITIONS]
            rows.append((Text(title(arm)), *map(_cell, padded), Text("…" if len(shares) > POSITIONS else "")))
    longest = any(row[-1].plain for row in rows)
    head = ("position", *map(str, range(1, POSITIONS + 1)), *([""] if longest else []))
    return Sheet(marked("Accepted, by position in the draft", run), head, tuple(row[: len(head)] for row in rows))


def no_ties(forks: Sequence[Fork], run: Run) -> Sheet:
    """The forks that no noise of this build explains."""
    wrong = [fork for fork in forks if not fork.honest]
    rows = tuple(
        (Text(clean(fork.prompt)), Text(clean(fork.arm)), Text(str(fork.at)),
         Text(NONE if fork.gap is None else f"{fork.gap:.3f}"), Text(f"{fork.band:.3f}"))
        for fork in wrong[:FORKS_SHOWN]
    )  # fmt: skip
    more = f"{len(wrong) - FORKS_SHOWN} more are in the measurements. " if len(wrong) > FORKS_SHOWN else ""
    note = f"{more}Gap: between the logits of the two tokens. Band: what the noise of this build explains."
    return Sheet(
        marked("Texts that differ from plain's", run), ("prompt", "arm", "token", "gap", "band"), rows, note, 2
    )


def curve(measured: CostCurve, run: Run) -> Sheet:
    """What a target pass costs by its width, and what drafting so many tokens could give."""
    drafters: list[DrafterKind] = ["ngram"] if measured.draft_step is None else ["model", "ngram"]
    first = cost(measured, 1)
    rows = []
    for width, seconds in zip(measured.widths, measured.seconds, strict=True):
        row = [str(width), f"{1000 * seconds:.1f}", f"{seconds / first:.2f}", str(width - 1) if width > 1 else ""]
        for drafter in drafters:
            row += ["", ""] if width == 1 else _gains(measured, width - 1, drafter)
        rows.append(tuple(map(Text, row)))
    head = ("n", "ms", "v(n)/v(1)", "k", *(f"{name} {what}" for name in drafters for what in ("from", "best")))
    step = "" if measured.draft_step is None else f"A step of the draft takes {1000 * measured.draft_step:.1f} ms. "
    note = (
        f"{step}From: the acceptance from which drafting k = n - 1 tokens pays. Best: the speed-up if all are accepted."
    )
    return Sheet(marked(f"A target pass over n tokens, {measured.context} cached", run), head, tuple(rows), note)


def overlaps(measured: Sequence[Overlap], run: Run) -> Sheet:
    """How alike draft and target are."""
    rows = tuple(
        (Text(clean(one.kind)), Text(f"{one.tokens:,}"), Text(f"{one.first:.0%}"),
         _cell(_low(one.five, ENOUGH_OVERLAP)), Text(f"{one.shared:.0%}"))
        for one in measured
    )  # fmt: skip
    head = ("kind", "tokens", "same first", "first in five", f"shared at {measured[0].temperature:g}")
    note = (
        "Same first: draft and target put the same token first. First in five: the target's first is among the draft's "
        f"first five; under {ENOUGH_OVERLAP:.0%} the pair is unlikely to pay. Shared: Σ min(p, q) at that temperature."
    )
    return Sheet(marked("Draft and target on the same text", run), head, rows, note)


def accepted(figures: Figures) -> list[float | None]:
    """For each position, which part of what was drafted there was accepted."""
    pairs = zip_longest(figures.accepted_per_position, figures.drafted_per_position, fillvalue=0)
    return [kept / drafted if drafted else None for kept, drafted in pairs]


def title(arm: Arm) -> str:
    return "plain again" if arm.kind == "null" else clean(arm.name)


def kind_of(name: str | None) -> Text:
    return Text("all", style="bold") if name is None else Text(clean(name))


def ratio(speedup: Speedup | None) -> Text:
    """A speed-up and its interval, with a sign where it is proven to be one, or none."""
    if speedup is None:
        return Text(f" {NONE}", style="dim")
    value = f"{speedup.value:.2f}×"
    if speedup.low is None or speedup.high is None:
        return Text(f" {value} ?")
    sign, style = ("▲", "bold green") if speedup.faster else ("▼", "bold red") if speedup.slower else (" ", "")
    doubt = "" if speedup.known else " ?"
    return Text.assemble((f"{sign}{value}", style), f" ({speedup.low:.2f}–{speedup.high:.2f}){doubt}")


def number(speed: float | None) -> str:
    """Tokens a second, with three digits or so."""
    return (
        NONE if speed is None else f"{speed:.0f}" if speed >= 100 else f"{speed:.1f}" if speed >= 1 else f"{speed:.2f}"
    )


def _known(value: float | None, say: Callable[[float], str]) -> str | None:
    return None if value is None else say(value)


def _cell(words: str | None) -> Text:
    if words is None:
        return Text(NONE, style="dim")
    return Text(words, style="yellow" if words.startswith("low ") else "")


def _pace(figures: Figures | None) -> str | None:
    if figures is None or figures.tokens_per_second is None:
        return None
    rate = figures.acceptance_rate
    return number(figures.tokens_per_second) + ("" if rate is None else f" ({rate:.0%})")


def _low(share: float, limit: float) -> str:
    return f"{'low ' if share < limit else ''}{share:.0%}"


def _time(ms: float) -> str:
    return f"{ms:.0f} ms" if ms < 1000 else f"{ms / 1000:.2f} s"


def _split(figures: Figures) -> str | None:
    draft, verify, overhead = figures.draft_share, figures.verify_share, figures.overhead_share
    if draft is None or verify is None or overhead is None:
        return None
    return f"{100 * draft:.0f}/{100 * verify:.0f}/{100 * overhead:.1f}"


def _saving(figures: Figures) -> str | None:
    """Of what plain decoding costs, by the speed-up; None for plain itself."""
    if figures.cost_per_million is None or figures.speedup is None:
        return None
    return f"{1 - 1 / figures.speedup.value:.0%}"


def _gains(measured: CostCurve, k: int, drafter: DrafterKind) -> list[str]:
    needed = break_even(measured, k, drafter)
    return ["never" if needed is None else f"{needed:.0%}", f"{speedup_at(measured, k, drafter, 1.0):.2f}×"]
