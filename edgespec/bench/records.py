"""What a bench run leaves behind: values, and the JSON lines that they are kept in."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TypeVar

from edgespec.errors import UsageError
from edgespec.events import DrafterStats, Stats
from edgespec.protocols import Round

FORMAT = 1
PLAIN = "plain"
"""The arm that all others are compared with."""

ArmKind = Literal["plain", "null", "drafting", "peer"]


@dataclass(frozen=True, slots=True)
class Arm:
    """One way of answering: plain decoding, the same once more (null), some way of drafting, or another program."""

    name: str
    kind: ArmKind


@dataclass(frozen=True, slots=True)
class Run:
    """What was measured, and on what.

    `machine`, `versions` and `settings` are for people and for comparing runs, with short names and plain values.
    `synthetic` is the acceptance that chance was given instead of verification, so that texts mean nothing; None: real.
    """

    arms: tuple[Arm, ...]
    target: str
    draft: str | None
    pair: str | None
    started: str
    machine: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    synthetic: float | None = None
    format: int = FORMAT


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of one arm.

    All arms answer a prompt before the next one is asked, in an order that rotates: `place` is where in that order this
    one came, `repeat` how often the prompt was asked before. A `cold` answer read the whole prompt, a warm one found it
    read. `speed_tokens` came after the first round, in `speed_seconds` (CONTRACT 3: a burst in the first round is no
    speed); for a peer, after the first piece of text. `seconds` is the whole answer.
    `tokens` are ids; a peer's are what the target's tokenizer makes of its text. `memory` is bytes of this process, or
    of the peer's where we started it; `joules` what the machine's own meter says. `stats` are None for a peer.
    """

    prompt: str
    kind: str
    arm: str
    repeat: int
    place: int
    cold: bool
    text: str
    tokens: tuple[int, ...]
    finish_reason: str
    seed: int
    prompt_tokens: int
    seconds: float
    speed_tokens: int
    speed_seconds: float
    ttft_ms: float | None
    drafted: int | None
    accepted: int | None
    stats: Stats | None = None
    memory: int | None = None
    joules: float | None = None


@dataclass(frozen=True, slots=True)
class RoundRecord(Round):
    """A round as the engine reports it, and whose it was: the `index`-th, from 0, of an arm's answer."""

    prompt: str
    kind: str
    arm: str
    repeat: int
    index: int


@dataclass(frozen=True, slots=True)
class Fork:
    """Where an arm's text left plain's: at token `at` of the answer.

    `honest` when the perturbed logits of the two tokens are a near-tie on this build (CONTRACT 4): `gap` is their
    difference (None: no noise of that size brings one of them past the filters), `band` what the measured noise of this
    build can explain.
    """

    prompt: str
    arm: str
    repeat: int
    at: int
    honest: bool
    gap: float | None
    band: float


@dataclass(frozen=True, slots=True)
class CostCurve:
    """Seconds of a target pass over `widths` tokens at `context` cached ones (medians), and of one draft step.

    `overhead` is our own part of a drafting round, in seconds, from the run's rounds.
    """

    context: int
    widths: tuple[int, ...]
    seconds: tuple[float, ...]
    draft_step: float | None = None
    overhead: float = 0.0


@dataclass(frozen=True, slots=True)
class Overlap:
    """How alike draft and target are on a kind's answers, over `tokens` positions.

    `first`: the draft's first token is the target's first; `five`: the target's first is among the draft's first five;
    `shared`: mean of Σ min(p, q) at `temperature`, the acceptance of a drawn token.
    """

    kind: str
    tokens: int
    first: float
    five: float
    shared: float
    temperature: float


Record = Run | Answer | RoundRecord | Fork | CostCurve | Overlap
TYPES: dict[str, type[Any]] = {
    "run": Run, "answer": Answer, "round": RoundRecord, "fork": Fork, "curve": CostCurve, "overlap": Overlap,
}  # fmt: skip
_NAMES = {type_: name for name, type_ in TYPES.items()}
Kind = TypeVar("Kind")


@dataclass(frozen=True, slots=True)
class Measurements:
    """All of a run, in the order in which it came."""

    run: Run
    answers: tuple[Answer, ...] = ()
    rounds: tuple[RoundRecord, ...] = ()
    forks: tuple[Fork, ...] = ()
    curve: CostCurve | None = None
    overlaps: tuple[Overlap, ...] = ()


def gather(records: Iterable[Record]) -> Measurements:
    """Sort a run's records; the first Run counts. Raises UsageError where there is none."""
    seen = list(records)

    def of(type_: type[Kind]) -> tuple[Kind, ...]:
        return tuple(record for record in seen if isinstance(record, type_))

    runs, curves = of(Run), of(CostCurve)
    if not runs:
        raise UsageError("These are no measurements of edgespec bench: the line that describes the run is missing.")
    return Measurements(
        runs[0], of(Answer), of(RoundRecord), of(Fork), curves[-1] if curves else None, of(Overlap)
    )  # fmt: skip


def to_line(record: Record) -> str:
    """A record as one line of JSON, without the line's end."""
    return json.dumps({"type": _NAMES[type(record)], **asdict(record)}, ensure_ascii=False, allow_nan=False)


def read_lines(path: Path) -> Iterator[Record]:
    """The records of a file that `to_line` wrote; a last line that was cut off is left out. Raises UsageError."""
    try:
        lines = path.read_text(encoding="utf-8").split(
            "\n"
        )  # an answer may hold characters that splitlines() breaks at
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read as measurements: {error}.") from error
    for number, line in enumerate(lines, 1):
        try:
            if line.strip():
                yield _record(json.loads(line))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            if number == len(lines) > 1:  # a whole line ends, so that what follows it is empty
                return
            raise UsageError(f"Line {number} of {path} is no measurement of edgespec bench ({error}).") from error


def _record(row: dict[str, Any]) -> Record:
    type_ = TYPES[row.pop("type")]
    known = {name: row[name] for name in (field.name for field in fields(type_)) if name in row}
    if type_ is Run:
        if known.get("format") != FORMAT:
            raise ValueError(f"its format is {known.get('format')}, this edgespec reads {FORMAT}")
        known["arms"] = tuple(Arm(**arm) for arm in known["arms"])
    elif type_ is Answer:
        known["tokens"] = tuple(known["tokens"])
        known["stats"] = _stats(known["stats"]) if known.get("stats") else None
    elif type_ is CostCurve:
        known["widths"], known["seconds"] = tuple(known["widths"]), tuple(known["seconds"])
    record: Record = type_(**known)
    return record


def _stats(row: dict[str, Any]) -> Stats:
    lists = {name: tuple(value) for name, value in row.items() if isinstance(value, list)}
    return Stats(**{**row, **lists, "drafters": {name: DrafterStats(**d) for name, d in row["drafters"].items()}})
