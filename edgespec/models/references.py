"""What a person may write for a model: a path, a name from models.toml, or a file on the Hugging Face hub."""

from __future__ import annotations

import os
import re
from collections.abc import Container
from pathlib import Path

from edgespec.models.entries import HubEntry

_PREFIX = re.compile(r"hf:(?://)?|(?:https?://)?(?:www\.)?(?:hf\.co|huggingface\.co)/")
_NAME = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,95}"
_HUB = re.compile(
    rf"(?P<repo>{_NAME}/{_NAME})"
    r"(?::(?P<quant>[A-Za-z0-9_.-]+)"
    # An address copied from a browser has the branch in it, and sometimes a question behind it.
    r"|(?:/(?:resolve|blob)/(?P<revision>[A-Za-z0-9_][A-Za-z0-9._-]*))?/(?P<file>[^?:\\]+\.gguf)(?:\?.*)?)?/?",
    re.IGNORECASE,
)


def hub_entry(reference: str) -> HubEntry | None:
    """The hub's file that `reference` can mean: `user/repo`, `user/repo:QUANT` or `user/repo/file.gguf`.

    `hf:`, `hf.co/` or the hub's web address may stand in front, and make it certain that the hub is meant. None where
    it is something else.
    """
    prefix = _PREFIX.match(reference)
    found = _HUB.fullmatch(reference[prefix.end() :] if prefix else reference)
    if found is None or (prefix is None and found["file"] is None and reference.lower().endswith(".gguf")):
        return None  # without a prefix, dir/model.gguf is a path
    return HubEntry(found["repo"], found["file"], found["quant"], found["revision"] or "main")


def says_hub(reference: str) -> bool:
    """Whether `reference` begins with what only the hub's files begin with."""
    return _PREFIX.match(reference) is not None


def local_path(reference: str, names: Container[str]) -> Path | None:
    """The path that `reference` means, where it means one; the file need not exist.

    It does if it is there, starts with ~ or ., ends in .gguf or holds a separator, unless it can be on the hub. A
    folder that happens to be called like a model cannot be what is meant.
    """
    path = os.path.expanduser(reference)  # Path's own raises for a user who does not exist
    if says_hub(reference):
        return None
    if os.path.isfile(path) or (os.path.exists(path) and reference not in names):
        return Path(path)
    separators = [separator for separator in (os.sep, os.altsep) if separator]
    looks = reference.startswith(("~", ".")) or reference.endswith(".gguf") or any(s in reference for s in separators)
    return Path(path) if looks and hub_entry(reference) is None else None
