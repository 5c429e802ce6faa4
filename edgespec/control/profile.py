"""What passes cost on this machine: measured once when models are loaded, and kept as ratios."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from edgespec.protocols import LanguageModel

BUDGET = 40.0
"""Passes over one token that measuring may take, as time."""
SWEEPS = 2
TARGET_WIDTHS = (2, 4, 8, 16)
DRAFT_WIDTHS = (1, 2, 16)


@dataclass(frozen=True, slots=True)
class Profile:
    """Costs of passes as pairs of (width, ratio), ascending from width 1, in units of the target's pass over one token.

    That one took `plain` seconds when it was measured: a level that drifts, while ratios last. `draft` is empty where
    there is no draft model.
    """

    plain: float
    target: tuple[tuple[int, float], ...]
    draft: tuple[tuple[int, float], ...] = ()

    def stored(self) -> dict[str, Any]:
        """As JSON has it; see `read`."""
        return asdict(self)

    @classmethod
    def read(cls, stored: dict[str, Any] | None) -> Profile | None:
        """What was `stored`; None where that is nothing, or damaged."""
        try:
            assert stored is not None
            target, draft = (tuple((int(n), float(r)) for n, r in stored[key]) for key in ("target", "draft"))
            found = cls(float(stored["plain"]), target, draft)
        except (AssertionError, KeyError, TypeError, ValueError):
            return None
        ratios = [ratio for _, ratio in (*target, *draft)]
        ascending = all(list(points) == sorted(points) for points in ([n for n, _ in target], [n for n, _ in draft]))
        sound = found.plain > 0.0 and all(0.0 < ratio < 1e4 for ratio in ratios) and ascending
        return found if sound and target[:1] == ((1, 1.0),) and (not draft or draft[0][0] == 1) else None


def measure(
    target: LanguageModel,
    draft: LanguageModel | None = None,
    *,
    widths: Sequence[int] = TARGET_WIDTHS,
    progress: Callable[[float], None] = lambda done: None,
    clock: Callable[[], float] = time.perf_counter,
) -> Profile:
    """Time passes of both models, whose caches are empty, and are left so; both can take tokens back.

    Every pass stands beside one over a single token, and a ratio is the median of those of its sweeps: the level of a
    shared machine drifts in seconds. Passes that do not fit the budget are left out, the dearest first. It doubles as
    warm-up: the first passes of a model are not counted among the ratios.
    """
    started = clock()

    def took(model: LanguageModel, width: int) -> float:
        tokens = [(7919 * i + 13) % model.n_vocab for i in range(width)]  # not all alike: experts differ by token
        before = clock()
        model.decode(tokens, 0, outputs=width if model is target else 1)
        seconds = clock() - before
        model.trim(0)
        return max(seconds, 1e-6)

    took(target, 1)
    level = took(target, 1)
    plan = [(target, width) for width in widths if width <= target.n_outputs]
    if draft is not None:
        took(draft, 1)
        plan += [(draft, width) for width in DRAFT_WIDTHS if width <= draft.n_batch]
    plan.sort(key=lambda step: step[1])
    levels, found = [level], {step: list[float]() for step in plan}
    dearest = {id(target): 1.0, id(draft): 1.0}  # ratio by width of what was measured last: what is wider costs less
    for i, (model, width) in enumerate(plan * SWEEPS):
        progress(i / (len(plan) * SWEEPS))
        seen = found[model, width]
        expected = 1.0 + (seen[0] if seen else dearest[id(model)] * width)
        if clock() - started + expected * min(levels) > BUDGET * min(levels):
            continue
        seconds = took(model, width)
        after = took(target, 1)
        seen.append(seconds / ((level + after) / 2.0))
        dearest[id(model)] = seen[-1] / width
        level = after
        levels.append(after)
    progress(1.0)
    ratios = {step: median(seen) for step, seen in found.items() if seen}
    return Profile(
        plain=median(levels),
        target=((1, 1.0), *((width, ratio) for (model, width), ratio in ratios.items() if model is target)),
        draft=tuple((width, ratio) for (model, width), ratio in ratios.items() if model is draft),
    )
