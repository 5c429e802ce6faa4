"""A file that grows part by part, and whose whole parts survive being broken off at any moment."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import IO

from edgespec.errors import SourceError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What the system says when there is no room for more."""

_BLOCK = 1 << 20


class Joined:
    """The parts joined so far, in `folder`, which belongs to this object alone.

    A part counts from the moment when `state.json` says so, and that file is replaced in one step. Bytes behind what it
    says are the rest of a part that was broken off; they are cut away before the next part. So the disk never holds
    more than the file itself, whatever number of parts it comes in.

    `recipe` says what the parts are; parts of another recipe are thrown away. `parts` is how many are joined, `size`
    how many bytes.
    """

    def __init__(self, folder: Path, recipe: str) -> None:
        self.parts = 0
        self.size = 0
        self._folder, self._recipe = folder, recipe
        self._file, self._state = folder / "joined", folder / "state.json"
        self._hash = hashlib.sha256()
        if not self._resume():
            self.discard()
        folder.mkdir(parents=True, exist_ok=True)

    def append(self, part: IO[bytes], limit: int) -> None:
        """Join one more part. Raises SourceError, and keeps nothing, where the file would exceed `limit` bytes."""
        digest, size = self._hash.copy(), self.size
        with self._file.open("r+b" if self._file.exists() else "wb") as out:
            out.truncate(self.size)
            out.seek(self.size)
            while block := part.read(_BLOCK):
                size += len(block)
                if size > limit:
                    self.discard()
                    raise SourceError(f"more came than the {limit} bytes that the model has; what came was removed")
                out.write(block)
                digest.update(block)
        written = self._state.with_suffix(".new")
        written.write_text(json.dumps({"recipe": self._recipe, "parts": self.parts + 1, "size": size}), "utf-8")
        os.replace(written, self._state)
        self._hash, self.size, self.parts = digest, size, self.parts + 1

    def finish(self, destination: Path, size: int, sha256: str) -> None:
        """Check the whole and put it at `destination` in one step.

        Raises SourceError, and keeps nothing, where it is not what was promised.
        """
        found = self._hash.hexdigest()
        if (self.size, found) != (size, sha256):
            wrong = f"sha256 {found}" if self.size == size else f"{self.size} bytes"
            right = f"sha256 {sha256}" if self.size == size else f"{size} bytes"
            self.discard()
            raise SourceError(f"what came is not the model ({wrong} instead of {right}) and was removed")
        with self._file.open("r+b") as whole:
            os.fsync(whole.fileno())  # from now on its size alone vouches for it, even after a power cut
        os.replace(self._file, destination)
        self.discard()

    def discard(self) -> None:
        """Remove everything."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self.parts, self.size, self._hash = 0, 0, hashlib.sha256()

    def _resume(self) -> bool:
        try:
            state = json.loads(self._state.read_text("utf-8"))
            recipe, parts, size = state["recipe"], int(state["parts"]), int(state["size"])
            if recipe != self._recipe:
                return False
            left = size
            with self._file.open("rb") as file:
                while left and (block := file.read(min(_BLOCK, left))):
                    self._hash.update(block)
                    left -= len(block)
        except (OSError, ValueError, KeyError, TypeError):
            return False
        if left:
            return False
        self.parts, self.size = parts, size
        return True
