"""The figures of a run: medians of paired ratios with bootstrap intervals, and what CONTRACT.md 3 counts.

A speed-up compares an arm's answer with plain's to the same prompt in the same block, each after its own first round:
so a machine whose level drifts slows both alike. Where plain answered twice, the mean of both is compared, but with the
null arm, which is one of them. On a kind the speed-up is the median of the pairs' ratios; over all it is the ratio of
summed times over the same number of tokens, so that long answers count for more, as they do for people. How its
interval is made stands in bootstrap.py. Everything else is summed over the answers first and then divided.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from statistics import fmean, median

from edgespec.bench.bootstrap import RESAMPLES, Pair, estimate, residuals
from edgespec.bench.records import PLAIN, Answer, Measurements

ENOUGH_TOKENS = 400
"""Tokens a side, from which a speed-up may be claimed."""


@dataclass(frozen=True, slots=True)
class Speedup:
    """How much faster than plain, from `pairs` of answers to the same prompt in the same block, `tokens` a side.

    `low` and `high` bound it with 95 % confidence; None where there are too few pairs to say.
    """

    value: float
    low: float | None
    high: float | None
    pairs: int
    tokens: int

    @property
    def known(self) -> bool:
        """Whether there is enough of it for a claim (CONTRACT 8)."""
        return self.low is not None and self.tokens >= ENOUGH_TOKENS

    @property
    def faster(self) -> bool:
        """Surely faster than plain."""
        return self.known and self.low is not None and self.low > 1.0

    @property
    def slower(self) -> bool:
        """Surely slower than plain."""
        return self.known and self.high is not None and self.high < 1.0


@dataclass(frozen=True, slots=True)
class Figures:
    """One arm on one kind of prompt (`kind` None: on all). What could not be measured is None.

    Names are those of CONTRACT.md 3, summed over the answers before any ratio is taken. Shares are parts of the time of
    the rounds (sum 1). `ttft_ms` and `prompt_tokens_per_second` are medians over cold answers. `memory` is the largest
    seen, in bytes, of the whole process. `cost_per_million` is for a million tokens at the price that was given; the
    reading of prompts is not in it.
    """

    arm: str
    kind: str | None
    answers: int
    tokens: int
    tokens_per_second: float | None
    speedup: Speedup | None
    acceptance_rate: float | None
    mean_acceptance_length: float | None
    avg_accepted_tokens: float | None
    rounds: int | None
    target_calls: int | None
    draft_calls: int | None
    drafted: int | None
    accepted: int | None
    drafting_rounds: int | None
    drafted_per_position: tuple[int, ...]
    accepted_per_position: tuple[int, ...]
    k_histogram: tuple[int, ...]
    ttft_ms: float | None
    prompt_tokens_per_second: float | None
    draft_share: float | None
    verify_share: float | None
    overhead_share: float | None
    memory: int | None
    joules_per_token: float | None
    cost_per_million: float | None


def figures(
    measurements: Measurements, price_per_hour: float | None = None, *, resamples: int = RESAMPLES
) -> list[Figures]:
    """For each arm, in the run's order, its figures on each kind, in order of appearance, and then on all (None).

    Answers that were cut by cancellation count nowhere. Plain has no speed-up. `price_per_hour` is what an hour of this
    machine costs, in any currency.
    """
    answers = [answer for answer in measurements.answers if answer.finish_reason != "cancelled"]
    kinds = [*dict.fromkeys(answer.kind for answer in answers), None]
    nulls = {arm.name for arm in measurements.run.arms if arm.kind == "null"}
    found = []
    for arm in measurements.run.arms:
        own = [answer for answer in answers if answer.arm == arm.name]
        baseline = {PLAIN} if arm.name in nulls else {PLAIN, *nulls} - {arm.name}
        others = _by_question(answer for answer in answers if answer.arm in baseline) if arm.name != PLAIN else {}
        noise = residuals(_pairs(own, others))
        for kind in kinds:
            part = [answer for answer in own if kind in (None, answer.kind)]
            pairs = _pairs(part, others)
            speedup = None
            if pairs:
                value, low, high = estimate(pairs, noise, summed=kind is None, resamples=resamples)
                speedup = Speedup(value, low, high, len(pairs), sum(pair.tokens for pair in pairs))
            found.append(_figures(arm.name, kind, part, speedup, price_per_hour))
    return found


def _by_question(answers: Iterable[Answer]) -> dict[tuple[str, int], list[Answer]]:
    """Answers to the same prompt in the same block; what has no speed is left out."""
    found: dict[tuple[str, int], list[Answer]] = {}
    for answer in filter(_has_speed, answers):
        found.setdefault((answer.prompt, answer.repeat), []).append(answer)
    return found


def _pairs(answers: Iterable[Answer], plain: dict[tuple[str, int], list[Answer]]) -> list[Pair]:
    """The answers beside plain's; pairs in which either has no speed are left out."""
    pairs = []
    for own in filter(_has_speed, answers):
        others = plain.get((own.prompt, own.repeat))
        if others:
            per_token = fmean(other.speed_seconds / other.speed_tokens for other in others)
            tokens = min(answer.speed_tokens for answer in (own, *others))
            pairs.append(Pair(own.prompt, tokens, per_token, per_token / (own.speed_seconds / own.speed_tokens)))
    return pairs


def _has_speed(answer: Answer) -> bool:
    return answer.speed_tokens > 0 and answer.speed_seconds > 0.0


def _figures(
    arm: str, kind: str | None, answers: Sequence[Answer], speedup: Speedup | None, price_per_hour: float | None
) -> Figures:
    stats = [answer.stats for answer in answers if answer.stats is not None]
    counts = [(a.drafted, a.accepted) for a in answers if a.drafted is not None and a.accepted is not None]
    drafted, accepted = (sum(column) for column in zip(*counts, strict=True)) if counts else (None, None)
    drafting_rounds = sum(s.drafting_rounds for s in stats) if stats else None
    per_drafting = _ratio(sum(s.accepted for s in stats), drafting_rounds)
    speed = _ratio(sum(a.speed_tokens for a in answers), sum(a.speed_seconds for a in answers))
    draft, verify = sum(s.draft_ms for s in stats), sum(s.verify_ms for s in stats)
    overhead = sum(s.overhead_ms for s in stats)
    total = draft + verify + overhead
    cold = [a for a in answers if a.cold]
    metered = [(a.joules, len(a.tokens)) for a in answers if a.joules is not None]
    return Figures(
        arm=arm,
        kind=kind,
        answers=len(answers),
        tokens=sum(len(a.tokens) for a in answers),
        tokens_per_second=speed,
        speedup=speedup,
        acceptance_rate=_ratio(accepted, drafted),
        mean_acceptance_length=None if per_drafting is None else 1.0 + per_drafting,
        avg_accepted_tokens=per_drafting,
        rounds=sum(s.rounds for s in stats) if stats else None,
        target_calls=sum(s.target_calls for s in stats) if stats else None,
        draft_calls=sum(s.draft_calls for s in stats) if stats else None,
        drafted=drafted,
        accepted=accepted,
        drafting_rounds=drafting_rounds,
        drafted_per_position=_added(s.drafted_per_position for s in stats),
        accepted_per_position=_added(s.accepted_per_position for s in stats),
        k_histogram=_added(s.k_histogram for s in stats),
        ttft_ms=_median(a.ttft_ms for a in cold),
        prompt_tokens_per_second=_median(a.stats.prompt_tokens_per_second for a in cold if a.stats is not None),
        draft_share=_ratio(draft, total),
        verify_share=_ratio(verify, total),
        overhead_share=_ratio(overhead, total),
        memory=max((a.memory for a in answers if a.memory is not None), default=None),
        joules_per_token=_ratio(sum(joules for joules, _ in metered), sum(tokens for _, tokens in metered)),
        cost_per_million=None if price_per_hour is None else _ratio(price_per_hour / 3600.0 * 1e6, speed),
    )


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _ratio(numerator: float | None, denominator: float | None) -> float | None:
    return numerator / denominator if numerator is not None and denominator else None


def _added(rows: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """Rows of counts, position by position."""
    return tuple(sum(column) for column in zip_longest(*rows, fillvalue=0))
