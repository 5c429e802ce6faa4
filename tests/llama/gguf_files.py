"""Tiny GGUF files: a header with text values and nothing behind it."""

from __future__ import annotations

import struct
from pathlib import Path


def write_head(path: Path, values: dict[str, str | int], version: int = 3, filler: int = 64) -> Path:
    """A file with only these keys (texts, and 32-bit numbers), followed by zeros."""
    data = b"GGUF" + struct.pack("<IQQ", version, 0, len(values))
    for key, value in values.items():
        data += _text(key)
        if isinstance(value, str):
            data += struct.pack("<I", 8) + _text(value)
        else:
            data += struct.pack("<II", 4, value)
    path.write_bytes(data + bytes(filler))
    return path


def _text(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw
