"""Runs other programs: all that they print goes to a log file, and none of them outlives the set-up."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit, urlunsplit

from . import BrokenOff, SetupError

KEPT_LOGS = 10


class Runner(Protocol):
    """What the other files need of Commands; the tests put their own in its place."""

    def run(
        self,
        command: Sequence[str],
        *,
        log: str,
        failure: str,
        environ: Mapping[str, str] | None = None,
        line: Callable[[str], None] | None = None,
    ) -> None:
        """Run it to its end. `log` names the log file, `failure` is the sentence for the user if it fails,
        `environ` adds variables, `line` sees each line of output as it comes."""

    def stop(self) -> None:
        """End all that still run, and let nothing else start."""


class Commands:
    """The real Runner.

    Each program gets a process group of its own: Ctrl-C then comes here alone, and `stop` ends its children as well.
    """

    def __init__(self, logs: Path, environ: Mapping[str, str]) -> None:
        self._folder = logs / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
        self._environ = dict(environ)
        self._running: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self._stopped = False

    def run(
        self,
        command: Sequence[str],
        *,
        log: str,
        failure: str,
        environ: Mapping[str, str] | None = None,
        line: Callable[[str], None] | None = None,
    ) -> None:
        with self._log(log).open("a", encoding="utf-8") as out:
            print("$", *map(without_password, command), file=out, flush=True)
            try:
                process = self._start(command, {**self._environ, **(environ or {})})
            except OSError as error:
                print(error, file=out)
                raise SetupError(failure, Path(out.name)) from error
            with process:
                try:
                    for text in process.stdout or ():
                        out.write(text)
                        out.flush()
                        if line is not None:
                            line(text.rstrip())
                    code = process.wait()
                except BaseException:
                    _end(process)
                    raise
                finally:
                    with self._lock:
                        self._running.discard(process)
            if self._stopped:
                raise BrokenOff
            if code != 0:
                print(f"exit status {code}", file=out)
                raise SetupError(failure, Path(out.name))

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            running = list(self._running)
        for process in running:
            _end(process)

    def _start(self, command: Sequence[str], environ: Mapping[str, str]) -> subprocess.Popen[str]:
        with self._lock:
            if self._stopped:
                raise BrokenOff
            process = subprocess.Popen(
                list(command),
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                errors="replace",
                process_group=None if os.name == "nt" else 0,
            )
            self._running.add(process)
        return process

    def _log(self, name: str) -> Path:
        if not self._folder.is_dir():
            self._folder.mkdir(parents=True, exist_ok=True)
            _prune(self._folder.parent)
        return self._folder / f"{name}.log"


def without_password(text: str) -> str:
    """The text as it may stand in a log: an address without the user name and password in it."""
    if "://" not in text or "@" not in text:
        return text
    parts = urlsplit(text)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def tail(log: Path, lines: int = 20) -> str:
    """The last lines of a log."""
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])


def _prune(logs: Path) -> None:
    """Keep the newest logs."""
    for folder in sorted(path for path in logs.iterdir() if path.is_dir())[:-KEPT_LOGS]:
        shutil.rmtree(folder, ignore_errors=True)


def _end(process: subprocess.Popen[str]) -> None:
    """End a program and its children: Ctrl-C does not reach them, since they have a process group of their own."""
    if os.name == "nt":
        process.terminate()
    else:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
