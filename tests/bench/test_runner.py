"""The run over fake models whose costs are known: what is asked, in which order, and what is written down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from edgespec.bench.arms import Contender, contenders, split
from edgespec.bench.records import Answer, Fork, Record, RoundRecord
from edgespec.bench.runner import WARM_UP_TOKENS, Progress, Runner
from edgespec.bench.suites import Prompt
from edgespec.engine import Engine
from edgespec.errors import BackendError, PeerFailed
from edgespec.events import Notice
from edgespec.settings import About, Request
from tests.support.fakes import Scripted, continuation, hashed_table
from tests.support.timed import N_VOCAB, Clock, timed_engine

TABLE = hashed_table(N_VOCAB, end=-99.0)
ORACLE = Scripted(continuation(TABLE), name="oracle")
PROMPTS = [Prompt(f"{kind}/{i}", kind, ({"role": "user", "content": f"{kind}{i}"},)) for kind in "ab" for i in (1, 2)]
GREEDY = Request().having(temperature=0.0, max_tokens=30)


def engine_at(clock: Clock, **options: object) -> Engine:
    return timed_engine(clock, {"oracle": ORACLE}, table=TABLE, **options)  # type: ignore[arg-type]


def run(
    engine: Engine, names: str = "plain,plain,oracle:3", prompts: Sequence[Prompt] = PROMPTS, request: Request = GREEDY,
    **options: object,
) -> list[Record | Progress]:  # fmt: skip
    return list(Runner(engine, arms(engine, names), prompts, request, **options).run())  # type: ignore[arg-type]


def arms(engine: Engine, names: str) -> list[Contender]:
    return contenders(split(names), engine.drafters, engine.policy, engine.target.n_outputs - 1)


def answers(items: Sequence[object]) -> list[Answer]:
    return [item for item in items if isinstance(item, Answer)]


@pytest.mark.parametrize("others", [1, 2, 3, 4])
@pytest.mark.parametrize("number", [1, 3, 4, 15])
def test_every_arm_answers_each_prompt_before_the_next_is_asked_and_in_all_places_in_time(
    others: int, number: int
) -> None:
    names = ["plain", *(f"oracle:{k}" for k in range(1, others + 1))]
    prompts = [Prompt(f"p{i}", "p", ({"role": "user", "content": f"p{i}"},)) for i in range(number)]
    clock, brief = Clock(), GREEDY.having(max_tokens=2)
    found = answers(run(engine_at(clock), ",".join(names), prompts, brief, repeats=len(names), clock=clock))
    blocks = [found[at : at + len(names)] for at in range(0, len(found), len(names))]
    assert [(block[0].repeat, block[0].prompt) for block in blocks] == [
        (repeat, prompt.id) for repeat in range(len(names)) for prompt in prompts
    ]
    assert all(len({(a.prompt, a.repeat) for a in block}) == 1 for block in blocks)
    assert all([a.place for a in block] == list(range(len(names))) for block in blocks)
    assert len({(a.prompt, a.arm, a.place) for a in found}) == len(found), "no prompt has an arm in one place twice"
    orders = {tuple((names * 2)[turn : turn + len(names)]) for turn in range(len(names))}
    assert {tuple(a.arm for a in block) for block in blocks} == orders


def test_times_are_those_of_the_rounds_after_the_first() -> None:
    clock = Clock()
    items = run(engine_at(clock), prompts=PROMPTS[:1], clock=clock)
    plain, again, oracle = answers(items)
    assert (plain.speed_tokens, plain.speed_seconds) == (29, pytest.approx(2.9))
    # 30 tokens are 8 rounds of 4, the last cut to 2; a round of 4 takes 0.16 s, and the last 0.12 s.
    assert (oracle.speed_tokens, oracle.speed_seconds) == (26, pytest.approx(6 * 0.16 + 0.12))
    assert oracle.tokens == plain.tokens == again.tokens
    assert plain.ttft_ms == pytest.approx(80 + 20 * 2)
    assert oracle.ttft_ms == pytest.approx(80 + 20 * (2 + 3))
    assert oracle.seconds == pytest.approx(oracle.ttft_ms / 1000 + oracle.speed_seconds)
    assert (oracle.drafted, oracle.accepted, plain.drafted) == (22, 22, 0)


def test_the_rounds_add_up_to_the_answers() -> None:
    clock = Clock()
    items = run(engine_at(clock, draft_cost=0.03), names="plain,model:4", repeats=2, clock=clock)
    for answer in answers(items):
        key = (answer.prompt, answer.arm, answer.repeat)
        mine = [r for r in items if isinstance(r, RoundRecord) and (r.prompt, r.arm, r.repeat) == key]
        assert [r.index for r in mine] == list(range(len(mine)))
        assert sum(r.emitted for r in mine) == len(answer.tokens)
        assert sum(r.seconds for r in mine[1:]) == pytest.approx(answer.speed_seconds)
        assert sum(r.emitted for r in mine[1:]) == answer.speed_tokens
        assert (sum(r.drafted for r in mine), sum(r.accepted for r in mine)) == (answer.drafted, answer.accepted)


def test_the_first_pass_is_cold_and_the_drafters_always_are() -> None:
    clock = Clock()
    engine = engine_at(clock, draft_cost=0.03)
    long = [Prompt("x", "x", ({"role": "user", "content": "x" * 20},))]
    found = answers(run(engine, names="plain,plain,model:1", prompts=long, repeats=2, clock=clock))
    cold, warm = found[:3], found[3:]
    assert all(a.cold for a in cold) and not any(a.cold for a in warm)
    by_arm = {a.arm: a for a in cold}
    for arm in ("plain", "plain again"):
        assert by_arm[arm].ttft_ms == pytest.approx(80 + 20 * 20)
    assert by_arm["model:1"].ttft_ms == pytest.approx(80 + 20 * 21 + 30 * 20)
    second = {a.arm: a for a in warm}
    for arm in ("plain", "plain again"):
        assert second[arm].ttft_ms == pytest.approx(100), "also the first of them"
    assert second["model:1"].ttft_ms == pytest.approx(80 + 20 * 2 + 30 * 20), "the draft reads it again"


def test_warming_up_is_not_counted_and_the_engine_gets_its_policy_back() -> None:
    clock = Clock()
    engine = engine_at(clock)
    own = engine.policy
    items = run(engine, prompts=PROMPTS[:1], clock=clock)
    assert isinstance(items[0], Progress) and items[0].total == 3
    assert len(answers(items)) == 3 and engine.policy is own
    assert clock.now > sum(a.seconds for a in answers(items))


def test_a_second_turn_follows_plains_answer() -> None:
    clock = Clock()
    talk = Prompt("talk", "talk", ({"role": "user", "content": "one"},), turns=("two", "three"))
    found = answers(run(engine_at(clock), prompts=[talk], clock=clock))
    assert [a.prompt for a in found] == ["talk"] * 3 + ["talk#2"] * 3 + ["talk#3"] * 3
    first, second, third = (next(a for a in found[at : at + 3] if a.arm == "plain") for at in (0, 3, 6))
    assert first.prompt_tokens == len("one")
    assert {a.prompt_tokens for a in found[3:6]} == {len("one" + first.text + "two")}
    assert third.prompt_tokens == len("one" + first.text + "two" + second.text + "three")


def test_raw_prompts_are_continued() -> None:
    clock = Clock()
    (plain,) = answers(run(engine_at(clock), "plain", [Prompt("raw", "raw", raw="hello")], clock=clock))
    engine = engine_at(Clock())
    *_, done = engine.complete("hello", request=GREEDY)
    assert plain.tokens == done.tokens  # type: ignore[union-attr]


class Rival:
    """Another program, which gives no answer when it is asked for the `fails`-th time; the first is the warm-up."""

    name = "other"

    def __init__(self, *fails: int) -> None:
        self.fails, self.asked, self.cancelled = fails, list[tuple[str, int, int, bool, int | None]](), 0

    def answer(self, prompt: Prompt, request: Request, repeat: int, place: int, cold: bool) -> Answer:
        self.asked.append((prompt.id, repeat, place, cold, request.max_tokens))
        if len(self.asked) in self.fails:
            raise PeerFailed("The peer other broke off.")
        tokens = (1,) * (request.max_tokens or 0)
        return Answer(prompt.id, prompt.kind, "other", repeat, place, cold, "x", tokens, "length", 0, 3, 1.0,
                      len(tokens) - 1, 0.9, 100.0, None, None)  # fmt: skip

    def cancel(self) -> None:
        self.cancelled += 1


def test_peers_answer_among_the_others_warmed_up_and_unjudged() -> None:
    clock, rival = Clock(), Rival()
    items = run(engine_at(clock), "plain,oracle:3", repeats=2, peers=[rival], clock=clock)
    found = answers(items)
    assert len(found) == 2 * 4 * 3 and [a.place for a in found[:3]] == [0, 1, 2]
    assert rival.asked[0] == ("warm-up", 0, 0, True, WARM_UP_TOKENS)
    assert rival.asked[1:5] == [(p.id, 0, place, True, 30) for p, place in zip(PROMPTS, (2, 1, 0, 2), strict=True)]
    assert not any(cold for _, repeat, _, cold, _ in rival.asked if repeat)
    assert not [i for i in items if isinstance(i, Fork)], "its text is another program's"


def test_a_peer_that_fails_once_lacks_that_answer_and_after_twice_in_a_row_it_is_left_out() -> None:
    for fails, said, asked in (((3,), ["has no answer here"], 5), ((1, 2), ["has no answer here", "is left out"], 2),
                               ((2, 4), ["has no answer here"] * 2, 5)):  # fmt: skip
        clock, rival = Clock(), Rival(*fails)
        items = run(engine_at(clock), "plain,oracle:3", peers=[rival], clock=clock)
        notices = [i.message for i in items if isinstance(i, Notice)]
        assert [words in notice for words, notice in zip(said, notices, strict=True)] == [True] * len(said)
        assert all(notice.startswith("other ") and "broke off" in notice for notice in notices)
        assert len(rival.asked) == asked
        assert [a.arm for a in answers(items)].count("oracle:3") == len(PROMPTS)


def test_a_prompt_that_does_not_fit_is_left_out() -> None:
    clock = Clock()
    long = Prompt("long", "long", ({"role": "user", "content": "x" * 5000},), turns=("and", "so"))
    items = run(engine_at(clock), prompts=[long, PROMPTS[0], PROMPTS[1]], repeats=2, clock=clock)
    (notice,) = [i for i in items if isinstance(i, Notice)]
    assert notice.message == "long is left out: 5000 tokens do not fit the context of 4096."
    assert {a.prompt for a in answers(items)} == {PROMPTS[0].id, PROMPTS[1].id}
    last = [i for i in items if isinstance(i, Progress)][-1]
    assert (last.done, last.total) == (11, 12)
    only = run(engine_at(clock), prompts=[long], clock=clock)
    assert not answers(only)


def test_what_the_engine_says_of_an_arm_is_said_once() -> None:
    def failing(history: Sequence[int], k: int) -> list[int]:
        raise BackendError("it broke.")

    clock = Clock()
    engine = timed_engine(clock, {"broken": Scripted(failing, name="broken")}, table=TABLE)
    (notice,) = [i for i in run(engine, "plain,broken:3", clock=clock) if isinstance(i, Notice)]
    assert notice.message == "broken:3: Drafting with broken stopped for this answer: it broke."


def test_ids_with_a_number_sign_are_kept_apart() -> None:
    clock = Clock()
    prompts = [Prompt(f"issue#{n}", "x", ({"role": "user", "content": f"is{n}"},), turns=("so",)) for n in (12, 13)]
    found = answers(run(engine_at(clock), "plain", prompts, clock=clock))
    assert [a.prompt for a in found] == ["issue#12", "issue#12#2", "issue#13", "issue#13#2"]


def test_stopping_reaches_the_peers() -> None:
    rival = Rival()
    engine = engine_at(Clock())
    Runner(engine, arms(engine, "plain"), PROMPTS, GREEDY, peers=[rival]).stop()
    assert rival.cancelled == 1


def test_stopping_keeps_whole_answers_only() -> None:
    clock = Clock()
    engine = engine_at(clock)
    runner = Runner(engine, arms(engine, "plain,oracle:3"), PROMPTS, GREEDY)
    seen: list[Answer] = []
    for item in runner.run():
        if isinstance(item, Answer):
            seen.append(item)
            if len(seen) == 3:
                runner.stop()
    assert len(seen) == 3 and all(a.finish_reason == "length" for a in seen)


def test_a_text_that_parts_without_a_near_tie_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    import edgespec.judge
    from edgespec.verify import Verdict

    real = edgespec.judge.Judge.verdict

    def believing(self: object, draft: object, rows: np.ndarray) -> Verdict:
        verdict = real(self, draft, rows)  # type: ignore[arg-type]
        return replace(verdict, accepted=len(draft.tokens)) if draft.tokens else verdict  # type: ignore[attr-defined]

    monkeypatch.setattr(edgespec.judge.Judge, "verdict", believing)
    clock = Clock()
    wrong = Scripted(lambda history, k: [3] * k, name="wrong")
    engine = timed_engine(clock, {"wrong": wrong}, table=TABLE, about=About("big", width_noise=0.001))
    forks = [i for i in run(engine, "plain,plain,wrong:2", PROMPTS[:1], clock=clock) if isinstance(i, Fork)]
    (fork,) = forks
    assert (fork.arm, fork.honest, fork.band) == ("wrong:2", False, pytest.approx(0.006)) and fork.gap > fork.band


def test_a_near_tie_is_honest_unless_the_build_is_width_invariant_there() -> None:
    def tied(context: Sequence[int]) -> np.ndarray:
        row = np.zeros(N_VOCAB, np.float32)
        row[[5, 6]] = 9.0, 9.0 + (0.001 if len(context) % 2 else 0.0)
        return row

    for invariant_below, honest in ((0, True), (10_000, False)):
        clock = Clock()
        engine = timed_engine(
            clock, {}, table=tied, about=About("big", width_noise=0.01, invariant_below=invariant_below)
        )
        runner = Runner(engine, arms(engine, "plain,plain"), PROMPTS[:1], GREEDY, clock=clock)
        plain, other = answers(list(runner.run()))
        changed = replace(other, tokens=(*other.tokens[:4], 11 - other.tokens[4], *other.tokens[5:]))
        (fork,) = runner.parted(PROMPTS[0], [plain, changed])
        assert (fork.at, fork.honest) == (4, honest) and fork.gap < fork.band == pytest.approx(0.06)


def test_texts_are_not_compared_where_nothing_makes_them_the_same() -> None:
    clock = Clock()
    drawn = Request().having(temperature=1.0, max_tokens=20)
    for request in (drawn, drawn.having(verify="match")):  # without a seed each answer draws its own
        assert not [i for i in run(engine_at(clock), request=request, clock=clock) if isinstance(i, Fork)]
    keyed = Request().having(temperature=1.0, seed=5, max_tokens=20)
    items = run(engine_at(clock), request=keyed, clock=clock)
    assert not [i for i in items if isinstance(i, Fork)] and len({a.tokens for a in answers(items)}) == len(PROMPTS)
