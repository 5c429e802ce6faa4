"""`edgespec chat` over the fake model, piped: a conversation of lines."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import edgespec.loading
from edgespec.cli import main
from edgespec.engine import Engine
from tests.support.fakes import FakeModel
from tests.support.talk import THOUGHTS, Loader, Thinking


@pytest.fixture
def loader(monkeypatch: pytest.MonkeyPatch) -> Loader:
    made = Loader()
    monkeypatch.setattr(edgespec.loading, "load", made)
    return made


def chat(*args: str, input: str = "") -> Result:
    return CliRunner().invoke(main, ["chat", "--temperature", "0", *args], input=input)


def test_piped_lines_are_one_conversation(loader: Loader) -> None:
    result = chat("--system", "Be brief.", input='one\n\n"""\ntwo\nlines\n"""\nthree \\\nand more')
    assert (result.exit_code, result.stdout) == (0, "Hello there\nGoodbye\nbye\n")
    assert loader.read == (
        "<s>Be brief.<e><u>one<e><a>Hello there<e><u>two\nlines<e><a>Goodbye<e><u>three \nand more<e><a>bye"
    )
    assert "> " not in result.output and "Something to know." in result.stderr
    assert "reading the prompt" not in result.stderr, "that is for prompts of more than one batch"
    assert "prompt 17 tokens, 0 of them cached" in result.stderr
    assert "prompt 32 tokens, 19 of them cached" in result.stderr


def test_lines_from_a_file(loader: Loader, tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("\ufeffone\n/reset\ntwo\n", encoding="utf-8")
    result = chat("--plain", "--file", str(file), "-q", input="never read")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "Hello there\nHello there\n", "")
    assert loader.read.startswith("<u>two<e>")


def test_json_is_one_object_on_one_line_for_each_answer(loader: Loader) -> None:
    result = chat("--json", input="one\n/set max-tokens 1\ntwo\n")
    first, second = map(json.loads, result.stdout.splitlines())
    assert list(first) == [
        "text", "tokens", "provenance", "finish_reason", "prompt_tokens", "cached_prompt_tokens", "completion_tokens",
        "pair", "target", "draft", "seed", "verify", "policy", "sampling", "stats",
    ]  # fmt: skip
    assert (first["text"], second["text"]) == ("Hello there", "Good") and second["finish_reason"] == "length"
    assert second["cached_prompt_tokens"] == first["prompt_tokens"] + first["completion_tokens"]


def test_no_input_is_no_answer(loader: Loader) -> None:
    result = chat()
    assert (result.exit_code, result.stdout) == (0, "")


def test_an_answer_that_fails_is_a_sentence_and_the_next_is_answered(loader: Loader) -> None:
    loader.n_ctx = 64
    result = chat(input=f"one\n{'x' * 70}\ntwo\n")
    assert (result.exit_code, result.stdout) == (1, "Hello there\nGoodbye\n")
    assert result.stderr.count("edgespec: The prompt has") == 1 and "Traceback" not in result.stderr
    assert loader.read == "<u>one<e><a>Hello there<e><u>two<e><a>Goodbye"


def test_what_nobody_expected_is_a_sentence_too(loader: Loader) -> None:
    def fail(model: FakeModel) -> None:
        if model.calls == 4:
            model.calls += 1
            raise ZeroDivisionError("oh")

    loader.before_decode = fail
    result = chat(input="one\ntwo\nthree\n")
    assert result.exit_code == 1 and result.stdout == "Hello there\nGood\nGoodbye\n"
    assert result.stderr.count("ZeroDivisionError") == 1 and "Traceback" not in result.stderr


def test_ctrl_c_ends_what_is_piped_and_keeps_what_came(loader: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(model: FakeModel) -> None:
        if model.calls == 3:  # as the terminal does it; here it would only reach the thread that answers
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            assert heard.wait(30)

    heard, cancel = threading.Event(), Engine.cancel

    def cancelled(engine: Engine) -> None:
        cancel(engine)
        heard.set()

    monkeypatch.setattr(Engine, "cancel", cancelled)
    loader.answers, loader.before_decode = [(b"Hello", b" there") * 20], interrupt
    result = chat(input="one\ntwo\n")
    assert result.exit_code == 130 and result.stdout.startswith("Hello there")
    assert "cancelled" in result.stderr and "two" not in loader.read


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("/sytem Be a cat.", "did you mean /system?"),
        ("/", "/help lists them."),
        ("/set tmperature 3", "did you mean temperature?"),
        ("/set temperature hot", "temperature stays as it is"),
        ("/set top-p 3", "top-p must be"),
        ("/set think perhaps", "think stays as it is"),
        ("/set wombat", "There is no option wombat"),
        ("/stats", "no answer yet"),
        ("/regenerate", "no answer yet"),
        ("/save", "/save needs the name of a file"),
        ("/load", "/load needs the name of a file"),
        ("/load nowhere/none.json", "cannot be read"),
    ],
)
def test_a_command_that_cannot_be_is_a_sentence(loader: Loader, line: str, sentence: str) -> None:
    result = chat(input=f"{line}\none\n")
    assert result.exit_code == 1 and result.stdout == "Hello there\n"
    (said,) = [line for line in result.stderr.splitlines() if line.startswith("edgespec: ")]
    assert sentence in said and said.endswith((".", "?"))


def test_set_shows_changes_and_takes_back(loader: Loader) -> None:
    result = chat("--max-tokens", "1", input="one\n/set max_tokens none\ntwo\n/set max-tokens default\nthree\n/set\n")
    assert result.stdout == "Hello\nGoodbye\nbye\n" and result.exit_code == 0
    shown = dict(line.split(maxsplit=1) for line in result.stderr.splitlines() if "·" not in line)
    assert shown["max-tokens"] == "1" and shown["temperature"] == "0.0" and shown["stop"] == "none"
    assert set(shown) >= {"top-k", "top-p", "min-p", "seed", "verify", "think", "repeat-penalty"}
    assert "max-tokens         none (set here)" in result.stderr


def test_set_stop_and_temperature_reach_the_answer(loader: Loader) -> None:
    result = chat("--json", input="/set stop the\n/set temperature 0.5\n/set seed 9\none\n")
    report = json.loads(result.stdout)
    assert report["text"] == "Hello " and report["sampling"]["temperature"] == 0.5 and report["seed"] == 9


def test_commands_do_what_help_says(loader: Loader, tmp_path: Path) -> None:
    file = tmp_path / "talk.json"
    result = chat(input=f"/help\n/system\n/system Be brief.\none\n/stats\n/regenerate\n/save {file}\n/system none\n"
                  f"/reset\ntwo\n/load {file}\n/system\nthree\n/quit\nnever\n")  # fmt: skip
    assert (result.exit_code, result.stdout) == (0, "Hello there\nHello there\nHello there\nGoodbye\n")
    assert loader.read == "<s>Be brief.<e><u>one<e><a>Hello there<e><u>three<e><a>Goodbye"
    for said in ("/regenerate", "There is no system prompt.", "target_calls", "1 questions answered", "Saved to"):
        assert said in result.stderr


def test_what_is_asked_for_is_shown_even_where_all_else_is_quiet(loader: Loader) -> None:
    result = chat("-q", input="/set temperature\none\n")
    assert result.stderr == "temperature        0.0\n"


def test_thoughts_go_to_stderr_between_words(loader: Loader) -> None:
    loader.template, loader.answers = Thinking(), [THOUGHTS]
    result = chat(input="one\n")
    assert result.stdout == "Goodbye\n" and "Thinking:\nHm, well.\nDone thinking.\n" in result.stderr
    assert "\x1b" not in result.output
    result = chat("-q", input="one\n")
    assert (result.stdout, result.stderr) == ("Goodbye\n", "")


def test_run_shows_thoughts_likewise_and_json_has_them(loader: Loader) -> None:
    loader.template, loader.answers = Thinking(), [THOUGHTS]
    result = CliRunner().invoke(main, ["run", "one", "--temperature", "0"])
    assert result.stdout == "Goodbye\n" and "Thinking:\nHm, well.\nDone thinking.\n" in result.stderr
    result = CliRunner().invoke(main, ["run", "one", "--temperature", "0", "--json"])
    report = json.loads(result.stdout)
    assert (report["text"], report["thought"]) == ("Goodbye", "Hm, well.") and "Hm, well." not in result.stderr


def test_think_is_an_option_of_the_loader_and_of_set(loader: Loader) -> None:
    loader.template = Thinking()
    chat("--think", "off", input="one\n/set think on\ntwo\n")
    assert loader.asked["think"] == "off" and loader.template.asked[-1] is True and False in loader.template.asked


def test_a_model_that_cannot_chat_says_so_at_once(loader: Loader) -> None:
    loader.template = None
    result = chat(input="")
    assert result.exit_code == 1 and "--raw" in result.stderr and result.stdout == ""


def test_input_that_is_no_text_is_a_sentence(loader: Loader, tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_bytes(b"one\n\xff\xfe\n")
    result = chat("--file", str(file))
    assert result.exit_code == 2 and "UTF-8" in result.stderr and "Traceback" not in result.stderr
    assert chat("--file", str(tmp_path / "none.txt")).exit_code == 2


def test_what_does_not_fit_is_left_out_and_said_once(loader: Loader) -> None:
    loader.n_ctx = 128
    result = chat(input="".join(f"question {n}\n" for n in range(15)))
    assert result.exit_code == 0 and result.stdout.count("\n") == 15
    assert result.stderr.count("left out") == 1
