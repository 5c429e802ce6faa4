"""The child of the proof decode: one JSON request on stdin, one JSON answer on stdout."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from dataclasses import dataclass
from itertools import cycle, islice
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
# Tokens cached before the widths are compared. From 512 cells on (counted in steps of 256) llama.cpp's CPU attention
# splits a single token's work among the threads and adds it up in another order, so short contexts do not tell all.
SHORT, LONG = 40, 272
FIRST_SPLIT = 257


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
        ctx=512, batch=256, max_draft=max(WIDTHS) - 1, gpu_layers=request["gpu_layers"], threads=request["threads"]
    )
    with Model.load(request["path"], settings, extra_buffers=request["extra_buffers"]) as model:
        words = model.vocabulary.tokenize(TEXT, add_special=True)
        tokens = list(islice(cycle(words), LONG + max(WIDTHS)))
        context = Context(model, settings)
        short = compare(context, tokens, SHORT)
        # Reading a long prompt takes seconds: it is done only where it can still change the result.
        long = compare(context, tokens, LONG) if short.equal and context.n_ctx >= len(tokens) else short
    return {**summary(short, long), "seconds": round(time.perf_counter() - began, 3)}


@dataclass(frozen=True, slots=True)
class Comparison:
    """Rows at one context length: are they finite, equal at every width, and how far apart (logits, top 40)?"""

    finite: bool
    can_trim: bool
    equal: bool
    noise: float
    noise_max: float


def summary(short: Comparison, long: Comparison) -> dict[str, Any]:
    """What `Proof` wants to know, of both comparisons together."""
    return {
        "finite": short.finite and long.finite,
        "can_trim": short.can_trim and long.can_trim,
        "invariant_below": 0 if not short.equal else sys.maxsize if long.equal else FIRST_SPLIT,
        "width_noise": max(short.noise, long.noise),
        "width_noise_max": max(short.noise_max, long.noise_max),
    }


def compare(model: LanguageModel, tokens: list[int], cached: int) -> Comparison:
    """Single-token decodes behind `cached` tokens against the same rows out of wider ones.

    `tokens` are at least `cached` and the largest width.
    """
    prompt, following = tokens[:cached], tokens[cached : cached + max(WIDTHS)]
    model.trim(0)
    _read(model, prompt)
    single = np.stack([model.decode([token], cached + i, 1)[0].copy() for i, token in enumerate(following)])
    finite, can_trim, equal = bool(np.isfinite(single).all()), model.can_trim, True
    spread, largest = 0.0, 0.0
    for width in WIDTHS:
        if not finite:
            break
        can_trim = _back(model, prompt) and can_trim
        rows = model.decode(following[:width], cached, width)
        finite = bool(np.isfinite(rows).all())
        if finite:
            equal = equal and bool(np.array_equal(rows, single[:width]))
            noise = _noise(rows, single[:width])
            spread, largest = max(spread, float(noise.std())), max(largest, float(np.abs(noise).max()))
    return Comparison(finite, can_trim, finite and equal, spread, largest)


def _read(model: LanguageModel, tokens: list[int]) -> None:
    for at in range(0, len(tokens), model.n_batch):
        model.decode(tokens[at : at + model.n_batch], at, 0)


def _back(model: LanguageModel, prompt: list[int]) -> bool:
    """Take the cache back to the prompt, by trimming where that works; whether it did."""
    with contextlib.suppress(RollbackRefused):
        model.trim(len(prompt))
        return True
    model.trim(0)
    _read(model, prompt)
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
