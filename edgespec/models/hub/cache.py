"""A repository in the cache that huggingface-hub, llama.cpp and others share, laid out as theirs.

`blobs/ETAG` holds a file's content, `snapshots/COMMIT/PATH` is a link to it, and `refs/NAME` says which commit a branch
or tag is at. Where links cannot be made, the snapshot holds the content itself.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

from huggingface_hub import constants

from edgespec.models.hub.quants import Model, models

COMMIT = re.compile(r"[0-9a-f]{40}")

# Like those of huggingface-hub, so that its tools see what is left over, and can clear it away.
_INCOMPLETE = ".incomplete"
# So much of a file's path is in the name of what has come of it; a name must not have more than 255 characters.
_TAIL = 120
_TAG = "Signature: 8a477f597d28d172789f06886806bc55\n# Made by edgespec and huggingface-hub.\n"


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file as the hub describes it; the etag is the content's sha256 where the hub keeps it as a large file."""

    path: str
    commit: str
    etag: str
    size: int


class HubCache:
    """What is here of one repository at one revision. Nothing is asked of the network."""

    def __init__(self, repo: str, revision: str) -> None:
        self.root = Path(constants.HF_HUB_CACHE).expanduser().resolve()
        self.folder = self.root / "--".join(("models", *repo.split("/")))
        self._revision = revision
        self._snapshots, self._refs = self.folder / "snapshots", self.folder / "refs"

    def snapshots(self) -> list[Path]:
        """The snapshots of the revision that there are, the best first.

        Of "main", which stands for whatever there is, older ones do as well.
        """
        here = {path.name: path for path in _listed(self._snapshots) if path.is_dir()}
        wanted = self._revision
        if not COMMIT.fullmatch(wanted):
            with suppress(OSError, UnicodeError):
                wanted = (self._refs / wanted).read_text("utf-8").strip()
        first = [here.pop(wanted)] if wanted in here else []
        if self._revision == constants.DEFAULT_REVISION:
            first += sorted(here.values(), key=lambda path: path.stat().st_mtime, reverse=True)
        return first

    def whole(self, snapshot: Path) -> list[Model]:
        """The models in a snapshot of which all parts are there."""
        return [model for model in models(_files(snapshot)) if all((snapshot / name).is_file() for name in model)]

    def broken_off(self) -> list[Model]:
        """The models of which a part has come, or a part of a part, but not all."""
        names = {_path_of(file) for file in self._incomplete()}
        for snapshot in self.snapshots():
            names.update(model[0] for model in models(_files(snapshot)) if model not in self.whole(snapshot))
        return models(names)

    def blob(self, file: HubFile) -> Path:
        return self.folder / "blobs" / file.etag

    def incomplete(self, file: HubFile) -> Path:
        """Where a file grows while it comes. The name tells, without asking the hub, which file it is."""
        return self.folder / "blobs" / f"{file.etag[:64]}.{_tail(file.path)}{_INCOMPLETE}"

    def lock(self, file: HubFile) -> Path:
        """The lock that huggingface-hub takes while it fetches the file."""
        path = self.root / ".locks" / self.folder.name / f"{file.etag}.lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def place(self, file: HubFile) -> Path:
        return self._snapshots / file.commit / file.path

    def holds(self, file: HubFile) -> bool:
        """Whether the file's content is here, whole, be it linked yet or not."""
        return any(_size(path) == file.size for path in (self.blob(file), self.place(file)))

    def prepare(self) -> None:
        """Make the folders. Without snapshots a repository would count as damaged, even while the first file comes."""
        for folder in (self._snapshots, self.folder / "blobs"):
            folder.mkdir(parents=True, exist_ok=True)
        with suppress(OSError), (self.root / "CACHEDIR.TAG").open("x", encoding="utf-8") as tag:
            tag.write(_TAG)  # backups may leave this folder out

    def link(self, file: HubFile, new: bool) -> None:
        """Put a file whose blob is there at its place in the snapshot; `new` is a blob that nothing else links to."""
        place, blob = self.place(file), self.blob(file)
        if _size(place) == file.size:
            return
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)  # a link to a blob that is gone
        if not constants.HF_HUB_DISABLE_SYMLINKS:
            try:
                place.symlink_to(os.path.relpath(blob, place.parent))
                return
            except FileExistsError:
                return  # another program was faster
            except (OSError, NotImplementedError):
                pass
        if not new:
            shutil.copyfile(blob, self.incomplete(file))
        os.replace(blob if new else self.incomplete(file), place)

    def forget(self, file: HubFile) -> None:
        """Take away a file that has just come, or what has come of it."""
        for path in (self.place(file), self.blob(file), self.incomplete(file)):
            path.unlink(missing_ok=True)

    def refer(self, commit: str) -> None:
        """Note that the revision is at `commit`."""
        if self._revision == commit:
            return
        ref = self._refs / self._revision
        ref.parent.mkdir(parents=True, exist_ok=True)
        written = ref.with_name(f"{ref.name}.{os.getpid()}.tmp")
        written.write_text(commit, "utf-8")
        os.replace(written, ref)

    def delete(self, model: Model, snapshots: Iterable[Path]) -> int:
        """Remove a model's files from snapshots, the content that nothing else uses, and what has come of them.

        Returns how many bytes that frees.
        """
        from huggingface_hub import scan_cache_dir

        if not self.folder.is_dir():
            return 0
        freed = 0
        for path in [path for path in self._incomplete() if _tail(_path_of(path)) in {_tail(name) for name in model}]:
            freed += _size(path) or 0
            path.unlink(missing_ok=True)
        self._tidy()
        wanted = {snapshot / name for snapshot in snapshots for name in model}
        # The library knows where content lies that repositories share.
        scanned = scan_cache_dir(self.root)
        repos = (repo for repo in scanned.repos if repo.repo_path == self.folder)
        files = [file for repo in repos for revision in repo.revisions for file in revision.files]
        strategy = scanned.delete_files(*(file for file in files if file.file_path in wanted))
        strategy.execute()
        self._tidy()
        return freed + strategy.expected_freed_size

    def _incomplete(self) -> Iterator[Path]:
        return (path for path in _listed(self.folder / "blobs") if path.name.endswith(_INCOMPLETE) and _path_of(path))

    def _tidy(self) -> None:
        """Take away links to nothing, empty folders, refs to snapshots that are gone, and what is left of the whole.

        Not while another program fetches: it makes the folder and the ref before the file.
        """
        if any(path.name.endswith(_INCOMPLETE) for path in _listed(self.folder / "blobs")):
            return
        for folder, _, names in os.walk(self._snapshots, topdown=False):
            for path in (Path(folder, name) for name in names):
                if not path.exists():
                    path.unlink(missing_ok=True)
            if Path(folder) != self._snapshots:
                with suppress(OSError):
                    os.rmdir(folder)
        for folder, _, names in os.walk(self._refs, topdown=False):
            for path in (Path(folder, name) for name in names):
                with suppress(OSError, UnicodeError):
                    if not (self._snapshots / path.read_text("utf-8").strip()).is_dir():
                        path.unlink()
            with suppress(OSError):
                os.rmdir(folder)
        if not _listed(self._snapshots) and not _listed(self.folder / "blobs"):
            shutil.rmtree(self.folder, ignore_errors=True)


def _tail(path: str) -> str:
    return quote(path, safe="", errors="surrogateescape")[-_TAIL:]


def _path_of(incomplete: Path) -> str:
    """The end of the path of the file that this is a part of; nothing for another program's."""
    _, _, tail = incomplete.name.removesuffix(_INCOMPLETE).partition(".")
    return unquote(tail, errors="surrogateescape") if tail.lower().endswith(".gguf") else ""


def _files(snapshot: Path) -> list[str]:
    """What is in a snapshot, as paths in the repository; a link whose blob is gone is not."""
    return [path.relative_to(snapshot).as_posix() for path in snapshot.rglob("*") if path.is_file()]


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None
