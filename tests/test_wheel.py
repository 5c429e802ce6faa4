"""The wheel, built from the project and installed where nothing else is: what it holds, and that it works there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from email import message_from_bytes
from pathlib import Path

import pytest

from edgespec import __version__
from edgespec.models.registry import load_registry

ROOT = Path(__file__).resolve().parents[1]
INFO = f"edgespec-{__version__}.dist-info"
# Kept out of the copy: what a build must not depend on, and what can be large.
LEFT_OUT = {"__pycache__", "shared", "dist", "build"}


@dataclass(frozen=True, slots=True)
class Installed:
    """The wheel in an environment of its own, seen from a folder that has nothing to do with it."""

    project: Path  # the copy of the project that it was built from
    wheel: Path
    sdist: Path
    environment: Path
    elsewhere: Path

    @property
    def site_packages(self) -> Path:
        return Path(_path_in(self.environment, "purelib"))

    def program(self, name: str) -> str:
        return str(Path(_path_in(self.environment, "scripts"), name))

    def run(self, name: str, *args: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return _run([self.program(name), *args], self.elsewhere, **environ)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """Build once, offline, with the hatchling that is here; install with nothing fetched."""
    base = tmp_path_factory.mktemp("wheel")
    project = _copy_of_the_project(base / "project")
    for folder in ("dist", "elsewhere"):
        (base / folder).mkdir()
    _run([sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", str(base / "dist")], project)
    (wheel,), (sdist,) = (base / "dist").glob("*.whl"), (base / "dist").glob("*.tar.gz")
    _run([sys.executable, "-m", "venv", "--without-pip", str(base / "environment")], base)
    made = Installed(project, wheel, sdist, base / "environment", base / "elsewhere")
    pip = [sys.executable, "-m", "pip", "--python", made.program("python"), "--isolated"]
    _run([*pip, "install", "--no-deps", "--no-index", str(wheel)], base)
    yield made
    shutil.rmtree(base, ignore_errors=True)


@pytest.fixture(scope="module")
def working(installed: Installed) -> Installed:
    """With the dependencies, borrowed from the environment that runs the tests, behind the wheel on the path.

    A folder that a .pth file names has its own .pth files left alone, so the repository does not come with it.
    """
    borrowed = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
    (installed.site_packages / "borrowed.pth").write_text("\n".join(sorted(borrowed)) + "\n", encoding="utf-8")
    return installed


def test_the_wheel_holds_the_project_and_nothing_else(installed: Installed) -> None:
    expected = _files(installed.project, "edgespec") | {"edgespec/models.toml"}
    expected |= {name.replace("tui/", "edgespec_tui/", 1) for name in _files(installed.project, "tui")}
    expected |= {f"{INFO}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")}
    with zipfile.ZipFile(installed.wheel) as wheel:
        assert set(wheel.namelist()) == expected
    assert "edgespec/py.typed" in expected and any(name.endswith(".tcss") for name in expected)


def test_only_our_names_land_at_the_top(installed: Installed) -> None:
    names = {path.name for path in installed.site_packages.iterdir()} - {"borrowed.pth"}
    assert names == {"edgespec", "edgespec_tui", INFO}


def test_the_metadata_says_what_pyproject_says(installed: Installed) -> None:
    project = tomllib.loads((installed.project / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    metadata = message_from_bytes((installed.site_packages / INFO / "METADATA").read_bytes())
    assert metadata["Name"] == "edgespec" and metadata["Version"] == __version__
    assert metadata["Requires-Python"] == project["requires-python"] and metadata["License-Expression"] == "MIT"
    description = metadata.get_payload(decode=True)
    assert isinstance(description, bytes)
    assert description.strip() == (ROOT / "README.md").read_bytes().strip()


def test_the_sdist_holds_what_a_build_needs_and_gives_the_same_wheel(installed: Installed, tmp_path: Path) -> None:
    top = f"edgespec-{__version__}/"
    needed = {"pyproject.toml", "models.toml", "README.md", "LICENSE", "CHANGELOG.md", "PKG-INFO", ".gitignore"}
    with tarfile.open(installed.sdist) as sdist:
        names = {name.removeprefix(top) for name in sdist.getnames()}
    assert names == needed | _files(installed.project, "edgespec") | _files(installed.project, "tui")
    pip = [sys.executable, "-m", "pip", "--isolated", "wheel"]
    options = ["--no-build-isolation", "--no-deps", "--no-index", "-w", str(tmp_path)]
    _run([*pip, *options, str(installed.sdist)], tmp_path)
    assert (tmp_path / installed.wheel.name).read_bytes() == installed.wheel.read_bytes()


def test_both_ways_to_start_it(working: Installed) -> None:
    assert working.run("edgespec", "--version").stdout == f"edgespec, version {__version__}\n"
    help_text = working.run("edgespec", "--help").stdout
    assert help_text.startswith("Usage: edgespec [OPTIONS]")
    assert working.run("python", "-m", "edgespec", "--help").stdout == help_text


def test_everything_is_found_in_the_wheel(working: Installed) -> None:
    """Not in the repository, nor in what the environment that runs the tests knows as the app."""
    code = """
import sys
import edgespec, edgespec_tui, edgespec.engine, edgespec.llama, edgespec.loading
from importlib.resources import files
from edgespec.models.registry import load_registry
print(*sorted(load_registry().pairs), sep=",")
print(edgespec.__file__, edgespec.llama.__file__, edgespec_tui.__file__, sep="\\n")
print(*(files(edgespec_tui) / name for name in sys.argv[1:]), sep="\\n")
"""
    app = [name.removeprefix("tui/") for name in _files(working.project, "tui")]
    pairs, *places = working.run("python", "-c", code, *app).stdout.splitlines()
    assert pairs.split(",") == sorted(load_registry().pairs)
    assert len(places) == 3 + len(app)
    for place in map(Path, places):
        assert place.is_relative_to(working.site_packages) and place.is_file()


@pytest.mark.real
def test_it_answers(working: Installed, smollm2_path: Path, tmp_path: Path) -> None:
    """With a cache of its own, so that the child process of the proof has to work there, too."""
    options = ("--target", str(smollm2_path), "--max-tokens", "5", "--ctx", "256")
    done = working.run("edgespec", "run", *options, "Say hello.", EDGESPEC_CACHE=str(tmp_path))
    assert done.stdout.strip() and "tokens/s" in done.stderr
    assert list(tmp_path.rglob("proofs/*"))


def _copy_of_the_project(copy: Path) -> Path:
    """All that is not hidden or left out, so that what should stay out of the wheel has its chance to get in.

    Where there is no app yet, a small one takes its place.
    """

    def left_out(_: str, names: list[str]) -> set[str]:
        hidden = {name for name in names if name.startswith(".")} - {".gitignore"}
        return hidden | LEFT_OUT.intersection(names) | {name for name in names if name.endswith(".gguf")}

    shutil.copytree(ROOT, copy, symlinks=True, ignore=left_out)
    if not (app := copy / "tui").is_dir():
        app.mkdir()
        (app / "__init__.py").write_text('"""A stand-in for the app."""\n', encoding="utf-8")
        (app / "app.tcss").write_text("Screen { layout: vertical; }\n", encoding="utf-8")
    for package in ("edgespec", "tui"):  # what Python leaves behind must not be taken along
        (copy / package / "__pycache__").mkdir()
        (copy / package / "__pycache__" / "left_behind.cpython-311.pyc").touch()
    return copy


def _files(project: Path, folder: str) -> set[str]:
    """The files in a folder of the project, as paths from the project, but for what Python left behind."""
    found = (path.relative_to(project) for path in (project / folder).rglob("*") if path.is_file())
    return {path.as_posix() for path in found if "__pycache__" not in path.parts}


def _path_in(environment: Path, name: str) -> str:
    places = {"base": str(environment), "platbase": str(environment)}
    return sysconfig.get_path(name, scheme="venv", vars=places)


def _run(command: list[str], folder: Path, **extra: str) -> subprocess.CompletedProcess[str]:
    """Run without what the developer's environment says to Python, pip or edgespec."""
    words = ("PYTHON", "PIP_", "VIRTUAL_ENV", "EDGESPEC_")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(words)} | extra
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done
