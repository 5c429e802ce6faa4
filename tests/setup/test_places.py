"""The cache's folder, and what a glance sees."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs
import pytest

from setup import glance, places


def test_cache_is_where_platformdirs_has_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("EDGESPEC_CACHE", raising=False)
    for value in (None, "", "relative", str(tmp_path)):
        if value is None:
            monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        else:
            monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert places.cache_folder(os.environ) == platformdirs.user_cache_dir("edgespec", appauthor=False)


def test_cache_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert places.cache_folder({"EDGESPEC_CACHE": "~/mine"}) == "/home/me/mine"
    assert places.cache_folder({}, "darwin") == "/home/me/Library/Caches/edgespec"
    assert places.cache_folder({"LOCALAPPDATA": "/local"}, "win32") == "/local/edgespec/Cache"


X86 = """processor\t: 0
model name\t: A CPU
flags\t\t: fpu avx2 amx_tile ssbd ibpb sse4_2

processor\t: 1
model name\t: Another
"""
ARM = """processor\t: 0
Features\t: fp asimd sve
CPU implementer\t: 0x41
CPU part\t: 0xd42
"""


@pytest.mark.parametrize(
    ("cpuinfo", "seen"),
    [
        (X86, ("A CPU", ("amx_tile", "avx2", "sse4_2"))),
        (ARM, ("0x41 0xd42", ("asimd", "fp", "sve"))),
        ("", ("", ())),
    ],
)
def test_cpu(tmp_path: Path, cpuinfo: str, seen: object) -> None:
    (tmp_path / "cpuinfo").write_text(cpuinfo)
    assert glance.cpu(str(tmp_path / "cpuinfo")) == seen


def test_nvcc_is_found_by_name_by_path_and_where_cuda_lies(tmp_path: Path) -> None:
    program = tmp_path / "bin/nvcc"
    program.parent.mkdir()
    program.write_text("")
    program.chmod(0o755)
    for environ in (
        {"PATH": f"/nowhere:{program.parent}"},
        {"PATH": "", "CUDACXX": str(program)},
        {"PATH": str(program.parent), "CUDACXX": "nvcc"},
        {"PATH": "", "CUDA_HOME": str(tmp_path)},
    ):
        assert glance.find_nvcc(environ) == str(program)
