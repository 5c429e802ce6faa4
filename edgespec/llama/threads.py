"""How many threads this process can use with profit."""

from __future__ import annotations

import contextlib
import math
import os
from pathlib import Path

import psutil


def usable_cores(cgroups: Path = Path("/sys/fs/cgroup")) -> int:
    """Physical cores, bounded by the CPUs that the process may run on and by its container's CPU quota; at least 1."""
    limits = [psutil.cpu_count(logical=False) or os.cpu_count() or 1]
    with contextlib.suppress(AttributeError, OSError):  # not on macOS and Windows
        limits.append(len(os.sched_getaffinity(0)))
    quota = _quota(cgroups)
    if quota is not None:
        limits.append(math.ceil(quota))
    return max(1, min(limits))


def _quota(cgroups: Path) -> float | None:
    """The container's quota in CPUs, from control groups version 2 or 1; None where there is none."""
    with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
        allowed, period = (cgroups / "cpu.max").read_text().split()
        return None if allowed == "max" else int(allowed) / int(period)
    with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
        allowed = (cgroups / "cpu" / "cpu.cfs_quota_us").read_text()
        period = (cgroups / "cpu" / "cpu.cfs_period_us").read_text()
        return None if int(allowed) <= 0 else int(allowed) / int(period)
    return None
