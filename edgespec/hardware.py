"""What this machine has; each reading is optional on its own."""

from __future__ import annotations

import psutil


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
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        return max((int(pynvml.nvmlDeviceGetMemoryInfo(handle).total) for handle in handles), default=None)
    except pynvml.NVMLError:  # a Jetson lists its GPU, but its memory is the machine's
        return None
    finally:
        pynvml.nvmlShutdown()
