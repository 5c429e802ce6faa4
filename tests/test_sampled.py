"""One seeded chi-square for each way of sampling, on the path really used: sampler, drafter, verification, engine."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from scipy.stats import chisquare

from edgespec.control.fixed import FixedPolicy
from edgespec.drafters.model import ModelDrafter
from edgespec.engine import Engine
from edgespec.events import Done
from edgespec.sampling import distribution
from edgespec.settings import Request, Sampling
from edgespec.text import StopText
from tests.support.fakes import END, FakeModel, FakeVocabulary, hashed_table

N_VOCAB, PROMPT = 4, [1, 2, 3]
TABLE = hashed_table(N_VOCAB, spread=1.0, end=-99.0)
OFF = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
FILTERS = {
    "no filter": {},
    "top-k": {"top_k": 3},
    "top-p": {"top_p": 0.8},
    "min-p": {"min_p": 0.2},
    "penalties": {"repeat_penalty": 1.4, "presence_penalty": 0.3},
    "all": {"top_k": 3, "top_p": 0.9, "min_p": 0.05, "repeat_penalty": 1.2, "logit_bias": {2: 0.5}},
}


def law(sampling: Sampling, tokens: tuple[int, ...] = (), weight: float = 1.0) -> dict[tuple[int, ...], float]:
    """The target's own law of three tokens."""
    if len(tokens) == 3:
        return {tokens: weight}
    history = [*PROMPT, *tokens]
    p = distribution(np.array(TABLE(history), np.float32), sampling, history[-64:])
    found: dict[tuple[int, ...], float] = {}
    for token, w in zip(p.tokens, p.p, strict=True):
        if w > 0:
            found |= law(sampling, (*tokens, int(token)), weight * float(w))
    return found


@pytest.mark.parametrize(
    ("rule", "filters"), [*(("block", name) for name in FILTERS), ("match", "no filter"), ("match", "all")]
)
@pytest.mark.parametrize("temperature", [0.3, 0.7, 1.0, 1.5])
def test_what_comes_out_follows_the_target_s_law(rule: str, temperature: float, filters: str) -> None:
    sampling = Sampling(temperature=temperature, **{**OFF, **FILTERS[filters]})  # type: ignore[arg-type]
    vocabulary = FakeVocabulary(N_VOCAB)
    draft = FakeModel(hashed_table(N_VOCAB, 1.0, seed=5, end=-99.0), N_VOCAB)
    engine = Engine(
        FakeModel(TABLE, N_VOCAB),
        vocabulary,
        FixedPolicy("model", 2),
        lambda stops: StopText(vocabulary.piece, stops),
        drafters={"model": ModelDrafter(draft, frozenset({END}))},
    )
    runs = 1000
    seen: Counter[tuple[int, ...]] = Counter()
    drafted = accepted = 0
    for seed in range(runs):
        request = Request(sampling=sampling, seed=seed, max_tokens=3, verify=rule)  # type: ignore[arg-type]
        *_, done = engine.generate(PROMPT, request=request)
        assert isinstance(done, Done)
        seen[done.tokens] += 1
        drafted, accepted = drafted + done.stats.drafted, accepted + done.stats.accepted
    assert 0.05 < accepted / drafted < 0.99
    right = law(sampling)
    assert set(seen) <= set(right)
    common = [tokens for tokens in right if right[tokens] * runs >= 5]
    observed, expected = [seen[t] for t in common], [right[t] * runs for t in common]
    if len(common) < len(right):
        observed, expected = [*observed, runs - sum(observed)], [*expected, runs - sum(expected)]
    if len(expected) > 1:
        # One in ten thousand: there are 32 of these tests.
        assert chisquare(observed, np.array(expected) * sum(observed) / sum(expected)).pvalue > 1e-4
