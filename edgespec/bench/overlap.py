"""How alike draft and target are: both read the target's own answers, so that p and q are known at every token."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
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


def rows(model: LanguageModel, prompt: Sequence[int], answer: Sequence[int]) -> Generator[Logits, None, None]:
    """What a model says before each token of `answer` behind `prompt` (at least one token): rows of (n_vocab,).

    Each is valid until the next is asked for. The model's cache is emptied first, and left empty at the end or when the
    generator is closed.
    """
    read, told = list(prompt[:-1]), [prompt[-1], *answer][: len(answer)]
    width = min(CHUNK, model.n_outputs, model.n_batch)
    try:
        model.trim(0)
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
    """One Position for each token of `answer`, as far as the draft can read; both caches are empty before and after.

    `first` and `five` are of the logits as they are, `shared` of the distributions that `settings` make of them without
    penalties (at temperature 0 it is `first`). A token that only one of the models has is no agreement.
    """
    answer = answer[: _readable(draft, prompt, answer)]
    found = []
    with closing(rows(target, prompt, answer)) as ours, closing(rows(draft, prompt, answer)) as theirs:
        for one, other in zip(ours, theirs, strict=True):
            other = other[: target.n_vocab]
            best, five = int(one.argmax()), np.argpartition(other, -min(FIVE, len(other)))[-FIVE:]
            p, q = sampling.distribution(one, settings), sampling.distribution(other, settings)
            found.append(Position(best == int(other.argmax()), best in five, verify.overlap(p, q)))
    return found


def summarise(positions: Mapping[str, Sequence[Position]], temperature: float) -> Iterator[Overlap]:
    """A figure for each kind, and one for all of them, if there are any."""
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


def _readable(draft: LanguageModel, prompt: Sequence[int], answer: Sequence[int]) -> int:
    """Before how many tokens of `answer` the draft has a say: it reads to the first that it lacks, or has no room."""
    text = [*prompt, *answer][: draft.n_ctx]
    known = next((i for i, token in enumerate(text) if token >= draft.n_vocab), len(text))
    return max(0, known - len(prompt) + 1)
