"""The first bytes of a GGUF file, read without llama.cpp: enough to refuse a wrong file with a good reason.

Format: magic, version, tensor count, key count, then keys with typed values; `general.*` come first by convention.
"""

from __future__ import annotations

import hashlib
import re
import struct
from pathlib import Path
from typing import BinaryIO

from edgespec.errors import ModelNotFound, ModelUnreadable

Value = str | int | float | bool

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING = 8
_LONGEST = 1 << 20
_HEAD = 1 << 20
_PART = re.compile(r"^(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf$", re.DOTALL)

# Architectures that hold something else than a model that writes text, and what it is.
_OTHER = {
    "clip": "an image or audio projector, which is loaded beside a model",
    "eagle3": "a draft head for another model",
    "dflash": "a draft head for another model",
    "t5": "an encoder-decoder model",
    "t5encoder": "a text encoder",
    "wavtokenizer-dec": "an audio decoder",
    "dream": "a diffusion model",
    "llada": "a diffusion model",
    "llada-moe": "a diffusion model",
    "rnd1": "a diffusion model",
}


def read_head(path: Path) -> dict[str, Value]:
    """The scalar and text values that stand before the file's first array.

    Raises ModelNotFound, and ModelUnreadable for what cannot be a GGUF file.
    """
    if not path.exists():
        raise ModelNotFound(f"There is no file {path}: check the path.")
    if not path.is_file():
        raise ModelUnreadable(f"{path} is not a file: give the .gguf file itself.")
    try:
        with path.open("rb") as file:
            return _read(path, file)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ModelUnreadable(f"{path} cannot be read ({reason}): check its permissions and the disk.") from error
    except (struct.error, UnicodeDecodeError) as error:
        raise ModelUnreadable(f"{path} is cut short or damaged: fetch it again.") from error


def _read(path: Path, file: BinaryIO) -> dict[str, Value]:
    magic = file.read(4)
    if not magic:
        raise ModelUnreadable(f"{path} is empty: fetch it again.")
    if magic != b"GGUF":
        raise ModelUnreadable(f"{path} is not a GGUF file: give a model in GGUF format.")
    version, _tensors, keys = struct.unpack("<IQQ", file.read(20))
    if version not in (2, 3):
        raise ModelUnreadable(f"{path} is GGUF version {version}, not 2 or 3: get a file made by a current converter.")
    found: dict[str, Value] = {}
    for _ in range(keys):
        name = _text(file)
        (kind,) = struct.unpack("<I", file.read(4))
        if kind == _STRING:
            found[name] = _text(file)
        elif kind in _SCALARS:
            form = "<" + _SCALARS[kind]
            (found[name],) = struct.unpack(form, file.read(struct.calcsize(form)))
        else:
            break
    return found


def _text(file: BinaryIO) -> str:
    (length,) = struct.unpack("<Q", file.read(8))
    if length > _LONGEST:
        raise struct.error("a text of this length is damage")
    raw = file.read(length)
    if len(raw) < length:
        raise struct.error("the file ends inside a text")
    return raw.decode("utf-8", "replace")


def refuse_other_kinds(path: Path, head: dict[str, Value]) -> None:
    """Raise ModelUnreadable if the head says that this is not a language model, or not the first part of one."""
    kind = str(head.get("general.type", "model"))
    architecture = str(head.get("general.architecture", ""))
    what = _OTHER.get(architecture)
    if kind == "adapter":
        what = "an adapter (LoRA), which changes another model"
    elif kind == "mmproj":
        what = _OTHER["clip"]
    elif kind in ("imatrix", "vocab") or architecture == "imatrix":
        what = "data about a model"
    elif architecture.endswith(("bert", "embedding")) or "bert-" in architecture:
        what = "a text encoder"
    elif int(head.get(f"{architecture}.pooling_type", 0)) > 0:
        what = "an embedding model"
    if what is not None:
        raise ModelUnreadable(f"{path.name} is {what} and cannot write text by itself: give a language model's file.")


def parts(path: Path) -> list[Path]:
    """All files of a model that is split as NAME-00001-of-00003.gguf, in order; else `path` alone.

    Raises ModelUnreadable for a part that is not the first, ModelNotFound when one is missing.
    """
    match = _PART.match(path.name)
    if match is None:
        return [path]
    count = int(match["count"])
    files = [path.with_name(f"{match['stem']}-{number:05d}-of-{count:05d}.gguf") for number in range(1, count + 1)]
    if int(match["number"]) != 1:
        raise ModelUnreadable(f"{path.name} is a later part of a split model: give its first part, {files[0].name}.")
    for file in files:
        if not file.is_file():
            raise ModelNotFound(f"{file.name} is missing beside {path.name}: fetch all {count} parts of the model.")
    return files


def fingerprint(path: Path) -> str:
    """What tells a model file from another: the sizes of its parts and the hash of its first bytes, the metadata."""
    digest = hashlib.sha256(" ".join(str(part.stat().st_size) for part in parts(path)).encode())
    with path.open("rb") as stream:
        digest.update(stream.read(_HEAD))
    return digest.hexdigest()
