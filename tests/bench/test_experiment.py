"""A whole measurement over fake models whose costs and acceptance are known: every figure, worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import fmean, median

import pytest

from edgespec.bench.arms import contenders, split
from edgespec.bench.experiment import Experiment, Plan
from edgespec.bench.figures import Figures, figures
from edgespec.bench.records import CostCurve, Measurements, Overlap, RoundRecord, Run, gather
from edgespec.bench.runner import Progress
from edgespec.bench.suites import Prompt
from edgespec.errors import UsageError
from edgespec.settings import Request
from tests.support.fakes import Scripted, continuation, hashed_table, scripts
from tests.support.timed import N_VOCAB, Clock, timed_engine

TABLE = hashed_table(N_VOCAB, end=-99.0)
ARMS = "plain,plain,right:3,half:3,wrong:3"
KINDS = ("a", "b", "c")
PROMPTS = [
    Prompt(f"{kind}/{i}", kind, ({"role": "user", "content": f"{kind}{i}"},)) for kind in KINDS for i in range(5)
]
GREEDY = Request().having(temperature=0.0, max_tokens=30)
DRAFTERS = {
    "right": Scripted(continuation(TABLE), name="right"),
    "half": Scripted(scripts(TABLE)["flip1"], name="half"),  # its second token is always wrong
    "wrong": Scripted(scripts(TABLE)["flip0"], name="wrong"),
}


def measured(
    level: Callable[[float], float] = lambda now: 1.0,
    plan: Plan | None = None,
    arms: str = ARMS,
    prompts: Sequence[Prompt] = PROMPTS,
    **options: object,
) -> tuple[Measurements, Clock]:
    clock = Clock(level)
    engine = timed_engine(clock, DRAFTERS, table=TABLE, **options)  # type: ignore[arg-type]
    asked = contenders(split(arms), engine.drafters, engine.policy, 16)
    experiment = Experiment(engine, asked, prompts, GREEDY, plan or Plan(curve=False), clock=clock)
    return gather(item for item in experiment.records() if not isinstance(item, Progress)), clock


def by_arm(found: Sequence[Figures], kind: str | None = None) -> dict[str, Figures]:
    return {figure.arm: figure for figure in found if figure.kind == kind}


# A pass over n tokens takes 0.08 + 0.02 n seconds, so plain's token takes 0.1 and a round of three drafted ones 0.16.
# 30 tokens are, after the first round: for `right` six rounds of four tokens and one of two; for `half` 13 rounds of
# two and one of two in which only the first, right one is drafted; for `wrong` 27 of three, one with two drafted, one
# with one and a plain one.
SECONDS = {"plain": 2.9, "plain again": 2.9, "right:3": 6 * 0.16 + 0.12, "half:3": 13 * 0.16 + 0.12,
           "wrong:3": 26 * 0.16 + 0.14 + 0.12 + 0.1}  # fmt: skip
TOKENS = {"plain": 29, "plain again": 29, "right:3": 26, "half:3": 28, "wrong:3": 29}
PER_TOKEN = {arm: SECONDS[arm] / TOKENS[arm] for arm in SECONDS}


@pytest.mark.parametrize("kind", [*KINDS, None])
def test_every_figure_is_what_was_worked_out(kind: str | None) -> None:
    found = by_arm(figures(measured()[0], price_per_hour=3.6), kind)
    answers = 2 * (5 if kind else 15)
    assert list(found) == list(SECONDS)
    for arm, figure in found.items():
        assert figure.answers == answers and figure.tokens == 30 * answers
        assert figure.tokens_per_second == pytest.approx(1 / PER_TOKEN[arm])
        assert figure.cost_per_million == pytest.approx(1000 * PER_TOKEN[arm])
        assert (figure.draft_share, figure.verify_share) == (0.0, pytest.approx(1.0))
        if arm != "plain":
            assert figure.speedup is not None
            assert figure.speedup.value == pytest.approx(PER_TOKEN["plain"] / PER_TOKEN[arm])
            assert figure.speedup.low == pytest.approx(figure.speedup.value) == figure.speedup.high
            assert (figure.speedup.pairs, figure.speedup.tokens) == (answers, answers * TOKENS[arm])
    assert found["plain"].speedup is None and found["plain"].acceptance_rate is None
    right, half, wrong = found["right:3"], found["half:3"], found["wrong:3"]
    assert (right.rounds, right.drafted, right.accepted) == tuple(answers * n for n in (8, 22, 22))
    assert (half.rounds, half.drafted, half.accepted) == tuple(answers * n for n in (15, 43, 15))
    assert (wrong.rounds, wrong.drafted, wrong.accepted) == tuple(answers * n for n in (30, 84, 0))
    assert half.acceptance_rate == pytest.approx(15 / 43) and half.mean_acceptance_length == pytest.approx(2.0)
    assert half.drafted_per_position == tuple(answers * n for n in (15, 14, 14))
    assert half.accepted_per_position == (15 * answers,)
    assert wrong.mean_acceptance_length == 1.0 and wrong.drafting_rounds == 29 * answers
    for arm, drafted in (("plain", 0), ("plain again", 0), ("right:3", 3), ("wrong:3", 3)):
        assert found[arm].ttft_ms == pytest.approx(80 + 20 * (2 + drafted))
        assert found[arm].prompt_tokens_per_second == pytest.approx(1000 * 2 / found[arm].ttft_ms)
    assert half.avg_accepted_tokens == 1.0 and half.k_histogram == tuple(answers * n for n in (0, 1, 0, 14))
    assert (half.target_calls, half.draft_calls) == (15 * answers, 0)


@pytest.mark.parametrize(
    "level",  # of the whole run's time: 40 % up, down, and to and fro
    [
        lambda share: 1 + 0.4 * share,
        lambda share: 1.4 - 0.4 * share,
        lambda share: 1.2 + 0.2 * math.sin(2 * math.pi * share),
        lambda share: 1.2 + 0.2 * math.cos(3 * math.pi * share),
    ],
)
def test_a_clock_that_drifts_by_40_percent_moves_no_speed_up_by_more_than_2(level: Callable[[float], float]) -> None:
    whole = measured()[1].now * 1.2
    run, _ = measured(lambda now: level(min(1.0, now / whole)))
    for kind in (*KINDS, None):
        found = by_arm(figures(run), kind)
        levels = [r.seconds for r in run.rounds if r.width == 1]
        assert max(levels) > 1.35 * min(levels)
        for arm in ("plain again", "right:3", "half:3", "wrong:3"):
            speedup = found[arm].speedup
            assert speedup is not None and speedup.low is not None and speedup.high is not None
            assert speedup.value == pytest.approx(PER_TOKEN["plain"] / PER_TOKEN[arm], rel=0.02)
    null = by_arm(figures(run))["plain again"].speedup
    assert null is not None and null.low is not None and null.low <= 1.0 <= (null.high or 0.0)


def per_token(run: Measurements, arm: str, prompt: str, repeat: int) -> float:
    later = [r for r in run.rounds if (r.arm, r.prompt, r.repeat) == (arm, prompt, repeat) and r.index]
    return sum(r.seconds for r in later) / sum(r.emitted for r in later)


def test_figures_can_be_recomputed_from_the_rounds_alone() -> None:
    run, _ = measured(lambda now: 1 + now / 2000)
    for figure in figures(run):
        mine = [r for r in run.rounds if r.arm == figure.arm and figure.kind in (None, r.kind)]
        later = [r for r in mine if r.index]
        assert figure.tokens_per_second == pytest.approx(sum(r.emitted for r in later) / sum(r.seconds for r in later))
        assert figure.rounds == sum(1 for r in mine if r.emitted)
        assert figure.drafted == sum(r.drafted for r in mine) and figure.accepted == sum(r.accepted for r in mine)
        if figure.speedup is not None and figure.kind is not None:
            pairs = {(r.prompt, r.repeat) for r in mine}
            plain = ("plain",) if figure.arm == "plain again" else ("plain", "plain again")
            ratios = [
                fmean(per_token(run, arm, *pair) for arm in plain) / per_token(run, figure.arm, *pair) for pair in pairs
            ]
            assert figure.speedup.value == pytest.approx(median(ratios))


def test_the_cost_curve_and_the_overlap_are_those_of_the_models() -> None:
    plan = Plan(curve=True, overlap=True, repeats=1)
    run, _ = measured(plan=plan, arms="plain,model:3", draft_cost=0.03)
    curve = run.curve
    assert isinstance(curve, CostCurve) and curve.widths == (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17)
    assert curve.seconds == pytest.approx([0.08 + 0.02 * n for n in curve.widths])
    assert curve.draft_step == pytest.approx(0.03) and curve.overhead == pytest.approx(0.0)
    assert [o.kind for o in run.overlaps] == [*KINDS, "all"]
    assert run.overlaps[-1] == Overlap("all", 15 * 30, 1.0, 1.0, 1.0, 0.0), "the draft has the target's own table"
    model = by_arm(figures(run))["model:3"]
    assert model.draft_share == pytest.approx(1 - (model.verify_share or 0.0)) and 0.2 < (model.draft_share or 0) < 0.5


def test_the_run_says_what_it_was_made_on() -> None:
    run = measured(prompts=PROMPTS[:1], draft_cost=0.03)[0].run
    assert isinstance(run, Run) and (run.target, run.draft, run.synthetic) == ("big", "small", None)
    assert run.settings["max_tokens"] == 30 and run.settings["temperature"] == 0.0 and run.settings["prompts"] == 1
    assert {"processor", "cores", "memory"} <= set(run.machine)
    assert {"edgespec", "python", "llama-cpp-python", "build"} <= set(run.versions)
    assert run.started.endswith("+00:00")


def test_chance_can_stand_in_for_verification_and_the_run_says_so() -> None:
    plan = Plan(curve=False, synthetic=0.8, repeats=1)
    run, _ = measured(plan=plan, arms="plain,plain,wrong:3")
    assert run.run.synthetic == 0.8 and not run.forks
    wrong = by_arm(figures(run))["wrong:3"]
    reached, kept = wrong.drafted_per_position, wrong.accepted_per_position
    assert kept[0] / reached[0] == pytest.approx(0.8, abs=0.1)
    assert {len(answer.tokens) for answer in run.answers} == {30}, "no answer ends before its time"


def test_the_engine_verifies_again_afterwards() -> None:
    clock = Clock()
    engine = timed_engine(clock, DRAFTERS, table=TABLE)
    judge = engine.judge
    arms = contenders(["plain", "wrong:3"], engine.drafters, engine.policy, 16)
    list(Experiment(engine, arms, PROMPTS[:1], GREEDY, Plan(curve=False, synthetic=1.0), clock=clock).records())
    assert engine.judge is judge


def test_stopping_ends_all_of_it() -> None:
    clock = Clock()
    engine = timed_engine(clock, DRAFTERS, table=TABLE, draft_cost=0.03)
    arms = contenders(["plain", "right:3"], engine.drafters, engine.policy, 16)
    experiment = Experiment(engine, arms, PROMPTS, GREEDY, Plan(overlap=True), clock=clock)
    seen: list[object] = []
    for item in experiment.records():
        seen.append(item)
        if sum(isinstance(i, RoundRecord) for i in seen) == 40:
            experiment.stop()
    assert not any(isinstance(i, (CostCurve, Overlap)) for i in seen) and isinstance(seen[0], Run)


def test_an_overlap_needs_a_draft_model() -> None:
    with pytest.raises(UsageError, match="give --draft"):
        measured(plan=Plan(overlap=True))
