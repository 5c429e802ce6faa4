"""The seam behind which models are fetched: one way to get a file, whatever it is."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from edgespec.errors import SourceError
from edgespec.models.entries import HubEntry, ModelEntry, PackagesEntry, PathEntry, SourceEntry

Progress = Callable[[int, int], None]
"""(bytes that are here, bytes in all), several times a second and never backwards; what it raises ends the fetch."""

Say = Callable[[str], None]
"""One sentence for a person."""


class Source(Protocol):
    """One way to get the file of a model.

    `destination` is the place for the model in edgespec's own cache; a source may have a store of its own instead. A
    model that is split has several files, of which the first is the one to load.
    """

    @property
    def name(self) -> str:
        """What to call this source in a sentence."""

    def find(self, model: ModelEntry, destination: Path) -> tuple[Path, ...]:
        """The model's files, if they are here, whole; else nothing. Asks nothing of the network."""

    def fetch(self, model: ModelEntry, destination: Path, progress: Progress, say: Say) -> tuple[Path, ...]:
        """Get the model's files, whole and checked.

        Nothing is ever half at its place. The caller holds the lock on `destination`. Raises SourceError with a clause
        that says why, without a full stop; when broken off by anything else, it leaves a state from which it can be
        resumed.
        """

    def remove(self, model: ModelEntry, destination: Path) -> int:
        """Delete what `find` finds, and what a fetch that was broken off has left; return how many bytes that frees."""


OpenSource = Callable[[SourceEntry], Source]


def open_source(entry: SourceEntry, pip: Sequence[str] | None = None) -> Source:
    """The source that an entry of models.toml describes; `pip` is the command to use instead of this interpreter's."""
    # Imported when first wanted: a source may pull in a network library that other uses should not wait for.
    match entry:
        case PathEntry():
            return PathSource(entry)
        case HubEntry():
            from edgespec.models.hub.source import HubSource

            return HubSource(entry)
        case PackagesEntry():
            from edgespec.models.packages import PackageSource

            return PackageSource(entry, pip)


class PathSource:
    """A file that the person has already, and keeps."""

    def __init__(self, entry: PathEntry) -> None:
        self._path = Path(os.path.expanduser(entry.path))

    @property
    def name(self) -> str:
        return str(self._path)

    def find(self, model: ModelEntry, destination: Path) -> tuple[Path, ...]:
        return (self._path,) if self._path.is_file() else ()

    def fetch(self, model: ModelEntry, destination: Path, progress: Progress, say: Say) -> tuple[Path, ...]:
        raise SourceError("there is no such file")

    def remove(self, model: ModelEntry, destination: Path) -> int:
        return 0  # it is not ours to delete
