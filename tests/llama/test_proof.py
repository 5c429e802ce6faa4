from __future__ import annotations

import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from edgespec.errors import BackendError, ModelUnreadable, UsageError
from edgespec.llama import proof as room
from edgespec.llama import prove
from edgespec.llama.proof_child import FIRST_SPLIT, WIDTHS, Comparison, compare, summary
from edgespec.protocols import Logits
from edgespec.settings import ModelSettings
from tests.llama.gguf_files import write_head
from tests.support.fakes import FakeModel, hashed_table

GOOD = {"finite": True, "can_trim": True, "invariant_below": 0, "width_noise": 0.1, "width_noise_max": 0.2,
        "seconds": 1.5}  # fmt: skip
CHILD = """
import json, os, sys
request = json.loads(sys.stdin.read())
open(sys.argv[1], "a").write(json.dumps(request) + "\\n")
"""
ANSWER = f"print({json.dumps(GOOD)!r})"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(room, "library", lambda: SimpleNamespace(build_id=lambda: "one build"))
    return write_head(tmp_path / "m.gguf", {"general.architecture": "llama"})


def child(tmp_path: Path, code: str) -> list[str]:
    return [sys.executable, "-c", CHILD + code, str(tmp_path / "asked")]


def asked(tmp_path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tmp_path / "asked").read_text().splitlines()]


def test_a_proof_is_found_once_and_remembered(file: Path, tmp_path: Path) -> None:
    said: list[str] = []
    for _ in range(2):
        found = prove(file, say=said.append, command=child(tmp_path, ANSWER), cache=tmp_path)
        assert (found.extra_buffers, found.width_noise, found.warning) == (True, 0.1, "")
    assert len(asked(tmp_path)) == 1 and len(said) == 1 and "m.gguf" in said[0]
    assert asked(tmp_path)[0]["path"] == str(file) and asked(tmp_path)[0]["extra_buffers"] is True
    (stored,) = (tmp_path / "proofs").iterdir()
    stored.write_text("{damaged")
    prove(file, command=child(tmp_path, ANSWER), cache=tmp_path)
    assert len(asked(tmp_path)) == 2


def test_another_build_file_processor_or_setting_is_proved_anew(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def again(settings: ModelSettings | None = None) -> int:
        prove(file, settings, command=child(tmp_path, ANSWER), cache=tmp_path)
        return len(asked(tmp_path))

    assert again() == again() == 1
    assert again(ModelSettings(threads=77)) == 2
    assert again(ModelSettings(gpu_layers=3)) == 3
    assert again(ModelSettings(ctx=99, batch=5)) == 3, "what does not matter must not cost a proof"
    monkeypatch.setattr(room, "library", lambda: SimpleNamespace(build_id=lambda: "another build"))
    assert again() == 4
    monkeypatch.setattr(room, "_processor", lambda: "another processor")
    assert again() == 5
    write_head(file, {"general.architecture": "qwen2"})
    assert again() == 6


@pytest.mark.parametrize(
    "death",
    [
        "os.kill(os.getpid(), 11)",
        "print('no json')",
        "print(json.dumps({'finite': False}))",
        "print(json.dumps({'finite': True, 'width_noise': 52.0}))",
    ],
)
def test_a_death_leads_to_a_second_try_and_one_warning(
    file: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, death: str
) -> None:
    code = f"if request['extra_buffers']:\n    {death}\nelse:\n    {ANSWER}"
    with caplog.at_level(logging.WARNING, "edgespec"):
        found = prove(file, command=child(tmp_path, code), cache=tmp_path)
    assert not found.extra_buffers and "a better build" in found.warning
    assert [record.getMessage() for record in caplog.records] == [found.warning]
    assert prove(file, command=child(tmp_path, code), cache=tmp_path) == found
    assert len(asked(tmp_path)) == 2


def test_an_accident_is_not_remembered(file: Path, tmp_path: Path) -> None:
    """A child that the system killed, for want of memory perhaps, says nothing about the build."""
    code = f"if request['extra_buffers']:\n    os.kill(os.getpid(), 9)\nelse:\n    {ANSWER}"
    for number in (2, 4):
        assert not prove(file, command=child(tmp_path, code), cache=tmp_path).extra_buffers
        assert len(asked(tmp_path)) == number


def test_a_child_whose_python_is_broken_is_not_llama_cpp_s_fault(file: Path, tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="No module named 'nothing'"):
        prove(file, command=child(tmp_path, "import nothing"), cache=tmp_path)
    assert len(asked(tmp_path)) == 1


def test_two_deaths_are_a_sentence_and_not_remembered(file: Path, tmp_path: Path) -> None:
    for number in (2, 4):
        with pytest.raises(BackendError, match=r"dies with SIGSEGV when it decodes m\.gguf") as caught:
            prove(file, command=child(tmp_path, "os.kill(os.getpid(), 11)"), cache=tmp_path)
        assert "\n" not in str(caught.value) and len(asked(tmp_path)) == number


def test_a_child_that_hangs_is_ended(file: Path, tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="does not finish"):
        prove(file, command=child(tmp_path, "import threading; threading.Event().wait()"), cache=tmp_path, timeout=0.5)


def test_a_command_that_cannot_start_is_a_sentence(file: Path, tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="did not start"):
        prove(file, command=[str(tmp_path / "nothing")], cache=tmp_path)


@pytest.mark.parametrize(("kind", "raised"), [("UsageError", UsageError), ("Path", ModelUnreadable)])
def test_the_childs_reason_is_raised_without_a_second_try(
    file: Path, tmp_path: Path, kind: str, raised: type[Exception]
) -> None:
    answer = json.dumps({"error": "The file is odd.", "kind": kind})
    with pytest.raises(raised, match=r"^The file is odd\.$"):
        prove(file, command=child(tmp_path, f"print({answer!r})"), cache=tmp_path)
    assert len(asked(tmp_path)) == 1


def test_a_cache_that_cannot_be_written_is_no_error(file: Path, tmp_path: Path) -> None:
    (tmp_path / "flat").touch()
    assert prove(file, command=child(tmp_path, ANSWER), cache=tmp_path / "flat").width_noise == 0.1


def test_wrong_files_are_refused_without_a_child(tmp_path: Path) -> None:
    lora = write_head(tmp_path / "l.gguf", {"general.architecture": "llama", "general.type": "adapter"})
    with pytest.raises(ModelUnreadable, match="LoRA"):
        prove(lora, command=["must not run"], cache=tmp_path)


class Noisy(FakeModel):
    """Rows of wide decodes are off, by a normal draw of standard deviation `noise`."""

    noise = 0.0

    def decode(self, tokens: Sequence[int], position: int, outputs: int) -> Logits:
        rows = np.array(super().decode(tokens, position, outputs), dtype=np.float32)
        if len(tokens) > 1 and self.noise:
            rows += np.random.default_rng(len(tokens)).normal(0.0, self.noise, rows.shape).astype(np.float32)
        return rows


def fake(noise: float = 0.0, can_trim: bool = True) -> Noisy:
    model = Noisy(hashed_table(64), n_vocab=64, n_batch=64, can_trim=can_trim)
    model.noise = noise
    return model


TOKENS = [1 + i % 60 for i in range(64)]


def test_equal_rows_are_equal() -> None:
    assert compare(fake(), TOKENS, 40) == Comparison(True, True, True, 0.0, 0.0)


def test_noise_is_measured_over_the_widths() -> None:
    found = compare(fake(noise=0.1), TOKENS, 40)
    assert not found.equal and 0.09 < found.noise < 0.12
    assert 0.2 < found.noise_max < 0.6


def test_a_model_that_cannot_trim_is_proved_by_reading_again() -> None:
    found = compare(fake(can_trim=False), TOKENS, 40)
    assert not found.can_trim and found.equal


def test_rows_that_are_not_finite_fail() -> None:
    model = fake()
    good = model.table
    model.table = lambda context: good(context) * (np.nan if len(context) > 50 else 1.0)
    assert not compare(model, TOKENS, 40).finite


def test_a_build_may_be_invariant_in_short_contexts_alone() -> None:
    same, noisy = Comparison(True, True, True, 0.0, 0.0), Comparison(True, True, False, 0.1, 0.4)
    assert summary(same, same)["invariant_below"] > 10**6
    assert summary(same, noisy)["invariant_below"] == FIRST_SPLIT
    assert summary(noisy, same)["invariant_below"] == 0
    assert summary(same, noisy)["width_noise"] == 0.1 == summary(noisy, same)["width_noise"]
    assert not summary(same, Comparison(False, True, False, 0.0, 0.0))["finite"]


def test_the_widths_are_the_contracts() -> None:
    assert WIDTHS == (1, 2, 5, 9, 16)


@pytest.mark.real
def test_a_real_model(smollm2_path: Path, tmp_path: Path) -> None:
    settings = ModelSettings(threads=1)
    found = prove(smollm2_path, settings, cache=tmp_path)
    assert found.extra_buffers and found.can_trim and not found.warning
    assert (found.invariant_below > 10**6) == (found.width_noise_max == 0.0) and found.width_noise < 1.0
    assert prove(smollm2_path, settings, command=["must not run"], cache=tmp_path) == found
