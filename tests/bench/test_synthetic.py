"""Acceptance by chance: as often as asked, for what real acceptance would cost, and never the end of an answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from edgespec import sampling, verify
from edgespec.bench.synthetic import SyntheticJudge, synthetic
from edgespec.control.fixed import FixedPolicy
from edgespec.engine import Engine
from edgespec.events import Done
from edgespec.judge import Judge
from edgespec.protocols import Distribution, Draft
from edgespec.settings import Request
from tests.support.fakes import END, Scripted, hashed_table
from tests.support.timed import Clock, timed_engine

N = 16
ENDS = frozenset({END, 15})
RULES = ("argmax", "match", "token", "block")
TABLE = hashed_table(N)


def request(rule: str, **options: Any) -> Request:
    options = {"temperature": 0.0} | options if rule == "argmax" else {"verify": rule, "temperature": 1.0} | options
    return Request().having(**{"seed": 3, **options})


def judge(rule: str, rate: float, history: Sequence[int] = (1, 2, 3), **options: Any) -> SyntheticJudge:
    return synthetic(rate, ENDS)(request(rule, **options), list(history), N, frozenset())


def rows(count: int, seed: int = 0) -> np.ndarray:
    found = np.random.default_rng(seed).normal(0.0, 3.0, (count, N)).astype(np.float32)
    found[:, list(ENDS)] = -9.0
    return found


def drawn(tokens: Sequence[int]) -> Draft:
    """A draft of which each token was drawn from a q of its own."""
    q = Distribution(np.arange(N), np.full(N, 1 / N))
    return Draft(tuple(tokens), (q,) * len(tokens))


@pytest.mark.parametrize("rule", RULES)
def test_each_token_is_accepted_with_the_rate(rule: str) -> None:
    ours = judge(rule, 0.7)
    counts = np.bincount([ours.verdict(drawn([4, 4, 4]), rows(4)).accepted for _ in range(2000)], minlength=4)
    expected = [0.3, 0.7 * 0.3, 0.7**2 * 0.3, 0.7**3]
    assert counts / 2000 == pytest.approx(expected, abs=0.035)  # three standard deviations


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_at_the_bounds_chance_has_no_say(rule: str, rate: float) -> None:
    ours = judge(rule, rate)
    unlikely = rows(5)
    unlikely[:, 4] = -80.0  # what is drafted is nothing that the target would ever say
    for _ in range(50):
        verdict = ours.verdict(drawn([4, 4, 4, 4]), unlikely)
        assert verdict.accepted == 4 * rate and verdict.token != 4


@pytest.mark.parametrize(("rule", "count"), [("argmax", 3), ("match", 3), ("token", 3), ("block", 5)])
def test_a_round_looks_at_as_many_rows_as_that_outcome_takes(
    rule: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[float] = []

    def watched(name: str) -> None:
        real = getattr(sampling, name)

        def watching(row: np.ndarray, *rest: object) -> object:
            seen.append(float(row[1]))
            return real(row, *rest)

        monkeypatch.setattr(sampling, name, watching)

    watched("argmax" if rule == "argmax" else "distribution")
    ours = judge(rule, 1.0)
    ours._passes = lambda token: token == 4  # type: ignore[method-assign]
    logits = rows(6)
    verdict = ours.verdict(drawn([4, 4, 5, 4, 4]), logits)
    assert verdict.accepted == 2
    assert seen == [float(row[1]) for row in logits[:count]]


@pytest.mark.parametrize("accepted", [0, 1, 3])
def test_token_verification_tests_and_draws_as_it_would(accepted: int, monkeypatch: pytest.MonkeyPatch) -> None:
    residuals: list[int] = []
    real = verify.residual
    monkeypatch.setattr(verify, "residual", lambda p, x, q: residuals.append(x) or real(p, x, q))
    ours = judge("token", 1.0)
    ours._passes = lambda token: token < accepted + 4  # type: ignore[method-assign]
    assert ours.verdict(drawn([4, 5, 6]), rows(4)).accepted == accepted
    assert residuals == [4, 5, 6][accepted : accepted + 1]


def test_what_follows_is_the_targets_own_choice() -> None:
    logits = rows(3)
    ours = judge("argmax", 1.0)
    assert ours.verdict(Draft((4, 4), (None, None)), logits).token == int(logits[2].argmax())
    keyed = judge("match", 0.0)
    p = sampling.distribution(logits[0], request("match").sampling)
    assert keyed.verdict(Draft((4, 4), (None, None)), logits).token == sampling.keyed_draw(p, 3, 3)


@pytest.mark.parametrize("rule", RULES)
def test_an_end_is_neither_accepted_nor_emitted_nor_proposed(rule: str) -> None:
    logits = rows(4)
    logits[:, 15] = 90.0
    ours = judge(rule, 1.0)
    best = [int(np.argsort(row)[-2]) for row in logits]
    assert ours.verdict(Draft(), logits[:1]) == verify.Verdict(0, best[0])
    assert ours.verdict(drawn([4, 15, 4]), logits) == verify.Verdict(1, best[1])
    assert ours.verdict(drawn([4, 5, 6]), logits) == verify.Verdict(3, best[3])
    assert ours.choose(logits[0], []) == (best[0], None)
    assert logits.max() == 90.0  # the model's own rows stay as they are


def test_a_draft_of_another_vocabulary_proposes_what_the_target_has() -> None:
    longer, shorter = np.zeros(N + 4, np.float32), np.zeros(8, np.float32)
    longer[[N + 2, END, 7]] = 9.0, 5.0, 3.0
    shorter[[END, 6]] = 5.0, 3.0
    ours = synthetic(0.5, ENDS)(request("argmax"), [1], N, frozenset({3}))
    assert (ours.choose(longer, [])[0], ours.choose(shorter, [])[0]) == (7, 6)
    longer[3] = 4.0  # a token that may never be proposed
    assert ours.choose(longer, [])[0] == 7


def engine(rate: float, script: Any, draft_cost: float | None = None) -> Engine:
    def ending(context: Sequence[int]) -> np.ndarray:
        row = TABLE(context)
        row[END] += 3.0  # an end is likely everywhere
        return row

    drafters = {"scripted": Scripted(script, name="scripted")}
    made = timed_engine(Clock(), drafters, table=ending, draft_cost=draft_cost)
    made.judge = synthetic(rate, made.vocabulary.end_tokens)
    made.policy = FixedPolicy("model" if draft_cost else "scripted", 4)
    return made


def answer(made: Engine, **options: Any) -> Done:
    *_, done = made.generate([1, 2, 3], **{"max_tokens": 200, "seed": 5, **options})
    assert isinstance(done, Done)
    return done


@pytest.mark.parametrize(
    "options", [{"temperature": 0.0}, {"temperature": 1.0}, {"verify": "token"}, {"verify": "block"}]
)
def test_an_answer_goes_on_to_max_tokens(options: dict[str, Any]) -> None:
    for made in (
        engine(0.8, lambda history, k: [END] * k),
        engine(0.8, None, draft_cost=0.01),
        engine(0.8, lambda h, k: []),
    ):
        done = answer(made, **options)
        assert (len(done.tokens), done.finish_reason) == (200, "length") and END not in done.tokens


def test_speed_is_that_of_the_rate() -> None:
    done = answer(engine(0.8, None, draft_cost=0.01), temperature=0.0, max_tokens=3000)
    assert done.stats.accepted_per_position is not None
    for i, (kept, drafted) in enumerate(
        zip(done.stats.accepted_per_position, done.stats.drafted_per_position, strict=True)
    ):
        assert kept / drafted == pytest.approx(0.8 ** (i + 1), abs=0.05)
    # A round gives 1 + 0.8 + … + 0.8^4 = 3.36 tokens for a pass over 5 and four or five draft steps of 0.01 s.
    assert done.stats.tokens_per_second == pytest.approx(3.36 / (0.18 + 0.04), rel=0.05)


def test_runs_with_a_seed_repeat_and_answers_differ() -> None:
    def accepted(seed: int, prompt: Sequence[int] = (1, 2, 3)) -> list[int]:
        ours = judge("argmax", 0.6, prompt, seed=seed)
        return [ours.verdict(drawn([4] * 5), rows(6)).accepted for _ in range(20)]

    assert accepted(5) == accepted(5)
    assert accepted(5) != accepted(6) and accepted(5) != accepted(5, (1, 2, 3, 4))


def test_chance_is_apart_from_what_is_drawn() -> None:
    ours = judge("token", 0.5)
    assert ours._chance.random(4).tolist() != sampling.RandomStream(3, 3)._rng.random(4).tolist()


def test_a_plain_round_is_as_it_is() -> None:
    for rule in RULES:
        real, ours = Judge(request(rule), [1, 2, 3], N, frozenset()), judge(rule, 0.5)
        for seed in range(9):
            assert ours.verdict(Draft(), rows(1, seed)) == real.verdict(Draft(), rows(1, seed))


def test_the_fakes_end_by_themselves_without_it() -> None:
    made = engine(0.8, lambda history, k: [])
    made.judge = Judge
    assert answer(made, temperature=1.0).finish_reason == "stop"
