"""The folders of a person that edgespec uses; none of them need exist yet."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs


def cache_folder() -> Path:
    """Where what can be fetched or measured again is kept: $EDGESPEC_CACHE, else the system's place for caches."""
    chosen = os.environ.get("EDGESPEC_CACHE")
    return Path(chosen).expanduser() if chosen else Path(platformdirs.user_cache_dir("edgespec", appauthor=False))


def config_folder() -> Path:
    """Where a person's own models.toml lies: $EDGESPEC_CONFIG, else the system's place for configuration."""
    chosen = os.environ.get("EDGESPEC_CONFIG")
    return Path(chosen).expanduser() if chosen else Path(platformdirs.user_config_dir("edgespec", appauthor=False))
