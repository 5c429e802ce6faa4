"""A file that grows as it comes, and from whose end it goes on after being broken off at any moment."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from edgespec.errors import SourceError

_BLOCK = 1 << 20


class Partial:
    """What has come of a file of `limit` bytes, kept at `path` alone. `size` is how many bytes that is.

    What is there already is read for the checksum, with a `tick` now and then. Everything happens in the caller's
    thread: nothing is written once it has left.
    """

    def __init__(self, path: Path, limit: int, tick: Callable[[], None]) -> None:
        self.size = 0
        self._path, self._limit = path, limit
        self._hash = hashlib.sha256()
        self._file = path.open("r+b" if path.exists() else "w+b")
        try:
            while block := self._file.read(_BLOCK):
                self._hash.update(block)
                self.size += len(block)
                tick()
            if self.size > limit:
                self.restart()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Partial:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def append(self, at: int, block: bytes) -> None:
        """Add a block that belongs at position `at`: behind what is here, or at 0 to begin anew.

        Raises SourceError, and keeps nothing, where the file would exceed its limit.
        """
        if at != self.size:
            self.restart()
        if at != self.size or at + len(block) > self._limit:
            self.discard()
            raise SourceError("something else came than was asked for, and was removed; try again")
        self._file.write(block)
        self._hash.update(block)
        self.size += len(block)

    def restart(self) -> None:
        """Forget what is here."""
        self._file.seek(0)
        self._file.truncate()
        self._hash = hashlib.sha256()
        self.size = 0

    def finish(self, destination: Path, sha256: str | None) -> None:
        """Check the whole and put it at `destination` in one step.

        Raises SourceError, and keeps nothing, where it is not what was promised.
        """
        if sha256 is not None and (found := self._hash.hexdigest()) != sha256:
            self.discard()
            raise SourceError(f"what came is damaged (sha256 {found} instead of {sha256}) and was removed; try again")
        self._file.flush()
        os.fsync(self._file.fileno())  # from now on its name alone vouches for it, even after a power cut
        self._file.close()
        os.replace(self._path, destination)

    def discard(self) -> None:
        """Remove what is here."""
        self.close()
        self._path.unlink(missing_ok=True)

    def close(self) -> None:
        with suppress(OSError):  # on a full disk, what is not written yet cannot be
            self._file.close()
