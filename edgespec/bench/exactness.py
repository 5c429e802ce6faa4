"""Is a difference between two texts honest? (CONTRACT 4)

Where a build gives a row the same logits at every batch width, texts must be identical. Elsewhere two texts may part at
a near-tie: the perturbed logits of the two tokens differ by less than six times the measured width noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from edgespec.bench.records import Answer, Fork
from edgespec.engine import Engine
from edgespec.protocols import Logits
from edgespec.sampling import adjusted, distribution, exponential_noise
from edgespec.settings import Request, Sampling

TIMES_NOISE = 6.0


def parting(plain: Sequence[int], other: Sequence[int]) -> int | None:
    """The first index at which two texts differ, be it that one ends there; None where they are the same."""
    if tuple(plain) == tuple(other):
        return None
    pairs = zip(plain, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(plain), len(other)))


def chosen(
    tokens: Sequence[int], at: int, ends: Iterable[int], row: Logits, settings: Sampling, seed: int, position: int,
    window: Sequence[int] = (),
) -> int:  # fmt: skip
    """What a text's token at `at` was; where it ended there, the end token that plain's row (n_vocab,) favours."""
    if at < len(tokens):
        return tokens[at]
    values, known = adjusted(row, settings, window), np.array(sorted(ends))
    if settings.greedy:
        return int(known[values[known].argmax()])
    perturbed = values[known] - settings.temperature * np.log(exponential_noise(known, seed, position))
    return int(known[perturbed.argmax()])


def gap(
    row: Logits, one: int, other: int, band: float, settings: Sampling, seed: int, position: int,
    window: Sequence[int] = (),
) -> float:  # fmt: skip
    """By how much two tokens' perturbed logits differ (temperature 0: their logits) in plain's row (n_vocab,).

    Infinite where a token would not pass the filters even if its logit were `band` higher. `window` is what the
    penalties look at.
    """
    values = adjusted(row, settings, window)
    difference = float(values[one]) - float(values[other])
    if settings.greedy:
        return abs(difference)
    for token in (one, other):
        raised = row.copy()
        raised[token] += band
        if distribution(raised, settings, window)[token] == 0.0:
            return math.inf
    noise = -np.log(exponential_noise(np.array([one, other]), seed, position))
    return abs(difference + settings.temperature * float(noise[0] - noise[1]))


class ForkJudge:
    """Judges where the texts of an engine's answers to one request part from plain's.

    The row is computed anew, but behind what the last answer has left in the cache: other widths than plain's, whose
    noise the measured one covers.
    """

    def __init__(self, engine: Engine, request: Request) -> None:
        self._engine, self._request = engine, request
        self._known: dict[tuple[int, ...], Fork] = {}  # the same fork comes again with every repeat

    def fork(self, prompt: Sequence[int], plain: Answer, other: Answer) -> Fork | None:
        """Where and how `other` leaves plain's text behind the tokens of `prompt`; None where it does not."""
        at = parting(plain.tokens, other.tokens)
        if at is None:
            return None
        history = [*prompt, *plain.tokens[:at]]
        key = (*history, -1, *plain.tokens[at : at + 1], -1, *other.tokens[at : at + 1])
        if key not in self._known:
            self._known[key] = self._judged(history, plain, other, at)
        return replace(self._known[key], arm=other.arm, repeat=other.repeat)

    def _judged(self, history: Sequence[int], plain: Answer, other: Answer, at: int) -> Fork:
        engine, settings = self._engine, self._request.sampling
        about, ends = engine.about, engine.vocabulary.end_tokens
        band = TIMES_NOISE * about.width_noise
        window = history[-settings.repeat_last_n :] if settings.repeat_last_n > 0 else history
        place = (settings, plain.seed, len(history), window)
        row = engine.row(history)
        one, another = (chosen(answer.tokens, at, ends, row, *place) for answer in (plain, other))
        size = gap(row, one, another, band, *place)
        honest = len(history) >= about.invariant_below and size < band
        return Fork(plain.prompt, other.arm, other.repeat, at, honest, size if math.isfinite(size) else None, band)
