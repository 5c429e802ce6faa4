"""Reads the machine: compilers, nvcc, NVIDIA GPU, Jetson, memory. What is not known is left out."""

from __future__ import annotations

import os
import platform
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from . import glance
from .toolchain import Compiler, Machine, Wishes

OLDEST_CLANG = 12  # the first that knows CPUs with AMX
PROGRAM = "#include <vector>\n#include <thread>\nint main() { return static_cast<int>(std::vector<int>(1)[0]); }\n"


def wishes(chosen: Mapping[str, str]) -> Wishes:
    """What the user's variables say."""
    return Wishes(
        cmake_args=tuple(shlex.split(chosen.get("CMAKE_ARGS", ""))),
        cc=chosen.get("CC", ""),
        cxx=chosen.get("CXX", ""),
        cflags=chosen.get("CFLAGS", ""),
        cxxflags=chosen.get("CXXFLAGS", ""),
        wheel_index=chosen.get("EDGESPEC_WHEEL_INDEX", ""),
    )


def machine(environ: Mapping[str, str], wanted: Wishes) -> Machine:
    """This machine. `environ` holds the user's variables, remembered ones included."""
    cpu, features = glance.cpu()
    if sys.platform == "darwin":
        cpu = _output("sysctl", "-n", "machdep.cpu.brand_string").strip()
    nvcc = glance.find_nvcc(environ)
    jetson = _jetson()
    found = Machine(
        system="linux" if sys.platform.startswith("linux") else sys.platform,
        arch=platform.machine(),
        cpu=cpu,
        features=features,
        libc="-".join(platform.libc_ver()),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory=_memory(),
        compiler=_compiler(environ, *wanted.compiler),
        nvcc=nvcc,
        nvcc_version=_output(nvcc, "--version").strip() if nvcc else "",
        nvidia=bool(jetson) or _nvidia(environ),
        jetson=jetson,
        rosetta=sys.platform == "darwin" and _output("sysctl", "-n", "sysctl.proc_translated").strip() == "1",
    )
    return replace(found, clang=_newest_clang(environ)) if found.amx else found


def program_version(program: str, environ: Mapping[str, str]) -> tuple[int, int] | None:
    """The version of a program on the PATH that answers to --version (cmake, ninja)."""
    path = glance.find_program(program, environ)
    number = re.search(r"(\d+)\.(\d+)", _output(path, "--version")) if path else None
    return (int(number[1]), int(number[2])) if number else None


def _compiler(environ: Mapping[str, str], cc: str, cxx: str) -> Compiler | None:
    """The user's compilers, or those that cmake would take."""
    if cc or cxx:
        return _describe(cc or _partner(cxx), cxx or _partner(cc))
    if sys.platform == "win32":
        return Compiler("", "", "other", "Visual Studio")  # cmake finds it; so does its error message
    if sys.platform == "darwin" and not _output("xcode-select", "-p"):
        return None  # /usr/bin/cc is there all the same, and opens a window
    for pair in (("cc", "c++"), ("gcc", "g++"), ("clang", "clang++")):
        if all(glance.find_program(name, environ) for name in pair) and (found := _describe(*pair)):
            return found
    return None


def _partner(compiler: str) -> str:
    """The C++ compiler that goes with a C compiler, or the other way round: gcc-13 and g++-13, clang and clang++."""
    folder, name = os.path.split(compiler)
    pairs = (("clang++", "clang"), ("g++", "gcc"), ("c++", "cc"), ("clang", "clang++"), ("gcc", "g++"), ("cc", "c++"))
    for one, other in pairs:
        if one in name:
            return os.path.join(folder, name.replace(one, other))
    return "c++"


def _describe(cc: str, cxx: str) -> Compiler | None:
    said = _output(*shlex.split(cxx), "--version")
    if not said:
        return None
    family = "clang" if "clang" in said else "gcc" if "Free Software Foundation" in said else "other"
    return Compiler(cc, cxx, family, said.splitlines()[0])  # type: ignore[arg-type]


def _newest_clang(environ: Mapping[str, str]) -> Compiler | None:
    """The newest clang that compiles and links a C++ program (it may lack the C++ library)."""
    names = {""}
    for folder in environ.get("PATH", "").split(os.pathsep):
        if folder and os.path.isdir(folder):
            names |= {match[1] for name in os.listdir(folder) if (match := re.fullmatch(r"clang\+\+(-\d+)", name))}
    found = []
    for ending in names:
        compiler = _describe(f"clang{ending}", f"clang++{ending}")
        number = re.search(r"clang version (\d+)", compiler.version) if compiler else None
        if compiler and number and int(number[1]) >= OLDEST_CLANG:
            found.append((int(number[1]), ending, compiler))
    for _, _, compiler in sorted(found, key=lambda one: one[:2], reverse=True):
        if _works(compiler):
            return compiler
    return None


def _works(compiler: Compiler) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "program.cpp")
        source.write_text(PROGRAM)
        command = [compiler.cxx, "-march=native", "-pthread", str(source), "-o", str(source.with_suffix(".out"))]
        return _run(command) is not None


def _nvidia(environ: Mapping[str, str]) -> bool:
    try:
        if os.listdir("/proc/driver/nvidia/gpus"):
            return True
    except OSError:
        pass
    path = glance.find_program("nvidia-smi", environ)
    return path is not None and "GPU " in _output(path, "-L")


def _jetson() -> str:
    """The name of a Jetson board; empty elsewhere."""
    try:
        model = Path("/proc/device-tree/model").read_text(errors="replace").strip("\0\n ")
    except OSError:
        model = ""
    if re.search("Jetson|Orin|Tegra", model) or os.path.exists("/etc/nv_tegra_release"):
        return model or "Jetson"
    return ""


def _memory() -> int | None:
    """Bytes that programs can still have."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        size = _output("sysctl", "-n", "hw.memsize").strip() if sys.platform == "darwin" else ""
        return int(size) if size.isdecimal() else None


def _output(*command: str) -> str:
    return _run(command) or ""


def _run(command: Sequence[str]) -> str | None:
    """What it prints, or None if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode("utf-8", "replace")
