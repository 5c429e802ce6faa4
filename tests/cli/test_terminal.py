"""`edgespec chat` where a person sits: keys, prompts and streams of a real terminal."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pty = pytest.importorskip("pty")

ROOT = Path(__file__).resolve().parents[2]

CHILD = """
import fcntl, sys, termios, threading
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
import edgespec.loading
from edgespec.cli import main
from tests.support.talk import Loader, Thinking, THOUGHTS

class Stuck(Loader):
    '''Its third answer hangs in a decode after three tokens, once, until it is interrupted.'''
    def __call__(self, *args, **options):
        engine = super().__call__(*args, **options)
        stopped, interrupt = threading.Event(), self.model.interrupt
        def stop(on=True):
            interrupt(on)
            if on:
                stopped.set()
        self.model.interrupt = stop
        def decode(model):
            if not stopped.is_set() and self.vocabulary.spell(model.tokens).endswith("Hello thereHello"):
                stopped.wait()
        self.before_decode = decode
        return engine

loader = Stuck()
loader.answers = [(b"Hello", b" there"), (b"Good", b"bye"), (b"Hello", b" there", b"Hello", b"Good"), (b"bye",)]
if "think" in sys.argv[1]:
    loader.template, loader.answers = Thinking(), [THOUGHTS]
edgespec.loading.load = loader
main(["chat", "--temperature", "0", *sys.argv[2:]], prog_name="edgespec")
"""


class Person:
    """Reads the screen and types."""

    def __init__(self, child: subprocess.Popen, screen: int) -> None:
        self.child, self._screen = child, screen
        self.seen = ""

    def waits_for(self, text: str) -> str:
        """What came up to and with `text`."""
        while text not in self.seen:
            assert self._looks(), f"{text!r} never came; what came: {self.seen!r}"
        found, text, self.seen = self.seen.partition(text)
        return found + text

    def rest(self) -> str:
        """What came up to the end of the program."""
        while self._looks():
            pass
        return self.seen

    def _looks(self) -> bool:
        """Whether there is more to see."""
        assert select.select([self._screen], [], [], 30)[0], f"nothing comes; what came: {self.seen!r}"
        try:
            new = os.read(self._screen, 4096)
        except OSError:  # the other end is closed
            return False
        self.seen += new.decode()
        return bool(new)

    def types(self, keys: str) -> None:
        os.write(self._screen, keys.encode())

    def interrupts(self, until: str) -> None:
        """Ctrl-C at a prompt, and again where nothing comes of it.

        Python waits for a key in a call that a signal ends, but not one that falls just before it: then the prompt is
        there and Ctrl-C waits for the next key, as any Python program has it.
        """
        while until not in self.seen:
            self.types("\x03")
            while until not in self.seen and select.select([self._screen], [], [], 3)[0]:
                assert self._looks(), f"{until!r} never came; what came: {self.seen!r}"
        self.waits_for(until)

    def leaves(self) -> int:
        """Ctrl-D at the next prompt; the exit code."""
        self.waits_for("> ")
        self.types("\x04")
        return self.child.wait(30)


@contextmanager
def terminal(*args: str, kind: str = "", stdout: int | None = None, **variables: str) -> Iterator[Person]:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", **variables}
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, kind, *args], cwd=ROOT, env=environment, start_new_session=True,
        stdin=theirs, stdout=theirs if stdout is None else stdout, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    try:
        yield Person(child, ours)
    finally:
        child.kill()
        child.wait()
        os.close(ours)


def test_a_person_chats_and_ctrl_d_leaves() -> None:
    with terminal() as person:
        assert "/help" in person.waits_for("> ")
        person.types("one\n")
        assert "Hello there" in person.waits_for("6 tokens, 0 of them cached")
        person.waits_for("> ")
        person.types("two \\\n")
        person.waits_for("... ")
        person.types("more\n")
        person.waits_for("Goodbye")
        assert person.leaves() == 0


def test_ctrl_c_stops_the_answer_keeps_it_and_goes_on() -> None:
    with terminal() as person:
        for line in ("one\n", "two\n", "three\n"):
            person.waits_for("> ")
            person.types(line)
        person.waits_for("Hello thereHello")
        person.types("\x03")
        person.waits_for("cancelled")
        person.waits_for("> ")
        person.types("four\n")
        person.waits_for("bye")
        person.waits_for("> ")
        person.types("/save /dev/stdout\n")
        person.waits_for("it is no file")
        assert person.leaves() == 0


def test_ctrl_c_at_the_prompt_clears_the_line_and_says_how_to_leave() -> None:
    with terminal() as person:
        person.waits_for("> ")
        person.types("half a li")
        person.waits_for("half a li")
        person.interrupts(until="Ctrl-D or /quit leaves.")
        person.waits_for("> ")
        person.types('"""\n')
        person.waits_for("... ")
        person.interrupts(until="Ctrl-D or /quit leaves.")
        person.waits_for("> ")
        person.types("one\n")
        person.waits_for("6 tokens, 0 of them cached")
        assert person.leaves() == 0


def test_a_pasted_text_is_one_message() -> None:
    readline = pytest.importorskip("readline")
    if "libedit" in (readline.__doc__ or ""):
        pytest.skip("libedit has no bracketed paste")
    with terminal() as person:
        person.waits_for("\x1b[?2004h")
        person.types("\x1b[200~one\n/two\x1b[201~")
        person.types("\n")
        person.waits_for("11 tokens, 0 of them cached")
        assert person.leaves() == 0


def test_only_answers_go_to_stdout_where_it_is_no_terminal() -> None:
    read, write = os.pipe()
    with terminal(stdout=write) as person:
        os.close(write)
        person.waits_for("> ")
        person.types("one\n")
        person.waits_for("cached")
        person.waits_for("> ")
        person.types("\n/quit\n")
        assert person.child.wait(30) == 0
    with open(read) as answers:
        assert answers.read() == "Hello there\n"


def test_a_stdout_that_closes_ends_the_chat_quietly() -> None:
    read, write = os.pipe()
    with terminal(stdout=write) as person:
        os.close(write)
        os.close(read)
        person.waits_for("> ")
        person.types("one\n")
        shown = person.rest()
        assert person.child.wait(30) == 1
        assert "Traceback" not in shown and "Exception" not in shown and "Errno" not in shown


@pytest.mark.parametrize(("variables", "dim"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)])
def test_thoughts_are_dim_where_colour_is_wanted_and_marked_by_words(variables: dict, dim: bool) -> None:
    with terminal(kind="think", **variables) as person:
        person.waits_for("> ")
        person.types("one\n")
        shown = person.waits_for("Goodbye")
        assert "Thinking:" in shown and "Done thinking." in shown and ("\x1b[2m" in shown) == dim
        assert person.leaves() == 0


def test_the_terminal_is_left_as_it_was() -> None:
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    os.close(ours)
    os.close(theirs)
    with terminal() as person:
        person.waits_for("> ")
        person.types("one\n")
        person.waits_for("cached")
        assert person.leaves() == 0
        assert termios.tcgetattr(person._screen)[:4] == before[:4]


def test_a_download_that_is_broken_off_gives_the_cursor_back(tmp_path: Path) -> None:
    """In `run` and `chat` the bar is drawn while the model is loaded, and an error leaves through it."""
    code = (
        "import sys; import edgespec.loading as loading; from edgespec.errors import SourceError\n"
        "from edgespec.events import Loading; from edgespec.cli import main\n"
        "def load(pair=None, *, on_event, **options):\n"
        "    on_event(Loading('fetching big', 0.5, 10**9)); raise SourceError('It broke: try again.')\n"
        "loading.load = load; main([sys.argv[1], *sys.argv[2:]])"
    )
    for command in (("run", "hi"), ("chat",)):
        ours, theirs = pty.openpty()
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm"}
        child = subprocess.Popen(
            [sys.executable, "-c", code, *command],
            cwd=ROOT,
            env=environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        seen = Person(child, ours).rest()
        assert child.wait(30) == 1
        os.close(ours)
        assert seen.count("\x1b[?25l") == seen.count("\x1b[?25h") == 1
        assert seen.endswith("edgespec: It broke: try again.\r\n") and "\r\n\x1b[?25hedgespec:" in seen
