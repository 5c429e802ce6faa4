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


def energy(powercap: Path = Path("/sys/class/powercap")) -> dict[str, float]:
    """Joules by counter, of processors and NVIDIA GPUs that count them; `used` compares two readings.

    (Intel and AMD: RAPL's packages, which most systems show to the administrator alone; NVIDIA: from Volta on.)
    """
    found = {f"gpu {i}": joules for i, joules in enumerate(_gpus(_gpu_joules))}
    for zone in sorted(powercap.glob("intel-rapl:*")):
        with suppress(OSError, ValueError):
            name = (zone / "name").read_text().strip()
            if name.startswith("package"):  # "psys" and "dram" hold it, or lie within it
                found[name] = int((zone / "energy_uj").read_text()) / 1e6
    return found


def used(before: dict[str, float], after: dict[str, float]) -> float | None:
    """Joules between two readings; None where there are none, or a counter has begun anew between them."""
    if not before or before.keys() != after.keys() or any(after[name] < before[name] for name in before):
        return None
    return sum(after[name] - before[name] for name in before)


def _gpu_joules(nvml: Any, gpu: Any) -> float:
    return float(nvml.nvmlDeviceGetTotalEnergyConsumption(gpu)) / 1000.0


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


def power_mode(system: Path = Path("/")) -> list[str]:
    """How fast the machine is allowed to be, as far as it tells: governor, profile, Jetson's mode, mains or battery."""
    found = []
    for place in (
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
        "sys/firmware/acpi/platform_profile",
        "var/lib/nvpmodel/status",
    ):
        with suppress(OSError):
            found.append((system / place).read_text(encoding="utf-8", errors="replace").strip())
    with suppress(AttributeError, OSError, RuntimeError, NotImplementedError):
        battery = psutil.sensors_battery()
        if battery is not None:
            found.append("mains" if battery.power_plugged else "battery")
    return found


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
