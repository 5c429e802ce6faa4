"""The lock, the logs, and what is said meanwhile."""

from __future__ import annotations

import io
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from setup import BrokenOff, SetupError
from setup.commands import KEPT_LOGS, Commands, tail, without_password
from setup.lock import exclusive
from setup.report import Report, duration

from .conftest import text


def test_the_second_waits_for_the_first(tmp_path: Path) -> None:
    happened: list[str] = []
    waits = threading.Event()

    def second() -> None:
        with exclusive(tmp_path / "x/lock", waits.set):
            happened.append("second")

    with exclusive(tmp_path / "x/lock", lambda: None):
        thread = threading.Thread(target=second)
        thread.start()
        assert waits.wait(5)
        happened.append("first")
    thread.join(5)
    assert happened == ["first", "second"]


def test_the_lock_of_a_process_that_was_killed_is_free(tmp_path: Path) -> None:
    code = (
        "import pathlib, sys, time; sys.path.insert(0, sys.argv[1]); from setup.lock import exclusive\n"
        "with exclusive(pathlib.Path(sys.argv[2]), print): print('held', flush=True); time.sleep(60)"
    )
    scripts = Path(__file__).parents[2] / "scripts"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(scripts), str(tmp_path / "lock")], stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        waited: list[bool] = []
        holder.kill()
        holder.wait()
        with exclusive(tmp_path / "lock", lambda: waited.append(True)):
            assert not waited


def commands(tmp_path: Path) -> Commands:
    return Commands(tmp_path / "logs", {"PATH": "/usr/bin:/bin"})


def test_a_failure_says_its_sentence_and_where_the_log_is(tmp_path: Path) -> None:
    lines: list[str] = []
    with pytest.raises(SetupError, match="it did not work") as caught:
        commands(tmp_path).run(
            ["sh", "-c", "echo one; echo two >&2; exit 3"], log="x", failure="it did not work", line=lines.append
        )
    assert lines == ["one", "two"]
    assert caught.value.log is not None
    assert tail(caught.value.log, 3) == "one\ntwo\nexit status 3"


def test_a_program_that_is_not_there_fails_the_same_way(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="sorry"):
        commands(tmp_path).run(["no-such-program"], log="x", failure="sorry")


def test_stop_ends_the_children_of_children_too(tmp_path: Path) -> None:
    runner = commands(tmp_path)
    started = threading.Event()
    caught: list[BaseException] = []

    def work() -> None:
        try:
            runner.run(["sh", "-c", "echo up; sleep 60; true"], log="x", failure="x", line=lambda _: started.set())
        except BaseException as error:
            caught.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    assert started.wait(5)
    begun = time.monotonic()
    runner.stop()
    thread.join(5)
    assert time.monotonic() - begun < 5
    assert [type(error) for error in caught] == [BrokenOff]
    with pytest.raises(BrokenOff):
        runner.run(["true"], log="x", failure="x")


def test_ctrl_c_while_a_program_runs_ends_it(tmp_path: Path) -> None:
    """It has a process group of its own, so that nobody else would; without an end this test would not return."""
    forever = "import threading; print('here', flush=True); threading.Event().wait()"

    def interrupt(_: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        commands(tmp_path).run([sys.executable, "-c", forever], log="x", failure="it failed", line=interrupt)


def test_old_logs_go(tmp_path: Path) -> None:
    for number in range(KEPT_LOGS + 5):
        (tmp_path / "logs" / f"20200101-{number:06}").mkdir(parents=True)
    commands(tmp_path).run(["true"], log="x", failure="x")
    assert len(list((tmp_path / "logs").iterdir())) == KEPT_LOGS


@pytest.mark.parametrize(
    ("given", "logged"),
    [
        ("https://me:secret@example.org:80/a?b", "https://example.org:80/a?b"),
        ("https://example.org/a", "https://example.org/a"),
        ("a@b", "a@b"),
    ],
)
def test_no_password_in_the_log(given: str, logged: str) -> None:
    assert without_password(given) == logged


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.04, "0.0 s"), (0.96, "1.0 s"), (59.4, "59 s"), (59.6, "1 min 0 s"), (312, "5 min 12 s")]
)
def test_duration(seconds: float, said: str) -> None:
    assert duration(seconds) == said


def test_without_a_terminal_lines_are_plain(report: Report) -> None:
    with report.working(), report.step("building", " this (once)") as progress:
        progress.note("1/2")
    assert text(report).startswith("edgespec: building this (once) …\nedgespec: building: 0.0 s\nedgespec: ready in ")
    assert "\x1b" not in text(report)


def test_on_a_terminal_one_line_shows_all_that_runs() -> None:
    report = Report(io.StringIO(), live=True)
    with report.working(), report.step("one"), report.step("two") as two:
        two.note("17/212")
        assert "one: 0.0 s; two: 17/212, 0.0 s" in text(report)
    assert text(report).endswith("\r\x1b[K")


def test_nothing_is_said_when_there_was_nothing_to_do(report: Report) -> None:
    with report.working():
        pass
    assert text(report) == ""
