"""The virtual environment: made with Python's own venv, filled by pip with the versions of constraints.txt."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import shutil
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from . import SetupError, stamp
from .commands import Runner
from .library import NAME
from .places import Places
from .report import Report

VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"


@dataclass(frozen=True, slots=True)
class Environment:
    """The virtual environment of one set-up."""

    places: Places
    runner: Runner
    report: Report

    @property
    def site_packages(self) -> Path:
        venv = self.places.venv
        return venv / "Lib/site-packages" if sys.platform == "win32" else venv / f"lib/python{VERSION}/site-packages"

    @property
    def libraries(self) -> Path:
        """Where llama_cpp looks for its shared libraries."""
        return self.site_packages / "llama_cpp/lib"

    def make(self) -> stamp.Stamp:
        """Make the environment anew unless it fits; gives its stamp. A folder that is not ours is left alone."""
        venv = self.places.venv
        known = stamp.read(str(venv))
        if known.get("venv") == str(venv) and known.get("python") == VERSION and self.places.python.exists():
            return known
        if venv.exists() and not known and any(venv.iterdir()):
            raise SetupError(
                f"{venv} was not made by this set-up: move it away, or set EDGESPEC_VENV to another folder"
            )
        if missing := [name for name in ("venv", "ensurepip") if importlib.util.find_spec(name) is None]:
            raise SetupError(
                f"this Python ({sys.executable}) lacks its module {missing[0]}: install it "
                f"(Debian, Ubuntu: apt install python{VERSION}-venv) and start again"
            )
        with self.report.step("virtual environment"):
            self._remove()
            venv.mkdir(parents=True, exist_ok=True)
            begun: stamp.Stamp = {name: known.get(name) for name in ("choices", "level")}
            stamp.write(str(venv), begun)  # so that it is known for ours if this is broken off
            base = getattr(sys, "_base_executable", None) or sys.executable
            failure = "the virtual environment could not be made"
            self.runner.run([base, "-m", "venv", str(venv)], log="venv", failure=failure)
        begun |= {"venv": str(venv), "python": VERSION}
        stamp.write(str(venv), begun)
        return begun

    def install_build_tools(self, names: Sequence[str]) -> None:
        with self.report.step("build tools", f" ({', '.join(names)})"):
            self.pip_install(names, log="tools")

    def install_packages(self, requirements: Sequence[str], options: Sequence[str] = ()) -> None:
        with self.report.step("Python packages"):
            self.pip_install(requirements, log="packages", options=options)

    def remove_library(self) -> None:
        """Take llama-cpp-python out, with its libraries: pip does not replace a version by itself."""
        if any(self.site_packages.glob("llama_cpp_python-*.dist-info")):
            command = [str(self.places.python), "-m", "pip", "uninstall", "-y", NAME]
            self.runner.run(command, log="packages", failure=f"the old {NAME} could not be removed")
        shutil.rmtree(self.site_packages / "llama_cpp", ignore_errors=True)

    def link_repository(self) -> None:
        """Let the environment import edgespec from the repository, and the app's folder by its import name."""
        (self.site_packages / "edgespec-repository.pth").write_text(f"{self.places.root}\n", encoding="utf-8")
        link, app = self.site_packages / "edgespec_tui", self.places.root / "tui"
        if link.is_symlink():
            link.unlink()
        if app.is_dir():
            link.symlink_to(app, target_is_directory=True)

    def try_import(self) -> None:
        """Load llama.cpp once: what is wrong with its libraries is better said here than in the middle of an answer."""
        command = [str(self.places.python), "-P", "-c", "import llama_cpp"]
        self.runner.run(command, log="load", failure="llama.cpp is installed, but does not load")

    def pip_install(self, requirements: Sequence[str], log: str, options: Sequence[str] = ()) -> None:
        command = [str(self.places.python), "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]
        self.runner.run(
            [*command, "-c", str(self.places.constraints), *options, *requirements],
            log=log,
            failure="Python packages could not be installed: is the network there?",
        )

    def _remove(self) -> None:
        """Out of the way in one move first, so that no half-removed environment is ever found."""
        venv = self.places.venv
        old = venv.with_name(venv.name + ".old")
        shutil.rmtree(old, ignore_errors=True)
        if venv.exists():
            venv.rename(old)
            shutil.rmtree(old, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Requirements:
    """What pyproject.toml and constraints.txt ask for."""

    run: tuple[str, ...]
    extras: dict[str, tuple[str, ...]]
    constraints: str
    llama: str  # the version of llama-cpp-python

    @classmethod
    def read(cls, places: Places) -> Requirements:
        project = tomllib.loads(places.project.read_text(encoding="utf-8"))["project"]
        constraints = places.constraints.read_text(encoding="utf-8")
        pinned = re.search(rf"^{NAME}==(\S+)$", constraints, re.MULTILINE)
        if pinned is None:
            raise SetupError(f"{places.constraints} names no version of {NAME}")
        extras = {name: tuple(needs) for name, needs in project.get("optional-dependencies", {}).items()}
        run = tuple(need for need in project["dependencies"] if not need.startswith(NAME))
        return cls(run, extras, constraints, pinned[1])

    def wanted(self, level: str, nvidia: bool) -> list[str]:
        """The requirements of a level, llama-cpp-python apart; on a machine with an NVIDIA GPU what reads it, too."""
        extras = (["dev"] if level == "dev" else []) + (["nvidia"] if nvidia else [])
        return [*self.run, *(need for name in extras for need in self.extras.get(name, ()))]

    def fingerprint(self, level: str, nvidia: bool, llama: str) -> str:
        """Equal where the same packages would be installed. `llama` tells where llama-cpp-python comes from."""
        facts = [self.wanted(level, nvidia), self.constraints, llama]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()
