"""A program that is started for a run, and ends with it, together with all that it started itself."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType

import psutil

from edgespec.errors import PeerFailed

_LATEST, _LONGEST = 10, 200  # lines of its output that are looked at in the end, and characters that are quoted


class Program:
    """The program called `name`; leaving the block ends it, at once after `grace` seconds. Raises PeerFailed.

    It has a process group of its own, so that Ctrl-C reaches the run alone, which ends it in its own time.
    """

    def __init__(self, name: str, words: Sequence[str], grace: float) -> None:
        self._name, self._grace = name, grace
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # closed by __exit__
        try:
            self._process = subprocess.Popen(
                list(words),
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                process_group=None if os.name == "nt" else 0,
                creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
            )
        except (OSError, ValueError) as error:
            self._log.close()
            why = getattr(error, "strerror", None) or error
            raise PeerFailed(f"{name} cannot be started as {words[0]} ({why}): check its command.") from error

    def __enter__(self) -> Program:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        left = tree = self._tree()
        try:
            for process in tree:
                with suppress(psutil.Error):
                    process.terminate()
            _, left = psutil.wait_procs(tree, timeout=self._grace)
        finally:  # an impatient Ctrl-C, too
            for process in left:
                with suppress(psutil.Error):
                    process.kill()
            self._process.wait()
            self._log.close()

    def ended(self, within: float = 0.0) -> bool:
        """Whether it has ended; waits up to `within` seconds for that."""
        try:
            self._process.wait(within)
        except subprocess.TimeoutExpired:
            return False
        return True

    def death(self, when: str) -> PeerFailed:
        """How it ended, with its own last words: what it calls an error, or else its last line."""
        self._log.seek(0)
        lines = [line.strip() for line in self._log.read().decode("utf-8", "replace").splitlines()]
        latest = [line for line in reversed(lines) if line][:_LATEST] or ["it said nothing"]
        last = next((line for line in latest if "error" in line.lower()), latest[0])
        code = self._process.returncode
        return PeerFailed(
            f"{self._name} ended with {code} {when} ({last[:_LONGEST].rstrip('.')}): try its command by itself."
        )

    def memory(self) -> int | None:
        """Bytes of it and its children that are in memory; None where the system does not say."""
        found = 0
        for process in self._tree():
            with suppress(psutil.Error):  # one that has just ended
                found += int(process.memory_info().rss)
        return found or None

    def _tree(self) -> list[psutil.Process]:
        if self._process.poll() is not None:
            return []  # its id may be another's by now
        with suppress(psutil.Error):
            own = psutil.Process(self._process.pid)
            return [own, *own.children(recursive=True)]
        return []
