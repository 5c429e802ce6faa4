"""Filters against a slow and plain re-telling of llama.cpp's, and the keyed draws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from edgespec.errors import BadLogits, UsageError
from edgespec.protocols import Distribution
from edgespec.sampling import argmax, distribution, draw, keyed_draw
from edgespec.settings import Request, Sampling

OFF = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)


def slow(logits: np.ndarray, s: Sampling, window: list[int]) -> dict[int, float]:
    """llama.cpp's chain in plain Python: penalties, top-k, top-p, min-p, temperature."""
    values = {i: float(v) for i, v in enumerate(logits)}
    for token in set(window):
        v = values[token]
        v = v * s.repeat_penalty if v <= 0 else v / s.repeat_penalty
        values[token] = v - window.count(token) * s.frequency_penalty - s.presence_penalty
    ranked = sorted(values, key=lambda i: (-values[i], i))
    if s.top_k > 0:
        ranked = ranked[: s.top_k]
    total = sum(np.exp(values[i]) for i in ranked)
    if s.top_p < 1.0:
        mass, cut = 0.0, len(ranked)
        for n, i in enumerate(ranked):
            mass += np.exp(values[i]) / total
            if mass >= s.top_p:
                cut = n + 1
                break
        ranked = ranked[:cut]
    if s.min_p > 0.0:
        ranked = [i for i in ranked if values[i] >= values[ranked[0]] + np.log(s.min_p)]
    weights = {i: float(np.exp((values[i] - values[ranked[0]]) / s.temperature)) for i in ranked}
    return {i: w / sum(weights.values()) for i, w in weights.items()}


@settings(max_examples=150, deadline=None)
@given(
    n=st.sampled_from([1, 2, 7, 300, 1500]),
    seed=st.integers(0, 10**6),
    top_k=st.sampled_from([0, 1, 3, 5, 40]),
    top_p=st.sampled_from([1.0, 0.9, 0.5, 1e-6]),
    min_p=st.sampled_from([0.0, 0.05, 0.5]),
    temperature=st.sampled_from([0.3, 1.0, 1.5]),
    penalties=st.booleans(),
)
def test_filters_are_llama_cpp_s(
    n: int, seed: int, top_k: int, top_p: float, min_p: float, temperature: float, penalties: bool
) -> None:
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 3, n).astype(np.float32)
    penal = {"repeat_penalty": 1.3, "presence_penalty": 0.4, "frequency_penalty": -0.2} if penalties else {}
    s = Sampling(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, **penal)
    window = [int(t) for t in rng.integers(0, n, 20)]
    expected = slow(logits, s, window)
    p = distribution(logits, s, window)
    assert list(p.tokens) == sorted(expected)
    assert p.p == pytest.approx([expected[i] for i in sorted(expected)], rel=1e-4)
    assert p.p.sum() == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("n", [10, 4000, 152_000])
def test_ties_go_to_the_lowest_ids(n: int) -> None:
    flat = np.zeros(n, np.float32)
    assert argmax(flat, Sampling(temperature=0.0)) == 0
    assert list(distribution(flat, Sampling(temperature=1.0, top_k=3, top_p=1.0, min_p=0.0)).tokens) == [0, 1, 2]
    flat[n - 1] = 1.0
    assert list(distribution(flat, Sampling(temperature=1.0, top_k=3, top_p=1.0, min_p=0.0)).tokens) == [0, 1, n - 1]


def test_temperature_zero_is_the_argmax() -> None:
    p = distribution(np.array([1.0, 3.0, 3.0], np.float32), Sampling(temperature=0.0))
    assert (list(p.tokens), list(p.p)) == ([1], [1.0])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("s", [Sampling(temperature=0.0), Sampling(), OFF])
@pytest.mark.parametrize("n", [8, 20_000])
def test_logits_that_are_not_numbers_are_an_error(bad: float, s: Sampling, n: int) -> None:
    logits = np.zeros(n, np.float32)
    logits[n // 2] = bad
    with pytest.raises(BadLogits):
        distribution(logits, s)


def test_a_masked_token_is_no_error() -> None:
    logits = np.array([0.0, -np.inf, 1.0], np.float32)
    for s in (OFF, Sampling(temperature=0.0)):
        assert distribution(logits, s)[1] == 0.0


def test_penalties_do_not_touch_the_model_s_row() -> None:
    logits = np.ones(5, np.float32)
    distribution(logits, Sampling(repeat_penalty=2.0), [1, 2])
    assert (logits == 1.0).all()


def test_draws_follow_the_distribution() -> None:
    p = Distribution(np.array([2, 5, 9]), np.array([0.2, 0.7, 0.1]))
    rng = np.random.default_rng(3)
    streamed = [draw(p, rng) for _ in range(20_000)]
    keyed = [keyed_draw(p, seed, position) for seed in range(100) for position in range(200)]
    for drawn in (streamed, keyed):
        assert chisquare([drawn.count(t) for t in p.tokens], p.p * len(drawn)).pvalue > 1e-3


def test_keyed_draws_at_neighbouring_positions_and_seeds_are_independent() -> None:
    p = Distribution(np.arange(2), np.array([0.5, 0.5]))
    for pairs in (
        [(keyed_draw(p, 1, i), keyed_draw(p, 1, i + 1)) for i in range(0, 20_000, 2)],
        [(keyed_draw(p, s, 4), keyed_draw(p, s + 1, 4)) for s in range(0, 20_000, 2)],
    ):
        assert chisquare([pairs.count((a, b)) for a in (0, 1) for b in (0, 1)]).pvalue > 1e-3


def test_a_keyed_draw_depends_on_seed_position_and_the_tokens_alone() -> None:
    p = Distribution(np.arange(50), np.full(50, 0.02))
    fewer = Distribution(np.arange(0, 50, 2), np.full(25, 0.04))
    for position in range(200):
        drawn = keyed_draw(p, 9, position)
        assert keyed_draw(p, 9, position) == drawn
        if drawn % 2 == 0:
            assert keyed_draw(fewer, 9, position) == drawn, "the others' absence does not change the winner"


def test_a_token_of_probability_zero_is_never_drawn() -> None:
    p = Distribution(np.arange(3), np.array([0.0, 1.0, 0.0]))
    rng = np.random.default_rng(0)
    assert {keyed_draw(p, 0, i) for i in range(500)} == {1} == {draw(p, rng) for _ in range(500)}


def test_the_lowest_random_number_does_not_draw_a_token_of_probability_zero() -> None:
    class Zero:
        def random(self) -> float:
            return 0.0

    p = Distribution(np.arange(3), np.array([0.0, 1.0, 0.0]))
    assert draw(p, Zero()) == 1  # type: ignore[arg-type]


def test_a_probability_is_looked_up_by_token() -> None:
    p = Distribution(np.array([2, 5]), np.array([0.25, 0.75]))
    assert [p[t] for t in (0, 2, 3, 5, 9)] == [0.0, 0.25, 0.0, 0.75, 0.0]


@pytest.mark.parametrize(
    "bad",
    [{"top_p": 0.0}, {"top_p": 1.1}, {"min_p": 1.0}, {"min_p": -0.1}, {"repeat_penalty": 0.0}, {"temperature": np.nan},
     {"temperature": np.inf}, {"repeat_last_n": -2}, {"presence_penalty": np.inf}, {"frequency_penalty": np.nan}],
)  # fmt: skip
def test_nonsense_is_refused(bad: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        Sampling(**bad)


@pytest.mark.parametrize(
    "bad", [{"max_tokens": 0}, {"seed": -1}, {"seed": 2**64}, {"stop": ("",)}, {"verify": "typical"}]
)
def test_requests_that_cannot_be_are_refused(bad: dict) -> None:
    with pytest.raises(UsageError):
        Request(**bad)


def test_auto_picks_the_rule() -> None:
    assert Request(sampling=Sampling(temperature=0.0), seed=1).rule == "argmax"
    assert Request(seed=1).rule == "match"
    assert Request().rule == "block"
    assert Request(seed=1, verify="token").rule == "token"
