"""`edgespec bench` over fake models: what goes where, what is kept in files, and how it ends."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import edgespec.cli.bench.session as session
import edgespec.judge
from edgespec.bench.records import Answer, Fork, RoundRecord, Run, gather, read_lines
from edgespec.cli import main
from edgespec.engine import Engine
from edgespec.errors import BackendError
from edgespec.settings import About
from edgespec.verify import Verdict
from tests.support.fakes import Scripted, continuation, hashed_table
from tests.support.timed import N_VOCAB, Clock, timed_engine

TABLE = hashed_table(N_VOCAB, end=-99.0)
QUICK = ("--arms", "plain,plain,right:3", "--max-tokens", "70", "--kinds", "qa,math", "--no-curve", "--repeat", "4")


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Engine]]:
    """The engines that were loaded: fake ones, in which `right` is always right, and a draft model errs."""
    made: list[Engine] = []

    def load(*, on_event: Any, **options: Any) -> Engine:
        made.append(
            timed_engine(
                Clock(),
                {"right": Scripted(continuation(TABLE), name="right")},
                table=TABLE,
                draft_cost=0.05,
                draft_table=hashed_table(N_VOCAB, seed=1, end=-99.0),
                about=About("big", "small", options.get("pair"), width_noise=0.001),
            )
        )
        return made[-1]

    monkeypatch.setattr(session, "load", load)
    yield made


def bench(*args: str) -> Result:
    return CliRunner().invoke(main, ["bench", *args])


def test_tables_and_verdict_go_to_stdout_and_progress_to_stderr(engines: list[Engine]) -> None:
    result = bench(*QUICK)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert any(line.split()[:1] == ["qa"] for line in lines) and any(line.split()[:1] == ["all"] for line in lines)
    assert "right:3" in result.stdout and "plain again" in result.stdout
    assert "Use --drafter right --k 3." in result.stdout
    assert " of 24 · " in result.stderr and " of 24 · " not in result.stdout
    assert max(map(len, lines)) <= 100
    assert bench(*QUICK, "-q").stderr == ""


def test_all_that_was_measured_is_kept_and_can_be_reported(engines: list[Engine], tmp_path: Path) -> None:
    kept, rounds = tmp_path / "run.jsonl", tmp_path / "rounds.jsonl"
    first = bench(*QUICK, "--json", str(kept), "--rounds", str(rounds), "--pair", "mine")
    records = list(read_lines(kept))
    assert isinstance(records[0], Run) and records[0].pair == "mine"
    assert sum(isinstance(r, Answer) for r in records) == 2 * 3 * 4 and not any(
        isinstance(r, RoundRecord) for r in records
    )
    log = list(read_lines(rounds))
    assert isinstance(log[0], Run) and all(isinstance(r, RoundRecord) for r in log[1:]) and len(log) > 100
    again = CliRunner().invoke(main, ["bench", "report", str(kept)])
    assert again.exit_code == 0 and again.stdout == first.stdout
    two = CliRunner().invoke(main, ["bench", "report", str(kept), str(kept)])
    assert two.exit_code == 0 and two.stdout.count(first.stdout) == 2 and "agree" in two.stdout
    marked = CliRunner().invoke(main, ["bench", "report", "--markdown", str(kept)])
    assert marked.exit_code == 0 and "| all |" in marked.stdout.replace("**", "")


def test_the_price_gives_costs(engines: list[Engine], tmp_path: Path) -> None:
    kept = tmp_path / "run.jsonl"
    assert "cost of 1M tokens" in bench(*QUICK, "--price-per-hour", "3.6", "--json", str(kept)).stdout
    assert "cost of 1M tokens" not in CliRunner().invoke(main, ["bench", "report", str(kept)]).stdout


def test_what_is_required_decides_the_exit_code(engines: list[Engine]) -> None:
    assert bench(*QUICK, "--require", "2.0").exit_code == 0
    failed = bench(*QUICK, "--require", "2.5")
    assert failed.exit_code == 1 and "the lower bound of the speed-up is only 2." in failed.stderr
    unsure = bench("--arms", "right:3", "--max-tokens", "20", "--kinds", "qa", "--no-curve", "--require", "1")
    assert unsure.exit_code == 1 and "cannot be said with so few answers" in unsure.stderr


def test_a_proven_difference_in_text_exits_1(engines: list[Engine], monkeypatch: pytest.MonkeyPatch) -> None:
    real = edgespec.judge.Judge.verdict

    def believing(self: Any, draft: Any, rows: Any) -> Verdict:
        verdict = real(self, draft, rows)
        return replace(verdict, accepted=len(draft.tokens)) if draft.tokens else verdict

    monkeypatch.setattr(edgespec.judge.Judge, "verdict", believing)
    result = bench("--arms", "plain,model:2", "--max-tokens", "20", "--kinds", "qa", "--no-curve")
    assert result.exit_code == 1 and "fault" in result.stdout


def test_chance_instead_of_verification_is_said_everywhere(engines: list[Engine], tmp_path: Path) -> None:
    kept = tmp_path / "run.jsonl"
    result = bench("--arms", "plain,plain,model:2", "--max-tokens", "20", "--kinds", "qa", "--json", str(kept),
                   "--synthetic-acceptance", "0.8")  # fmt: skip
    assert result.exit_code == 0 and result.stdout.count("0.8") >= 3
    measured = gather(read_lines(kept))
    assert measured.run.synthetic == 0.8 and not measured.forks
    assert not any(isinstance(record, Fork) for record in read_lines(kept))


def test_ctrl_c_keeps_and_reports_what_was_measured(engines: list[Engine], tmp_path: Path) -> None:
    class Interrupting(Scripted):
        calls = 0

        def draft(self, *args: Any) -> Any:
            self.calls += 1
            if self.calls == 40:
                os.kill(os.getpid(), signal.SIGINT)
            return super().draft(*args)

    real = session.load

    def load(**options: Any) -> Engine:
        engine = real(**options)
        engine.drafters["right"] = Interrupting(continuation(TABLE), name="right")
        return engine

    session.load = load  # type: ignore[assignment]
    try:
        kept = tmp_path / "run.jsonl"
        result = bench("--arms", "plain,right:3", "--max-tokens", "20", "--no-curve", "--json", str(kept))
    finally:
        session.load = real
    assert result.exit_code == 130
    answers = [r for r in read_lines(kept) if isinstance(r, Answer)]
    assert 0 < len(answers) < 60 and all(a.finish_reason != "cancelled" for a in answers)
    assert "right:3" in result.stdout and "all" in result.stdout


def test_what_fails_in_the_midst_costs_no_answer_that_came(
    engines: list[Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Dying(Clock):
        def work(self, seconds: float) -> None:
            super().work(seconds)
            if self.now > 30.0:
                raise BackendError("The device is gone: plug it in again.")

    engine = timed_engine(Dying(), {"right": Scripted(continuation(TABLE), name="right")}, table=TABLE)
    monkeypatch.setattr(session, "load", lambda **_: engine)
    result = bench("--arms", "plain,right:3", "--max-tokens", "20", "--no-curve")
    assert result.exit_code == 1 and "edgespec: The device is gone: plug it in again." in result.stderr
    assert "right:3" in result.stdout and "all" in result.stdout


def test_a_run_that_does_not_begin_leaves_its_file_alone(engines: list[Engine], tmp_path: Path) -> None:
    kept = tmp_path / "run.jsonl"
    kept.write_text("an hour's work\n")
    assert bench("--arms", "model:0", "--json", str(kept)).exit_code == 2
    assert kept.read_text() == "an hour's work\n"
    assert bench(*QUICK, "--json", str(kept)).exit_code == 0
    assert isinstance(next(read_lines(kept)), Run)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a disk that is always full")
def test_a_full_disk_ends_the_file_and_not_the_run(engines: list[Engine]) -> None:
    result = bench(*QUICK, "--json", "/dev/full")
    assert result.exit_code == 0 and "is not written any further" in result.stderr and "right:3" in result.stdout


def test_ctrl_c_before_the_first_answer_has_nothing_to_report(
    engines: list[Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = session.load

    def load(**options: Any) -> Engine:
        engine = real(**options)
        engine.target.before_decode = lambda: os.kill(os.getpid(), signal.SIGINT)  # type: ignore[attr-defined]
        return engine

    monkeypatch.setattr(session, "load", load)
    result = bench("--arms", "plain,right:3", "--max-tokens", "20", "--no-curve")
    assert result.exit_code == 130 and "interrupted before there was anything to report" in result.stderr


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--arms", "quick"), "'quick' is no arm"),
        (("--suite", "nothing.txt"), "There is no file nothing.txt"),
        (("--kinds", "poems"), "no prompts of kind poems"),
        (("--plot", "figure.pdf"), "ends in .png or .svg"),
        (("--json", "no/such/folder/x.jsonl"), "cannot be written"),
        (("--peer", "llama=llama-server -m x"), "{port}"),
        (("--temperature", "inf"), "finite"),
        (("--plot", "no/such/folder/x.png"), "there is no folder"),
        (("--peer", "a=http://localhost:1", "--peer", "a=http://localhost:2"), "have the same name"),
        (("--arms", "right:17"), "more than the 16 tokens that can be checked at once"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(engines: list[Engine], args: tuple[str, ...], says: str) -> None:
    result = bench(*args)
    assert result.exit_code == 2 and says in result.stderr and len(result.stderr.strip().splitlines()) == 1
    assert not result.stdout


def test_a_share_is_from_0_to_1(engines: list[Engine]) -> None:
    assert "1.5 is not from 0 to 1" in bench("--synthetic-acceptance", "1.5").stderr


def test_report_refuses_what_is_no_measurement(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps({"type": "answer"}) + "\n")
    result = CliRunner().invoke(main, ["bench", "report", str(path)])
    assert result.exit_code == 2 and "is no measurement of edgespec bench" in result.stderr


def test_options_can_be_variables(engines: list[Engine], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGESPEC_ARMS", "plain,right:2")
    monkeypatch.setenv("EDGESPEC_MAX_TOKENS", "20")
    assert "right:2" in bench("--kinds", "qa", "--no-curve").stdout
