"""Where things are: the repository, the virtual environment, the cache."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from . import stamp


@dataclass(frozen=True, slots=True)
class Places:
    """The folders that the set-up works in, all absolute."""

    root: Path
    venv: Path
    cache: Path

    @property
    def python(self) -> Path:
        return Path(stamp.python_in(str(self.venv)))

    @property
    def lock(self) -> Path:
        """Beside the virtual environment, not in it, since it outlives it."""
        return self.venv.with_name(self.venv.name + ".lock")

    @property
    def project(self) -> Path:
        return self.root / "pyproject.toml"

    @property
    def constraints(self) -> Path:
        return self.root / "scripts/constraints.txt"

    @property
    def header(self) -> Path:
        return self.root / "scripts/amx_tileconfig.h"


def find(root: str, environ: Mapping[str, str]) -> Places:
    """The places for this repository and these environment variables."""
    cache = os.path.abspath(cache_folder(environ))
    return Places(root=Path(root), venv=Path(stamp.venv_folder(root, environ)), cache=Path(cache))


def cache_folder(environ: Mapping[str, str], platform: str = sys.platform) -> str:
    """edgespec's cache: `EDGESPEC_CACHE`, else what platformdirs.user_cache_dir("edgespec", appauthor=False) gives."""
    if own := environ.get("EDGESPEC_CACHE"):
        return os.path.expanduser(own)
    home = os.path.expanduser("~")
    if platform == "win32":
        return os.path.join(environ.get("LOCALAPPDATA") or os.path.join(home, "AppData", "Local"), "edgespec", "Cache")
    xdg = environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(xdg):
        return os.path.join(xdg, "edgespec")
    return os.path.join(home, "Library/Caches" if platform == "darwin" else ".cache", "edgespec")
