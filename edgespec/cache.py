"""Where edgespec keeps what it can fetch or measure again."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs


def cache_folder() -> Path:
    """The cache folder, which need not exist yet: $EDGESPEC_CACHE, else the system's place for a user's caches."""
    chosen = os.environ.get("EDGESPEC_CACHE")
    return Path(chosen).expanduser() if chosen else Path(platformdirs.user_cache_dir("edgespec", appauthor=False))
