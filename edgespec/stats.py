"""The figures of an answer, each defined in CONTRACT.md 3, derived from its rounds alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from edgespec.events import DrafterStats, Stats
from edgespec.protocols import Round


@dataclass(frozen=True, slots=True)
class PrefillCost:
    """Reading the prompt: its tokens that were not cached (the last ride in the first round), the passes before the
    first round, and the seconds inside them."""

    tokens: int
    passes: int
    seconds: float


def summarize(
    passes: Sequence[Round], prefill: PrefillCost, ttft_seconds: float | None, plain_seconds: float | None
) -> Stats:
    """The figures of one answer, from its target passes after the prefill.

    A pass that gave nothing but the end of the answer is no round, though its time counts. `plain_seconds` is what a
    token of plain decoding takes here, where that was measured.
    """
    rounds = [r for r in passes if r.emitted]
    drafting = [r for r in rounds if r.drafted]
    drafted = sum(r.drafted for r in rounds)
    accepted = sum(r.accepted for r in rounds)
    average = _ratio(accepted, len(drafting))
    speed = _ratio(sum(r.emitted for r in rounds[1:]), sum(r.seconds for r in rounds[1:]))
    plain = _ratio(1.0, plain_seconds or 0.0)
    first_pass = passes[0].verify_seconds if passes else 0.0
    return Stats(
        rounds=len(rounds),
        target_calls=prefill.passes + len(passes),
        draft_calls=sum(r.draft_calls for r in passes),
        drafted=drafted,
        accepted=accepted,
        acceptance_rate=_ratio(accepted, drafted),
        drafting_rounds=len(drafting),
        avg_accepted_tokens=average,
        mean_acceptance_length=None if average is None else 1.0 + average,
        drafted_per_position=_per_position(r.drafted for r in rounds),
        accepted_per_position=_per_position(r.accepted for r in rounds),
        k_histogram=_histogram(r.drafted for r in rounds),
        tokens_per_second=speed,
        prompt_tokens_per_second=_ratio(prefill.tokens, prefill.seconds + first_pass),
        ttft_ms=None if ttft_seconds is None else 1000.0 * ttft_seconds,
        plain_tokens_per_second=plain,
        speedup=_ratio(speed, plain) if speed is not None and plain is not None else None,
        draft_ms=1000.0 * sum(r.draft_seconds for r in passes),
        verify_ms=1000.0 * sum(r.verify_seconds for r in passes),
        overhead_ms=1000.0 * sum(r.overhead_seconds for r in passes),
        drafters=_by_drafter(passes),
    )


def plain_seconds(plain_rounds: Iterable[Round], context: int) -> float | None:
    """What one token of plain decoding takes at about `context` cached tokens: the mean of comparable plain rounds.

    Comparable is within a factor of two or 256 tokens; None where there are none.
    """
    near = [r.seconds for r in plain_rounds if abs(r.context - context) <= max(256, context // 2)]
    return fmean(near) if near else None


def _ratio(numerator: float, denominator: float) -> float | None:
    return numerator / denominator if denominator > 0 else None


def _histogram(values: Iterable[int]) -> tuple[int, ...]:
    """How often each value 0, 1, 2, … occurs, up to the largest."""
    seen = list(values)
    return tuple(seen.count(n) for n in range(max(seen) + 1)) if seen else ()


def _per_position(lengths: Iterable[int]) -> tuple[int, ...]:
    """For each position, how many runs of tokens reach it."""
    seen = list(lengths)
    return tuple(sum(n > i for n in seen) for i in range(max(seen, default=0)))


def _by_drafter(rounds: Sequence[Round]) -> dict[str, DrafterStats]:
    names = dict.fromkeys(r.drafter for r in rounds if r.drafter is not None)
    parts = {name: [r for r in rounds if r.drafter == name] for name in names if name is not None}
    return {
        name: DrafterStats(
            rounds=sum(1 for r in part if r.drafted),
            drafted=sum(r.drafted for r in part),
            accepted=sum(r.accepted for r in part),
            seconds=sum(r.drafter_seconds for r in part),
        )
        for name, part in parts.items()
    }
