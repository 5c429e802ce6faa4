"""`edgespec run` over the fake model: what goes to stdout, what to stderr, and how it ends."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

import edgespec.loading
from edgespec.cli import main
from edgespec.engine import Engine
from edgespec.errors import ModelNotFound


def run(*args: str, input: str | None = None) -> Result:
    return CliRunner().invoke(main, ["run", *args], input=input)


def test_text_goes_to_stdout_and_the_rest_to_stderr(loads: list) -> None:
    result = run("hello", "--temperature", "0", "--max-tokens", "9")
    assert result.exit_code == 0
    assert result.stdout.startswith("<") and result.stdout.count("<") == 9 and result.stdout.endswith(">\n")
    assert "loading something" in result.stderr and "Something to know." in result.stderr
    assert "9 tokens" in result.stderr and "scripted drafted 6, 100% accepted" in result.stderr


def test_quiet_leaves_stderr_empty(loads: list) -> None:
    assert run("hello", "-q", "--max-tokens", "3").stderr == ""


def test_json_is_one_object_as_the_contract_has_it(loads: list) -> None:
    result = run("hello", "--json", "--temperature", "0", "--max-tokens", "9", "--pair", "mine")
    report = json.loads(result.stdout)
    assert list(report) == [
        "text", "tokens", "provenance", "finish_reason", "prompt_tokens", "cached_prompt_tokens", "completion_tokens",
        "pair", "target", "draft", "seed", "verify", "policy", "sampling", "stats",
    ]  # fmt: skip
    assert list(report["stats"]) == [
        "rounds", "target_calls", "draft_calls", "drafted", "accepted", "acceptance_rate", "drafting_rounds",
        "avg_accepted_tokens", "mean_acceptance_length", "drafted_per_position", "accepted_per_position",
        "k_histogram", "tokens_per_second", "prompt_tokens_per_second", "ttft_ms", "plain_tokens_per_second",
        "speedup", "draft_ms", "verify_ms", "overhead_ms", "drafters",
    ]  # fmt: skip
    assert set(report["stats"]["drafters"]["scripted"]) == {"rounds", "drafted", "accepted", "seconds"}
    assert report["finish_reason"] == "length" and report["completion_tokens"] == 9 == len(report["tokens"])
    assert (report["pair"], report["target"], report["draft"]) == ("mine", "big", "small")
    assert report["verify"] == "argmax" and report["policy"] == "fixed"
    assert report["sampling"]["top_k"] == 40 and report["sampling"]["temperature"] == 0.0


def test_a_dash_reads_stdin(loads: list) -> None:
    typed = run("hello", "--temperature", "0", "--max-tokens", "5").stdout
    assert run("-", "--temperature", "0", "--max-tokens", "5", input="hello").stdout == typed


def test_options_and_variables_reach_the_loader(loads: list, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGESPEC_DRAFTER", "ngram")
    monkeypatch.setenv("EDGESPEC_TOP_K", "7")
    run("hello", "--k", "9", "--target", "a.gguf", "--ctx", "64", "--stop", "x", "--stop", "y", "--seed", "3")
    (call,) = loads
    assert call["drafter"] == "ngram" and call["k"] == 9 and call["target"] == "a.gguf" and call["ctx"] == 64
    assert call["top_k"] == 7 and call["stop"] == ("x", "y") and call["seed"] == 3
    assert "temperature" not in call, "what was not given is left to the model's and llama.cpp's defaults"


def test_a_stop_string_in_a_variable_is_one_string(loads: list, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGESPEC_STOP", "the end\n")
    run("hello")
    assert loads[0]["stop"] == ("the end\n",)


@pytest.mark.parametrize(
    ("variables", "args", "expected"),
    [
        ({"PAIR": "a"}, ["--target", "x.gguf"], {"pair": None, "target": "x.gguf"}),
        ({"TARGET": "x.gguf", "DRAFT": "y.gguf"}, ["--pair", "a"], {"pair": "a"}),
        ({"PAIR": "a"}, ["--draft", "y.gguf"], {"pair": "a", "draft": "y.gguf"}),
        ({"PAIR": "a"}, ["--pair", "b"], {"pair": "b"}),
    ],
)
def test_what_is_typed_replaces_a_variable(
    loads: list, monkeypatch: pytest.MonkeyPatch, variables: dict, args: list[str], expected: dict
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(f"EDGESPEC_{name}", value)
    run("hello", *args)
    assert {key: loads[0][key] for key in ("pair", "target", "draft") if key in loads[0]} == {"pair": None, **expected}


def test_flags_have_variables_too(loads: list, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGESPEC_JSON", "1")
    monkeypatch.setenv("EDGESPEC_QUIET", "1")
    monkeypatch.setenv("EDGESPEC_RAW", "1")
    result = run("hello", "--max-tokens", "3")
    assert json.loads(result.stdout)["completion_tokens"] == 3 and result.stderr == ""


def test_a_drawn_seed_is_reported(loads: list) -> None:
    assert "seed " in run("hello", "--max-tokens", "3").stderr
    assert "seed " not in run("hello", "--max-tokens", "3", "--temperature", "0").stderr


@pytest.mark.parametrize(
    ("args", "code"),
    [(["", ], 2), (["  \n"], 2), (["x", "--k", "-3"], 2), (["x", "--k", "many"], 2), (["x", "--drafter", "magic"], 2),
     (["x", "--raw", "--system", "y"], 2), ([], 2), (["x", "--temperature", "hot"], 2)],
)  # fmt: skip
def test_wrong_use_ends_with_2_and_no_traceback(loads: list, args: list[str], code: int) -> None:
    result = run(*args)
    assert result.exit_code == code
    assert "Traceback" not in result.output and result.stdout == ""


def test_an_error_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*args: Any, **options: Any) -> Engine:
        raise ModelNotFound("There is no file x.gguf: check the path.")

    monkeypatch.setattr(edgespec.loading, "load", load)
    result = run("hello")
    assert result.exit_code == 1
    assert result.stderr == "edgespec: There is no file x.gguf: check the path.\n"


def test_what_nobody_expected_is_one_sentence_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*args: Any, **options: Any) -> Engine:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(edgespec.loading, "load", load)
    result = run("hello")
    assert result.exit_code == 1 and result.stderr.count("\n") == 1 and "Traceback" not in result.stderr
    assert "ZeroDivisionError" in result.stderr
    assert "Traceback" in run("hello", "-v").stderr
    assert "Traceback" not in run("--", "-v").stderr


def test_ctrl_c_while_loading_ends_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*args: Any, **options: Any) -> Engine:
        raise KeyboardInterrupt

    monkeypatch.setattr(edgespec.loading, "load", load)
    assert run("hello").exit_code == 130


def test_help_and_version_load_nothing_heavy() -> None:
    import subprocess
    import sys

    code = (
        "import sys; from edgespec.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'numpy', 'llama_cpp', 'textual', 'huggingface_hub'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("[]\n")
