from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from edgespec.llama.library import aside, build_id
from edgespec.llama.proof import _environment


def test_importing_the_binding_does_not_import_llama_cpp() -> None:
    check = "import sys, edgespec.llama, edgespec.llama.proof_child; sys.exit('llama_cpp' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", check], env=_environment(os.environ, True), check=False).returncode == 0
    )


def test_aside_gives_the_result_or_the_failure() -> None:
    assert aside(lambda: 7, discard=lambda _: None) == 7
    with pytest.raises(ZeroDivisionError):
        aside(lambda: 1 // 0, discard=lambda _: None)


@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit, ValueError])
def test_what_is_raised_while_waiting_stops_the_work_and_comes_out(raised: type[BaseException]) -> None:
    stopped = threading.Event()
    discarded: list[str] = []
    ticks: list[int] = []

    def work() -> str:
        assert stopped.wait(30)
        return "half a model"

    def tick() -> None:
        ticks.append(1)
        raise raised

    with pytest.raises(raised):
        aside(work, discard=discarded.append, tick=tick, stop=stopped.set)
    assert discarded == ["half a model"] and ticks == [1]


def test_build_id_follows_the_libraries(tmp_path: Path) -> None:
    lib = tmp_path / "libllama.so.0"
    lib.write_bytes(b"one build")
    (tmp_path / "libllama.so").symlink_to(lib)
    (tmp_path / "readme.txt").write_text("not a library")
    os.utime(lib, ns=(1, 1))
    first = build_id(tmp_path, "1.0")
    assert len(first) == 12 and first == build_id(tmp_path, "1.0")
    (tmp_path / "readme.txt").write_text("still not")
    assert build_id(tmp_path, "1.0") == first
    assert build_id(tmp_path, "1.1") != first
    os.utime(lib, ns=(2, 2))
    assert build_id(tmp_path, "1.0") != first
    lib.write_bytes(b"two build")
    os.utime(lib, ns=(1, 1))
    assert build_id(tmp_path, "1.0") != first
    assert build_id(tmp_path / "nowhere", "1.0") != first
