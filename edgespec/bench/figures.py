"""The figures of a run: medians of paired ratios with bootstrap intervals, and what CONTRACT.md 3 counts.

A speed-up compares an arm's answer with plain's to the same prompt in the same block, each after its own first round:
so a machine whose level drifts slows both alike. On a kind it is the median of the pairs' ratios; over all it is the
ratio of summed times over the same number of tokens, so that long answers count for more, as they do for people. How
its interval is made stands in bootstrap.py. Everything else is summed over the answers first and then divided.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from statistics import median

from edgespec.bench.bootstrap import RESAMPLES, Pair, estimate, residuals
from edgespec.bench.records import PLAIN, Answer, Measurements


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


@dataclass(frozen=True, slots=True)
class Figures:
    """One arm on one kind of prompt (`kind` None: on all). What could not be measured is None.

    Names are those of CONTRACT.md 3, summed over the answers before any ratio is taken. Shares are parts of the time of
    the rounds (draft, verify, ours: sum 1). `ttft_seconds` is the median over cold answers. `memory` is the largest
    seen, in bytes. `cost_per_million` is for a million tokens at the price that was given.
    """

    arm: str
    kind: str | None
    answers: int
    tokens: int
    tokens_per_second: float | None
    speedup: Speedup | None
    acceptance_rate: float | None
    mean_acceptance_length: float | None
    rounds: int | None
    drafted: int | None
    accepted: int | None
    drafting_rounds: int | None
    drafted_per_position: tuple[int, ...]
    accepted_per_position: tuple[int, ...]
    ttft_seconds: float | None
    draft_share: float | None
    verify_share: float | None
    our_share: float | None
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
    plain = {(answer.prompt, answer.repeat): answer for answer in answers if answer.arm == PLAIN}
    found = []
    for arm in measurements.run.arms:
        own = [answer for answer in answers if answer.arm == arm.name]
        others = {} if arm.name == PLAIN else plain
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


def _pairs(answers: Iterable[Answer], plain: dict[tuple[str, int], Answer]) -> list[Pair]:
    """The answers beside plain's; pairs in which either has no speed are left out."""
    pairs = []
    for own in answers:
        other = plain.get((own.prompt, own.repeat))
        if other is not None and _has_speed(own) and _has_speed(other):
            per_token = other.speed_seconds / other.speed_tokens
            ratio = per_token / (own.speed_seconds / own.speed_tokens)
            pairs.append(Pair(own.prompt, min(own.speed_tokens, other.speed_tokens), per_token, ratio))
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
    ours = sum(s.overhead_ms for s in stats)
    total = draft + verify + ours
    waits = [a.ttft_seconds for a in answers if a.cold and a.ttft_seconds is not None]
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
        rounds=sum(s.rounds for s in stats) if stats else None,
        drafted=drafted,
        accepted=accepted,
        drafting_rounds=drafting_rounds,
        drafted_per_position=_added(s.drafted_per_position for s in stats),
        accepted_per_position=_added(s.accepted_per_position for s in stats),
        ttft_seconds=median(waits) if waits else None,
        draft_share=_ratio(draft, total),
        verify_share=_ratio(verify, total),
        our_share=_ratio(ours, total),
        memory=max((a.memory for a in answers if a.memory is not None), default=None),
        joules_per_token=_ratio(sum(joules for joules, _ in metered), sum(tokens for _, tokens in metered)),
        cost_per_million=None if price_per_hour is None else _ratio(price_per_hour / 3600.0 * 1e6, speed),
    )


def _ratio(numerator: float | None, denominator: float | None) -> float | None:
    return numerator / denominator if numerator is not None and denominator else None


def _added(rows: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """Rows of counts, position by position."""
    return tuple(sum(column) for column in zip_longest(*rows, fillvalue=0))
