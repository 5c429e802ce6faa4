"""Models from the Hugging Face hub, in the cache that huggingface-hub, llama.cpp and others share."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import Timeout

from edgespec.errors import SourceError
from edgespec.models.entries import HubEntry, ModelEntry
from edgespec.models.hub.attended import LOOK, paused
from edgespec.models.hub.cache import HubCache, HubFile
from edgespec.models.hub.partial import Partial
from edgespec.models.hub.quants import Model, choose, is_inside, models, parts, quants
from edgespec.models.joining import FULL

if TYPE_CHECKING:
    from edgespec.models.hub.client import HubClient
    from edgespec.models.sources import Progress, Say

_SHA256 = re.compile(r"[0-9a-f]{64}")
# The hub's plain download ends here.
_MOST = 50_000_000_000
# So often it is tried to go on after a connection broke, if nothing came in between, after so many seconds.
_TRIES = 3
_PAUSE = 1.0
_NAMED = 5


class HubSource:
    """A file of a repository, or the one in a quant, with all its parts where it is split.

    Files come into the cache as `hf download` would bring them, but what has come of one that is broken off is kept.
    Tokens, offline mode, the place of the cache and the hub's address are those of huggingface-hub.
    """

    def __init__(self, entry: HubEntry) -> None:
        self._entry = entry
        self._cache = HubCache(entry.repo, entry.revision)

    @property
    def name(self) -> str:
        """What to call this source in a sentence."""
        return f"the hub ({self._entry.repo})"

    def find(self, model: ModelEntry, destination: Path) -> tuple[Path, ...]:
        """See `Source.find`. The content was checked when it came."""
        for snapshot in self._cache.snapshots():
            files = tuple(snapshot / name for name in self._named(self._cache.whole(snapshot)))
            if not files or not all(file.is_file() for file in files):
                continue
            size = sum(file.stat().st_size for file in files)
            if _is_promised(model, size, _etag(files[0]) if len(files) == 1 else ""):
                return files
        return ()

    def fetch(self, model: ModelEntry, destination: Path, progress: Progress, say: Say) -> tuple[Path, ...]:
        """See `Source.fetch`. Parts that have come are kept when it is broken off, but not on a disk that is full."""
        from edgespec.models.hub.client import HubClient

        meter = _Meter(progress, model.size or 0)
        client = HubClient(self._entry.repo, meter.tick)
        files = self._described(client, model)
        begun: list[HubFile] = []
        try:
            self._cache.prepare()
            self._bring_all(client, model, files, meter, say, begun)
        except OSError as error:
            if error.errno in FULL:
                for file in begun:
                    self._cache.forget(file)
            raise SourceError(self._unwritten(error, sum(file.size for file in files))) from error
        except _FromOutside as outside:
            raise outside.error from None
        return tuple(self._cache.place(file) for file in files)

    def _bring_all(
        self, client: HubClient, model: ModelEntry, files: list[HubFile], meter: _Meter, say: Say, begun: list[HubFile]
    ) -> None:
        """Have all files in the cache; `begun` lists those of which anything was written."""
        total, here = sum(file.size for file in files), sum(self._here(file) for file in files)
        self._check_room(total - here)
        if here:
            say(f"Going on with {model.name}: {here / 1e6:,.0f} of {total / 1e6:,.0f} MB are here already.")
        meter.begin(here, total)
        for file in files:
            with self._locked(file, meter, say):
                new = not self._cache.holds(file)
                if new:
                    begun.append(file)
                    self._bring(client, file, meter, model.sha256 if len(files) == 1 else None)
                self._cache.link(file, new)
            meter.passed(file.size)
        self._cache.refer(files[0].commit)
        meter.tick()

    def remove(self, model: ModelEntry, destination: Path) -> int:
        """See `Source.remove`."""
        snapshots = self._cache.snapshots()
        freed = sum(self._cache.delete(self._named(self._cache.whole(snapshot)), [snapshot]) for snapshot in snapshots)
        return freed + self._cache.delete(self._named(self._cache.broken_off()), snapshots)

    def _named(self, among: list[Model], settle: bool = False) -> Model:
        """The one among these models that the entry means; a file's name speaks for itself."""
        file = self._entry.file
        if file is None:
            return choose(among, self._entry.quant, settle)
        return parts(file) if is_inside(file) else ()

    def _described(self, client: HubClient, model: ModelEntry) -> list[HubFile]:
        """The model's files as the hub has them. Raises SourceError where it does not have them."""
        from edgespec.models.hub.failures import FileNotThere

        repo, at = self._entry.repo, self._entry.revision
        names: list[str] = []
        if self._entry.file is None:
            at, names = client.names(at)
        chosen = self._named(models(names), settle=True)
        if not chosen:
            raise SourceError(self._nothing_to_choose(names))
        files: list[HubFile] = []
        for path in chosen:
            try:
                files.append(client.describe(path, at))
            except FileNotThere as error:
                raise SourceError(f"{error}; {self._others(client)}") from error
            at = files[0].commit  # parts belong together, even if somebody changes the branch meanwhile
            if files[-1].size > _MOST:
                raise SourceError(f"{path} has over 50 GB; run `hf download {repo} {path}`, and edgespec will find it")
        if not _is_promised(model, sum(file.size for file in files), files[0].etag if len(files) == 1 else ""):
            raise SourceError(f"{chosen[0]} is not what models.toml promises; correct its size and sha256 there")
        return files

    def _nothing_to_choose(self, names: list[str]) -> str:
        repo, quant, file = self._entry.repo, self._entry.quant, self._entry.file
        if file is not None:
            return f"{file} is no path in a repository; write {repo}/FILE.gguf"
        if known := quants(models(names)):
            return f"{repo} has no {quant}; ask for one of these: {', '.join(known)}"
        return f"{repo} holds no model in GGUF format; look for a repository whose name ends in GGUF"

    def _others(self, client: HubClient) -> str:
        """What to say instead of a file that the repository does not have."""
        try:
            _, names = client.names(self._entry.revision)
        except SourceError:
            names = []
        first = [model[0] for model in models(names)]
        more = f" and {len(first) - _NAMED} more" if len(first) > _NAMED else ""
        return f"check the name, it has {', '.join(first[:_NAMED])}{more}" if first else "check the name"

    def _here(self, file: HubFile) -> int:
        """How many bytes of a file have come."""
        if self._cache.holds(file):
            return file.size
        try:
            return min(file.size, self._cache.incomplete(file).stat().st_size)
        except OSError:
            return 0

    def _check_room(self, missing: int) -> None:
        free = shutil.disk_usage(self._cache.folder).free
        if free < missing:
            raise SourceError(
                f"it needs {missing / 1e9:.1f} GB of disk space in {self._cache.root} and {free / 1e9:.1f} GB are "
                "free; make room, or set HF_HUB_CACHE to a folder that has it"
            )

    def _unwritten(self, error: OSError, total: int) -> str:
        if error.errno in FULL:
            return (
                f"it needs {total / 1e9:.1f} GB in {self._cache.root}, which is full, so what came was removed; make "
                "room, or set HF_HUB_CACHE to a folder that has it"
            )
        reason = error.strerror or str(error)
        return f"{self._cache.root} cannot be written ({reason}); set HF_HUB_CACHE to a folder that can"

    @contextmanager
    def _locked(self, file: HubFile, meter: _Meter, say: Say) -> Iterator[None]:
        """Let one program at a time fetch a file, huggingface-hub's own among them."""
        from huggingface_hub.utils import WeakFileLock  # type: ignore[attr-defined]

        waiting = False
        with ExitStack() as owned:
            while True:
                try:
                    owned.enter_context(WeakFileLock(self._cache.lock(file), timeout=LOOK))
                    break
                except Timeout:
                    if not waiting:
                        say(f"{file.path} is being fetched by another program: waiting for it.")
                    waiting = True
                    meter.tick()
            yield

    def _bring(self, client: HubClient, file: HubFile, meter: _Meter, sha256: str | None) -> None:
        """Have a file's content in the cache."""
        with Partial(self._cache.incomplete(file), file.size, lambda: meter.at(0)) as partial:
            _complete(partial, client, file, meter)
            partial.finish(self._cache.blob(file), file.etag if _SHA256.fullmatch(file.etag) else sha256)


def _complete(partial: Partial, client: HubClient, file: HubFile, meter: _Meter) -> None:
    """Fetch what is still missing, and go on by itself where the connection breaks now and then."""
    from edgespec.models.hub.failures import Broken

    in_vain = 0
    while partial.size < file.size:
        before = partial.size
        try:
            for at, block in client.blocks(file, partial.size):
                partial.append(at, block)
                meter.at(partial.size)
            if partial.size < file.size:
                raise Broken("the hub sent less than it promised; try again")
        except Broken as error:
            in_vain = 0 if partial.size > before else in_vain + 1
            if in_vain == _TRIES:
                raise SourceError(f"{error}, and it goes on from there" if partial.size else str(error)) from error
            paused(_PAUSE, meter.tick)


class _FromOutside(Exception):
    """An error of those who are told about the progress."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


class _Meter:
    """Tells how much has come, several times a second, and never less than before."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress, self._total = progress, total
        self._passed = self._shown = 0
        self._last = 0.0

    def begin(self, done: int, total: int) -> None:
        """From now on the size is known, and what is here already."""
        self._shown, self._total = done, total
        self.tick()

    def at(self, size: int) -> None:
        """Of the present file, `size` bytes are here."""
        self._shown = max(self._shown, self._passed + size)
        if time.monotonic() - self._last >= LOOK:
            self.tick()

    def passed(self, size: int) -> None:
        """A file of `size` bytes is done."""
        self._passed += size
        self.at(0)

    def tick(self) -> None:
        self._last = time.monotonic()
        try:
            self._progress(self._shown, self._total)
        except OSError as error:  # the cache's own are made sentences; this is none of them
            raise _FromOutside(error) from error


def _is_promised(model: ModelEntry, size: int, etag: str) -> bool:
    """Whether a file is what models.toml says, as far as can be told without reading it."""
    known = model.sha256 is not None and _SHA256.fullmatch(etag) is not None
    return model.size in (None, size) and (not known or model.sha256 == etag)


def _etag(file: Path) -> str:
    """The name of the blob that a snapshot links to."""
    try:
        return Path(os.readlink(file)).name
    except OSError:
        return ""
