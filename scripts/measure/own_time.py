"""How long edgespec's own part of a round takes: sampling, verification and bookkeeping, without any model.

    .venv/bin/python scripts/measure/own_time.py

Models that answer at once, with a vocabulary of 152k, are drafted for by a draft that mostly agrees. The time is given
as a multiple of one `np.partition(row, -40)` measured between the rounds of the same run, which takes the machine's
speed and its other work out of the figure.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median

import numpy as np

from edgespec.control.fixed import FixedPolicy
from edgespec.drafters.model import ModelDrafter
from edgespec.engine import Engine
from edgespec.events import RoundDone
from edgespec.protocols import Logits
from edgespec.settings import Request, Sampling
from edgespec.text import StopText

N_VOCAB, K, ROUNDS, ROWS = 151_936, 5, 200, 64
TOP_K = {"temperature": 0.7, "top_k": 40, "top_p": 1.0, "min_p": 0.0}
USUAL = {"temperature": 0.7, "top_k": 40, "top_p": 0.95, "min_p": 0.05}
NO_FILTER = {"temperature": 0.7, "top_k": 0, "top_p": 1.0, "min_p": 0.0}


class Instant:
    """A model whose rows are there before they are asked for; they depend on the position alone."""

    n_vocab, n_ctx, n_batch, n_outputs, can_trim = N_VOCAB, 100_000, 512, 64, True

    def __init__(self, rows: Logits) -> None:
        self._rows = rows

    def decode(self, tokens: Sequence[int], position: int, outputs: int) -> Logits:
        at = np.arange(position + len(tokens) - outputs, position + len(tokens)) % ROWS
        return self._rows[at]

    def trim(self, position: int) -> None: ...
    def interrupt(self, on: bool = True) -> None: ...
    def close(self) -> None: ...


class Words:
    n_tokens, end_tokens = N_VOCAB, frozenset[int]()

    def tokenize(self, text: str, *, add_special: bool) -> list[int]:
        return [1]

    def piece(self, token: int) -> bytes:
        return b"x"


def rows(noise: float) -> Logits:
    """Rows whose few large entries look like those of a language model, with noise of that size on top."""
    rng = np.random.default_rng(1)
    base = rng.normal(0.0, 1.5, (ROWS, N_VOCAB)).astype(np.float32)
    for row in base:
        row[rng.choice(N_VOCAB, 60, replace=False)] += np.float32(14.0) * rng.random(60, np.float32)
    return base + np.random.default_rng(2).normal(0.0, noise, base.shape).astype(np.float32) if noise else base


def measure(rule: str, filters: dict[str, float], target: Logits, draft: Logits) -> tuple[float, ...]:
    """Median milliseconds of a round's own part, that as a multiple of a partition, and the acceptance."""
    words = Words()
    engine = Engine(
        Instant(target),
        words,
        FixedPolicy("model", K),
        lambda stops: StopText(words.piece, stops),
        drafters={"model": ModelDrafter(Instant(draft), words.end_tokens)},
    )
    request = Request(sampling=Sampling(**filters), seed=3, verify=rule)  # type: ignore[arg-type]
    own, partition, accepted, drafted = [], [], 0, 0
    for event in engine.generate([1, 2, 3], request=request):
        if not isinstance(event, RoundDone):
            continue
        own.append(event.round.overhead_seconds)
        accepted, drafted = accepted + event.round.accepted, drafted + event.round.drafted
        before = time.perf_counter()
        np.partition(target[len(own) % ROWS], -40)
        partition.append(time.perf_counter() - before)
        if len(own) == ROUNDS:
            break
    return 1000 * median(own), median(own) / median(partition), accepted / max(1, drafted)


def main() -> None:
    target, draft = rows(0.0), rows(0.5)
    print(f"vocabulary {N_VOCAB}, k = {K}, {ROUNDS} rounds each; the acceptance is that of made-up rows")
    settings = [
        ("temperature 0", {"temperature": 0.0}),
        ("top-k 40", TOP_K),
        ("usual filters", USUAL),
        ("no filter", NO_FILTER),
    ]
    for name, filters in settings:
        for rule in ("auto",) if name == "temperature 0" else ("match", "token", "block"):
            own, multiple, accepted = measure(rule, filters, target, draft)
            print(f"{name:14} {rule:6} {own:7.2f} ms {multiple:6.1f} partitions   accepted {accepted:.2f}")


if __name__ == "__main__":
    main()
