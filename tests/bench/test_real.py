"""`edgespec bench` on a real model, as a user would."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from edgespec.bench.records import Answer, gather, read_lines
from edgespec.cli import main


@pytest.mark.real
def test_a_run_measures_every_arm_and_proves_no_difference(smollm2_path: Path, tmp_path: Path) -> None:
    kept = tmp_path / "run.jsonl"
    result = CliRunner().invoke(
        main,
        ["bench", "--target", str(smollm2_path), "--kinds", "qa,edit", "--limit", "1", "--arms", "plain,plain,ngram:8",
         "--repeat", "2", "--max-tokens", "24", "--no-curve", "--json", str(kept)],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "ngram:8" in result.stdout and "of 12 · about" in result.stderr
    measured = gather(read_lines(kept))
    assert len(measured.answers) == 12 and all(fork.honest for fork in measured.forks)
    answers = {(a.prompt, a.arm, a.repeat): a for a in measured.answers}
    for a in answers.values():
        assert isinstance(a, Answer) and len(a.tokens) <= 24 and a.stats is not None
        assert a.speed_tokens > 0 and 0.0 < a.speed_seconds < a.seconds
    assert measured.run.target == smollm2_path.name and measured.run.settings["threads"] >= 1
    drafted = [a for a in measured.answers if a.arm == "ngram:8" and a.kind == "edit"]
    assert all(a.drafted for a in drafted), "an edit repeats its prompt"
