"""One set-up at a time: a lock that the system itself takes back when its holder dies."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]
    import msvcrt


@contextmanager
def exclusive(path: Path, waiting: Callable[[], object]) -> Iterator[None]:
    """Hold the lock on `path`; call `waiting` once if somebody else has it. The file itself stays: it means nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        if not _take(file):
            waiting()
            while not _take(file):
                time.sleep(0.2)
        yield  # closing the file lets go of the lock


def _take(file: IO[bytes]) -> bool:
    try:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
    except (BlockingIOError, PermissionError):
        return False
    return True
