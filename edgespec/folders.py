"""The folders of a person that edgespec uses; none of them need exist yet."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import platformdirs


def cache_folder() -> Path:
    """Where what can be fetched or measured again is kept: $EDGESPEC_CACHE, else the system's place for caches."""
    chosen = os.environ.get("EDGESPEC_CACHE")
    return Path(chosen).expanduser() if chosen else Path(platformdirs.user_cache_dir("edgespec", appauthor=False))


def config_folder() -> Path:
    """Where a person's own models.toml lies: $EDGESPEC_CONFIG, else the system's place for configuration."""
    chosen = os.environ.get("EDGESPEC_CONFIG")
    return Path(chosen).expanduser() if chosen else Path(platformdirs.user_config_dir("edgespec", appauthor=False))


class Shelf:
    """What was found out once about this machine: JSON objects in a folder, by the facts that they hold for.

    What cannot be read is not there, and what cannot be written is found out again: that costs time, not correctness.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def recall(self, facts: object) -> dict[str, Any] | None:
        with contextlib.suppress(OSError, ValueError):
            found = json.loads(self._place(facts).read_text(encoding="utf-8"))
            return found if isinstance(found, dict) else None
        return None

    def remember(self, facts: object, what: dict[str, Any]) -> None:
        place = self._place(facts)
        with contextlib.suppress(OSError):
            place.parent.mkdir(parents=True, exist_ok=True)
            draft = place.with_name(f"{place.name}.{os.getpid()}.tmp")
            draft.write_text(json.dumps(what), encoding="utf-8")
            draft.replace(place)

    def _place(self, facts: object) -> Path:
        return self._folder / f"{hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:24]}.json"
