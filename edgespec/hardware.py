"""What this machine has; each reading is optional on its own."""

from __future__ import annotations

import psutil


def free_memory() -> int | None:
    """Bytes of memory that could be used now, or None where the system does not say."""
    try:
        return int(psutil.virtual_memory().available)
    except (OSError, RuntimeError, NotImplementedError):
        return None
