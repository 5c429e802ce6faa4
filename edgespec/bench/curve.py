"""What it costs to check several tokens at once, and what follows: where drafting breaks even."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import cycle, islice
from statistics import median
from typing import Literal

from edgespec.bench.records import CostCurve
from edgespec.errors import UsageError
from edgespec.protocols import LanguageModel

WIDTHS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 24, 32)
CONTEXT = 256

DrafterKind = Literal["model", "ngram"]
"""Whether drafting takes a draft model's steps, or nothing to speak of."""


def measure_curve(
    target: LanguageModel,
    draft: LanguageModel | None,
    tokens: Sequence[int],
    *,
    widths: Sequence[int] = WIDTHS,
    context: int = CONTEXT,
    sweeps: int = 5,
    clock: Callable[[], float] = time.perf_counter,
    tell: Callable[[float], None] = lambda fraction: None,
) -> CostCurve:
    """Time passes of several widths behind `context` cached tokens; both caches are emptied first, and empty after.

    Each sweep times every width, and a step of the draft, between two passes over one token, forwards and backwards by
    turns, and only ratios to these are kept: their medians, times the median pass over one token. So a level that
    drifts does not bend the curve. `tokens` is some text, repeated where it is too short. Widths that the target cannot
    take are left out, 1 is always there; the context is less where a model's is too short. `tell` hears what part is
    done. Raises UsageError where a model cannot take tokens back, and what `decode` raises.
    """
    models = [model for model in (target, draft) if model is not None]
    if not all(model.can_trim for model in models):
        raise UsageError("The cost curve needs models that can take tokens back: leave it out (--no-curve).")
    most = min(target.n_batch, target.n_outputs, target.n_ctx - 1)
    widths = sorted({1, *(width for width in widths if 1 <= width <= most)})
    context = min(context, target.n_ctx - widths[-1], *(model.n_ctx - 1 for model in models))
    known = min(model.n_vocab for model in models)
    text = [token if token < known else 0 for token in islice(cycle(tokens or (0,)), context + widths[-1])]

    def seconds(model: LanguageModel, width: int) -> float:
        started = clock()
        model.decode(text[context : context + width], context, width)
        taken = clock() - started
        model.trim(context)
        return taken

    try:
        for model in models:
            model.trim(0)
            for at in range(0, context, model.n_batch):
                model.decode(text[at : min(at + model.n_batch, context)], at, 0)
        for width in widths:
            seconds(target, width)  # each shape once, uncounted
        ones: list[float] = []
        steps: list[float] = []
        ratios: dict[int, list[float]] = {width: [] for width in widths}
        if draft is not None:
            seconds(draft, 1)
        for sweep in range(sweeps):
            tell(sweep / sweeps)
            for width in widths if sweep % 2 == 0 else widths[::-1]:
                before = seconds(target, 1)
                wide = seconds(target, width)
                step = seconds(draft, 1) if draft is not None else None
                one = (before + seconds(target, 1)) / 2.0
                ones.append(one)
                ratios[width].append(wide / one)
                if step is not None:
                    steps.append(step / one)
        tell(1.0)
    finally:
        for model in models:
            model.trim(0)
    level = median(ones)
    seconds_of = {width: level * median(ratios[width]) for width in widths} | {1: level}
    return CostCurve(context, tuple(widths), tuple(seconds_of.values()), level * median(steps) if steps else None)


def cost(curve: CostCurve, n: int) -> float:
    """v(n), the seconds of a target pass over `n` tokens, between measured widths by a straight line.

    Raises UsageError beyond them.
    """
    if not curve.widths or not curve.widths[0] <= n <= curve.widths[-1]:
        raise UsageError(f"The cost curve has no pass over {n} tokens.")
    at = next(i for i, width in enumerate(curve.widths) if width >= n)
    if curve.widths[at] == n:
        return curve.seconds[at]
    share = (n - curve.widths[at - 1]) / (curve.widths[at] - curve.widths[at - 1])
    return curve.seconds[at - 1] + share * (curve.seconds[at] - curve.seconds[at - 1])


def speedup_at(curve: CostCurve, k: int, drafter: DrafterKind, acceptance: float) -> float:
    """Plain's time a token over drafting's, where each of `k` drafted tokens is accepted with this probability.

    A round gives 1 + a + … + a^k tokens (Leviathan et al., arXiv 2211.17192, 3.1) and costs k draft steps, a pass over
    k + 1 tokens and our own part.
    """
    steps = k * (curve.draft_step or 0.0) if drafter == "model" else 0.0
    tokens = sum(acceptance**i for i in range(k + 1))
    return tokens * cost(curve, 1) / (cost(curve, k + 1) + steps + curve.overhead)


def break_even(curve: CostCurve, k: int, drafter: DrafterKind) -> float | None:
    """The acceptance of a drafted token from which `k` of them pay; None where even full acceptance does not."""
    if speedup_at(curve, k, drafter, 1.0) < 1.0:
        return None
    low, high = 0.0, 1.0
    if speedup_at(curve, k, drafter, low) >= 1.0:
        return low
    for _ in range(40):
        middle = (low + high) / 2.0
        low, high = (low, middle) if speedup_at(curve, k, drafter, middle) >= 1.0 else (middle, high)
    return high
