"""Made-up measurements that look like real ones: two slow cores, a draft that pays now and then, n-grams."""

from __future__ import annotations

from collections.abc import Sequence

from edgespec.bench.figures import Figures, Speedup
from edgespec.bench.records import Arm, CostCurve, Fork, Measurements, Overlap, Run

KINDS = (
    "code", "edit", "prose", "chinese", "qa", "extraction", "summary", "quote", "translation", "math", "multi",
)  # fmt: skip
ARMS = (
    Arm("plain", "plain"),
    Arm("plain again", "null"),
    Arm("auto", "drafting"),
    Arm("model:3", "drafting"),
    Arm("ngram:15", "drafting"),
    Arm("llama-server", "peer"),
)
SPEEDUPS = {
    "plain again": (1.01, 0.99, 1.00, 1.00, 0.99, 1.01, 1.00, 1.02, 1.00, 0.99, 1.00, 1.00),
    "auto": (1.12, 3.61, 0.99, 1.00, 1.01, 1.62, 1.31, 4.12, 1.03, 1.08, 1.22, 1.46),
    "model:3": (1.01, 1.14, 0.88, 0.87, 0.90, 1.02, 0.95, 1.15, 0.86, 0.98, 0.97, 0.97),
    "ngram:15": (1.08, 4.33, 0.98, 0.97, 1.00, 1.71, 1.29, 4.90, 0.99, 1.04, 1.25, 1.41),
    "llama-server": (1.02, 2.70, 1.00, 1.01, 0.98, 1.45, 1.11, 2.61, 1.00, 1.01, 1.12, 1.22),
}
RUN = Run(
    ARMS,
    "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
    "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
    "qwen2.5-coder-1.5b",
    "2026-03-01T10:22:31+00:00",
    machine={
        "processor": "Intel(R) Xeon(R) Platinum 8488C",
        "features": "AVX2 AVX512 AMX",
        "cores": 2,
        "memory": 25_200_000_000,
        "gpus": (),
        "system": "Linux x86_64",
    },
    versions={
        "edgespec": "0.1.0",
        "python": "3.12.4",
        "llama-cpp-python": "0.3.36",
        "build": "8f3a2c1d (CPU, clang 18.1.3)",
    },
    settings={
        "suite": "quick",
        "prompts": 22,
        "repeat": 3,
        "max_tokens": 200,
        "temperature": 0.0,
        "seed": 4294967295,
        "verify": "auto",
        "ctx": 4096,
        "policy": "auto",
        "threads": 2,
    },
)
CURVE = CostCurve(
    290,
    (1, 2, 3, 4, 5, 8, 12, 16),
    tuple(0.071 * ratio for ratio in (1.0, 1.94, 2.17, 2.28, 2.38, 2.60, 3.23, 3.64)),
    draft_step=0.032,
    overhead=0.0004,
)
FORKS = (Fork("summary/1", "auto", 0, 135, True, 0.02, 0.11), Fork("qa/1", "model:3", 1, 12, True, 0.05, 0.11))
OVERLAPS = (Overlap("code", 1200, 0.81, 0.96, 0.79, 0.8), Overlap("prose", 1180, 0.61, 0.72, 0.58, 0.8))


def figure(arm: str, kind: str | None = None, **known: object) -> Figures:
    """Figures of which only what is `known` is there."""
    names = Figures.__dataclass_fields__
    unknown: dict[str, object] = {name: None for name in names}
    unknown |= {"answers": 3, "tokens": 600, "drafted_per_position": (), "accepted_per_position": (), "k_histogram": ()}
    return Figures(**{**unknown, "arm": arm, "kind": kind, **known})  # type: ignore[arg-type]


def speedup(value: float, half: float | None = 0.04) -> Speedup:
    return Speedup(value, None if half is None else value - half, None if half is None else value + half, 6, 1200)


def all_figures(kinds: Sequence[str] = KINDS) -> list[Figures]:
    found = []
    for arm in ARMS:
        for kind in (*kinds, None):
            if arm.kind == "plain":
                ratio, known = 1.0, {}
            else:
                ratio = SPEEDUPS[arm.name][-1 if kind is None else KINDS.index(kind)]
                half = None if kind == "math" else 0.02 + 0.01 * ratio
                known = {"speedup": speedup(ratio, half)}
            known |= {"tokens_per_second": 14.2 * ratio, "ttft_ms": 420.0, "memory": 2_310_000_000}
            if arm.kind == "drafting":
                longest, likely = {"auto": (7, 0.85), "model:3": (3, 0.72), "ngram:15": (15, 0.93)}[arm.name]
                drafted = tuple(round(4000 * 0.9**i) for i in range(longest))
                accepted = tuple(round(n * likely ** (i + 1)) for i, n in enumerate(drafted))
                known |= {
                    "drafted": sum(drafted), "accepted": sum(accepted), "rounds": 9000, "drafting_rounds": 4000,
                    "acceptance_rate": sum(accepted) / sum(drafted),
                    "mean_acceptance_length": 1 + sum(accepted) / 4000,
                    "drafted_per_position": drafted, "accepted_per_position": accepted,
                    "draft_share": 0.24, "verify_share": 0.755, "overhead_share": 0.005,
                }  # fmt: skip
            found.append(figure(arm.name, kind, answers=6 if kind else 66, tokens=1200 if kind else 13200, **known))
    return found


def measurements() -> Measurements:
    return Measurements(RUN, forks=FORKS, curve=CURVE, overlaps=OVERLAPS)
