"""What this machine has; each reading is optional on its own."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import psutil

Reading = TypeVar("Reading")


def free_memory() -> int | None:
    """Bytes of memory that could be used now, or None where the system does not say."""
    try:
        return int(psutil.virtual_memory().available)
    except (OSError, RuntimeError, NotImplementedError):
        return None


def memory() -> int | None:
    """Bytes of memory in all, or None where the system does not say."""
    try:
        return int(psutil.virtual_memory().total)
    except (OSError, RuntimeError, NotImplementedError):
        return None


def gpu_memory() -> int | None:
    """Bytes of memory of the largest NVIDIA GPU, or None where none can be read (the extra `nvidia` reads them)."""
    # A Jetson lists its GPU, but its memory is the machine's.
    return max(_gpus(lambda nvml, gpu: int(nvml.nvmlDeviceGetMemoryInfo(gpu).total)), default=None)


def gpu_names() -> list[str]:
    """The NVIDIA GPUs that can be read."""
    return _gpus(lambda nvml, gpu: str(nvml.nvmlDeviceGetName(gpu)))


def resident_memory() -> int | None:
    """Bytes of this process that are in memory, mapped files included, or None where the system does not say."""
    try:
        return int(psutil.Process().memory_info().rss)
    except (psutil.Error, OSError):
        return None


def energy(powercap: Path = Path("/sys/class/powercap")) -> float | None:
    """Joules that processors and NVIDIA GPUs have used since some moment, where they count them and let us read it.

    Two readings give what was used between them. (Intel and AMD: RAPL packages; NVIDIA: from Volta on.)
    """
    counters = [*_package_energy(powercap), *_gpu_energy()]
    return sum(counters) if counters else None


def _package_energy(powercap: Path) -> list[float]:
    found = []
    with suppress(OSError, ValueError):  # most systems let only the administrator read it
        for zone in sorted(powercap.glob("intel-rapl:[0-9]*")):
            if zone.name.count(":") == 1:
                found.append(int((zone / "energy_uj").read_text()) / 1e6)
    return found


def _gpu_energy() -> list[float]:
    return _gpus(lambda nvml, gpu: nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1000.0)


def _gpus(reading: Callable[[Any, Any], Reading]) -> list[Reading]:
    """A reading of each NVIDIA GPU that gives it; none without the extra `nvidia`, or a driver."""
    try:
        import pynvml
    except ImportError:
        return []
    found: list[Reading] = []
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        for i in range(pynvml.nvmlDeviceGetCount()):
            with suppress(pynvml.NVMLError):
                found.append(reading(pynvml, pynvml.nvmlDeviceGetHandleByIndex(i)))
    except pynvml.NVMLError:
        return found
    finally:
        pynvml.nvmlShutdown()
    return found


def processor() -> str:
    """The processor's name, as far as the system tells it."""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "Model")))
    return platform.processor() or platform.machine()


def vector_units() -> list[str]:
    """What the processor has for quick arithmetic, of what makes a difference here."""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        flags = next(line.partition(":")[2].split() for line in lines if line.startswith(("flags", "Features")))
        known = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm", "sve")
        return [flag for flag in known if flag in flags]
    return []


def machine() -> dict[str, Any]:
    """What this machine is, for reports: processor, cores, memory in bytes, GPUs, system."""
    return {
        "processor": processor(),
        "features": vector_units(),
        "cores": psutil.cpu_count(logical=False) or os.cpu_count(),
        "memory": memory(),
        "gpus": gpu_names(),
        "system": f"{platform.system()} {platform.machine()}",
    }
