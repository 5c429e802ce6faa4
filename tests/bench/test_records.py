"""Measurements survive their file."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from edgespec.bench.records import (
    Answer,
    Arm,
    CostCurve,
    Fork,
    Overlap,
    Record,
    RoundRecord,
    Run,
    gather,
    read_lines,
    to_line,
)
from edgespec.errors import UsageError
from edgespec.events import DrafterStats
from edgespec.protocols import Round
from edgespec.stats import PrefillCost, summarize

ROUND = Round("model", 4, 4, 2, 3, 101, 5, 0.30, 0.10, 0.18, 0.11, 4)
RUN = Run((Arm("plain", "plain"), Arm("model:4", "drafting")), "big", "small", None, "2026-01-01", {"cores": 2})
ANSWER = Answer(
    "a/1", "a", "model:4", 0, 1, True, "Grüße", (5, 6, 7), "length", 3, 20, 1.5, 2, 0.6, 900.0, 8, 4,
    summarize([ROUND, ROUND], PrefillCost(19, 1, 0.3), 0.9, 0.1), 1_000, 2.5,
)  # fmt: skip
PEERS = replace(ANSWER, arm="other", stats=None, drafted=None, memory=None)
RECORDS: list[Record] = [
    RUN,
    ANSWER,
    PEERS,
    RoundRecord(**asdict(ROUND), prompt="a/1", kind="a", arm="model:4", repeat=0, index=0),
    Fork("a/1", "model:4", 0, 2, False, None, 0.5),
    CostCurve(256, (1, 2), (0.1, 0.12), 0.03, 0.001),
    Overlap("a", 100, 0.7, 0.9, 0.8, 0.0),
]


def written(path: Path, *lines: str) -> Path:
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def test_what_is_written_is_read(tmp_path: Path) -> None:
    found = list(read_lines(written(tmp_path / "run.jsonl", *map(to_line, RECORDS))))
    assert found == RECORDS
    assert isinstance(found[1], Answer) and found[1].stats is not None
    assert found[1].stats.drafters == {"model": DrafterStats(2, 8, 4, 0.22)}
    measured = gather(found)
    assert measured.run == RUN and measured.answers == (ANSWER, PEERS) and len(measured.rounds) == 1
    assert measured.curve == RECORDS[5] and measured.overlaps == (RECORDS[6],) and measured.forks == (RECORDS[4],)


def test_no_character_of_an_answer_breaks_a_line(tmp_path: Path) -> None:
    odd = replace(ANSWER, text="a\u0085b\u2028c\u2029d\x0be\x1cf\r\n")
    assert list(read_lines(written(tmp_path / "run.jsonl", to_line(RUN), to_line(odd)))) == [RUN, odd]


def test_fields_of_a_later_edgespec_are_passed_over(tmp_path: Path) -> None:
    line = to_line(ANSWER)[:-1] + ', "humour": 0.5}'
    assert list(read_lines(written(tmp_path / "run.jsonl", line))) == [ANSWER]


def test_a_line_that_was_cut_off_costs_that_line_alone(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(to_line(RUN) + "\n" + to_line(ANSWER)[:40], encoding="utf-8")
    assert list(read_lines(path)) == [RUN]


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (["hello"], r"Line 1 of .*run\.jsonl is no measurement"),
        ([to_line(ANSWER), "[1]", to_line(ANSWER)], "Line 2 of"),
        ([to_line(RUN).replace('"format": 1', '"format": 9')], "its format is 9, this edgespec reads 1"),
    ],
)
def test_what_is_no_measurement_is_said_in_a_sentence(tmp_path: Path, lines: list[str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        list(read_lines(written(tmp_path / "run.jsonl", *lines)))
    with pytest.raises(UsageError, match="cannot be read"):
        list(read_lines(tmp_path / "nothing.jsonl"))


def test_answers_without_their_run_are_refused() -> None:
    with pytest.raises(UsageError, match="line that describes the run is missing"):
        gather([ANSWER])
