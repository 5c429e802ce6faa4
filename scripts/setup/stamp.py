"""The stamp: what the environment was made from, as one small file in it.

Set-up is complete when the stamp's inputs are those of now. It is the last thing written, and in one move, so that a
set-up that was broken off is never taken for a finished one. Every start reads it: plain strings and few imports here.
"""

from __future__ import annotations

import json
import os
import sys

from . import glance

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    Stamp = dict[str, Any]

EDITION = "1"  # another number makes every environment go through set-up again
LEVELS = ("run", "dev")
WATCHED = ("pyproject.toml", "scripts/constraints.txt", "scripts/amx_tileconfig.h")

# What a user can say about the build. Said once, it holds until something else (or nothing: NAME=) is said.
CHOICES = ("CMAKE_ARGS", "CC", "CXX", "CUDACXX", "CFLAGS", "CXXFLAGS", "LDFLAGS", "EDGESPEC_WHEEL_INDEX")


def venv_folder(root: str, environ: Mapping[str, str]) -> str:
    """The virtual environment's folder: `.venv` in the repository, or where EDGESPEC_VENV says."""
    own = environ.get("EDGESPEC_VENV")
    return os.path.abspath(os.path.expanduser(own)) if own else os.path.join(root, ".venv")


def python_in(venv: str) -> str:
    return os.path.join(venv, "Scripts", "python.exe") if os.name == "nt" else os.path.join(venv, "bin", "python")


def path_in(venv: str) -> str:
    return os.path.join(venv, "edgespec-setup.json")


def read(venv: str) -> Stamp:
    """The environment's stamp; empty where there is none, or none that can be read."""
    try:
        with open(path_in(venv), encoding="utf-8") as file:
            stamp = json.load(file)
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) else {}


def write(venv: str, stamp: Stamp) -> None:
    """Replace the stamp in one move. For the user's eyes only: an index address may carry a password."""
    draft = path_in(venv) + ".new"
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        json.dump(stamp, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path_in(venv))


def choices(environ: Mapping[str, str], stamp: Stamp) -> dict[str, str]:
    """What the user chose about the build: now, or else at an earlier start."""
    earlier = stamp.get("choices") or {}
    said = {name: environ.get(name, earlier.get(name, "")) for name in CHOICES}
    return {name: value for name, value in said.items() if value}


def inputs(root: str, venv: str, chosen: Mapping[str, str]) -> dict[str, Any]:
    """Everything that the environment is made from and that a start can read at once."""
    model, features = glance.cpu()
    return {
        "edition": EDITION,
        "root": root,
        "venv": venv,
        "app": os.path.isdir(os.path.join(root, "tui")),
        "cpu": [model, *features],
        "choices": dict(chosen),
        **{name: _text(os.path.join(root, name)) for name in WATCHED},
    }


def is_complete(root: str, venv: str, level: str, environ: Mapping[str, str]) -> bool:
    """Whether nothing is left to do for this level."""
    stamp = read(venv)
    if stamp.get("level") not in LEVELS[LEVELS.index(level) :]:
        return False
    return is_current(stamp, inputs(root, venv, choices(environ, stamp)), venv, environ)


def is_current(stamp: Stamp, now: Mapping[str, Any], venv: str, environ: Mapping[str, str]) -> bool:
    """Whether the environment is made from `now`, and the machine has gained nothing that it could use."""
    if stamp.get("inputs") != now or not _python_fits(venv, stamp.get("python")):
        return False
    seen = stamp.get("accelerators") or {}
    if any(there and not seen.get(name) for name, there in glance.accelerators(environ).items()):
        return False
    return installed_key(stamp) == stamp.get("library")


def installed_key(stamp: Stamp) -> str | None:
    """The key of the build that lies in the environment."""
    try:
        with open(os.path.join(stamp["libraries"], "build.json"), encoding="utf-8") as file:
            key = json.load(file)["key"]
    except (KeyError, OSError, TypeError, ValueError):
        return None
    return str(key)


def _python_fits(venv: str, version: object) -> bool:
    """Whether the environment's Python is there, and of the version that the packages were installed for.

    (A system's upgrade can put another version behind the same name.) Usually it is the very Python that runs this.
    """
    python = python_in(venv)
    if not os.path.exists(python):
        return False
    return sys.executable != python or version == f"{sys.version_info[0]}.{sys.version_info[1]}"


def _text(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return None
