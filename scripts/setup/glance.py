"""What can be read about the machine in a millisecond: enough to notice at every start that it has changed."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# The features that a compiler can make use of. The rest (mitigations and the like) comes and goes with the kernel.
_INSTRUCTIONS = (
    "3dnow",
    "abm",
    "amx",
    "avx",
    "bmi",
    "f16c",
    "fma",
    "gfni",
    "movbe",
    "popcnt",
    "sse",
    "ssse",
    "vaes",
    "vpcl",
)


def cpu(cpuinfo: str = "/proc/cpuinfo") -> tuple[str, tuple[str, ...]]:
    """The CPU's model and its instruction sets, sorted; what is not known is empty.

    Reads the first processor only: the whole file takes long on machines with many.
    """
    block: dict[str, str] = {}
    try:
        with open(cpuinfo, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if not line.strip():
                    break
                name, _, value = line.partition(":")
                block[name.strip()] = value.strip()
    except OSError:
        return os.environ.get("PROCESSOR_IDENTIFIER", "") if sys.platform == "win32" else "", ()
    if "flags" in block:  # x86
        features = {flag for flag in block["flags"].split() if flag.startswith(_INSTRUCTIONS)}
        return block.get("model name", ""), tuple(sorted(features))
    model = " ".join(block.get(name, "") for name in ("CPU implementer", "CPU part", "CPU variant")).strip()  # Arm
    return model, tuple(sorted(block.get("Features", "").split()))


def find_program(name: str, environ: Mapping[str, str]) -> str | None:
    """The program of that name on the PATH. (shutil.which does the same and takes long to import.)"""
    for folder in environ.get("PATH", "").split(os.pathsep):
        for ending in ("", ".exe") if sys.platform == "win32" else ("",):
            path = os.path.join(folder, name + ending)
            if folder and os.path.isfile(path) and os.access(path, os.X_OK):
                return path
    return None


def find_nvcc(environ: Mapping[str, str]) -> str | None:
    """NVIDIA's compiler: where CUDACXX says, on the PATH, or where CUDA's installers put it."""
    if own := environ.get("CUDACXX"):
        return find_program(own, environ) if os.path.basename(own) == own else own
    if found := find_program("nvcc", environ):
        return found
    folders = [environ.get("CUDA_HOME"), environ.get("CUDA_PATH"), "/usr/local/cuda", "/opt/cuda"]
    for folder in filter(None, folders):
        for name in ("nvcc", "nvcc.exe"):
            if os.path.isfile(path := os.path.join(folder, "bin", name)):
                return path
    return None


def accelerators(environ: Mapping[str, str]) -> dict[str, bool]:
    """Hints of what a build could use. A hint that was absent and is there now calls for another look."""
    devices = ("/proc/driver/nvidia/gpus", "/dev/nvidia0", "/dev/nvhost-gpu", "/dev/nvgpu")
    return {
        "nvcc": find_nvcc(environ) is not None,
        "nvidia": any(map(os.path.exists, devices)) or find_program("nvidia-smi", environ) is not None,
    }
