"""`edgespec run` as a person starts it, on a real model."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.real


def command(*args: object) -> list[str]:
    return [sys.executable, "-m", "edgespec", "run", *map(str, args)]


def run(*args: object, input: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*args), input=input, capture_output=True, text=True, check=False, timeout=300)


def test_an_answer_and_its_json(smollm2_path: Path) -> None:
    options = ("--target", smollm2_path, "--temperature", 0, "--max-tokens", 12, "--ctx", 256)
    plain = run("Say hello.", *options, "--drafter", "none")
    drafted = run("-", *options, "--k", 7, "--json", input="Say hello.")
    assert plain.returncode == 0 == drafted.returncode
    report = json.loads(drafted.stdout)
    assert report["text"] + "\n" == plain.stdout
    assert report["target"] == str(smollm2_path) and report["completion_tokens"] <= 12
    assert "tokens/s" in plain.stderr and "llama" not in plain.stderr.replace(str(smollm2_path), "")


def test_ctrl_c_keeps_what_came_and_ends_with_130(smollm2_path: Path) -> None:
    """The answer is endless but for the signal, which is sent as soon as its first text is here."""
    args = command("One, two, three,", "--target", smollm2_path, "--ctx", 4096, "--raw", "--stop", "never to be said")
    with subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None and child.stderr is not None
        first = child.stdout.read(1)
        child.send_signal(signal.SIGINT)
        rest, errors = child.stdout.read(), child.stderr.read()
        code = child.wait(60)
    assert first and code == 130
    assert "cancelled" in errors and "Traceback" not in errors + rest


def test_a_pipe_that_closes_is_no_traceback(smollm2_path: Path) -> None:
    with subprocess.Popen(
        command("Count to ten.", "--target", smollm2_path, "--max-tokens", 40, "--ctx", 256),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        assert child.stdout is not None and child.stderr is not None
        child.stdout.read(1)
        child.stdout.close()
        errors = child.stderr.read()
        child.wait(60)
    assert "Traceback" not in errors and "Exception" not in errors


def test_what_cannot_be_answered_is_one_sentence(smollm2_path: Path, gemma_path: Path, tmp_path: Path) -> None:
    short = tmp_path / "short.gguf"
    short.write_bytes(smollm2_path.read_bytes()[:1_000_000])
    text = tmp_path / "text.gguf"
    text.write_text("hello")
    for args, code in [
        (("--target", tmp_path / "none.gguf"), 1),
        (("--target", short), 1),
        (("--target", text), 1),
        (("--target", tmp_path), 1),
        (("--target", smollm2_path, "--draft", tmp_path / "none.gguf"), 1),
        (("--target", smollm2_path, "--draft", gemma_path), 1),
        (("--pair", "unheard-of"), 2),
        (("--target", smollm2_path, "--drafter", "model"), 2),
    ]:
        done = run("hi", *args)
        assert done.returncode == code, (args, done.stderr)
        *_, last = done.stderr.splitlines()
        assert last.startswith("edgespec: ") and last.endswith(".") and done.stdout == ""
        assert "Traceback" not in done.stderr


def test_a_prompt_longer_than_the_context_is_a_sentence(smollm2_path: Path) -> None:
    done = run("word " * 300, "--target", smollm2_path, "--ctx", 128)
    assert done.returncode == 1 and "128" in done.stderr and "Traceback" not in done.stderr


def test_variables_reach_a_real_run(smollm2_path: Path) -> None:
    wishes = {"EDGESPEC_TARGET": str(smollm2_path), "EDGESPEC_MAX_TOKENS": "3", "EDGESPEC_CTX": "256"}
    environment = {**os.environ, **wishes}
    done = subprocess.run(command("hi", "-q"), env=environment, capture_output=True, text=True, check=True)
    assert done.stdout and "\x1b" not in done.stdout and done.stderr == ""
