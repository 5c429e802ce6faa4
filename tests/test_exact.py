"""The law of what comes out is the target's own: whole processes, with every outcome of chance enumerated."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgespec import sampling, verify
from edgespec.control.fixed import FixedPolicy
from edgespec.drafters.model import ModelDrafter
from edgespec.engine import Engine
from edgespec.events import RoundDone, Text
from edgespec.judge import Judge
from edgespec.protocols import Choose, Distribution, Draft, GoesOn, Logits, Round, always
from edgespec.settings import Request, Sampling
from edgespec.text import StopText
from tests.support.enumeration import Chance, enumerate_all
from tests.support.fakes import FakeModel, FakeVocabulary

Tokens = tuple[int, ...]
Table = Callable[[Tokens], np.ndarray]
PROMPT = [1]


def dirichlet(n_vocab: int, seed: int, zeros: float = 0.0, sharp: float = 0.5) -> Table:
    """Conditional distributions drawn at random, some of whose entries are nothing at all."""

    @functools.cache
    def table(context: Tokens) -> np.ndarray:
        rng = np.random.default_rng([seed, len(context), *context])
        weights = rng.dirichlet(np.full(n_vocab, sharp))
        weights[rng.random(n_vocab) < zeros] = 0.0
        return weights / weights.sum() if weights.sum() > 0 else np.eye(n_vocab)[rng.integers(n_vocab)]

    return table


def constant(*p: float) -> Table:
    return lambda context: np.array(p)


def logits(table: Table) -> Callable[[Sequence[int]], np.ndarray]:
    def row(context: Sequence[int]) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return np.log(table(tuple(context)))

    return row


class Drafting(ModelDrafter):
    """A draft model that chooses for itself when to stop, and which rows are one-hot."""

    def __init__(self, model: FakeModel, stop: str = "never", hot: str = "none") -> None:
        super().__init__(model, frozenset())
        self.stop, self.hot = stop, hot

    def draft(self, history: Sequence[int], k: int, choose: Choose, goes_on: GoesOn = always) -> Draft:
        class Enough(Exception):
            pass

        kept: list[tuple[int, Distribution | None]] = []

        def chosen(row: Logits, drafted: Sequence[int]) -> tuple[int, Distribution | None]:
            certain = self.hot == "all" or (self.hot == "odd" and len(drafted) % 2 == 1)
            sure = float(np.exp(row).max()) > 0.6
            if self.stop == "when unsure" and drafted and not sure:
                raise Enough
            if self.stop == "after an unlikely token" and kept and kept[-1][1] and kept[-1][1][kept[-1][0]] < 0.4:
                raise Enough
            token, q = (int(row.argmax()), None) if certain else choose(row, drafted)
            if self.stop == "withheld" and drafted and q is not None and q[token] < 0.5:
                raise Enough
            kept.append((token, q))
            return token, q

        try:
            return super().draft(history, k, chosen, goes_on)
        except Enough:
            return Draft(tuple(token for token, _ in kept), tuple(q for _, q in kept))


def process(
    p: Table,
    q: Table,
    k: int,
    length: int,
    request: Request,
    *,
    n_vocab: int,
    stop: str = "never",
    hot: str = "none",
    masked: frozenset[int] = frozenset(),
    judge: type[Judge] = Judge,
    end: int | None = None,
    rounds: int | None = None,
) -> Callable[[Chance], tuple[Tokens, int]]:
    """An answer of up to `length` tokens, or so many rounds, by the engine, with `chance` in place of all randomness:
    its tokens, and how many of them were accepted drafts."""

    def run(chance: Chance) -> tuple[Tokens, int]:
        vocabulary = FakeVocabulary(n_vocab)
        vocabulary.end_tokens = frozenset() if end is None else frozenset({end})
        with pytest.MonkeyPatch.context() as patch:
            made: list[int] = []

            def stream(seed: int, start: int) -> Chance:
                made.append(start)
                assert len(made) == 1, "a second stream would repeat the first"
                return chance

            patch.setattr(sampling, "RandomStream", stream)
            patch.setattr(sampling, "keyed_draw", chance.keyed_draw)
            engine = Engine(
                FakeModel(logits(p), n_vocab, n_ctx=32),
                vocabulary,
                FixedPolicy("model", k),
                lambda stops: StopText(vocabulary.piece, stops),
                drafters={"model": Drafting(FakeModel(logits(q), n_vocab, n_ctx=32), stop, hot)},
                masked=masked,
                judge=judge,
            )
            tokens: list[int] = []
            done: list[Round] = []
            for event in engine.generate(PROMPT, request=request, max_tokens=length):
                if isinstance(event, RoundDone):
                    if len(done) == rounds:
                        break
                    done.append(event.round)
                elif isinstance(event, Text):
                    tokens += event.tokens
        return tuple(tokens), sum(round_.accepted for round_ in done)

    return run


def target_law(p: Table, n_vocab: int, length: int, request: Request, end: int | None = None) -> dict[Tokens, float]:
    """The law of the target alone: its rows through the sampler, token after token."""
    law: dict[Tokens, float] = {}

    def follow(tokens: Tokens, weight: float) -> None:
        if len(tokens) == length:
            law[tokens] = law.get(tokens, 0.0) + weight
            return
        history = [*PROMPT, *tokens]
        here = sampling.distribution(logits(p)(history).astype(np.float32), request.sampling, history[-64:])
        for token, w in zip(here.tokens, here.p, strict=True):
            if w > 0 and int(token) == end:
                law[tokens] = law.get(tokens, 0.0) + weight * float(w)
            elif w > 0:
                follow((*tokens, int(token)), weight * float(w))

    follow((), 1.0)
    return law


def check(p: Table, q: Table, k: int, length: int, request: Request, n_vocab: int, **how: Any) -> tuple[float, float]:
    """How far the law of the output is from the target's, and how many drafted tokens are accepted on average."""
    law, _ = enumerate_all(process(p, q, k, length, request, n_vocab=n_vocab, **how))
    out: dict[Tokens, float] = {}
    accepted = 0.0
    for (tokens, kept), weight in law.items():
        out[tokens] = out.get(tokens, 0.0) + weight
        accepted += weight * kept
    right = target_law(p, n_vocab, length, request, how.get("end"))
    return max(abs(out.get(t, 0.0) - right.get(t, 0.0)) for t in out.keys() | right.keys()), accepted


RULES = ("token", "block", "match", "auto")


OFF = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}


def request(rule: str, **filters: Any) -> Request:
    return Request(sampling=Sampling(**{**OFF, **filters}), verify=rule)  # type: ignore[arg-type]


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6), zeros=st.sampled_from([0.0, 0.4]))
@pytest.mark.parametrize(("n_vocab", "k", "length"), [(2, 1, 4), (2, 3, 4), (3, 2, 3), (4, 1, 3)])
@pytest.mark.parametrize("rule", RULES)
def test_the_output_follows_the_target(rule: str, n_vocab: int, k: int, length: int, seed: int, zeros: float) -> None:
    p, q = dirichlet(n_vocab, seed, zeros), dirichlet(n_vocab, seed + 1, zeros)
    assert check(p, q, k, length, request(rule), n_vocab)[0] < 1e-12


@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 10**6))
@pytest.mark.parametrize("hot", ["all", "odd"])
@pytest.mark.parametrize("rule", RULES)
def test_rows_that_are_certain_mix_with_rows_that_were_drawn(rule: str, hot: str, seed: int) -> None:
    p, q = dirichlet(3, seed), dirichlet(3, seed + 1)
    assert check(p, q, 2, 3, request(rule), 3, hot=hot)[0] < 1e-12
    assert check(p, q, 3, 3, request(rule), 3, hot=hot)[0] < 1e-12


@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 10**6))
@pytest.mark.parametrize("stop", ["when unsure", "after an unlikely token"])
@pytest.mark.parametrize("rule", RULES)
def test_a_draft_may_stop_early_by_what_it_knew_before_it_drew(rule: str, stop: str, seed: int) -> None:
    p, q = dirichlet(2, seed), dirichlet(2, seed + 1)
    assert check(p, q, 3, 4, request(rule), 2, stop=stop)[0] < 1e-12


@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 10**6))
@pytest.mark.parametrize(
    "filters",
    [{"top_k": 2}, {"top_p": 0.7}, {"min_p": 0.3}, {"temperature": 0.5, "top_k": 3, "top_p": 0.9, "min_p": 0.1},
     {"repeat_penalty": 1.5, "presence_penalty": 0.5, "frequency_penalty": 0.3}, {"temperature": 0.0},
     {"logit_bias": {0: 1.5, 2: float("-inf")}}],
    ids=lambda filters: " ".join(filters),
)  # fmt: skip
@pytest.mark.parametrize("rule", RULES)
def test_every_filter(rule: str, filters: dict[str, Any], seed: int) -> None:
    p, q = dirichlet(4, seed), dirichlet(4, seed + 1)
    assert check(p, q, 2, 3, request(rule, **filters), 4)[0] < 1e-12


@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 10**6))
@pytest.mark.parametrize("rule", RULES)
def test_tokens_that_are_never_proposed_and_tokens_that_end_it(rule: str, seed: int) -> None:
    p, q = dirichlet(3, seed), dirichlet(3, seed + 1)
    assert check(p, q, 2, 3, request(rule), 3, masked=frozenset({1}))[0] < 1e-12
    assert check(p, q, 2, 3, request(rule), 3, end=0)[0] < 1e-12


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("p", "q"),
    [
        (constant(0.9, 0.1), constant(0.1, 0.9)),
        (constant(0.5, 0.5), constant(0.5, 0.5)),
        (constant(1.0, 0.0), constant(0.0, 1.0)),
        (constant(0.0, 1.0), constant(0.5, 0.5)),
        (constant(1e-6, 1 - 1e-6), constant(1 - 1e-6, 1e-6)),
        (lambda c: np.eye(2)[len(c) % 2], constant(0.5, 0.5)),
        (lambda c: np.array([[0.1, 0.9], [0.9, 0.1]][c[-1]]), lambda c: np.array([[0.9, 0.1], [0.1, 0.9]][c[-1]])),
    ],
)  # fmt: skip
def test_tables_made_to_break_it(rule: str, p: Table, q: Table) -> None:
    for k in (1, 2, 3):
        assert check(p, q, k, 4, request(rule), 2)[0] < 1e-12


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6))
@pytest.mark.parametrize(("n_vocab", "k"), [(2, 2), (3, 2), (2, 3)])
def test_block_accepts_at_least_as_many_as_token(n_vocab: int, k: int, seed: int) -> None:
    p, q = dirichlet(n_vocab, seed), dirichlet(n_vocab, seed + 1)

    def accepted(rule: str) -> float:
        """In the first round: what follows it is drafted behind other tokens."""
        law, _ = enumerate_all(process(p, q, k, k + 1, request(rule), n_vocab=n_vocab, rounds=1))
        return sum(weight * kept for (_, kept), weight in law.items())

    assert accepted("block") >= accepted("token") - 1e-12


# ── What is known to be wrong must fail the same test ──


class Judging(Judge):
    """A judge whose drafts are always drawn."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._mode = SimpleNamespace(draws=True, learn=lambda drawn, argmax: None)  # type: ignore[assignment]


class ReusingNoise(Judging):
    """Drafts with noise that belongs to a position, so that a rejected position's noise is used again."""

    def choose(self, row: Logits, drafted: Sequence[int]) -> tuple[int, Distribution | None]:
        q = sampling.distribution(row, self._sampling)
        return sampling.keyed_draw(q, self.seed, len(self._history) + len(drafted)), q


class Rewound(Judging):
    """Accepts with a stream that begins anew in each round."""

    def verdict(self, draft: Draft, rows: Logits) -> verify.Verdict:
        fresh, calls = self._stream, count()

        class Stream:
            def happens(self, probability: float) -> bool:
                coin = Distribution(np.arange(2), np.array([1.0 - min(1.0, probability), min(1.0, probability)]))
                return bool(sampling.keyed_draw(coin, 0, next(calls)))

            draw = staticmethod(fresh.draw)

        self._stream = Stream()
        try:
            return super().verdict(draft, rows)
        finally:
            self._stream = fresh


class TruncatingLate(Judging):
    """Draws from all tokens, and says afterwards that it drew from the two most probable ones."""

    def choose(self, row: Logits, drafted: Sequence[int]) -> tuple[int, Distribution | None]:
        token = self._stream.draw(sampling.distribution(row, Sampling(**OFF)))  # type: ignore[arg-type]
        q = sampling.distribution(row, self._sampling)
        return (token if q[token] > 0 else q.mode), q


class SwappingPAndQ(Judging):
    def verdict(self, draft: Draft, rows: Logits) -> verify.Verdict:
        def p(i: int) -> Distribution:
            return sampling.distribution(rows[i], self._sampling)

        swapped = tuple(p(i) for i in range(len(draft.tokens)))
        return verify.token(
            Draft(draft.tokens, swapped), lambda i: draft.q[i] or p(i) if i < len(draft.q) else p(i), self._stream
        )


class RatiosAtZero(Judging):
    """Takes p/q where the target's own answer is the argmax."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.rule, self._auto = "token", False
        self._sampling = Sampling(**OFF)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("judge", "rules", "filters"),
    [
        (ReusingNoise, ("block",), {}),
        (Rewound, ("token", "block"), {}),
        (TruncatingLate, ("token", "block"), {"top_k": 2}),
        (SwappingPAndQ, ("token",), {}),
        (RatiosAtZero, ("auto",), {"temperature": 0.0}),
    ],
)
def test_a_biased_judge_is_seen(judge: type[Judge], rules: tuple[str, ...], filters: dict[str, Any]) -> None:
    for rule in rules:
        errors = [
            check(dirichlet(3, seed), dirichlet(3, seed + 1), 2, 3, request(rule, **filters), 3, judge=judge)[0]
            for seed in range(4)
        ]
        assert max(errors) > 1e-3, rule


@pytest.mark.parametrize("rule", ["token", "block", "auto"])
def test_a_token_withheld_for_its_low_q_is_seen(rule: str) -> None:
    p = constant(0.9, 0.1)
    assert check(p, p, 2, 3, request(rule), 2, stop="withheld", judge=Judging)[0] > 1e-2
