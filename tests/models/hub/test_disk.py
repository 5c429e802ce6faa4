"""Where files from the hub come to: disks that are full or know no links, and programs that fetch the same."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest
from huggingface_hub import constants

from edgespec.errors import SourceError
from edgespec.models.entries import HubEntry
from edgespec.models.hub import source as room
from edgespec.models.hub.partial import Partial
from tests.models.hub.conftest import REPO, Bench
from tests.models.hub.server import COMMIT
from tests.models.hub.test_source import CONTENT, FILES, MODEL, OTHER, PARTS, SPLIT, Enough, break_off, sha256


def test_without_links_the_snapshot_holds_the_content(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError("a file system without links")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    bench.hub.add(REPO, FILES)
    break_off(bench)
    (file,) = bench.fetch(MODEL)
    assert file.read_bytes() == CONTENT and not file.is_symlink() and bench.hub.served == len(CONTENT)
    assert bench.left() == ["refs/main", f"snapshots/{COMMIT}/Tiny-Q4_K_M.gguf"] and bench.is_sound()
    assert bench.find(MODEL) == (file,) == bench.fetch(MODEL)
    assert bench.remove(MODEL) == len(CONTENT) and not bench.folder.exists()


def test_a_blob_that_others_use_is_copied_where_links_are_not_wanted(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.hub.add(REPO, FILES | {"again.gguf": CONTENT})
    (one,) = bench.fetch(MODEL)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_SYMLINKS", True)
    (two,) = bench.fetch(HubEntry(REPO, "again.gguf"))
    assert one.is_symlink() and not two.is_symlink() and one.read_bytes() == two.read_bytes() == CONTENT
    assert bench.hub.served == len(CONTENT)


def test_another_program_that_fetches_the_same_is_waited_for(bench: Bench) -> None:
    from huggingface_hub.utils import WeakFileLock

    bench.hub.add(REPO, FILES)
    lock = bench.cache / ".locks" / bench.folder.name / f"{sha256(CONTENT)}.lock"
    lock.parent.mkdir(parents=True)
    waiting, held = threading.Event(), threading.Event()

    def other() -> None:
        with WeakFileLock(lock):
            held.set()
            assert waiting.wait(30)
            (bench.folder / "blobs" / sha256(CONTENT)).write_bytes(CONTENT)

    thread = threading.Thread(target=other)
    thread.start()
    assert held.wait(30)

    def progress(done: int, total: int) -> None:
        if bench.said:
            waiting.set()

    bench.fetch(MODEL, progress)
    thread.join()
    assert bench.said == ["Tiny-Q4_K_M.gguf is being fetched by another program: waiting for it."]
    assert not bench.hub.downloads()


def test_waiting_for_another_program_can_be_ended(bench: Bench) -> None:
    from huggingface_hub.utils import WeakFileLock

    bench.hub.add(REPO, FILES)
    lock = bench.cache / ".locks" / bench.folder.name / f"{sha256(CONTENT)}.lock"
    lock.parent.mkdir(parents=True)

    def progress(done: int, total: int) -> None:
        if bench.said:
            raise Enough

    with WeakFileLock(lock), pytest.raises(Enough):
        bench.fetch(MODEL, progress)


def test_a_disk_without_room_is_said_before(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.hub.add(REPO, FILES)
    break_off(bench)
    monkeypatch.setattr(room.shutil, "disk_usage", lambda path: _Usage(150_000))
    with pytest.raises(
        SourceError, match=r"^it needs 0\.0 GB of disk space in .*cache and 0\.0 GB are free; make room, or"
    ):
        bench.fetch(MODEL)
    monkeypatch.setattr(room.shutil, "disk_usage", lambda path: _Usage(200_000))
    assert bench.fetch(MODEL), "what is here already needs no room"


class _Usage:
    def __init__(self, free: int) -> None:
        self.free = free


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a limit on the size of files")
def test_a_disk_that_fills_up_is_not_left_full(bench: Bench) -> None:
    """Of a split model the parts that have come are removed, too."""
    import resource
    import signal

    bench.hub.add(REPO, FILES)
    bench.hub.add("acme/Other", {"a.gguf": OTHER[:9]})
    bench.fetch(HubEntry(REPO, "Tiny-Q2_K.gguf"))
    bench.hub.repos[REPO].files[PARTS[2]] = CONTENT  # larger than the others
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, before[1]))
        with pytest.raises(
            SourceError, match=r"^it needs 0\.0 GB in .*cache, which is full, so what came was removed; "
        ):
            bench.fetch(SPLIT)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert bench.left() == [f"blobs/{sha256(OTHER)}", "refs/main", f"snapshots/{COMMIT}/Tiny-Q2_K.gguf"]
    assert bench.is_sound()


def test_a_cache_that_cannot_be_written(bench: Bench) -> None:
    bench.hub.add(REPO, FILES)
    bench.cache.write_text("a file")
    with pytest.raises(SourceError, match=r"cache cannot be written \(.*\); set HF_HUB_CACHE to a folder that can$"):
        bench.fetch(MODEL)


def test_a_full_disk_costs_nothing_that_was_there_before(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.hub.add(REPO, FILES)
    bench.fetch(SPLIT)
    kept = bench.left()

    def full(self: Partial, at: int, block: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Partial, "append", full)
    with pytest.raises(SourceError, match="which is full, so what came was removed"):
        bench.fetch(MODEL)
    assert bench.left() == kept and bench.find(SPLIT)


def test_an_error_of_who_is_told_is_no_error_of_the_cache(bench: Bench) -> None:
    bench.hub.add(REPO, FILES)

    def gone(done: int, total: int) -> None:
        if done:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    with pytest.raises(BrokenPipeError):
        bench.fetch(MODEL, gone)
