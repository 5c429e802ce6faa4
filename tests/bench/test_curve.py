"""The cost curve on a clock that drifts, and what follows from a curve, recomputed by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from edgespec.bench.curve import WIDTHS, break_even, cost, measure_curve, speedup_at
from edgespec.bench.records import CostCurve
from edgespec.errors import Interrupted, UsageError
from tests.support.fakes import hashed_table
from tests.support.timed import Clock, TimedModel

TABLE = hashed_table(16)
TEXT = [3, 1, 4, 1, 5, 9, 2, 6]
# v(1) = 0.1 s, a stair at 5; a draft step takes 0.02 s and our part nothing.
CURVE = CostCurve(256, (1, 2, 3, 5, 9), (0.1, 0.11, 0.12, 0.2, 0.2), draft_step=0.02)


def stairs(n: int) -> float:
    return 0.1 if n == 1 else 0.16 if n <= 8 else 0.4


def models(
    clock: Clock, v: Callable[[int], float] = stairs, draft_vocab: int = 16, **options: int
) -> tuple[TimedModel, TimedModel]:
    target = TimedModel(TABLE, clock, v, **{"n_batch": 64, "n_outputs": 64, **options})
    small = hashed_table(draft_vocab)
    draft = TimedModel(small, clock, lambda n: 0.03 * n, n_vocab=draft_vocab, n_batch=7, n_outputs=1)
    return target, draft


def test_a_curve_is_what_passes_take() -> None:
    clock = Clock()
    target, draft = models(clock)
    curve = measure_curve(target, draft, TEXT, clock=clock)
    assert (curve.context, curve.widths, curve.overhead) == (256, WIDTHS, 0.0)
    assert curve.seconds == pytest.approx([stairs(n) for n in WIDTHS]) and curve.draft_step == pytest.approx(0.03)
    assert target.tokens == draft.tokens == []


def test_without_a_draft_there_is_no_step() -> None:
    clock = Clock()
    assert measure_curve(models(clock)[0], None, TEXT, widths=(1, 2), clock=clock).draft_step is None


def test_a_pass_over_one_token_is_known_from_all_of_them() -> None:
    clock, taken = Clock(), iter([0.1, *[0.1, 0.3, 0.1] * 3])  # one to warm up, then those beside which one is timed
    target, _ = models(clock, lambda n: next(taken) if n == 1 else 0.1, n_ctx=50)
    assert measure_curve(target, None, TEXT, widths=(1,), context=2, sweeps=3, clock=clock).seconds == pytest.approx(
        (0.1,)
    )


@pytest.mark.parametrize(
    "level",
    [
        lambda now: 1.0 + 0.4 * now / 25.0,  # it takes about 25 s
        lambda now: 1.4 if 8.0 < now < 15.0 else 1.0,
        lambda now: 1.0 + 0.4 * (int(now / 3.1) % 2),
    ],
)
def test_a_level_that_drifts_does_not_bend_the_curve(level: Callable[[float], float]) -> None:
    clock = Clock(level)
    target, draft = models(clock, lambda n: 0.08 + 0.02 * n)
    curve = measure_curve(target, draft, TEXT, widths=(1, 2, 4, 8, 16), sweeps=7, clock=clock)
    ratios = [seconds / curve.seconds[0] for seconds in curve.seconds]
    assert ratios == pytest.approx([1.0, 1.2, 1.6, 2.4, 4.0], rel=0.02)
    assert curve.draft_step is not None and curve.draft_step / curve.seconds[0] == pytest.approx(0.3, rel=0.02)
    assert 0.1 <= curve.seconds[0] <= 0.15


def test_every_pass_has_the_same_context_and_rows_for_each_token() -> None:
    clock = Clock()
    target, draft = models(clock)
    seen: list[tuple[int, int]] = []
    decode = target.decode

    def watched(tokens: list[int], position: int, outputs: int) -> object:
        seen.append((position, outputs))
        return decode(tokens, position, outputs)

    target.decode = watched  # type: ignore[assignment, method-assign]
    target.tokens = [7, 7]  # what lies in the caches is forgotten first
    draft.tokens = [7]
    measure_curve(target, draft, TEXT, widths=(1, 3), context=100, sweeps=2, clock=clock)
    assert seen[:2] == [(0, 0), (64, 0)]
    # Each width once to warm up; then in each sweep beside a pass over one token before and one behind.
    assert seen[2:] == [(100, n) for n in (1, 3, *(1, 1, 1), *(1, 3, 1), *(1, 3, 1), *(1, 1, 1))]
    assert set(draft.widths) <= {7, 100 % 7, 1}


def test_widths_and_context_are_bounded_by_the_models() -> None:
    def measured(**options: int) -> CostCurve:
        clock = Clock()
        target, draft = models(clock, **options)
        return measure_curve(target, draft, TEXT, sweeps=1, clock=clock)

    assert measured(n_outputs=9).widths == WIDTHS[:9]
    assert measured(n_batch=5).widths == (1, 2, 3, 4, 5)
    short = measured(n_ctx=40)
    assert (short.context, short.widths[-1]) == (8, 32)
    assert measured(n_ctx=3) == CostCurve(1, (1, 2), pytest.approx((0.1, 0.16)), pytest.approx(0.03))  # type: ignore[arg-type]
    small = Clock()
    target, draft = models(small)
    draft.n_ctx = 50
    assert measure_curve(target, draft, TEXT, sweeps=1, clock=small).context == 49


def test_the_text_may_be_of_any_kind() -> None:
    clock = Clock()
    for text in ([], [15] * 900):  # none at all, and tokens that the draft lacks
        target, draft = models(clock, draft_vocab=8)
        assert len(measure_curve(target, draft, text, widths=(4, 2, 2), sweeps=1, clock=clock).widths) == 3


def test_it_tells_how_far_it_is() -> None:
    clock, told = Clock(), list[float]()
    measure_curve(*models(clock), TEXT, widths=(1,), sweeps=4, clock=clock, tell=told.append)
    assert told == [0.0, 0.25, 0.5, 0.75, 1.0]


def test_a_measurement_that_is_stopped_leaves_the_caches_empty() -> None:
    clock = Clock()
    target, draft = models(clock)
    calls = iter(range(12))

    def stop() -> None:
        if next(calls, None) is None:
            target.interrupt()

    target.before_decode = stop
    with pytest.raises(Interrupted):
        measure_curve(target, draft, TEXT, clock=clock)
    assert target.tokens == draft.tokens == []


def test_a_model_that_cannot_take_tokens_back_has_no_curve() -> None:
    clock = Clock()
    target, draft = models(clock)
    target.can_trim = False
    with pytest.raises(UsageError, match="--no-curve"):
        measure_curve(target, draft, TEXT, clock=clock)


def test_between_measured_widths_the_cost_lies_on_a_line() -> None:
    assert [cost(CURVE, n) for n in (1, 3, 9)] == [0.1, 0.12, 0.2]
    assert [cost(CURVE, n) for n in (4, 7)] == pytest.approx([0.16, 0.2])
    for n in (0, 10):
        with pytest.raises(UsageError, match=f"over {n} tokens"):
            cost(CURVE, n)


def test_a_speedup_is_what_a_round_gives_for_what_it_costs() -> None:
    # k = 2 at acceptance 0.5: 1 + 0.5 + 0.25 tokens for v(3) = 0.12 s and two steps of 0.02 s; plain: 0.1 s each.
    assert speedup_at(CURVE, 2, "model", 0.5) == pytest.approx(1.75 * 0.1 / 0.16)
    assert speedup_at(CURVE, 2, "ngram", 0.5) == pytest.approx(1.75 * 0.1 / 0.12)
    assert speedup_at(CURVE, 2, "ngram", 1.0) == pytest.approx(3 * 0.1 / 0.12)
    assert speedup_at(CURVE, 2, "ngram", 0.0) == pytest.approx(0.1 / 0.12)
    slow = CostCurve(256, CURVE.widths, CURVE.seconds, 0.02, overhead=0.01)
    assert speedup_at(slow, 2, "model", 0.5) == pytest.approx(1.75 * 0.1 / 0.17)
    assert speedup_at(slow, 0, "ngram", 0.5) == pytest.approx(0.1 / 0.11)


@pytest.mark.parametrize("k", [1, 2, 4, 8])
@pytest.mark.parametrize("drafter", ["model", "ngram"])
def test_at_the_break_even_drafting_is_as_fast_as_plain(k: int, drafter: str) -> None:
    alpha = break_even(CURVE, k, drafter)  # type: ignore[arg-type]
    assert alpha is not None and 0.0 < alpha < 1.0
    seconds = cost(CURVE, k + 1) + (k * 0.02 if drafter == "model" else 0.0)
    tokens = (1 - alpha ** (k + 1)) / (1 - alpha)
    assert tokens / seconds == pytest.approx(1 / 0.1)


def test_the_break_even_of_one_token_is_known_by_hand() -> None:
    # (1 + a) / (0.11 + 0.02) = 1 / 0.1
    assert break_even(CURVE, 1, "model") == pytest.approx(0.3)
    assert break_even(CURVE, 1, "ngram") == pytest.approx(0.1)


def test_there_may_be_no_break_even_or_nothing_to_break() -> None:
    dear = CostCurve(256, (1, 2), (0.1, 0.21), draft_step=0.0)
    assert break_even(dear, 1, "ngram") is None
    free = CostCurve(256, (1, 2), (0.1, 0.1), draft_step=0.01)
    assert break_even(free, 1, "ngram") == 0.0
    assert break_even(free, 1, "model") == pytest.approx(0.1)
    assert break_even(CostCurve(256, (1, 2), (0.1, 0.2)), 1, "ngram") == pytest.approx(1.0)
