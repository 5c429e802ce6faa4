"""The set-up is no package of edgespec: its tests add `scripts/` to the path themselves."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from setup import SetupError, stamp
from setup.places import Places
from setup.report import Report

PROJECT = """
[project]
name = "edgespec"
dependencies = ["llama-cpp-python==1.0", "numpy>=1"]
[project.optional-dependencies]
dev = ["pytest"]
nvidia = ["nvidia-ml-py"]
"""


class FakeRunner:
    """Stands for pip, cmake and the rest: notes the commands, and leaves behind what the real ones would."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self.commands: list[list[str]] = []
        self.failing: str | None = None  # a word in the command that is to fail
        self.stopped = False

    def run(
        self,
        command: Sequence[str],
        *,
        log: str,
        failure: str,
        environ: Mapping[str, str] | None = None,
        line: Callable[[str], None] | None = None,
    ) -> None:
        self.commands.append(list(command))
        if self.failing is not None and self.failing in command:
            raise SetupError(failure)
        match command:
            case [_, "-m", "venv", folder]:
                python = Path(stamp.python_in(folder))
                python.parent.mkdir(parents=True)
                python.write_text("")
                (self.site_packages).mkdir(parents=True)
            case [_, "-m", "pip", "install", *_]:
                (self.site_packages / "llama_cpp").mkdir(exist_ok=True)
                if "--only-binary" in command:
                    (self.site_packages / "llama_cpp/lib").mkdir(exist_ok=True)
            case [_, "-m", "pip", "download", *rest]:
                write_source(Path(rest[rest.index("-d") + 1]) / "llama_cpp_python-1.0.tar.gz")
            case [_, "-m", "pip", "wheel", *rest]:
                (Path(rest[rest.index("-w") + 1]) / "llama_cpp_python-1.0-py3-none-any.whl").write_text("")
            case ["cmake", "--build", folder, *_]:
                libraries = Path(folder) / "bin"
                libraries.mkdir(parents=True)
                (libraries / "libllama.so.0").write_text("machine code")
                (libraries / "libllama.so").symlink_to("libllama.so.0")
                if line is not None:
                    line("[1/2] Building CXX object")

    def stop(self) -> None:
        self.stopped = True

    @property
    def site_packages(self) -> Path:
        return self.places.venv / f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"

    def count(self, *words: str) -> int:
        """How many commands held all these words."""
        return sum(set(words) <= set(command) for command in self.commands)


def write_source(path: Path) -> None:
    """A source package with as little as can be in it."""
    import tarfile

    with tarfile.open(path, "w:gz") as package:
        for name in ("vendor/llama.cpp/CMakeLists.txt", "vendor/llama.cpp/docs/long.md", "README.md"):
            member = tarfile.TarInfo(f"llama_cpp_python-1.0/{name}")
            package.addfile(member, io.BytesIO())


@pytest.fixture
def places(tmp_path: Path) -> Places:
    """A repository with a space in its path, with what the set-up reads."""
    root = tmp_path / "a repository"
    (root / "scripts").mkdir(parents=True)
    (root / "pyproject.toml").write_text(PROJECT)
    (root / "scripts/constraints.txt").write_text("llama-cpp-python==1.0\nnumpy==1.5\n")
    (root / "scripts/amx_tileconfig.h").write_text("/* header */")
    return Places(root=root, venv=root / ".venv", cache=tmp_path / "the cache")


@pytest.fixture
def runner(places: Places) -> FakeRunner:
    return FakeRunner(places)


@pytest.fixture
def report() -> Report:
    return Report(io.StringIO(), live=False)


def text(report: Report) -> str:
    """All that a report has said."""
    stream: Any = report._stream
    return str(stream.getvalue())
