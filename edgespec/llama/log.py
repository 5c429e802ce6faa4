"""llama.cpp's log as records of a Python logger."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator

# ggml_log_level: none, debug, info, warn, error; 5 continues the line before. llama.cpp's info is our detail.
_CONTINUE = 5
_LEVELS = {1: logging.DEBUG, 2: logging.DEBUG, 3: logging.WARNING, 4: logging.ERROR}
_LONGEST = 8192


class _Pending(threading.local):
    """One thread's unfinished line, and its error lines while somebody collects them."""

    def __init__(self) -> None:
        self.level = logging.DEBUG
        self.parts: list[str] = []
        self.length = 0
        self.errors: list[str] | None = None


class LogForwarder:
    """Called with fragments of text and their level, from any thread; never raises.

    A line is passed on when its newline comes, or when another one begins: progress dots arrive one by one.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._pending = _Pending()

    def __call__(self, level: int, text: bytes | None, _data: object = None) -> None:
        # llama.cpp calls this from C, where an exception has nowhere to go.
        with contextlib.suppress(Exception):
            self._take(level, text or b"")

    @contextlib.contextmanager
    def errors(self) -> Iterator[list[str]]:
        """Collect the error lines that this thread logs inside the block."""
        before, lines = self._pending.errors, list[str]()
        self._pending.errors = lines
        try:
            yield lines
        finally:
            self._finish()
            self._pending.errors = before

    def _take(self, level: int, text: bytes) -> None:
        pending = self._pending
        if level != _CONTINUE:
            self._finish()
            pending.level = _LEVELS.get(level, logging.DEBUG)
        pending.parts.append(text.decode("utf-8", "replace"))
        pending.length += len(text)
        if text.endswith(b"\n") or pending.length > _LONGEST:
            self._finish()

    def _finish(self) -> None:
        pending = self._pending
        if not pending.parts:
            return
        line = "".join(pending.parts).rstrip()
        pending.parts, pending.length = [], 0
        if not line:
            return
        if pending.errors is not None and pending.level >= logging.ERROR:
            pending.errors.append(line)
        self._logger.log(pending.level, "%s", line)
