"""What a run says to a person: which way of drafting pays here, what to use, and what is wrong with the figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from edgespec.bench.figures import ENOUGH_TOKENS, Figures, Speedup
from edgespec.bench.records import PLAIN, Arm, Measurements

WINS, LOSES = 1.03, 0.97
"""How far from plain a speed-up must be to be spoken of, besides an interval that lies on its side of 1."""
ENOUGH_OVERLAP = 0.75
"""How often the draft's best five should hold the target's choice."""
UNSTEADY = 0.3
"""Width of the null arm's interval from which the other figures are not worth much."""
_PLACES = 3  # as many faults are named; the others are counted


@dataclass(frozen=True, slots=True)
class _Way:
    """A way of drafting that was measured beside plain."""

    name: str
    overall: Speedup
    kinds: dict[str, Speedup]

    @property
    def gains(self) -> bool:
        return self.overall.faster

    @property
    def wins(self) -> dict[str, Speedup]:
        return {kind: s for kind, s in self.kinds.items() if s.faster and s.value >= WINS}

    @property
    def losses(self) -> dict[str, Speedup]:
        return {kind: s for kind, s in self.kinds.items() if s.slower and s.value <= LOSES}

    @property
    def subject(self) -> str:
        drafter, colon, _ = self.name.partition(":")
        words = {"model": "the draft model ({}) is", "ngram": "n-grams ({}) are"} if colon else {}
        return words.get(drafter, "{} is").format(self.name)

    @property
    def options(self) -> str:
        drafter, colon, k = self.name.partition(":")
        return f"--drafter {drafter} --k {k}" if colon else f"--drafter {drafter}"


def verdict(measurements: Measurements, figures: Sequence[Figures]) -> list[str]:
    """One or two sentences on what pays and what to use; more only where there is something to beware of."""
    run = measurements.run
    ways = _ways(figures, run.arms)
    sentences: list[str] = []
    if run.synthetic is not None:
        sentences.append(
            f"Acceptance was replaced by chance at {run.synthetic:g}, so the texts mean nothing: only the times count."
        )
    if ways:
        sentences.append(_sentence("; ".join(map(_finding, ways))))
    else:
        sentences.append("Nothing can be said of drafting: no drafting arm was measured beside plain.")
    if run.synthetic is None:  # what pays at an acceptance that was made up is no advice
        sentences.extend(_advice(ways))
    return [*sentences, *_unsteady(measurements, figures), *_forks(measurements), *_overlap(measurements)]


def overall_lower_bound(figures: Sequence[Figures], arms: Sequence[Arm]) -> float | None:
    """The lower end of auto's overall speed-up, or where auto was not measured of the best drafting arm's.

    None where there is none, or too little of it for a claim.
    """
    ways = _ways(figures, arms)
    asked = [way for way in ways if way.name == "auto"] or ways
    best = _best(asked).overall if asked else None
    return best.low if best is not None and best.known else None


def _ways(figures: Sequence[Figures], arms: Sequence[Arm]) -> list[_Way]:
    ways = []
    for arm in arms:
        speedups = {f.kind: f.speedup for f in figures if f.arm == arm.name and f.speedup is not None}
        overall = speedups.pop(None, None)
        kinds = {kind: speedup for kind, speedup in speedups.items() if kind is not None}
        if arm.kind == "drafting" and overall is not None:
            ways.append(_Way(arm.name, overall, kinds if len(kinds) > 1 else {}))  # a single kind is the overall
    return ways


def _best(ways: Iterable[_Way]) -> _Way:
    return max(ways, key=lambda way: way.overall.value)


def _finding(way: _Way) -> str:
    """A way's best kind where it wins, its worst where it loses, and its overall."""
    wins, losses = way.wins, way.losses
    said = [max(wins, key=lambda kind: wins[kind].value)] if wins else []
    said += [min(losses, key=lambda kind: losses[kind].value)] if losses else []
    parts = [(f"on {kind} prompts", way.kinds[kind]) for kind in said] + [("overall", way.overall)]
    texts = [f"{s.value:.2f}×{'' if i else ' plain'} {where}{_bounds(s)}" for i, (where, s) in enumerate(parts)]
    return f"{way.subject} {_listed(texts)}"


def _advice(ways: Sequence[_Way]) -> Iterator[str]:
    if not ways:
        return
    single = [s for way in ways for s in (way.overall, *way.kinds.values()) if not s.known]
    if gaining := [way for way in ways if way.gains]:
        yield f"Use {_best(gaining).options}."
    elif any(way.wins for way in ways):
        yield f"Use {_by_kind(ways)}, and --drafter none otherwise."
    elif any(way.overall.known for way in ways):
        yield "Use --drafter none: no way of drafting is surely faster than plain decoding here."
    if single:
        some = "These" if len(single) == sum(1 + len(way.kinds) for way in ways) else "Some of these"
        yield (
            f"{some} figures rest on too little to be sure of ({ENOUGH_TOKENS} tokens a side are wanted): run with a "
            "larger --repeat or --max-tokens."
        )


def _by_kind(ways: Sequence[_Way]) -> str:
    """Each kind that some way wins, with the way that wins it by most."""
    kinds = dict.fromkeys(kind for way in ways for kind in way.wins)
    chosen: dict[str, list[str]] = {}
    for kind in kinds:
        best = max((way for way in ways if kind in way.wins), key=lambda way: way.kinds[kind].value)
        chosen.setdefault(best.options, []).append(kind)
    return ", ".join(f"{options} for {_listed(kinds)} prompts" for options, kinds in chosen.items())


def _unsteady(measurements: Measurements, figures: Sequence[Figures]) -> Iterator[str]:
    nulls = {arm.name for arm in measurements.run.arms if arm.kind == "null"}
    if not nulls:
        yield "How much of this is noise is not known: name plain twice in --arms to see it."
    for speedup in (f.speedup for f in figures if f.arm in nulls and f.kind is None):
        if speedup is None or speedup.low is None or speedup.high is None:
            continue
        leaves_out_1 = not round(speedup.low, 2) <= 1.0 <= round(speedup.high, 2)  # as a person reads them
        if leaves_out_1 or speedup.high - speedup.low > UNSTEADY:
            repeats = 1 + max((answer.repeat for answer in measurements.answers), default=0)
            yield (
                f"This machine was too unsteady during the run: plain decoding came out at {speedup.value:.2f}× itself"
                f"{_bounds(speedup)}, and the other figures may be as wrong; close other programs and run again with "
                f"--repeat {max(3, 2 * repeats)}."
            )


def _forks(measurements: Measurements) -> Iterator[str]:
    if not measurements.forks:
        return
    others = {arm.name for arm in measurements.run.arms if arm.kind != "peer" and arm.name != PLAIN}
    texts = sum(answer.arm in others for answer in measurements.answers)
    faults = [fork for fork in measurements.forks if not fork.honest]
    if honest := len(measurements.forks) - len(faults):
        yield f"{honest} of {texts} texts left plain's at a near-tie that this build's rounding explains."
    if faults:
        places = [f"{fork.arm} on {fork.prompt} at token {fork.at}" for fork in faults[:_PLACES]]
        places += [f"{len(faults) - _PLACES} more"] if len(faults) > _PLACES else []
        yield (
            f"A fault of edgespec: {len(faults)} of {texts} texts left plain's where this build's rounding does not "
            f"explain it ({_listed(places)}); please report it."
        )


def _overlap(measurements: Measurements) -> Iterator[str]:
    tokens = sum(overlap.tokens for overlap in measurements.overlaps)
    five = sum(overlap.five * overlap.tokens for overlap in measurements.overlaps)
    if tokens and five / tokens < ENOUGH_OVERLAP:
        yield (
            f"The draft's five best tokens hold the target's choice in only {100 * five / tokens:.0f} % of positions: "
            "this pair is unlikely to pay."
        )


def _bounds(speedup: Speedup) -> str:
    return "" if speedup.low is None else f" ({speedup.low:.2f}–{speedup.high:.2f})"


def _listed(texts: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(texts[:-1]), texts[-1])))


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."
