"""Every figure from rounds written out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edgespec.protocols import Round
from edgespec.stats import PrefillCost, plain_seconds, summarize

PLAIN = Round(None, 0, 0, 0, 1, 100, 1, 0.10, 0.0, 0.09, 0.0, 0)
DRAFTED = Round("model", 4, 4, 2, 3, 101, 5, 0.30, 0.10, 0.18, 0.11, 4)


def test_each_figure_is_its_definition() -> None:
    rounds = [
        PLAIN,
        DRAFTED,
        replace(DRAFTED, drafted=3, accepted=3, emitted=4),
        replace(PLAIN, drafter="ngram", drafter_seconds=0.01),
    ]
    stats = summarize(rounds, PrefillCost(50, 2, 0.9), ttft_seconds=1.5, plain_seconds=0.2)
    assert (stats.rounds, stats.target_calls, stats.draft_calls) == (4, 6, 8)
    assert (stats.drafted, stats.accepted, stats.drafting_rounds) == (7, 5, 2)
    assert stats.acceptance_rate == pytest.approx(5 / 7)
    assert stats.avg_accepted_tokens == pytest.approx(2.5)
    assert stats.mean_acceptance_length == pytest.approx(3.5)
    assert stats.drafted_per_position == (2, 2, 2, 1)
    assert stats.accepted_per_position == (2, 2, 1)
    assert stats.k_histogram == (2, 0, 0, 1, 1)
    assert stats.tokens_per_second == pytest.approx((3 + 4 + 1) / 0.7)
    assert stats.prompt_tokens_per_second == pytest.approx(50 / (0.9 + 0.09))
    assert stats.ttft_ms == pytest.approx(1500)
    assert stats.plain_tokens_per_second == pytest.approx(5.0)
    assert stats.speedup == pytest.approx((8 / 0.7) / 5.0)
    assert stats.draft_ms == pytest.approx(200)
    assert stats.verify_ms == pytest.approx(540)
    assert stats.overhead_ms == pytest.approx(60)
    assert set(stats.drafters) == {"model", "ngram"}
    assert (stats.drafters["model"].rounds, stats.drafters["model"].drafted) == (2, 7)
    assert stats.drafters["ngram"].rounds == 0 and stats.drafters["ngram"].seconds == pytest.approx(0.01)


def test_what_has_no_denominator_is_none() -> None:
    nothing = summarize([], PrefillCost(0, 0, 0.0), None, None)
    assert nothing.acceptance_rate is nothing.tokens_per_second is nothing.speedup is nothing.ttft_ms is None
    assert nothing.k_histogram == nothing.drafted_per_position == ()
    one = summarize([DRAFTED], PrefillCost(5, 0, 0.0), 0.3, None)
    assert one.tokens_per_second is None, "a burst in the first round is no speed"
    assert one.acceptance_rate == 0.5


def test_a_pass_that_gave_only_the_end_is_no_round() -> None:
    end = replace(PLAIN, emitted=0, seconds=5.0, verify_seconds=4.0)
    stats = summarize([PLAIN, PLAIN, end], PrefillCost(1, 0, 0.0), 0.1, None)
    assert (stats.rounds, stats.target_calls, stats.k_histogram) == (2, 3, (2,))
    assert stats.tokens_per_second == pytest.approx(10.0)
    assert stats.verify_ms == pytest.approx(4180)


def test_plain_speed_comes_from_comparable_contexts() -> None:
    rounds = [replace(PLAIN, context=c, seconds=s) for c, s in [(10, 0.1), (50, 0.2), (100, 0.3), (5000, 9.0)]]
    assert plain_seconds(rounds, 60) == pytest.approx((0.1 + 0.2 + 0.3) / 3)
    assert plain_seconds(rounds, 6000) == pytest.approx(9.0)
    assert plain_seconds(rounds, 2000) is None
