"""Is a difference between two texts honest? (CONTRACT 4)"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgespec.bench.exactness import TIMES_NOISE, chosen, gap, parting
from edgespec.events import Done
from edgespec.llama import Context, Proof
from edgespec.settings import Sampling


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
    return gap(row, one, other, band, sampling, seed, position) < band


def assert_same_text(context: Context, prompt: Sequence[int], plain: Done, other: Done, proof: Proof) -> None:
    """The two answers are the same, or part at a near-tie on a build where they may."""
    at = parting(plain.tokens, other.tokens)
    if at is None:
        return
    history = [*prompt, *plain.tokens[:at]]
    assert len(history) >= proof.invariant_below, "this build is width-invariant here: the texts must be identical"
    row = row_after(context, history)
    ends, settings = context.model.vocabulary.end_tokens, plain.request.sampling
    one, another = (
        chosen(done.tokens, at, ends, row, settings, plain.seed, len(history)) for done in (plain, other)
    )  # fmt: skip
    assert near_tie(row, one, another, proof.width_noise, settings, plain.seed, len(history)), (
        f"the texts part at token {at}, and not at a near-tie"
    )
