"""Every figure from answers written out by hand, and speed-ups on a machine whose clock drifts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from edgespec.bench.figures import Figures, Speedup, figures
from edgespec.bench.records import Answer, Arm, Measurements, Run
from edgespec.events import Stats

ARMS = (Arm("plain", "plain"), Arm("again", "null"), Arm("model:3", "drafting"), Arm("server", "peer"))
DRAFTED = Stats(
    rounds=4, target_calls=5, draft_calls=9, drafted=9, accepted=6, acceptance_rate=6 / 9, drafting_rounds=3,
    avg_accepted_tokens=2.0, mean_acceptance_length=3.0, drafted_per_position=(3, 3, 3),
    accepted_per_position=(3, 2, 1), k_histogram=(1, 0, 0, 3), tokens_per_second=9.0, prompt_tokens_per_second=50.0,
    ttft_ms=500.0, plain_tokens_per_second=None, speedup=None, draft_ms=100.0, verify_ms=800.0, overhead_ms=100.0,
)  # fmt: skip
PLAIN = replace(
    DRAFTED, rounds=10, drafted=0, accepted=0, drafting_rounds=0, drafted_per_position=(), accepted_per_position=(),
    draft_ms=0.0, verify_ms=990.0, overhead_ms=10.0,
)  # fmt: skip


def answer(
    arm: str, prompt: str, tokens: int, seconds: float, stats: Stats | None = None, repeat: int = 0, **other: object
) -> Answer:
    """`tokens` in `seconds` after the first round; the kind is what stands before the slash."""
    made = Answer(
        prompt=prompt, kind=prompt.split("/")[0], arm=arm, repeat=repeat, place=0, cold=repeat == 0, text="",
        tokens=(7,) * (tokens + 1), finish_reason="stop", seed=1, prompt_tokens=5, seconds=seconds + 1.0,
        speed_tokens=tokens, speed_seconds=seconds, ttft_ms=500.0, drafted=stats.drafted if stats else None,
        accepted=stats.accepted if stats else None, stats=stats,
    )  # fmt: skip
    return replace(made, **other)  # type: ignore[arg-type]


def measured(answers: Sequence[Answer], arms: Sequence[Arm] = ARMS) -> Measurements:
    return Measurements(Run(tuple(arms), "target", "draft", None, "now"), tuple(answers))


def of(found: Sequence[Figures], arm: str, kind: str | None = None) -> Figures:
    (one,) = [f for f in found if (f.arm, f.kind) == (arm, kind)]
    return one


def speedup(found: Sequence[Figures], arm: str, kind: str | None = None) -> Speedup:
    one = of(found, arm, kind).speedup
    assert one is not None and one.low is not None and one.high is not None
    return one


def pairs_of(ratios: dict[str, Sequence[float]], tokens: dict[str, int] | None = None) -> list[Figures]:
    """Figures where plain takes a second a token and the draft model is so many times faster, repeat by repeat."""
    answers = []
    for prompt, values in ratios.items():
        n = (tokens or {}).get(prompt, 10)
        for repeat, ratio in enumerate(values):
            answers.append(answer("plain", prompt, n, float(n), repeat=repeat))
            answers.append(answer("model:3", prompt, n, n / ratio, repeat=repeat))
    return figures(measured(answers))


HAND = [
    answer("plain", "edit/a", 40, 4.0, PLAIN, ttft_ms=400.0, memory=900),
    answer("model:3", "edit/a", 40, 2.0, DRAFTED, ttft_ms=600.0, memory=1000, joules=82.0),
    answer("plain", "prose/b", 100, 10.0, PLAIN, ttft_ms=600.0),
    answer(
        "model:3", "prose/b", 80, 10.0, replace(DRAFTED, accepted=3, drafted_per_position=(3, 3, 3, 3)), memory=1200
    ),
    answer("plain", "edit/a", 40, 6.0, PLAIN, repeat=1, ttft_ms=9000.0),
    answer("model:3", "edit/a", 60, 3.0, DRAFTED, repeat=1, ttft_ms=9000.0, joules=41.0),
    answer("server", "edit/a", 30, 1.0, None, repeat=1, ttft_ms=200.0, drafted=20, accepted=15),
    answer("model:3", "prose/b", 70, 99.0, DRAFTED, repeat=1, finish_reason="cancelled"),
]


def test_arms_and_kinds_come_in_the_order_of_the_run() -> None:
    rows = [(f.arm, f.kind) for f in figures(measured(HAND))]
    assert rows == [(arm.name, kind) for arm in ARMS for kind in ("edit", "prose", None)]


def test_each_figure_is_its_definition() -> None:
    drafting = of(figures(measured(HAND), price_per_hour=0.9), "model:3")
    assert (drafting.answers, drafting.tokens) == (3, 41 + 81 + 61), "what was cancelled counts nowhere"
    assert drafting.tokens_per_second == pytest.approx(180 / 15)
    assert (drafting.rounds, drafting.drafting_rounds, drafting.drafted, drafting.accepted) == (12, 9, 27, 15)
    assert drafting.acceptance_rate == pytest.approx(15 / 27)
    assert drafting.mean_acceptance_length == pytest.approx(1 + 15 / 9)
    assert drafting.drafted_per_position == (9, 9, 9, 3)
    assert drafting.accepted_per_position == (9, 6, 3)
    assert drafting.ttft_ms == pytest.approx((600 + 500) / 2), "warm answers are not waited for as cold ones are"
    assert (drafting.avg_accepted_tokens, drafting.target_calls, drafting.draft_calls) == (
        pytest.approx(15 / 9),
        15,
        27,
    )
    assert drafting.k_histogram == (3, 0, 0, 9) and drafting.prompt_tokens_per_second == 50.0
    assert (drafting.draft_share, drafting.verify_share, drafting.overhead_share) == pytest.approx((0.1, 0.8, 0.1))
    assert drafting.memory == 1200
    assert drafting.joules_per_token == pytest.approx(123 / 102)
    assert drafting.cost_per_million == pytest.approx(0.9 / 3600 * 1e6 / (180 / 15))


def test_a_speed_up_on_a_kind_is_the_median_of_pairs_and_over_all_the_ratio_of_times() -> None:
    found = figures(measured(HAND))
    edit, overall = of(found, "model:3", "edit").speedup, of(found, "model:3").speedup
    assert edit is not None and overall is not None
    assert (edit.value, edit.pairs, edit.tokens) == (pytest.approx((2 + 3) / 2), 2, 80)
    assert (overall.pairs, overall.tokens) == (3, 160), "40, 80 and 40 tokens, the lesser of both"
    assert overall.value == pytest.approx((4.0 + 6.0 + 80 * 0.1) / (2.0 + 2.0 + 10.0))
    odd = of(pairs_of({"x/a": [1.0, 2.0, 6.0]}), "model:3", "x").speedup
    assert odd is not None and odd.value == pytest.approx(2.0)
    prose = of(found, "model:3", "prose").speedup
    assert prose == Speedup(pytest.approx(0.8), None, None, 1, 80), "a single pair bounds nothing"


def test_plain_has_no_speed_up_and_nothing_drafted() -> None:
    plain = of(figures(measured(HAND)), "plain")
    assert plain.speedup is plain.acceptance_rate is plain.mean_acceptance_length is plain.joules_per_token is None
    assert (plain.rounds, plain.drafted, plain.drafting_rounds, plain.drafted_per_position) == (30, 0, 0, ())
    assert (plain.draft_share, plain.overhead_share) == (0.0, pytest.approx(0.01))


def test_a_peer_has_what_it_tells_of_itself() -> None:
    peer = of(figures(measured(HAND)), "server")
    assert (peer.drafted, peer.accepted, peer.acceptance_rate) == (20, 15, 0.75)
    assert peer.speedup == Speedup(pytest.approx((6.0 / 40) / (1.0 / 30)), None, None, 1, 30)
    assert (
        peer.rounds is peer.drafting_rounds is peer.mean_acceptance_length is peer.verify_share is peer.memory is None
    )
    assert peer.ttft_ms is None, "no cold answer"


def test_an_arm_that_never_answered_has_empty_figures() -> None:
    nothing = of(figures(measured(HAND), price_per_hour=1.0), "again", "edit")
    assert (nothing.answers, nothing.tokens) == (0, 0)
    assert nothing.tokens_per_second is nothing.speedup is nothing.rounds is nothing.drafted is None
    assert nothing.cost_per_million is nothing.ttft_ms is nothing.verify_share is nothing.memory is None


def test_a_pair_needs_speed_on_both_sides_and_the_same_block() -> None:
    answers = [
        answer("plain", "edit/a", 40, 4.0, PLAIN),
        answer("model:3", "edit/a", 0, 0.0, DRAFTED),
        answer("plain", "edit/b", 0, 0.0, PLAIN),
        answer("model:3", "edit/b", 40, 4.0, DRAFTED),
        answer("model:3", "edit/a", 40, 1.0, DRAFTED, repeat=1),
        answer("plain", "edit/a", 40, 4.0, PLAIN, repeat=2, finish_reason="cancelled"),
        answer("model:3", "edit/a", 40, 1.0, DRAFTED, repeat=2),
    ]
    found = of(figures(measured(answers)), "model:3")
    assert found.speedup is None and found.tokens_per_second == pytest.approx(120 / 6)


def test_where_plain_answered_twice_its_mean_is_the_measure_but_not_for_the_null_arm() -> None:
    answers = [
        answer("plain", "edit/a", 40, 4.0, PLAIN),
        answer("again", "edit/a", 40, 6.0, PLAIN),
        answer("model:3", "edit/a", 50, 2.5, DRAFTED),
        answer("server", "edit/a", 30, 1.5, None),
    ]
    found = figures(measured(answers))
    assert [of(found, arm).speedup for arm in ("plain", "again", "model:3", "server")] == [
        None,
        Speedup(pytest.approx(0.1 / 0.15), None, None, 1, 40),
        Speedup(pytest.approx(0.125 / 0.05), None, None, 1, 40),
        Speedup(pytest.approx(0.125 / 0.05), None, None, 1, 30),
    ]
    alone = figures(measured([*answers[:1], answer("again", "edit/a", 0, 0.0, PLAIN), *answers[2:]]))
    drafting = of(alone, "model:3").speedup
    assert drafting is not None and drafting.value == pytest.approx(0.1 / 0.05)


def test_no_answers_are_no_figures_but_no_fault() -> None:
    found = figures(measured([]))
    assert [(f.arm, f.kind, f.answers) for f in found] == [(arm.name, None, 0) for arm in ARMS]


def test_the_choice_of_prompts_is_no_noise_where_each_was_repeated() -> None:
    repeated = pairs_of({"x/a": [1.0] * 4, "x/b": [3.0] * 4})
    assert (speedup(repeated, "model:3", "x").low, speedup(repeated, "model:3", "x").high) == pytest.approx((2.0, 2.0))
    assert (speedup(repeated, "model:3").low, speedup(repeated, "model:3").high) == pytest.approx((1.5, 1.5))
    single = pairs_of({f"x/{i}": [1.0 if i < 3 else 3.0] for i in range(6)})
    assert (speedup(single, "model:3", "x").low, speedup(single, "model:3", "x").high) == pytest.approx((1.0, 3.0))
    assert speedup(single, "model:3").low < 1.2 and speedup(single, "model:3").high > 2.0


@pytest.mark.parametrize("ratios", [{"x/a": [1.0]}, {f"x/{i}": [1.0 + i] for i in range(4)}, {"x/a": [1.0, 2.0, 3.0]}])
def test_too_few_pairs_bound_nothing(ratios: dict[str, Sequence[float]]) -> None:
    for kind in ("x", None):
        one = of(pairs_of(ratios), "model:3", kind).speedup
        assert one is not None and one.low is one.high is None and not (one.known or one.faster or one.slower)


def test_a_claim_needs_an_interval_on_its_side_of_1_and_enough_tokens() -> None:
    sure = Speedup(1.2, 1.1, 1.3, 8, 400)
    assert sure.known and sure.faster and not sure.slower
    assert Speedup(0.8, 0.7, 0.9, 8, 400).slower
    assert not (Speedup(1.2, 0.9, 1.3, 8, 400).faster or Speedup(0.8, 0.7, 1.0, 8, 400).slower)
    few = replace(sure, tokens=399)
    assert not (few.known or few.faster)


def test_residuals_are_enlarged_for_being_measured_from_their_own_mean() -> None:
    both = [2 * math.exp(-0.1), 2 * math.exp(0.1)]
    one = speedup(pairs_of({"x/a": both, "y/b": both, "y/c": both, "y/d": both}), "model:3", "x")
    far = 0.1 * math.sqrt(2)  # two of two resampled pairs are at the same end a quarter of the time
    assert (one.low, one.high) == pytest.approx((2 * math.exp(-far), 2 * math.exp(far)))


def test_a_kind_with_few_prompts_borrows_the_noise_of_the_others() -> None:
    found = pairs_of({"x/a": [2.0, 2.0], "y/b": [0.9, 1.1], "y/c": [1.1, 0.9], "y/d": [0.9, 1.1]})
    lucky = speedup(found, "model:3", "x")
    assert lucky.value == 2.0 and lucky.low < 1.8 and lucky.high > 2.2


def test_weights_go_with_their_pairs_where_pairs_are_resampled() -> None:
    ratios = {f"long/{i}": [3.0] for i in range(5)} | {f"short/{i}": [1.0] for i in range(5)}
    overall = speedup(pairs_of(ratios, {prompt: 1000 for prompt in ratios if prompt.startswith("long")}), "model:3")
    assert overall.value == pytest.approx(5050 / (5000 / 3 + 50))
    assert overall.low > 2.5


def test_the_same_file_gives_the_same_figures_and_the_value_lies_within() -> None:
    rng = np.random.default_rng(5)
    ratios = {f"{kind}/{i}": list(rng.lognormal(0.3, 0.2, 3)) for kind in "xyz" for i in range(3)}
    found = pairs_of(ratios)
    assert found == pairs_of(ratios)
    for kind in ("x", "y", "z", None):
        one = speedup(found, "model:3", kind)
        assert one.low <= one.value <= one.high and one.high - one.low > 0.05


COSTS = {"plain": 1.0, "again": 1.0, "ngram:8": 1 / 2.0, "model:3": 1 / 0.85}
LENGTHS = [40 + 97 * i % 160 for i in range(15)]
KINDS = ["one", "two", "two", *["many"] * 12]
Level = Callable[[float], float]


def simulated(
    costs: dict[str, float], level: Level = lambda _: 1.0, noise: float = 0.0, seed: int = 0, repeats: int = 2
) -> Measurements:
    """15 prompts of three kinds by all arms, their order rotated by one each block.

    A token takes `costs` times the machine's `level`, a function of the run's part that is over; `noise` is the
    standard deviation of an answer's log time.
    """
    rng = np.random.default_rng(seed)
    names, now = list(costs), 0.0
    total = repeats * sum(LENGTHS) * sum(costs.values())
    answers = []
    for block in range(repeats * len(LENGTHS)):
        repeat, at = divmod(block, len(LENGTHS))
        turn = (at + repeat) % len(names)
        for name in names[turn:] + names[:turn]:
            tokens = LENGTHS[at]
            seconds = tokens * costs[name] * level(min(1.0, now / total)) * math.exp(noise * rng.normal())
            answers.append(answer(name, f"{KINDS[at]}/{at}", tokens, seconds, repeat=repeat))
            now += seconds
    return measured(answers, [Arm(name, "plain" if name == "plain" else "drafting") for name in names])


DRIFTS: dict[str, Level] = {
    "faster": lambda x: 1.4 - 0.4 * x,
    "slower": lambda x: 1.0 + 0.4 * x,
    "up and down": lambda x: 1.2 + 0.2 * math.sin(2 * math.pi * x),
    "down and up": lambda x: 1.2 - 0.2 * math.sin(2 * math.pi * x),
}


@pytest.mark.parametrize("drift", DRIFTS)
def test_a_machine_that_drifts_by_40_percent_moves_no_speed_up_by_2(drift: str) -> None:
    run = simulated(COSTS, DRIFTS[drift])
    level = [a.speed_seconds / a.speed_tokens for a in run.answers if a.arm == "plain"]
    assert max(level) / min(level) > 1.3, "it does drift"
    found = figures(run, resamples=200)
    for arm in ("again", "ngram:8", "model:3"):
        for kind in ("one", "two", "many", None):
            assert speedup(found, arm, kind).value == pytest.approx(1 / COSTS[arm], rel=0.02), (arm, kind)
    assert speedup(found, "again").low <= 1.0 <= speedup(found, "again").high


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    """Of 200 runs with 3 % noise, for the overall and for kinds of two prompts and of one."""
    held = {None: 0, "two": 0, "one": 0}
    for seed in range(200):
        found = figures(simulated({"plain": 1.0, "ngram:8": 0.5}, noise=0.03, seed=seed), resamples=200)
        for kind in held:
            one = speedup(found, "ngram:8", kind)
            held[kind] += one.low <= 2.0 <= one.high
    for kind, count in held.items():
        assert 0.88 <= count / 200 <= 0.99, (kind, count)
