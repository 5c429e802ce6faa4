"""The models on this machine, and from what a person types to one of them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from edgespec.errors import ModelNotFound, ModelUnreadable, SourceError, UsageError
from edgespec.folders import cache_folder
from edgespec.models.entries import ModelEntry
from edgespec.models.references import hub_entry, local_path, says_hub
from edgespec.models.registry import Registry
from edgespec.models.sources import OpenSource, Progress, Say, Source, open_source

# Seconds between two signs of life while another process fetches.
_WAIT = 0.2


@dataclass(frozen=True, slots=True)
class Store:
    """Finds, fetches and removes models by reference: a path, a name from the registry, or a file on the hub.

    edgespec's own cache is `cache`, by default `cache_folder()`. While `offline`, nothing is asked of any network.
    """

    registry: Registry
    cache: Path | None = None
    offline: bool = False
    open_source: OpenSource = open_source

    def entry(self, reference: str) -> ModelEntry | None:
        """The model that `reference` means; None for a path. Raises UsageError where it means nothing."""
        names = self.registry.models
        if local_path(reference, names) is not None:
            return None
        if reference in names:
            return names[reference]
        if hub := hub_entry(reference):
            return ModelEntry(reference, (hub,))
        if says_hub(reference):
            raise UsageError(f"{reference} names no file on the hub: write user/repository:QUANT, such as :Q4_K_M.")
        return self.registry.model(reference)

    def find(self, reference: str) -> tuple[Path, ...]:
        """The files of the model if they are on this machine, the one to load first; else nothing."""
        model = self.entry(reference)
        if model is None:
            return (_local(reference),)
        return next(filter(None, (source.find(model, self._place(model)) for source in self._sources(model))), ())

    def fetch(
        self,
        reference: str,
        progress: Progress = lambda done, total: None,
        say: Say = lambda sentence: None,
    ) -> Path:
        """The file to load for the model, fetched if it is not here yet.

        Raises ModelNotFound or ModelUnreadable for a path, UsageError for an unknown name, SourceError where no source
        has the model; that says why for each.
        """
        if found := self.find(reference):
            return found[0]
        model = self.entry(reference)
        assert model is not None
        if self.offline:
            raise SourceError(f"{reference} is not on this machine: leave out --offline to fetch it.")
        place = self._place(model)
        try:
            with _locked(place, model, progress, say):
                # The one before us may have brought it.
                return (self.find(reference) or self._from_sources(model, progress, say))[0]
        except OSError as error:
            reason = error.strerror or str(error)
            raise SourceError(
                f"{model.name} could not be written to {place.parent} ({reason}): make room there, or set "
                "EDGESPEC_CACHE to a folder that can be written."
            ) from error

    def remove(self, reference: str) -> int:
        """Delete the model from this machine; return how many bytes that freed.

        Raises SourceError for files that edgespec did not fetch.
        """
        model, freed = self.entry(reference), 0
        if model is not None:
            place = self._place(model)
            with _locked(place, model, lambda done, total: None, lambda sentence: None):
                freed = sum(source.remove(model, place) for source in self._sources(model))
        if not freed and (own := self.find(reference)):
            raise SourceError(f"{own[0]} is a file of yours: delete it yourself if you no longer want it.")
        return freed

    def _sources(self, model: ModelEntry) -> list[Source]:
        return [self.open_source(entry) for entry in model.sources]

    def _place(self, model: ModelEntry) -> Path:
        return (self.cache or cache_folder()) / "models" / (model.file or re.sub(r"[^\w.-]+", "_", model.name))

    def _from_sources(self, model: ModelEntry, progress: Progress, say: Say) -> tuple[Path, ...]:
        reasons: list[str] = []
        for source in self._sources(model):
            if reasons:
                say(f"Not from {reasons[-1]}.")
            size = "" if model.size is None else f" ({model.size / 1e6:,.0f} MB)"
            say(f"Fetching {model.name}{size} from {source.name}.")
            try:
                return source.fetch(model, self._place(model), progress, say)
            except SourceError as error:
                reasons.append(f"{source.name}: {error}")
        path = model.name not in self.registry.models and not says_hub(model.name) and ":" not in model.name
        more = f"; and there is no file {model.name} here" if path else ""
        raise SourceError(f"{model.name} could not be fetched from {'; from '.join(reasons)}{more}.")


def _local(reference: str) -> Path:
    path = local_path(reference, ())
    assert path is not None
    if os.path.isdir(path):  # Path's own raises for a name that is too long
        raise ModelUnreadable(f"{path} is a folder: name the .gguf file in it.")
    if not os.path.exists(path):
        raise ModelNotFound(f"There is no file {path}: check the path, or use a model's name from models.toml.")
    return path


@contextmanager
def _locked(place: Path, model: ModelEntry, progress: Progress, say: Say) -> Iterator[None]:
    """Let one process at a time change what is at `place`."""
    partial = place.parent / ".partial"
    partial.mkdir(parents=True, exist_ok=True)
    lock = FileLock(partial / f"{place.name}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        say(f"{model.name} is being fetched already: waiting for it.")
        # In short steps, so that `progress` can end the waiting too.
        while not lock.is_locked:
            progress(0, model.size or 0)
            with suppress(Timeout):
                lock.acquire(timeout=_WAIT)
    try:
        yield
    finally:
        lock.release()
