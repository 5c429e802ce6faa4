"""How alike draft and target are: both read the target's own answers, so that p and q are known at every token."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from edgespec import sampling, verify
from edgespec.bench.records import Overlap
from edgespec.protocols import LanguageModel, Logits
from edgespec.settings import Sampling

CHUNK = 32
"""Rows that are looked at at a time: a row of a large vocabulary is 600 kB."""

FIVE = 5
ALL = "all"


@dataclass(frozen=True, slots=True)
class Position:
    """`first`: both models' first tokens are the same; `five`: the target's is among the draft's first five; `shared`:
    Σ min(p, q)."""

    first: bool
    five: bool
    shared: float


def rows(model: LanguageModel, prompt: Sequence[int], answer: Sequence[int]) -> Iterator[Logits]:
    """What a model whose cache is empty says before each token of `answer` behind `prompt`; its cache is left empty.

    Each row (n_vocab,) is valid until the next is asked for.
    """
    read, told = list(prompt[:-1]), [prompt[-1], *answer[:-1]]
    width = min(CHUNK, model.n_outputs, model.n_batch)
    try:
        for at in range(0, len(read), model.n_batch):
            model.decode(read[at : at + model.n_batch], at, 0)
        for at in range(0, len(told), width):
            part = told[at : at + width]
            yield from model.decode(part, len(read) + at, len(part))
    finally:
        model.trim(0)


def overlap(
    target: LanguageModel, draft: LanguageModel, prompt: Sequence[int], answer: Sequence[int], settings: Sampling
) -> list[Position]:
    """One Position for each token of `answer`, over the ids that both models have; both caches are left empty."""
    n_vocab = min(target.n_vocab, draft.n_vocab)
    found = []
    for ours, theirs in zip(rows(target, prompt, answer), rows(draft, prompt, answer), strict=True):
        ours, theirs = ours[:n_vocab], theirs[:n_vocab]
        best = int(ours.argmax())
        five = np.argpartition(theirs, -FIVE)[-FIVE:] if n_vocab > FIVE else np.arange(n_vocab)
        p, q = sampling.distribution(ours, settings), sampling.distribution(theirs, settings)
        found.append(Position(best == int(theirs.argmax()), best in five, verify.overlap(p, q)))
    return found


def summarise(positions: Mapping[str, Sequence[Position]], temperature: float) -> Iterator[Overlap]:
    """A figure for each kind, and one for all of them."""
    every = [position for part in positions.values() for position in part]
    for kind, part in {**positions, ALL: every}.items():
        if part:
            yield Overlap(
                kind,
                len(part),
                fmean(position.first for position in part),
                fmean(position.five for position in part),
                fmean(position.shared for position in part),
                temperature,
            )
