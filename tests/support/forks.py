"""Is a difference between two texts honest? (CONTRACT 4)

Where a build gives a row the same logits at every batch width, texts must be identical. Elsewhere two texts may part at
a near-tie: the perturbed logits of the two tokens differ by less than six times the measured width noise.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgespec.events import Done
from edgespec.llama import Context, Proof
from edgespec.sampling import distribution, exponential_noise
from edgespec.settings import Sampling

TIMES_NOISE = 6.0


def row_after(context: Context, tokens: Sequence[int]) -> np.ndarray:
    """The logits (n_vocab,) after `tokens`, the last of them decoded alone, as plain decoding does."""
    context.trim(0)
    body, last = list(tokens[:-1]), tokens[-1]
    for at in range(0, len(body), context.n_batch):
        context.decode(body[at : at + context.n_batch], at, 0)
    return context.decode([last], len(body), 1)[0].copy()


def near_tie(
    row: np.ndarray, one: int, other: int, noise: float, sampling: Sampling, seed: int = 0, position: int = 0
) -> bool:
    """Whether noise of this size in the logits could make `one` and `other` change places."""
    band = TIMES_NOISE * noise
    if sampling.greedy:
        return bool(abs(row[one] - row[other]) < band)
    for token in (one, other):
        raised = row.copy()
        raised[token] += band
        if distribution(raised, sampling)[token] == 0.0:
            return False  # not even noise brings it past the filters
    noises = -np.log(exponential_noise(np.array([one, other]), seed, position))
    return bool(abs(row[one] - row[other] + sampling.temperature * (noises[0] - noises[1])) < band)


def assert_same_text(context: Context, prompt: Sequence[int], plain: Done, other: Done, proof: Proof) -> None:
    """The two answers are the same, or part at a near-tie on a build where they may."""
    if plain.tokens == other.tokens:
        return
    at = next(
        (i for i, (a, b) in enumerate(zip(plain.tokens, other.tokens, strict=False)) if a != b),
        min(len(plain.tokens), len(other.tokens)),
    )
    history = [*prompt, *plain.tokens[:at]]
    assert len(history) >= proof.invariant_below, "this build is width-invariant here: the texts must be identical"
    row = row_after(context, history)
    ends = context.model.vocabulary.end_tokens
    candidates = [[done.tokens[at]] if at < len(done.tokens) else sorted(ends) for done in (plain, other)]
    sampling = plain.request.sampling
    assert any(
        near_tie(row, a, b, proof.width_noise, sampling, plain.seed, len(history))
        for a in candidates[0]
        for b in candidates[1]
    ), f"the texts part at token {at}, and not at a near-tie"
