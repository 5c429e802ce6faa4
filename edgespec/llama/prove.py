"""The child of the proof decode: one JSON request on stdin, one JSON answer on stdout."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from typing import Any

import numpy as np
import numpy.typing as npt

from edgespec.errors import EdgespecError, RollbackRefused
from edgespec.llama.context import Context
from edgespec.llama.model import Model
from edgespec.protocols import LanguageModel, Logits
from edgespec.settings import ModelSettings

WIDTHS = (1, 2, 5, 9, 16)
TEXT = (
    "The lighthouse keeper wrote down the weather every evening: wind from the west, four ships, rain before midnight. "
    "def mean(values):\n    return sum(values) / len(values)\n\nOn the third day a letter came, and he read it twice, "
    "then put 17 apples into the basket and walked to the harbour, where the old boat was waiting for him."
)
_TOP = 40
_PROMPT = 40


def main() -> None:
    """Answer {"finite", …} as `Proof` wants it, or {"error", "kind"} for a reason that is nobody's crash."""
    _no_core_dump()
    request = json.loads(sys.stdin.read())
    try:
        answer = run(request)
    except EdgespecError as error:
        answer = {"error": str(error), "kind": type(error).__name__}
    sys.stdout.write(json.dumps(answer) + "\n")


def run(request: dict[str, Any]) -> dict[str, Any]:
    """Load, decode the same tokens at several widths, and compare."""
    began = time.perf_counter()
    settings = ModelSettings(
        ctx=256, batch=64, max_draft=max(WIDTHS) - 1, gpu_layers=request["gpu_layers"], threads=request["threads"]
    )
    with Model.load(request["path"], settings, extra_buffers=request["extra_buffers"]) as model:
        tokens = model.vocabulary.tokenize(TEXT, add_special=True)
        while len(tokens) < _PROMPT + max(WIDTHS):
            tokens += tokens
        found = compare(Context(model, settings), tokens)
    return {**found, "seconds": round(time.perf_counter() - began, 3)}


def compare(model: LanguageModel, tokens: list[int]) -> dict[str, Any]:
    """Rows of single-token decodes against the same rows out of wider ones; `tokens` ≥ 40 + the largest width."""
    prompt, following = tokens[:_PROMPT], tokens[_PROMPT : _PROMPT + max(WIDTHS)]
    model.decode(prompt, 0, 1)
    single = np.stack([model.decode([token], _PROMPT + i, 1)[0].copy() for i, token in enumerate(following)])
    finite, can_trim, invariant = bool(np.isfinite(single).all()), model.can_trim, True
    spread, largest = 0.0, 0.0
    for width in WIDTHS:
        if not finite:
            break
        can_trim = _back(model, prompt) and can_trim
        rows = model.decode(following[:width], _PROMPT, width)
        finite = bool(np.isfinite(rows).all())
        if finite:
            invariant = invariant and bool(np.array_equal(rows, single[:width]))
            noise = _noise(rows, single[:width])
            spread, largest = max(spread, float(noise.std())), max(largest, float(np.abs(noise).max()))
    return {
        "finite": finite,
        "can_trim": can_trim,
        "width_invariant": finite and invariant,
        "width_noise": spread,
        "width_noise_max": largest,
    }


def _back(model: LanguageModel, prompt: list[int]) -> bool:
    """Take the cache back to the prompt, by trimming where that works; whether it did."""
    with contextlib.suppress(RollbackRefused):
        model.trim(len(prompt))
        return True
    model.trim(0)
    model.decode(prompt, 0, 1)
    return False


def _noise(rows: Logits, single: Logits) -> npt.NDArray[np.float64]:
    """Differences over the top 40 of each row of `single`, shape (rows, 40)."""
    top = min(_TOP, single.shape[1])
    best = np.argpartition(single, -top, axis=1)[:, -top:]
    wide = np.take_along_axis(rows, best, axis=1).astype(np.float64)
    return wide - np.take_along_axis(single, best, axis=1)


def _no_core_dump() -> None:
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    main()
