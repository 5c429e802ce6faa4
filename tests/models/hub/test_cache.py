"""What is found in the cache that others share, and what is removed from it; nothing of this asks the network."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub import constants

from edgespec.models.entries import HubEntry
from tests.models.hub.conftest import REPO, Bench
from tests.models.hub.server import Fault
from tests.models.hub.test_source import CONTENT, FILES, MODEL, OTHER, PARTS, SPLIT, Enough, break_off, sha256, until

OLD, NEW = "0123" * 10, "4567" * 10


@pytest.fixture(autouse=True)
def _nothing_is_asked(bench: Bench) -> None:
    bench.hub.broken = 500


def put(bench: Bench, *names: str, commit: str = OLD, ref: str | None = "main", age: int = 0) -> Path:
    """A snapshot with these files, whose content is their name."""
    snapshot = bench.folder / "snapshots" / commit
    for name in names:
        blob, place = bench.folder / "blobs" / sha256(name.encode()), snapshot / name
        for path in (blob, place):
            path.parent.mkdir(parents=True, exist_ok=True)
        blob.write_text(name)
        place.symlink_to(os.path.relpath(blob, place.parent))
    if ref is not None:
        (bench.folder / "refs").mkdir(exist_ok=True)
        (bench.folder / "refs" / ref).write_text(commit)
    os.utime(snapshot, (10**9 - age, 10**9 - age))
    return snapshot


def test_a_quant_is_found_or_the_default(bench: Bench) -> None:
    snapshot = put(bench, "README.md", "mmproj-Q4_K_M.gguf", "x-Q6_K.gguf", "dir/x-q2_k.gguf")
    assert bench.find(HubEntry(REPO, quant="q6_K")) == (snapshot / "x-Q6_K.gguf",)
    assert bench.find(HubEntry(REPO, quant="Q2_K")) == (snapshot / "dir/x-q2_k.gguf",)
    assert bench.find(HubEntry(REPO)) == (), "what another program has fetched is not what was asked for"
    assert bench.find(HubEntry(REPO, quant="Q4_K_M")) == ()
    put(bench, "x-Q4_K_M.gguf")
    assert bench.find(HubEntry(REPO)) == (snapshot / "x-Q4_K_M.gguf",)
    assert bench.find(HubEntry("acme/Other")) == () and not bench.hub.asked


def test_a_file_is_found_by_its_path(bench: Bench) -> None:
    snapshot = put(bench, "dir/x.gguf", "mmproj.gguf")
    assert bench.find(HubEntry(REPO, "dir/x.gguf")) == (snapshot / "dir/x.gguf",)
    assert bench.find(HubEntry(REPO, "mmproj.gguf")) == (snapshot / "mmproj.gguf",), "it was asked for by name"
    assert bench.find(HubEntry(REPO, "x.gguf")) == () == bench.find(HubEntry(REPO, "dir"))
    assert bench.find(HubEntry(REPO, f"../{OLD}/dir/x.gguf")) == ()


def test_a_split_model_is_there_when_all_its_parts_are(bench: Bench) -> None:
    snapshot = put(bench, *PARTS[:2])
    entries = [SPLIT, HubEntry(REPO), HubEntry(REPO, PARTS[0]), HubEntry(REPO, PARTS[2])]
    assert [bench.find(entry) for entry in entries] == [()] * 4
    put(bench, PARTS[2])
    assert [bench.find(entry) for entry in entries] == [tuple(snapshot / part for part in PARTS)] * 4
    (bench.folder / "blobs" / sha256(PARTS[1].encode())).unlink()
    assert [bench.find(entry) for entry in entries] == [()] * 4


def test_a_link_to_nothing_is_not_there(bench: Bench) -> None:
    put(bench, "x-Q4_K_M.gguf")
    (bench.folder / "blobs" / sha256(b"x-Q4_K_M.gguf")).unlink()
    assert bench.find(MODEL) == ()


def test_revisions(bench: Bench) -> None:
    old = put(bench, "x.gguf", ref="v1", age=9)
    older = put(bench, "x.gguf", "y.gguf", commit="8" * 40, ref=None, age=99)
    new = put(bench, "x.gguf", "z.gguf", commit=NEW)

    def found(file: str, revision: str) -> list[Path]:
        return [path.parent for path in bench.find(HubEntry(REPO, file, revision=revision))]

    assert found("x.gguf", "main") == [new] and found("x.gguf", "v1") == [old] and found("x.gguf", OLD) == [old]
    assert found("z.gguf", "v1") == found("z.gguf", OLD) == found("x.gguf", "v2") == []
    assert found("y.gguf", "main") == [older], "what was whole before another program came by still is"
    (bench.folder / "refs" / "main").unlink()
    assert found("x.gguf", "main") == [new], "the newest, where there is no ref"
    (bench.folder / "refs" / "main").write_text("../../elsewhere")
    assert found("x.gguf", "main") == [new]


def test_the_cache_is_where_the_library_says(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(bench, "x-Q4_K_M.gguf")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "elsewhere"))
    assert bench.find(MODEL) == ()


def test_finding_imports_nothing_heavy(bench: Bench) -> None:
    put(bench, "x-Q4_K_M.gguf")
    code = f"""
import sys
from edgespec.models.entries import HubEntry, ModelEntry
from edgespec.models.sources import open_source
entry = HubEntry({REPO!r})
assert open_source(entry).find(ModelEntry("x", (entry,)), None)
print(*(name for name in ("httpx2", "tqdm", "yaml", "hf_xet", "huggingface_hub.utils", "numpy") if name in sys.modules))
"""
    env = {**os.environ, "HF_HUB_CACHE": str(bench.cache)}
    result = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert result.stdout == "\n" and result.stderr == ""


def test_removing_frees_what_nothing_else_uses(bench: Bench) -> None:
    bench.hub.broken = 0
    bench.hub.add(REPO, FILES | {"again.gguf": OTHER})
    for entry in (MODEL, SPLIT, HubEntry(REPO, "Tiny-Q2_K.gguf"), HubEntry(REPO, "again.gguf")):
        bench.fetch(entry)
    assert bench.remove(SPLIT) == 270_000 and bench.find(SPLIT) == () and bench.is_sound()
    assert not list(bench.folder.rglob("Q8_0")), "an empty folder is left"
    assert bench.remove(HubEntry(REPO, "Tiny-Q2_K.gguf")) == 0, "its content has another name, too"
    assert bench.find(HubEntry(REPO, "again.gguf"))[0].read_bytes() == OTHER
    assert bench.remove(HubEntry(REPO, "again.gguf")) == len(OTHER) and bench.is_sound()
    assert bench.find(MODEL)[0].read_bytes() == CONTENT
    assert bench.remove(MODEL) == len(CONTENT) and not bench.folder.exists() and bench.is_sound()
    assert bench.remove(MODEL) == 0


def test_removing_takes_all_that_is_found_one_after_the_other(bench: Bench) -> None:
    put(bench, "x-Q4_K_M.gguf", "y-Q8_0.gguf", age=9)
    put(bench, "x-Q4_K_M.gguf", commit=NEW)
    size = len("x-Q4_K_M.gguf")
    assert bench.remove(MODEL) == size and bench.find(MODEL) == () and bench.is_sound()
    assert bench.find(HubEntry(REPO, quant="Q8_0")), "another model was removed"
    assert not (bench.folder / "snapshots" / NEW).exists() and not (bench.folder / "refs").exists()


def test_what_was_broken_off_is_removed(bench: Bench) -> None:
    bench.hub.broken = 0
    bench.hub.add(REPO, FILES)
    break_off(bench)
    bench.hub.faults += [Fault(), Fault(40_000, "stall")]
    with pytest.raises(Enough):
        bench.fetch(SPLIT, until(130_000, Enough()))
    (bench.folder / "blobs" / "0.1a2b3c4d.incomplete").touch()  # another program's
    assert len(bench.left()) == 5
    assert bench.remove(SPLIT) == 130_000 and bench.is_sound()
    assert bench.remove(HubEntry(REPO, "Tiny-Q4_K_M.gguf")) == 100_000 and bench.is_sound()
    assert bench.left() == ["blobs/0.1a2b3c4d.incomplete"]
    put(bench, PARTS[0], ref=None)
    assert bench.remove(SPLIT) == len(PARTS[0]), "it was broken off between two parts"
    assert bench.left() == ["blobs/0.1a2b3c4d.incomplete"]
    assert list(bench.folder.rglob("Q8_0")), "the other program may have made it, and wants it soon"
    (bench.folder / "blobs" / "0.1a2b3c4d.incomplete").unlink()
    assert bench.remove(SPLIT) == 0 and not bench.folder.exists()


def test_what_was_broken_off_has_a_name_that_fits(bench: Bench) -> None:
    bench.hub.broken = 0
    name = "ü" * 60 + "/" + "x" * 100 + "-Q4_K_M.gguf"
    bench.hub.add(REPO, {name: CONTENT})
    break_off(bench)
    (left,) = (bench.folder / "blobs").iterdir()
    assert len(left.name) < 220 and bench.remove(HubEntry(REPO, name)) == 100_000
    break_off(bench)
    assert bench.remove(MODEL) == 100_000 and not bench.folder.exists()


def test_removing_mends_what_is_damaged(bench: Bench) -> None:
    """A link to nothing would have the library pass over the whole repository."""
    put(bench, "x-Q4_K_M.gguf", "gone.gguf")
    put(bench, "kept.gguf", commit=NEW, ref="v1")
    (bench.folder / "blobs" / sha256(b"gone.gguf")).unlink()
    (bench.folder / "refs" / "lost").write_text("9" * 40)
    assert not bench.is_sound()
    assert bench.remove(MODEL) == len("x-Q4_K_M.gguf") and bench.find(MODEL) == () and bench.is_sound()
    assert bench.left() == [f"blobs/{sha256(b'kept.gguf')}", "refs/v1", f"snapshots/{NEW}/kept.gguf"]


def test_content_that_repositories_share_is_freed(bench: Bench) -> None:
    """`hf download` keeps it in a store of its own, and a link to it where the blob would be."""
    snapshot = put(bench, "x-Q4_K_M.gguf")
    store, xet = bench.cache / "blobs", "ab" * 32
    (store / "ab").mkdir(parents=True)
    (store / ".huggingface-shared-blobs").write_text("1\n")
    blob = (snapshot / "x-Q4_K_M.gguf").resolve()
    blob.replace(store / "ab" / xet)
    blob.symlink_to(f"../../blobs/ab/{xet}")
    (store / "ab" / f"{xet}.refs").write_text(f"{blob.relative_to(bench.cache).as_posix()}\n")
    promised = {"size": len("x-Q4_K_M.gguf"), "sha256": sha256(b"x-Q4_K_M.gguf")}
    assert bench.find(MODEL, **promised) and bench.is_sound()
    assert bench.remove(MODEL) == len("x-Q4_K_M.gguf") and not (store / "ab" / xet).exists()
