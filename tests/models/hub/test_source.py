"""Fetching from a hub on this machine: into the cache as its library lays it out, and on from where it broke off."""

from __future__ import annotations

import hashlib
import logging
import os
import random
import threading
from pathlib import Path

import pytest
from huggingface_hub import constants

from edgespec.errors import LoadCancelled, SourceError
from edgespec.models.entries import HubEntry
from edgespec.models.sources import Progress
from tests.models.hub.conftest import REPO, Bench
from tests.models.hub.server import COMMIT, Fault

CONTENT = random.Random(1).randbytes(300_000)
OTHER = random.Random(2).randbytes(200_000)
PARTS = tuple(f"Q8_0/Tiny-Q8_0-{n:05d}-of-00003.gguf" for n in (1, 2, 3))
FILES = {"README.md": b"read me", "Tiny-Q4_K_M.gguf": CONTENT, "Tiny-Q2_K.gguf": OTHER} | {
    part: CONTENT[i * 90_000 :][:90_000] for i, part in enumerate(PARTS)
}
MODEL = HubEntry(REPO, quant="q4_k_m")
SPLIT = HubEntry(REPO, quant="Q8_0")


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Enough(Exception):
    """What a progress raises that wants to end the fetch."""


def until(size: int, error: BaseException) -> Progress:
    def progress(done: int, total: int) -> None:
        if done >= size:
            raise error

    return progress


def break_off(bench: Bench, entry: HubEntry = MODEL, after: int = 100_000, error: BaseException | None = None) -> None:
    """Fetch until so much has come of the first download, and leave then."""
    error = error or KeyboardInterrupt()
    bench.hub.faults.append(Fault(after, "stall"))
    with pytest.raises(type(error)):
        bench.fetch(entry, until(after, error))


@pytest.mark.parametrize("entry", [MODEL, SPLIT, HubEntry(REPO, "Tiny-Q2_K.gguf", revision=COMMIT), HubEntry(REPO)])
def test_the_cache_is_what_the_library_would_have_made_of_it(bench: Bench, tmp_path: Path, entry: HubEntry) -> None:
    from huggingface_hub import hf_hub_download

    bench.hub.add(REPO, FILES)
    files = bench.fetch(entry)
    assert b"".join(file.read_bytes() for file in files) in (CONTENT[:270_000], OTHER, CONTENT)
    names = [file.relative_to(bench.folder / "snapshots" / COMMIT).as_posix() for file in files]
    for name in names:
        theirs = hf_hub_download(
            REPO, name, revision=entry.revision, cache_dir=tmp_path / "theirs", endpoint=bench.hub.url
        )
        assert Path(theirs).read_bytes() == FILES[name]
        cached = hf_hub_download(REPO, name, revision=entry.revision, local_files_only=True)
        assert cached == str(bench.folder / "snapshots" / COMMIT / name)

    def tree(root: Path) -> dict[str, object]:
        return {
            str(path.relative_to(root)): (path.lstat().st_mode, os.readlink(path) if path.is_symlink() else None)
            for path in root.rglob("*")
        }

    assert tree(bench.cache) == tree(tmp_path / "theirs") and bench.is_sound()
    assert (bench.cache / "CACHEDIR.TAG").read_text().startswith("Signature: 8a477f597d28d172789f06886806bc55\n")
    assert bench.find(entry) == files


def test_progress_counts_all_parts_together_and_never_backwards(bench: Bench) -> None:
    bench.hub.add(REPO, FILES)
    files = bench.fetch(SPLIT)
    assert [file.name for file in files] == [Path(part).name for part in PARTS]
    assert bench.seen == sorted(bench.seen) and bench.seen[-1] == (270_000, 270_000)


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), Enough(), LoadCancelled("stop")], ids=lambda error: type(error).__name__
)
def test_broken_off_it_goes_on_from_there(bench: Bench, error: BaseException) -> None:
    bench.hub.add(REPO, FILES)
    break_off(bench, error=error)
    assert bench.find(MODEL) == () and bench.is_sound()
    assert bench.left() == [f"blobs/{sha256(CONTENT)}.Tiny-Q4_K_M.gguf.incomplete"]
    (file,) = bench.fetch(MODEL)
    assert file.read_bytes() == CONTENT and bench.hub.served == len(CONTENT)
    assert bench.hub.downloads()[-1].headers["range"] == "bytes=100000-"
    assert bench.said == ["Going on with tiny: 0 of 0 MB are here already."]
    assert bench.seen[0][0] in (0, 100_000) and bench.seen == sorted(bench.seen) and bench.is_sound()
    assert bench.left() == [f"blobs/{sha256(CONTENT)}", "refs/main", f"snapshots/{COMMIT}/Tiny-Q4_K_M.gguf"]


def test_a_split_model_goes_on_with_the_part_that_is_missing(bench: Bench) -> None:
    bench.hub.add(REPO, FILES)
    bench.hub.faults += [Fault(), Fault(40_000, "stall")]
    with pytest.raises(Enough):
        bench.fetch(SPLIT, until(130_000, Enough()))
    assert bench.find(SPLIT) == () and bench.is_sound()
    bench.seen.clear()
    files = bench.fetch(SPLIT)
    assert b"".join(file.read_bytes() for file in files) == CONTENT[:270_000] and bench.hub.served == 270_000
    assert (130_000, 270_000) in bench.seen


def test_parts_are_those_of_one_commit(bench: Bench) -> None:
    bench.hub.add(REPO, FILES)
    bench.fetch(HubEntry(REPO, PARTS[1]))
    heads = [asked.path.split("/")[4] for asked in bench.hub.asked if asked.method == "HEAD"]
    assert heads == ["main", COMMIT, COMMIT]


def test_a_server_that_knows_no_ranges_does_no_harm(bench: Bench) -> None:
    bench.hub.add(REPO, FILES)
    break_off(bench)
    bench.hub.faults.append(Fault(kind="no ranges"))
    (file,) = bench.fetch(MODEL)
    assert file.read_bytes() == CONTENT and bench.hub.served == 400_000
    assert bench.seen == sorted(bench.seen)


def test_progress_stays_where_it_is_while_it_begins_anew(bench: Bench) -> None:
    bench.hub.add(REPO, FILES)
    break_off(bench)
    bench.hub.faults.append(Fault(50_000, "no ranges, stall"))
    bench.hub.stalled.clear()

    def progress(done: int, total: int) -> None:
        bench.seen.append((done, total))
        if bench.hub.stalled.is_set() and len(bench.seen) > 5:
            raise Enough

    with pytest.raises(Enough):
        bench.fetch(MODEL, progress)
    assert bench.seen[-1] == (100_000, 300_000) and bench.seen == sorted(bench.seen)


def test_a_range_that_cannot_be_had_begins_anew(bench: Bench) -> None:
    bench.hub.add(REPO, FILES)
    break_off(bench)
    bench.hub.faults.append(Fault(status=416))
    assert bench.fetch(MODEL)[0].read_bytes() == CONTENT


def test_a_connection_that_breaks_now_and_then_is_taken_up_again(bench: Bench) -> None:
    bench.hub.add(REPO, FILES)
    bench.hub.faults += [Fault(50_000, "cut"), Fault(status=503), Fault(0, "cut"), Fault(1, "cut"), Fault(9_000, "cut")]
    assert bench.fetch(MODEL)[0].read_bytes() == CONTENT and bench.hub.served == len(CONTENT)


def test_one_that_keeps_breaking_is_given_up_and_what_came_is_kept(bench: Bench) -> None:
    bench.hub.add(REPO, FILES)
    bench.hub.faults += [Fault(50_000, "cut"), *[Fault(0, "cut")] * 3]
    with pytest.raises(SourceError, match=r"^the connection to 127\.0\.0\.1:\d+ broke; .*, and it goes on from there$"):
        bench.fetch(MODEL)
    assert bench.fetch(MODEL)[0].read_bytes() == CONTENT and bench.hub.served == len(CONTENT)


def test_a_hub_that_stalls_is_noticed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 0.2)
    bench.hub.add(REPO, FILES)
    bench.hub.faults += [Fault(50_000, "stall"), *[Fault(0, "stall")] * 3]
    with pytest.raises(
        SourceError, match=r"^127\.0\.0\.1:\d+ does not answer; .* and it goes on from there$"
    ) as caught:
        bench.fetch(MODEL)
    assert caught.value.__cause__ is not None and type(caught.value.__cause__.__cause__).__name__ == "ReadTimeout"
    assert len(bench.seen) >= 4, "a person would think that it hangs"


def test_leaving_does_not_wait_for_a_hub_that_stalls(bench: Bench) -> None:
    bench.hub.add(REPO, FILES)
    bench.hub.faults.append(Fault(0, "stall"))

    def progress(done: int, total: int) -> None:
        if bench.hub.stalled.is_set():
            raise Enough

    with pytest.raises(Enough):
        bench.fetch(MODEL, progress)
    assert "edgespec-hub" in [thread.name for thread in threading.enumerate()], "the connection ends by itself, later"


def test_damage_is_noticed_and_removed(bench: Bench) -> None:
    bench.hub.add(REPO, FILES)
    bench.hub.faults.append(Fault(body=CONTENT[:-1] + b"?"))
    with pytest.raises(SourceError, match=r"^what came is damaged \(sha256 .* and was removed; try again$"):
        bench.fetch(MODEL)
    assert bench.left() == [] and bench.is_sound()


def test_damage_in_what_had_come_before_is_noticed(bench: Bench) -> None:
    bench.hub.add(REPO, FILES)
    break_off(bench)
    (part,) = (bench.folder / "blobs").iterdir()
    part.write_bytes(bytes(100_000))
    with pytest.raises(SourceError, match="damaged"):
        bench.fetch(MODEL)
    part.write_bytes(bytes(300_001))  # more than the whole
    assert bench.fetch(MODEL)[0].read_bytes() == CONTENT


@pytest.mark.parametrize("body", [CONTENT + b"more", b""], ids=["more", "nothing"])
def test_a_file_of_another_size_is_not_kept(bench: Bench, body: bytes) -> None:
    bench.hub.add(REPO, FILES)
    bench.hub.faults += [Fault(body=body)] * 3
    with pytest.raises(SourceError, match=r"something else came|sent less than it promised"):
        bench.fetch(MODEL)
    assert bench.find(MODEL) == () and bench.is_sound()


def test_what_models_toml_promises_is_kept(bench: Bench) -> None:
    right: dict[str, object] = {"size": len(CONTENT), "sha256": sha256(CONTENT)}
    bench.hub.add(REPO, FILES)
    for wrong in ({"size": 5}, {"sha256": "0" * 64}):
        with pytest.raises(SourceError, match=r"^Tiny-Q4_K_M\.gguf is not what models\.toml promises"):
            bench.fetch(MODEL, **wrong)
    assert not bench.hub.downloads()
    files = bench.fetch(MODEL, **right)
    assert bench.find(MODEL, **right) == files
    assert bench.find(MODEL, **right | {"size": 5}) == () == bench.find(MODEL, **right | {"sha256": "0" * 64})
    assert bench.fetch(SPLIT, sha256="0" * 64), "of a split model it says nothing"


def test_a_small_file_has_no_checksum_but_that_of_models_toml(bench: Bench) -> None:
    bench.hub.add(REPO, FILES, plain=True)
    with pytest.raises(SourceError, match="damaged"):
        bench.fetch(MODEL, sha256="0" * 64)
    assert bench.fetch(MODEL)[0].read_bytes() == CONTENT
    assert bench.fetch(SPLIT, sha256="0" * 64), "of a split model it says nothing"


def test_what_is_damaged_in_a_snapshot_is_replaced(bench: Bench) -> None:
    bench.hub.add(REPO, FILES)
    files = bench.fetch(MODEL)
    files[0].resolve().unlink()
    assert bench.find(MODEL) == () and bench.fetch(MODEL) == files and files[0].read_bytes() == CONTENT
    files[0].unlink()
    files[0].write_text("half a copy")
    assert bench.find(MODEL, size=len(CONTENT)) == ()
    assert bench.fetch(MODEL) == files and files[0].read_bytes() == CONTENT


def test_content_that_is_here_already_is_only_linked(bench: Bench) -> None:
    repo = bench.hub.add(REPO, dict(FILES))
    bench.fetch(MODEL)
    repo.commit, repo.files = "ab" * 20, {"renamed-Q4_K_M.gguf": CONTENT}
    (file,) = bench.fetch(HubEntry(REPO, "renamed-Q4_K_M.gguf"))
    assert file.parent.name == "ab" * 20 and bench.hub.served == len(CONTENT)
    assert bench.find(HubEntry(REPO, quant="Q4_K_M")) == (file,) and bench.is_sound()


def test_what_the_library_logs_stays_out_of_its_own_handler(bench: Bench) -> None:
    """The hub warns those who have no token. On stderr that would tear the progress apart; a host's log may have it."""
    import huggingface_hub.utils._http as library

    library._WARNED_TOPICS.clear()
    bench.hub.add(REPO, FILES)
    bench.hub.headers["X-HF-Warning"] = "unauthenticated; please log in"
    own, host = _Lines(), _Lines()
    logger, above = logging.getLogger("huggingface_hub"), logging.getLogger()
    logger.addHandler(own)
    above.addHandler(host)
    bench.hub.faults.append(Fault(0, "stall"))

    def progress(done: int, total: int) -> None:
        if bench.hub.stalled.is_set():
            logger.warning("of another thread")
            raise Enough

    try:
        with pytest.raises(Enough):
            bench.fetch(MODEL, progress)
        logger.warning("afterwards")
    finally:
        logger.removeHandler(own)
        above.removeHandler(host)
    assert set(own.lines) == {"of another thread", "afterwards"} and not own.filters
    assert set(host.lines) == {"please log in", *own.lines}


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
