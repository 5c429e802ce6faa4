"""What the names of GGUF files say: which of a repository's files are models, in how many parts, and in which quant."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePosixPath

Model = tuple[str, ...]
"""The paths of a model's parts in its repository, in order; most models have one."""

DEFAULTS = ("Q4_K_M", "Q8_0")
"""What is looked for where no quant is asked for, as llama.cpp does; the hub may have others only."""

_PART = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL | re.IGNORECASE)
_BESIDE = re.compile(r"mmproj|imatrix|mtp-|eagle3-|dflash-|dspark-")
_QUANT = re.compile(r"(?<![a-z0-9])(?:UD-)?(?:I?Q\d|TQ\d|MXFP\d|NVFP\d|BF16|F16|F32)[a-z0-9_]*", re.IGNORECASE)


def parts(file: str) -> Model:
    """All parts of the model that `file` is, or is a part of."""
    match = _PART.fullmatch(file)
    count = int(match["count"]) if match else 0
    if match is None or not count:
        return (file,)
    return tuple(f"{match['stem']}-{n:05d}-of-{count:05d}{file[-5:]}" for n in range(1, count + 1))


def models(names: Iterable[str]) -> list[Model]:
    """The models among a repository's files, in the order of their names, whether or not all parts are there.

    As in llama.cpp, what is loaded beside a model (projectors, draft heads) or made for making one does not count.
    """
    found = (name for name in sorted(names) if name.lower().endswith(".gguf") and is_inside(name))
    return list(dict.fromkeys(parts(name) for name in found if not _BESIDE.search(PurePosixPath(name).name)))


def choose(among: list[Model], quant: str | None, settle: bool = False) -> Model:
    """The model that a person means by a quant: its file's name, or else its folder's, holds it as a word of its own.

    Case does not count. Without a quant: one in a default quant, or else, to `settle` for what there is, the first.
    Nothing where there is none.
    """
    for wanted in DEFAULTS if quant is None else (quant,):
        word = re.compile(rf"(?<![a-z0-9]){re.escape(wanted)}(?![a-z0-9_])", re.IGNORECASE)
        named = [model for model in among if word.search(PurePosixPath(model[0]).stem)]
        # The shortest says the least else besides.
        if fits := named or [model for model in among if word.search(str(PurePosixPath(model[0]).parent))]:
            return min(fits, key=lambda model: len(model[0]))
    return among[0] if among and quant is None and settle else ()


def quants(among: list[Model]) -> list[str]:
    """The quants that `choose` knows the models by; the whole path of one that names none."""
    said = ((model[0], _QUANT.findall(PurePosixPath(model[0]).stem) or _QUANT.findall(model[0])) for model in among)
    return sorted({words[-1].upper() if words else name for name, words in said})


def is_inside(file: str) -> bool:
    """Whether a path stays within its repository."""
    return not file.startswith("/") and not {"", ".", ".."} & set(file.split("/"))
