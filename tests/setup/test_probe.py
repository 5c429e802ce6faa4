"""Reading compilers and programs, with little scripts in their place."""

from __future__ import annotations

from pathlib import Path

import pytest

from setup import probe


def program(folder: Path, name: str, says: str, code: int = 0) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{says}'\nexit {code}\n")
    path.chmod(0o755)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_wishes() -> None:
    wishes = probe.wishes({"CMAKE_ARGS": '-DA=1 "-DB=two words"', "CC": "cc1", "EDGESPEC_WHEEL_INDEX": "x"})
    assert wishes.cmake_args == ("-DA=1", "-DB=two words")
    assert (wishes.cc, wishes.cxx, wishes.wheel_index) == ("cc1", "", "x")
    assert wishes.definition("B") == "two words"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("gcc-13", "g++-13"),
        ("/tools/clang-16", "/tools/clang++-16"),
        ("clang++", "clang"),
        ("g++", "gcc"),
        ("cc", "c++"),
    ],
)
def test_partner(one: str, other: str) -> None:
    assert probe._partner(one) == other


def test_versions_decide_whether_a_tool_is_missing(folder: Path) -> None:
    assert probe.program_version("cmake", {"PATH": str(folder)}) is None
    program(folder, "cmake", "cmake version 3.25.1")
    assert probe.program_version("cmake", {"PATH": str(folder)}) == (3, 25)


def test_the_newest_clang_that_works_is_taken(folder: Path) -> None:
    for version in (9, 15, 16):
        for name in ("clang", "clang++"):
            program(folder, f"{name}-{version}", f"Debian clang version {version}.0.6", code=0)
    environ = {"PATH": str(folder)}
    clang = probe._newest_clang(environ)
    assert clang is not None
    assert clang.cxx == "clang++-16"
    assert clang.family == "clang"
    # One that cannot compile (no C++ library, say) answers to --version all the same.
    (folder / "clang++-16").write_text('#!/bin/sh\n[ "$1" = --version ] && echo "clang version 16.0.6"\n')
    clang = probe._newest_clang(environ)
    assert clang is not None
    assert clang.cxx == "clang++-15"


def test_the_compiler_that_cmake_would_take(folder: Path) -> None:
    environ = {"PATH": str(folder)}
    assert probe._compiler(environ, "", "") is None
    for name in ("gcc", "g++"):
        program(folder, name, f"{name} 12.2.0\nCopyright (C) 2022 Free Software Foundation, Inc.")
    compiler = probe._compiler(environ, "", "")
    assert compiler is not None
    assert (compiler.family, compiler.version) == ("gcc", "g++ 12.2.0")
    assert probe._compiler(environ, "", "clang++") is None
