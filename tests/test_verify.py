"""The acceptance rules, proved by exact enumeration and then sampled once on the path really used."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from edgespec import verify
from edgespec.control.fixed import FixedPolicy
from edgespec.drafters.model import ModelDrafter
from edgespec.engine import Engine
from edgespec.events import Done
from edgespec.protocols import Distribution, Draft
from edgespec.sampling import distribution
from edgespec.settings import Request, Sampling
from edgespec.text import StopText
from tests.support.fakes import END, FakeModel, FakeVocabulary, hashed_table

Law = dict[tuple[int, ...], float]
Table = Callable[[tuple[int, ...]], Distribution]


def row(p: Sequence[float]) -> Distribution:
    """A distribution that lists only tokens of positive probability, as a truncated row does."""
    weights = np.array(p, float)
    tokens = np.flatnonzero(weights > 0)
    return Distribution(tokens, weights[tokens] / weights[tokens].sum())


def outcomes(d: Distribution) -> Iterator[tuple[int, float]]:
    return ((int(t), float(w)) for t, w in zip(d.tokens, d.p, strict=True) if w > 0)


def law_of_token_rule(p: Table, q: Table, one_hot: Callable[[int], bool], k: int, length: int) -> Law:
    """The exact law of the first `length` tokens that rounds of drafting and `token` verification emit.

    Every draft is enumerated with its probability under q, every acceptance with min(1, p/q), every residual draw by
    the code's own residual; rounds follow each other until enough tokens are out.
    """
    law: Law = Counter()

    @functools.cache
    def judged(prefix: tuple[int, ...], token: int, hot: bool) -> tuple[float, Distribution]:
        """The chance that `token` is accepted after `prefix`, and the residual if it is not."""
        here, proposal = p(prefix), None if hot else q(prefix)
        return acceptance(Draft((token,), (proposal,)), here), verify.residual(here, token, proposal)

    def rounds(context: tuple[int, ...], weight: float) -> None:
        if len(context) >= length:
            law[context[:length]] += weight
            return
        drafts(context, (), weight)

    def drafts(context: tuple[int, ...], drafted: tuple[int, ...], weight: float) -> None:
        if len(drafted) == k:
            judge(context, drafted, weight)
            return
        here = q(context + drafted)
        if one_hot(len(drafted)):
            drafts(context, (*drafted, int(here.tokens[here.p.argmax()])), weight)
        else:
            for token, probability in outcomes(here):
                drafts(context, (*drafted, token), weight * probability)

    def judge(context: tuple[int, ...], drafted: tuple[int, ...], weight: float) -> None:
        for stop in range(k + 1):
            chance, last = weight, p(context + drafted[:stop])
            for i in range(stop):
                chance *= judged(context + drafted[:i], drafted[i], one_hot(i))[0]
            if stop < k:
                accepted, last = judged(context + drafted[:stop], drafted[stop], one_hot(stop))
                chance *= 1.0 - accepted
            if chance > 0.0:
                for token, probability in outcomes(last):
                    rounds((*context, *drafted[:stop], token), chance * probability)

    rounds((), 1.0)
    return law


def acceptance(draft: Draft, p: Distribution) -> float:
    """The probability that `verify.token` accepts a draft of one token, measured on the code by bisection."""

    class Fixed:
        def __init__(self, u: float) -> None:
            self.values = [u, 0.0]

        def random(self) -> float:
            return self.values.pop(0) if self.values else 0.0

    def accepts(u: float) -> bool:
        return verify.token(draft, lambda _: p, Fixed(u)).accepted == 1  # type: ignore[arg-type]

    if not accepts(0.0):
        return 0.0
    if accepts(np.nextafter(1.0, 0.0)):
        return 1.0
    low, high = 0.0, 1.0
    while high - low > 1e-15:
        middle = (low + high) / 2
        low, high = (middle, high) if accepts(middle) else (low, middle)
    return high


def target_law(p: Table, n_vocab: int, length: int) -> Law:
    law: Law = {}
    for tokens in product(range(n_vocab), repeat=length):
        weight = 1.0
        for i, token in enumerate(tokens):
            weight *= p(tokens[:i])[token]
        law[tokens] = weight
    return law


def tables(n_vocab: int, seed: int, zeros: float) -> Table:
    @functools.cache
    def table(context: tuple[int, ...]) -> Distribution:
        rng = np.random.default_rng([seed, len(context), *context])
        weights = rng.dirichlet(np.full(n_vocab, 0.5))
        weights[rng.random(n_vocab) < zeros] = 0.0
        return row(weights) if weights.sum() > 0 else row(np.eye(n_vocab)[rng.integers(n_vocab)])

    return table


def distance(a: Law, b: Law) -> float:
    return max(abs(a.get(key, 0.0) - b.get(key, 0.0)) for key in a.keys() | b.keys())


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10**6), zeros=st.sampled_from([0.0, 0.4]), hot=st.sampled_from(["none", "all", "odd"]))
@pytest.mark.parametrize(("n_vocab", "k"), [(2, 1), (3, 1), (3, 2), (2, 3)])
def test_the_token_rule_emits_the_target_s_law(n_vocab: int, k: int, seed: int, zeros: float, hot: str) -> None:
    p, q = tables(n_vocab, seed, zeros), tables(n_vocab, seed + 1, zeros)
    one_hot = {"none": lambda i: False, "all": lambda i: True, "odd": lambda i: i % 2 == 1}[hot]
    assert distance(law_of_token_rule(p, q, one_hot, k, 3), target_law(p, n_vocab, 3)) < 1e-12


def test_the_enumeration_would_see_a_biased_residual(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "residual", lambda p, x, q: p)
    p, q = tables(3, 1, 0.0), tables(3, 2, 0.0)
    assert distance(law_of_token_rule(p, q, lambda i: False, 2, 3), target_law(p, 3, 3)) > 1e-3


def test_equal_p_and_q_are_always_accepted_and_leave_p_as_residual() -> None:
    p = row([0.2, 0.5, 0.3])
    assert acceptance(Draft((1,), (p,)), p) == 1.0
    assert verify.residual(p, 1, p) is p


def test_a_token_outside_the_target_s_support_is_never_accepted() -> None:
    p, q = row([0.0, 0.5, 0.5]), row([0.5, 0.5, 0.0])
    assert acceptance(Draft((0,), (q,)), p) == 0.0
    left = verify.residual(p, 0, q)
    assert left[2] == pytest.approx(1.0) and left[0] == 0.0 == left[1]


def test_a_one_hot_draft_is_accepted_with_p_and_taken_out_of_the_residual() -> None:
    p = row([0.2, 0.5, 0.3])
    assert acceptance(Draft((1,), (None,)), p) == pytest.approx(0.5)
    assert verify.residual(p, 1, None).p == pytest.approx([0.4, 0.0, 0.6])


def test_rows_are_looked_at_lazily_and_in_order() -> None:
    seen: list[int] = []

    def chosen(i: int) -> int:
        seen.append(i)
        return 5

    assert verify.match((5, 5, 1, 5), chosen) == verify.Verdict(2, 5)
    assert seen == [0, 1, 2]
    assert verify.match((), chosen) == verify.Verdict(0, 5)

    def p(i: int) -> Distribution:
        seen.append(i)
        return row([0.0, 1.0])

    seen.clear()
    draft = Draft((1, 0, 1), (None, None, None))
    assert verify.token(draft, p, np.random.default_rng(0)) == verify.Verdict(1, 1)
    assert seen == [0, 1]


@pytest.mark.parametrize("rule", ["token", "match"])
@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=0.7, top_k=0, top_p=1.0, min_p=0.0),
        Sampling(temperature=1.0, top_k=3, top_p=0.9, min_p=0.05),
        Sampling(temperature=1.5, top_k=0, top_p=1.0, min_p=0.0, repeat_penalty=1.4, presence_penalty=0.3),
    ],
)
def test_what_comes_out_follows_the_target_s_law(rule: str, sampling: Sampling) -> None:
    """One seeded chi-square on the path really used, over the joint law of three tokens."""
    n_vocab, runs, prompt = 4, 3000, [1, 2, 3]
    table = hashed_table(n_vocab, spread=1.0, end=-99.0)
    vocabulary = FakeVocabulary(n_vocab)
    engine = Engine(
        FakeModel(table, n_vocab),
        vocabulary,
        FixedPolicy("model", 2),
        lambda stops: StopText(vocabulary.piece, stops),
        drafters={
            "model": ModelDrafter(FakeModel(hashed_table(n_vocab, 1.0, seed=5, end=-99.0), n_vocab), frozenset({END}))
        },
    )
    seen: Counter[tuple[int, ...]] = Counter()
    drafted = accepted = 0
    for seed in range(runs):
        *_, done = engine.generate(prompt, request=Request(sampling=sampling, seed=seed, max_tokens=3, verify=rule))  # type: ignore[arg-type]
        assert isinstance(done, Done)
        seen[done.tokens] += 1
        drafted, accepted = drafted + done.stats.drafted, accepted + done.stats.accepted
    assert 0.1 < accepted / drafted < 0.95

    def p(context: tuple[int, ...]) -> Distribution:
        history = [*prompt, *context]
        return distribution(np.array(table(history), np.float32), sampling, history[-64:])

    law = {tokens: weight for tokens, weight in target_law(p, n_vocab, 3).items() if weight > 0}
    assert set(seen) <= set(law)
    rare = [tokens for tokens in law if law[tokens] * runs < 5]
    observed = [seen[t] for t in law if t not in rare] + [sum(seen[t] for t in rare)]
    expected = [law[t] * runs for t in law if t not in rare] + [sum(law[t] for t in rare) * runs]
    if expected[-1] == 0:
        observed, expected = observed[:-1], expected[:-1]
    assert chisquare(observed, np.array(expected) * sum(observed) / sum(expected)).pvalue > 1e-3
