"""From end to end: a process that fetches from the hub, is interrupted and goes on; a split model that runs."""

from __future__ import annotations

import os
import random
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from edgespec.llama import Context, Model
from edgespec.settings import ModelSettings
from tests.models.hub.conftest import REPO
from tests.models.hub.server import Fault, Hub

FETCH = """
import sys
from edgespec.models.registry import load_registry
from edgespec.models.store import Store

def progress(done, total):
    print(done, total, flush=True)

print(Store(load_registry()).fetch(sys.argv[1], progress, say=lambda sentence: print(sentence, file=sys.stderr)))
"""


def start(hub: Hub, home: Path, reference: str) -> subprocess.Popen[str]:
    env = {**os.environ, "HF_ENDPOINT": hub.url, "HF_HOME": str(home / "hf"), "EDGESPEC_CACHE": str(home / "edgespec")}
    env |= {"HF_HUB_DISABLE_TELEMETRY": "1", "NO_PROXY": "127.0.0.1"}
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_TOKEN", "HF_HUB_OFFLINE"):
        env.pop(name, None)
    command = [sys.executable, "-c", FETCH, reference]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.skipif(os.name != "posix", reason="sends Ctrl-C")
def test_ctrl_c_and_on(tmp_path: Path) -> None:
    content = random.Random(3).randbytes(1_000_000)
    reference = f"hf:{REPO}:q4_1"
    with Hub() as hub:
        hub.add(REPO, {"tiny.Q4_1.gguf": content, "tiny.Q8_0.gguf": b"?"})
        hub.faults.append(Fault(400_000, "stall"))
        hub.headers["X-HF-Warning"] = "unauthenticated; please log in"  # must not be seen
        process = start(hub, tmp_path, reference)
        assert process.stdout is not None
        assert any(line == "400000 1000000\n" for line in process.stdout)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
        assert process.returncode == -signal.SIGINT and said.splitlines()[-1] == "KeyboardInterrupt"
        process = start(hub, tmp_path, reference)
        shown, said = process.communicate(timeout=60)
        assert said.splitlines() == [
            f"Fetching {reference} from the hub ({REPO}).",
            f"Going on with {reference}: 0 of 1 MB are here already.",
        ]
        *_, last, path = shown.splitlines()
        assert last == "1000000 1000000" and Path(path).read_bytes() == content
        assert Path(path).is_relative_to(tmp_path / "hf" / "hub" / "models--acme--Tiny-GGUF" / "snapshots")
        assert hub.served == len(content), "something was fetched twice"
        asked = len(hub.asked)
        assert start(hub, tmp_path, reference).communicate(timeout=60) == (f"{path}\n", "")
        assert len(hub.asked) == asked, "what is here needs no network"


@pytest.mark.real
def test_a_split_model_runs_from_the_cache(smollm2_path: Path, tmp_path: Path) -> None:
    """Its parts are links, side by side, to blobs with names that say nothing."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "0"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    for n, content in enumerate(halves(smollm2_path.read_bytes()), 1):
        (blobs / f"etag{n}").write_bytes(content)
        (snapshot / f"smol-{n:05d}-of-00002.gguf").symlink_to(f"../../blobs/etag{n}")
    rows = []
    for path in (smollm2_path, snapshot / "smol-00001-of-00002.gguf"):
        settings = ModelSettings(ctx=64)
        with Model.load(path, settings) as model:
            context = Context(model, settings)
            rows.append(context.decode([1, 2, 3], 0, 1)[0].copy())
    assert np.array_equal(*rows)


def halves(whole: bytes) -> Iterator[bytes]:
    """A GGUF file in two parts, as llama-gguf-split would cut it; all but the tensors is in the first."""
    version, count, keys = struct.unpack_from("<IQQ", whole, 4)
    at = 24

    def text() -> None:
        nonlocal at
        at += 8 + struct.unpack_from("<Q", whole, at)[0]

    def value(kind: int) -> None:
        nonlocal at
        if kind == 8:
            text()
        elif kind == 9:
            inner, length = struct.unpack_from("<IQ", whole, at)
            at += 12
            for _ in range(length):
                value(inner)
        else:
            at += {0: 1, 1: 1, 2: 2, 3: 2, 7: 1, 10: 8, 11: 8, 12: 8}.get(kind, 4)

    for _ in range(keys):
        text()
        at += 4
        value(struct.unpack_from("<I", whole, at - 4)[0])
    values = whole[24:at]
    tensors: list[tuple[bytes, int]] = []  # what stands before the offset, and the offset
    for _ in range(count):
        begin = at
        text()
        at += 4 + 8 * struct.unpack_from("<I", whole, at)[0] + 4
        tensors.append((whole[begin:at], struct.unpack_from("<Q", whole, at)[0]))
        at += 8
    data = whole[-(-at // 32) * 32 :]
    cut = count // 2
    for n, (part, here) in enumerate([(tensors[:cut], values), (tensors[cut:], b"")]):
        split = b"".join(
            struct.pack("<Q", len(name)) + name.encode() + struct.pack(form, kind, number)
            for name, form, kind, number in [
                ("split.no", "<IH", 2, n),
                ("split.count", "<IH", 2, 2),
                ("split.tensors.count", "<Ii", 5, count),
            ]
        )
        first = part[0][1]
        infos = b"".join(info + struct.pack("<Q", offset - first) for info, offset in part)
        head = b"GGUF" + struct.pack("<IQQ", version, len(part), (keys if here else 0) + 3) + here + split + infos
        yield head + bytes(-len(head) % 32) + (data[first : tensors[cut][1]] if here else data[first:])
