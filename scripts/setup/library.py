"""llama.cpp for this machine: its source, its build, and llama-cpp-python's bindings, all kept in the cache.

The bindings are Python alone and make a wheel in seconds. llama.cpp is built beside them from the same source package,
without the parts that nothing here loads, which takes a third of the time of the ordinary wheel. The folders:

    source/      the source package, as it was published
    bindings/    the wheel without libraries
    work/KEY/    a build in progress; one that was broken off is taken up again
    builds/KEY/  a finished build, with build.json; moved here in one step
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tarfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from . import SetupError, probe
from .commands import Runner
from .lock import exclusive
from .places import Places
from .report import Report
from .toolchain import Plan

NAME = "llama-cpp-python"
BACKEND = "scikit-build-core[pyproject]"  # what llama-cpp-python is packaged with: pip needs it to read the source
BINDINGS_ONLY = "-DLLAMA_BUILD=OFF -DLLAVA_BUILD=OFF"
LIBRARIES = re.compile(r".*(\.so(\.\d+)*|\.dylib|\.dll|\.metal|\.metallib)")
HEEDED = ("CFLAGS", "CXXFLAGS", "LDFLAGS")  # variables that change what a compiler makes


@dataclass(frozen=True, slots=True)
class Library:
    """The builder: one plan, one version, one cache."""

    places: Places
    plan: Plan
    version: str
    runner: Runner
    report: Report
    environ: Mapping[str, str]

    @property
    def key(self) -> str:
        heeded = {name: self.environ[name] for name in HEEDED if self.environ.get(name)}
        return self.plan.key(self.version, self.places.header.read_text(encoding="utf-8"), heeded)

    @property
    def build_folder(self) -> Path:
        return self.places.cache / "builds" / self.key

    @property
    def is_built(self) -> bool:
        return (self.build_folder / "build.json").is_file()

    @property
    def wheel(self) -> Path | None:
        """The wheel of the bindings alone, if it has been made."""
        return next(self._bindings_folder.glob("*.whl"), None)

    def needed_tools(self, bindings: bool, build: bool) -> list[str]:
        """What pip must install before the bindings or the build, or both, can be made; nothing if they are there."""
        bindings = bindings and self.wheel is None
        build = build and not self.is_built
        backend = [BACKEND] if bindings or (build and not self._source_folder.is_dir()) else []
        return backend + (self._missing_programs() if bindings or build else [])

    def _missing_programs(self) -> list[str]:
        """Which of cmake and ninja the PATH lacks, or has only in a version too old."""
        needed = {"cmake": self.plan.cmake, "ninja": (1, 8)}
        found = {name: probe.program_version(name, self.environ) for name in needed}
        return [name for name, oldest in needed.items() if (found[name] or (0, 0)) < oldest]

    def bindings(self) -> Path:
        """The wheel of the bindings alone, made if need be."""
        with self._locked("bindings"):
            if self.wheel:
                return self.wheel
            source = self._source()
            with self.report.step("Python bindings of llama.cpp"), _fresh(self._bindings_folder) as folder:
                self._pip(
                    ["wheel", "--no-deps", "--no-build-isolation", "--no-cache-dir", "-w", str(folder), str(source)],
                    log="bindings",
                    failure="the Python bindings of llama.cpp could not be made",
                    environ={"CMAKE_ARGS": BINDINGS_ONLY, **self._compilers()},
                )
            assert self.wheel is not None
            return self.wheel

    def _compilers(self) -> dict[str, str]:
        """The plan's compilers: cmake wants some here too, and may find none by itself."""
        compiler = self.plan.compiler
        return {} if compiler is None else {"CC": compiler.cc, "CXX": compiler.cxx}

    def build(self) -> Path:
        """The folder of the finished build, made if need be."""
        with self._locked(f"builds/{self.key}"):
            if not self.is_built:
                with self._locked("bindings"):
                    source = self._source()
                begun = time.monotonic()
                with self.report.step("building llama.cpp", self._detail()) as progress:
                    work = self.places.cache / "work" / self.key
                    resumed = work.exists()
                    try:
                        self._compile(work, source, progress.note)
                    except SetupError:
                        if not resumed:
                            raise
                        shutil.rmtree(work)  # perhaps it is what was left there that is broken
                        self._compile(work, source, progress.note)
                    self._keep(work / "build", time.monotonic() - begun)
                    shutil.rmtree(work, ignore_errors=True)
        return self.build_folder

    def _detail(self) -> str:
        plan = self.plan
        how = plan.backend + (f", {plan.compiler.version}" if plan.compiler else "")
        minutes = f"about {plan.minutes} minute{'s' if plan.minutes > 1 else ''}, once"
        return f" for this machine ({how}; {minutes})"

    def _compile(self, work: Path, source: Path, note: Callable[[str], None]) -> None:
        plan = self.plan
        _forget(work.parent)
        tree = work / "source"
        if not tree.is_dir():
            note("unpacking")
            _unpack(source, tree)
        header = work / self.places.header.name
        shutil.copyfile(self.places.header, header)
        generator = (
            [] if plan.machine.system == "win32" or "-G" in "".join(a[:2] for a in plan.arguments) else ["-GNinja"]
        )
        way_out = {
            name: f"; CMAKE_ARGS=-DGGML_{name.upper()}=OFF in front makes a CPU build" for name in ("CUDA", "Metal")
        }
        failure = f"llama.cpp could not be built ({plan.backend}){way_out.get(plan.backend, '')}"
        build = str(work / "build")
        self.runner.run(
            ["cmake", *generator, "-S", str(tree), "-B", build, *plan.cmake_arguments(str(header))],
            log="build",
            failure=failure,
            environ=dict(plan.environ),
        )
        self.runner.run(
            ["cmake", "--build", build, "--config", "Release", "--target", "llama", "--parallel", str(plan.jobs)],
            log="build",
            failure=failure,
            environ=dict(plan.environ),
            line=lambda line: note(step[1]) if (step := re.match(r"\[\s*(\d+/\d+|\d+%)\]", line)) else None,
        )

    def _keep(self, build: Path, seconds: float) -> None:
        """Move the libraries and their description into place, all at once."""
        made = [path for folder in ("bin", "bin/Release") for path in (build / folder).glob("*")]
        libraries = [path for path in made if LIBRARIES.fullmatch(path.name)]
        if not any("llama" in path.name for path in libraries):
            raise SetupError("llama.cpp was built, but gave no shared library: look at CMAKE_ARGS")
        with _fresh(self.build_folder) as folder:
            for path in libraries:
                shutil.copy2(path, folder / path.name, follow_symlinks=False)
            (folder / "build.json").write_text(json.dumps(self._description(seconds), indent=1), encoding="utf-8")

    def _description(self, seconds: float) -> dict[str, object]:
        plan, machine = self.plan, self.plan.machine
        compiler = plan.compiler
        return {
            "key": self.key,
            "llama_cpp_python": self.version,
            "backend": plan.backend,
            "system": machine.system,
            "arch": machine.arch,
            "cpu": machine.cpu,
            "cpu_features": machine.features,
            "compiler": compiler.version if compiler else None,
            "compiler_path": compiler.cxx if compiler else None,
            "nvcc": machine.nvcc_version if plan.backend == "CUDA" else None,
            "cmake_arguments": plan.cmake_arguments(self.places.header.name),
            "forced_header": plan.force_header,
            "seconds": round(seconds, 1),
            "built": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }

    @property
    def _bindings_folder(self) -> Path:
        return self.places.cache / "bindings" / f"{self.version}-{self.plan.machine.system}-{self.plan.machine.arch}"

    @property
    def _source_folder(self) -> Path:
        return self.places.cache / "source" / self.version

    def _source(self) -> Path:
        """The source package, fetched if need be."""
        folder = self._source_folder
        if not folder.is_dir():
            wanted = f"{NAME}=={self.version}"
            with self.report.step("source of llama.cpp", f" ({wanted})"), _fresh(folder) as new:
                self._pip(
                    ["download", "--no-deps", "--no-build-isolation", f"--no-binary={NAME}", "-d", str(new), wanted],
                    log="source",
                    failure=f"{wanted} could not be fetched: is the network there?",
                )
        return next(folder.glob("*.tar.gz"))

    def _pip(self, arguments: Sequence[str], log: str, failure: str, environ: Mapping[str, str] | None = None) -> None:
        command = [str(self.places.python), "-m", "pip", *arguments, "--no-input", "--disable-pip-version-check"]
        self.runner.run(command, log=log, failure=failure, environ=environ)

    def _locked(self, name: str) -> AbstractContextManager[None]:
        def waiting() -> None:
            self.report.say("another set-up is at work on the same thing; waiting for it")

        return exclusive(self.places.cache / f"{name}.lock", waiting)


def put(build: Path, place: Path) -> None:
    """Install a build: `place` is replaced by the libraries, and programs that run with the old ones keep those."""
    new, old = place.with_name("lib.new"), place.with_name("lib.old")
    for leftover in (new, old):
        shutil.rmtree(leftover, ignore_errors=True)
    shutil.copytree(build, new, symlinks=True)
    if place.exists():
        os.rename(place, old)
    os.rename(new, place)
    shutil.rmtree(old, ignore_errors=True)


def _unpack(source: Path, tree: Path) -> None:
    """Take llama.cpp out of the source package, without what no build of the library reads."""
    with tarfile.open(source) as package, _fresh(tree) as folder:
        if hasattr(tarfile, "data_filter"):
            package.extraction_filter = tarfile.data_filter
        for member in package:
            _, found, name = member.name.partition("/vendor/llama.cpp/")
            if found and not name.startswith(("docs/", "media/", "models/")):
                member.name = name
                package.extract(member, folder)


def _forget(folder: Path) -> None:
    """Remove builds that nobody has taken up again for a week."""
    for work in folder.glob("*"):
        if time.time() - work.stat().st_mtime > 7 * 86400:
            shutil.rmtree(work, ignore_errors=True)


class _fresh:
    """A new folder beside `place` that takes its name when all went well: whole, or not there."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._new = place.with_name(f".{place.name}.new")

    def __enter__(self) -> Path:
        shutil.rmtree(self._new, ignore_errors=True)
        self._new.mkdir(parents=True)
        return self._new

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            shutil.rmtree(self._place, ignore_errors=True)
            os.rename(self._new, self._place)
        else:
            shutil.rmtree(self._new, ignore_errors=True)
