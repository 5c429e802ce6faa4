"""The loop on the fake model: whatever is drafted, what comes out is what plain decoding gives."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator, Sequence

import pytest

from edgespec.control.fixed import FixedPolicy
from edgespec.drafters.model import ModelDrafter
from edgespec.drafters.ngram import NgramDrafter
from edgespec.engine import Engine
from edgespec.errors import Closed, EngineBusy, NoChatTemplate, PromptTooLong, UsageError
from edgespec.events import Done, Event, Notice, Prefill, RoundDone, Text
from edgespec.protocols import Drafter, Policy
from edgespec.settings import Request, Sampling
from edgespec.text import StopText
from tests.support.fakes import (
    END,
    FakeModel,
    FakeVocabulary,
    PlainTemplate,
    Scripted,
    continuation,
    hashed_table,
    scripts,
)

KS = (1, 2, 3, 4, 7, 8, 15, 16)
GREEDY = Request(sampling=Sampling(temperature=0.0), max_tokens=40)
SEEDED = Request(sampling=Sampling(temperature=1.0), seed=7, max_tokens=40)
PENALISED = Request(
    sampling=Sampling(temperature=0.0, repeat_penalty=1.3, presence_penalty=0.5, frequency_penalty=0.3), max_tokens=40
)
LOOPY = hashed_table(16, order=1)
DEEP = hashed_table(16, order=3)
PROMPT = [1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4]


def engine_for(
    target: FakeModel, drafter: Drafter | None = None, k: int = 4, policy: Policy | None = None, **kwargs
) -> Engine:
    vocabulary = kwargs.pop("vocabulary", None) or FakeVocabulary()
    return Engine(
        target,
        vocabulary,
        policy or FixedPolicy(drafter.name if drafter else None, k),
        lambda stops: StopText(vocabulary.piece, stops),
        drafters={drafter.name: drafter} if drafter else {},
        template=PlainTemplate(),
        **kwargs,
    )


def finish(events: Iterator[Event]) -> Done:
    *_, last = events
    assert isinstance(last, Done)
    return last


def drafters(table: Callable) -> dict[str, Callable[[], Drafter]]:
    made: dict[str, Callable[[], Drafter]] = {
        name: (lambda script=script: Scripted(script)) for name, script in scripts(table).items()
    }
    made["ngram"] = lambda: NgramDrafter(1)
    made["model"] = lambda: ModelDrafter(FakeModel(table), frozenset({END}))
    made["another model"] = lambda: ModelDrafter(FakeModel(hashed_table(16, order=1), n_batch=5), frozenset({END}))
    made["larger vocabulary"] = lambda: ModelDrafter(FakeModel(hashed_table(20, order=1), n_vocab=20), frozenset({END}))
    return made


@pytest.mark.parametrize("name", drafters(DEEP))
@pytest.mark.parametrize("k", KS)
def test_every_drafter_gives_what_plain_decoding_gives(name: str, k: int) -> None:
    for table in (DEEP, LOOPY):
        for request in (GREEDY, SEEDED, PENALISED):
            plain, target = engine_for(FakeModel(table)), FakeModel(table)
            drafting = engine_for(target, drafters(table)[name](), k)
            for turn in (PROMPT, [*PROMPT, 5, 6, 7], PROMPT * 3):
                expected = finish(plain.generate(turn, request=request))
                done = finish(drafting.generate(turn, request=request))
                assert (done.tokens, done.text) == (expected.tokens, expected.text)
                assert done.finish_reason == expected.finish_reason
                assert done.cached_prompt_tokens == expected.cached_prompt_tokens
                assert len(done.provenance) == len(done.tokens)


@pytest.mark.parametrize("name", drafters(DEEP))
def test_after_every_round_the_caches_hold_what_is_committed(name: str) -> None:
    target, drafter = FakeModel(DEEP), drafters(DEEP)[name]()
    committed = list(PROMPT)
    for event in engine_for(target, drafter, 4).generate(PROMPT, request=GREEDY):
        if isinstance(event, Text):
            committed.extend(event.tokens)
            assert committed[: len(target.tokens)] == target.tokens
            assert len(target.tokens) >= len(committed) - 1
            if isinstance(drafter, ModelDrafter):
                cached = drafter.model.tokens
                assert cached == committed[: len(cached)] and len(cached) >= len(committed) - 2


@pytest.mark.parametrize("k", KS)
def test_same_model_as_draft_is_always_accepted_and_decodes_each_token_once(k: int) -> None:
    draft = FakeModel(DEEP)
    done = finish(
        engine_for(FakeModel(DEEP), ModelDrafter(draft, frozenset({END})), k).generate(PROMPT, request=GREEDY)
    )
    stats = done.stats
    assert stats.acceptance_rate == 1.0
    assert draft.decoded <= done.prompt_tokens + stats.drafted + stats.rounds
    assert draft.calls == stats.draft_calls


@pytest.mark.parametrize("k", KS)
def test_the_same_model_draws_the_same_tokens_under_match(k: int) -> None:
    """Draft and target share the noise of a position: equal logits give equal draws."""
    drafter = ModelDrafter(FakeModel(DEEP), frozenset({END}))
    assert finish(engine_for(FakeModel(DEEP), drafter, k).generate(PROMPT, request=SEEDED)).stats.acceptance_rate == 1.0


@pytest.mark.parametrize("order", [1, 2])
def test_a_draft_that_errs_decodes_each_committed_token_once(order: int) -> None:
    draft = FakeModel(hashed_table(16, order=order))
    done = finish(
        engine_for(FakeModel(DEEP), ModelDrafter(draft, frozenset({END})), 4).generate(PROMPT, request=GREEDY)
    )
    assert 0 < done.stats.accepted < done.stats.drafted
    assert draft.decoded <= done.prompt_tokens + done.stats.drafted + done.stats.rounds


@pytest.mark.parametrize("n", range(1, 7))
def test_a_cut_round_decodes_no_token_twice_either(n: int) -> None:
    draft = FakeModel(ending_at(n))
    engine = engine_for(FakeModel(ending_at(n)), ModelDrafter(draft, frozenset({END})), 4)
    events = list(engine.generate(PROMPT, request=GREEDY))
    submitted = sum(len(event.proposed) for event in events if isinstance(event, RoundDone))
    assert draft.decoded <= len(PROMPT) + submitted + events[-1].stats.target_calls


def ending_at(n: int) -> Callable[[Sequence[int]], object]:
    """A table whose greedy answer to PROMPT has n tokens, then the end token, then more."""

    def table(context: Sequence[int]):
        row = DEEP(context)
        row[END] = 99.0 if len(context) == len(PROMPT) + n else -99.0
        return row

    return table


def endings() -> dict[str, tuple[Callable, Request]]:
    """Answers that end in every way, with their tables."""
    greedy = Sampling(temperature=0.0)
    return {
        "length": (DEEP, GREEDY),
        "end token at 6": (ending_at(6), GREEDY),
        "end token at 7": (ending_at(7), GREEDY),
        "end token at once": (ending_at(0), GREEDY),
        "stop string": (DEEP, Request(sampling=greedy, max_tokens=40, stop=("><1",))),
    }


@pytest.mark.parametrize("ending", endings())
@pytest.mark.parametrize("k", KS)
def test_statistics_agree_with_each_other(ending: str, k: int) -> None:
    table, request = endings()[ending]
    for name, make in drafters(table).items():
        events = list(engine_for(FakeModel(table), make(), k).generate(PROMPT, request=request))
        done = events[-1]
        stats = done.stats
        passes = [event.round for event in events if isinstance(event, RoundDone)]
        cut = stats.accepted + stats.rounds - done.completion_tokens
        assert cut in (0, 1) and (cut == 0 or done.finish_reason == "stop"), name
        assert stats.target_calls == len(passes) and stats.rounds == sum(r.emitted > 0 for r in passes)
        assert done.provenance.count("a") == stats.accepted <= done.completion_tokens
        assert sum(stats.k_histogram) == stats.rounds
        assert sum(i * n for i, n in enumerate(stats.k_histogram)) == stats.drafted
        assert sum(stats.drafted_per_position) == stats.drafted
        assert sum(stats.accepted_per_position) == stats.accepted
        assert stats.drafting_rounds == stats.rounds - (stats.k_histogram or (0,))[0]
        assert sum(part.drafted for part in stats.drafters.values()) == stats.drafted
        assert (stats.acceptance_rate is None) == (stats.drafted == 0)
        assert (stats.tokens_per_second is None) == (stats.rounds < 2)
        assert (stats.ttft_ms is None) == (done.completion_tokens == 0)


def test_provenance_of_full_acceptance() -> None:
    table = hashed_table(16, end=-99.0)
    request = Request(sampling=Sampling(temperature=0.0), max_tokens=5)
    done = finish(engine_for(FakeModel(table), Scripted(continuation(table)), 2).generate(PROMPT, request=request))
    assert done.provenance == "aabab"


def test_the_first_round_rides_on_the_last_prompt_chunk() -> None:
    target = FakeModel(DEEP, n_batch=8)
    done = finish(engine_for(target, Scripted(continuation(DEEP)), 3).generate(PROMPT, request=GREEDY))
    assert target.widths[:3] == [8, 5 + 3, 1 + 3]
    assert done.stats.target_calls == done.stats.rounds + 1 == target.calls
    assert done.completion_tokens == done.stats.accepted + done.stats.rounds


@pytest.mark.parametrize("length", [7, 8, 9, 16, 17, 63])
@pytest.mark.parametrize("name", ["empty", "oracle", "garbage"])
def test_prompts_around_the_batch_size_and_the_context(length: int, name: str) -> None:
    prompt = [1 + i % 15 for i in range(length)]
    request = Request(sampling=Sampling(temperature=0.0))
    expected = finish(engine_for(FakeModel(LOOPY, n_ctx=64, n_batch=8)).generate(prompt, request=request))
    target = FakeModel(LOOPY, n_ctx=64, n_batch=8)
    done = finish(engine_for(target, Scripted(scripts(LOOPY)[name]), 16).generate(prompt, request=request))
    assert done.tokens == expected.tokens
    assert done.finish_reason == expected.finish_reason
    assert len(prompt) + len(done.tokens) <= 64


@pytest.mark.parametrize("length", [1, 5, 7, 8, 9, 13])
def test_drafts_make_no_pass_wider_than_is_wanted(length: int) -> None:
    """Where a build is width-invariant up to some width, drafting stays within; the prompt's chunks may be wider."""
    target = FakeModel(DEEP)
    events = engine_for(target, Scripted(continuation(DEEP)), 16, widest=8).generate(PROMPT[:length], request=GREEDY)
    drafting = [event.round for event in events if isinstance(event, RoundDone) and event.proposed]
    assert drafting and max(r.width for r in drafting) <= 8


def test_close_from_within_frees_when_the_work_is_done() -> None:
    """A host's signal handler may close the engine in the midst of a decode of the same thread."""
    target = FakeModel(DEEP)
    engine = engine_for(target)
    freed: list[bool] = []

    def close_inside() -> None:
        if target.calls == 3:
            engine.close()
            freed.append(bool(target.closed))

    target.before_decode = close_inside
    with pytest.raises(Closed):
        list(engine.generate(PROMPT, request=GREEDY))
    assert freed == [False] and target.closed


def test_a_context_that_fills_ends_the_answer() -> None:
    endless = hashed_table(16, end=-99.0)
    done = finish(
        engine_for(FakeModel(endless, n_ctx=64)).generate(PROMPT, request=Request(sampling=Sampling(temperature=0.0)))
    )
    assert done.finish_reason == "length"
    assert done.prompt_tokens + done.completion_tokens == 64


@pytest.mark.parametrize("length", [64, 65, 200])
def test_a_prompt_that_does_not_fit_is_an_error_before_anything_is_decoded(length: int) -> None:
    target = FakeModel(DEEP, n_ctx=64)
    with pytest.raises(PromptTooLong, match=rf"{length} tokens .* 64"):
        engine_for(target).generate([1] * length)
    assert target.calls == 0


def test_an_empty_prompt_is_an_error() -> None:
    with pytest.raises(UsageError):
        engine_for(FakeModel(DEEP)).generate([])


@pytest.mark.parametrize("n", range(9))
@pytest.mark.parametrize("k", [0, 1, 3, 4, 8])
def test_an_end_token_anywhere_in_a_round_ends_the_answer_there(n: int, k: int) -> None:
    table = ending_at(n)
    target = FakeModel(table)
    drafter = Scripted(continuation(table))
    engine = engine_for(target, drafter, k)
    done = finish(engine.generate(PROMPT, request=GREEDY))
    assert done.finish_reason == "stop"
    assert done.completion_tokens == n and END not in done.tokens
    assert done.text == "".join(f"<{token}>" for token in done.tokens)
    assert done.stats.accepted <= n and done.stats.accepted == done.provenance.count("a")
    committed = [*PROMPT, *done.tokens]
    assert target.tokens == committed[: len(target.tokens)]

    before = target.decoded
    following = finish(engine.generate([*committed, 5, 6, 7], request=GREEDY))
    assert following.cached_prompt_tokens >= len(committed) - 1
    assert min(target.widths) >= 1 and target.decoded - before <= 4 + following.stats.drafted + following.stats.rounds


@pytest.mark.parametrize("max_tokens", range(1, 12))
@pytest.mark.parametrize("k", [0, 1, 4, 8])
def test_max_tokens_is_exact(max_tokens: int, k: int) -> None:
    table = hashed_table(16, end=-99.0)
    request = Request(sampling=Sampling(temperature=0.0), max_tokens=max_tokens)
    done = finish(engine_for(FakeModel(table), Scripted(continuation(table)), k).generate(PROMPT, request=request))
    assert done.completion_tokens == max_tokens and done.finish_reason == "length"
    assert done.stats.accepted <= done.completion_tokens


@pytest.mark.parametrize("name", ["oracle", "garbage", "flip1", "empty", "eog2"])
@pytest.mark.parametrize("k", [1, 4, 8])
def test_a_stop_string_cuts_text_tokens_counts_and_cache(name: str, k: int) -> None:
    table = hashed_table(16, end=-99.0)
    whole = finish(engine_for(FakeModel(table)).generate(PROMPT, request=GREEDY))
    for at in range(1, 12):
        first, second = whole.tokens[at], whole.tokens[at + 1]
        stop = f"{first}><{second}"
        request = Request(sampling=Sampling(temperature=0.0), max_tokens=40, stop=(stop, "never"))
        target = FakeModel(table)
        events = list(engine_for(target, Scripted(scripts(table)[name]), k).generate(PROMPT, request=request))
        done = events[-1]
        assert isinstance(done, Done) and done.finish_reason == "stop"
        cut = whole.text.index(stop)
        assert done.text == whole.text[:cut]
        assert "".join(event.text for event in events if isinstance(event, Text)) == done.text
        assert done.tokens == whole.tokens[: len(done.tokens)]
        assert stop in "".join(f"<{token}>" for token in done.tokens)
        assert stop not in "".join(f"<{token}>" for token in done.tokens[:-1])
        assert done.stats.accepted <= done.completion_tokens
        assert target.tokens == [*PROMPT, *done.tokens][: len(target.tokens)]


def test_withheld_text_is_flushed_at_the_end() -> None:
    table = hashed_table(16, end=-99.0)
    whole = finish(engine_for(FakeModel(table)).generate(PROMPT, request=GREEDY))
    request = Request(sampling=Sampling(temperature=0.0), max_tokens=40, stop=(whole.text[-3:] + "x",))
    events = list(engine_for(FakeModel(table)).generate(PROMPT, request=request))
    assert "".join(event.text for event in events if isinstance(event, Text)) == whole.text
    assert events[-1].text == whole.text


@pytest.mark.parametrize("k", [0, 1, 3, 8])
def test_characters_that_span_tokens_come_out_whole(k: int) -> None:
    text = "👩‍👩‍👧🇯🇵歪é".encode()
    pieces = {1 + i: text[i : i + 1] for i in range(len(text))}
    order = list(range(1, len(text) + 1))
    n_vocab = len(text) + 2

    def table(context: Sequence[int]):
        row = hashed_table(n_vocab)(context)
        row[(order[len(context) - 1] if len(context) <= len(order) else END)] = 99.0
        return row

    vocabulary = FakeVocabulary(n_vocab, pieces)
    engine = engine_for(FakeModel(table, n_vocab), Scripted(continuation(table)), k, vocabulary=vocabulary)
    events = list(engine.generate([n_vocab - 1], request=Request(sampling=Sampling(temperature=0.0))))
    assert "".join(event.text for event in events if isinstance(event, Text)) == text.decode()
    assert all("\ufffd" not in event.text for event in events if isinstance(event, Text))


def test_an_answer_that_ends_inside_a_character_shows_one_replacement() -> None:
    pieces = {token: "é".encode()[:1] for token in range(16)}
    vocabulary = FakeVocabulary(16, {**pieces, END: b""})
    request = Request(sampling=Sampling(temperature=0.0), max_tokens=1)
    done = finish(engine_for(FakeModel(DEEP), vocabulary=vocabulary).generate(PROMPT, request=request))
    assert done.text == "\ufffd"


def test_a_failing_drafter_is_dropped_with_one_notice() -> None:
    calls = []

    def script(history: Sequence[int], k: int) -> list[int]:
        calls.append(len(history))
        raise ValueError("no [tokens] today")

    engine = engine_for(FakeModel(DEEP), Scripted(script), 4)
    events = list(engine.generate(PROMPT, request=GREEDY))
    notices = [event.message for event in events if isinstance(event, Notice)]
    assert len(notices) == 1 and "no [tokens] today" in notices[0]
    assert len(calls) == 1
    list(engine.generate(PROMPT, request=GREEDY))
    assert len(calls) == 2, "it gets another chance in the next answer"


def test_nothing_is_submitted_behind_a_drafted_end_token() -> None:
    drafter = Scripted(lambda history, k: [5, END, 6, 7][:k])
    events = engine_for(FakeModel(DEEP), drafter, 4).generate(PROMPT, request=GREEDY)
    assert {event.proposed for event in events if isinstance(event, RoundDone)} <= {(5, END), (5,), ()}


@pytest.mark.parametrize("where", ["begin", "settle"])
def test_a_drafter_may_fail_anywhere(where: str) -> None:
    drafter = Scripted(continuation(DEEP))

    def fail(*args: object) -> None:
        raise RuntimeError("broken")

    setattr(drafter, where, fail)
    events = list(engine_for(FakeModel(DEEP), drafter, 4).generate(PROMPT, request=GREEDY))
    assert events[-1].tokens == finish(engine_for(FakeModel(DEEP)).generate(PROMPT, request=GREEDY)).tokens
    assert [event.message for event in events if isinstance(event, Notice)] == [
        "Drafting with scripted stopped for this answer: RuntimeError: broken"
    ]


def test_a_draft_context_that_fills_stops_the_drafting_only() -> None:
    draft = FakeModel(DEEP, n_ctx=len(PROMPT) + 10)
    events = list(
        engine_for(FakeModel(DEEP), ModelDrafter(draft, frozenset({END})), 4).generate(PROMPT, request=GREEDY)
    )
    assert events[-1].tokens == finish(engine_for(FakeModel(DEEP)).generate(PROMPT, request=GREEDY)).tokens
    assert sum(isinstance(event, Notice) for event in events) == 1
    assert len(draft.tokens) <= draft.n_ctx


def test_the_next_turn_decodes_only_what_is_new() -> None:
    target = FakeModel(DEEP)
    engine = engine_for(target, Scripted(continuation(DEEP)), 4)
    first = finish(engine.generate(PROMPT, request=GREEDY))
    turn = [*PROMPT, *first.tokens, 3, 4, 5]
    second = finish(engine.generate(turn, request=GREEDY))
    assert second.cached_prompt_tokens >= len(turn) - 4
    again = finish(engine.generate(turn, request=GREEDY))
    assert again.cached_prompt_tokens == len(turn) - 1
    assert again.tokens == second.tokens


def test_a_model_that_cannot_trim_answers_plain_and_right() -> None:
    target = FakeModel(DEEP, can_trim=False)
    engine = engine_for(target, Scripted(continuation(DEEP)), 4)
    for turn in (PROMPT, [*PROMPT[:5], 9, 9]):
        events = list(engine.generate(turn, request=GREEDY))
        assert events[-1].tokens == finish(engine_for(FakeModel(DEEP)).generate(turn, request=GREEDY)).tokens
        assert events[-1].stats.drafted == 0
        assert sum(isinstance(event, Notice) for event in events) == 1


def test_a_trim_that_is_refused_in_the_middle_is_made_good() -> None:
    """A sliding window can refuse what a model promised: the history is read again, in batches."""
    target = FakeModel(DEEP, n_batch=8)
    engine = engine_for(target, Scripted(scripts(DEEP)["garbage"]), 4)
    events = engine.generate(PROMPT, request=GREEDY)
    next(event for event in events if isinstance(event, RoundDone))
    target.can_trim = False
    assert finish(events).tokens == finish(engine_for(FakeModel(DEEP)).generate(PROMPT, request=GREEDY)).tokens


def test_cancel_between_rounds_keeps_what_came() -> None:
    target = FakeModel(hashed_table(16, end=-99.0))
    engine = engine_for(target)
    seen: list[int] = []
    last: Event | None = None
    for event in engine.generate(PROMPT, request=GREEDY):
        last = event
        if isinstance(event, Text):
            seen.extend(event.tokens)
            if len(seen) == 5:
                engine.cancel()
    assert isinstance(last, Done) and last.finish_reason == "cancelled" and last.tokens == tuple(seen)
    assert finish(engine.generate(PROMPT, request=GREEDY)).completion_tokens == 40


@pytest.mark.parametrize("call", [1, 2, 3, 5])
def test_cancel_inside_a_decode_leaves_the_engine_sound(call: int) -> None:
    target = FakeModel(DEEP, n_batch=4)
    engine = engine_for(target, Scripted(continuation(DEEP)), 2)

    def cancel_then() -> None:
        if target.calls + 1 == call:
            engine.cancel()

    target.before_decode = cancel_then
    done = finish(engine.generate(PROMPT, request=GREEDY))
    assert done.finish_reason == "cancelled"
    target.before_decode = lambda: None
    turn = [*PROMPT, *done.tokens]
    assert target.tokens == turn[: len(target.tokens)]
    expected = finish(engine_for(FakeModel(DEEP)).generate(turn, request=GREEDY))
    assert finish(engine.generate(turn, request=GREEDY)).tokens == expected.tokens


def test_cancel_inside_the_draft_leaves_the_engine_sound() -> None:
    draft = FakeModel(DEEP)
    engine = engine_for(FakeModel(DEEP), ModelDrafter(draft, frozenset({END})), 4)
    draft.before_decode = lambda: engine.cancel() if draft.calls == 6 else None
    done = finish(engine.generate(PROMPT, request=GREEDY))
    assert done.finish_reason == "cancelled" and not any(d.interrupted for d in (draft,))
    draft.before_decode = lambda: None
    assert finish(engine.generate(PROMPT, request=GREEDY)).stats.acceptance_rate == 1.0


def test_closing_the_iterator_early_leaves_the_engine_sound() -> None:
    target = FakeModel(DEEP)
    engine = engine_for(target, Scripted(scripts(DEEP)["flip1"]), 4)
    for _ in engine.generate(PROMPT, request=GREEDY):
        break
    gc.collect()
    assert (
        finish(engine.generate(PROMPT, request=GREEDY)).tokens
        == finish(engine_for(FakeModel(DEEP)).generate(PROMPT, request=GREEDY)).tokens
    )


def test_an_error_in_the_target_leaves_the_engine_sound() -> None:
    target = FakeModel(DEEP)
    engine = engine_for(target, Scripted(continuation(DEEP)), 4)

    def break_once() -> None:
        if target.calls == 3:
            target.calls += 1
            target.tokens.append(9)
            raise RuntimeError("out of luck")

    target.before_decode = break_once
    with pytest.raises(RuntimeError, match="out of luck"):
        list(engine.generate(PROMPT, request=GREEDY))
    assert (
        finish(engine.generate(PROMPT, request=GREEDY)).tokens
        == finish(engine_for(FakeModel(DEEP)).generate(PROMPT, request=GREEDY)).tokens
    )


def test_a_second_call_is_refused_or_waits() -> None:
    engine = engine_for(FakeModel(DEEP))
    first = engine.generate(PROMPT, request=GREEDY)
    next(first)
    with pytest.raises(EngineBusy):
        next(engine.generate(PROMPT, request=GREEDY))
    results: list[Done] = []
    second = threading.Thread(target=lambda: results.append(finish(engine.generate(PROMPT, request=GREEDY, wait=True))))
    second.start()
    tokens = finish(first).tokens
    second.join(10)
    assert [done.tokens for done in results] == [tokens]


def test_close_is_harmless_twice_and_during_an_answer() -> None:
    target = FakeModel(DEEP)
    with engine_for(target) as engine:
        events = engine.generate(PROMPT, request=GREEDY)
        next(events)
    engine.close()
    assert target.closed == 2
    events.close()


def test_close_waits_for_the_decode_in_progress() -> None:
    """Freed memory must not be read: what another thread is doing natively ends first."""
    target = FakeModel(DEEP)
    engine = engine_for(target)
    inside, go_on = threading.Event(), threading.Event()
    order: list[str] = []

    def slow() -> None:
        if target.calls == 3:
            inside.set()
            go_on.wait(10)
            order.append("decoded")

    target.before_decode = slow
    target.close = lambda: order.append("closed")  # type: ignore[method-assign]
    caught: list[BaseException] = []

    def consume() -> None:
        try:
            list(engine.generate(PROMPT, request=GREEDY))
        except Closed as error:
            caught.append(error)

    consumer = threading.Thread(target=consume)
    consumer.start()
    assert inside.wait(10)
    closer = threading.Thread(target=engine.close)
    closer.start()
    while not engine._cancelled.is_set():
        pass
    go_on.set()
    closer.join(10)
    consumer.join(10)
    assert order[:2] == ["decoded", "closed"]
    with pytest.raises(Closed):
        engine.complete("more")


def test_prefill_says_how_far_it_is() -> None:
    target = FakeModel(DEEP, n_batch=4)
    progress = [e for e in engine_for(target).generate(PROMPT, request=GREEDY) if isinstance(e, Prefill)]
    assert [e.done for e in progress] == [0, 4, 8, 12, 13]
    assert {e.total for e in progress} == {13}


class Clock:
    """A clock that moves one second at each look."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def test_speed_leaves_out_the_first_round_and_the_consumer() -> None:
    clock = Clock()
    table = hashed_table(16, end=-99.0)
    engine = engine_for(FakeModel(table), Scripted(continuation(table)), 4, clock=clock)
    events = []
    for event in engine.generate(PROMPT, request=Request(sampling=Sampling(temperature=0.0), max_tokens=15)):
        events.append(event)
        clock.now += 1000.0  # the consumer takes its time
    stats, rounds = events[-1].stats, [e.round for e in events if isinstance(e, RoundDone)]
    assert [r.emitted for r in rounds] == [5, 5, 5]
    assert stats.ttft_ms < 30_000
    assert stats.tokens_per_second == pytest.approx(10 / (rounds[1].seconds + rounds[2].seconds))
    assert stats.draft_ms + stats.verify_ms + stats.overhead_ms == pytest.approx(1000 * sum(r.seconds for r in rounds))
    assert max(r.seconds for r in rounds) < 20


def test_one_round_has_no_speed() -> None:
    request = Request(sampling=Sampling(temperature=0.0), max_tokens=1)
    assert finish(engine_for(FakeModel(DEEP)).generate(PROMPT, request=request)).stats.tokens_per_second is None


def test_chat_goes_through_the_template() -> None:
    engine = engine_for(FakeModel(DEEP))
    text = "hello there"
    chat = finish(engine.chat([{"role": "user", "content": text}], temperature=0.0, max_tokens=40))
    assert chat.tokens == finish(engine.complete(text, request=GREEDY)).tokens
    engine._template = None
    engine._prompts = None
    with pytest.raises(NoChatTemplate):
        engine.chat([{"role": "user", "content": text}])


def test_a_seed_is_drawn_and_reported_and_gives_the_same_text_again() -> None:
    engine = engine_for(FakeModel(DEEP))
    first = finish(
        engine.generate(PROMPT, request=Request(sampling=Sampling(temperature=1.0), verify="match", max_tokens=40))
    )
    again = finish(
        engine.generate(PROMPT, request=Request(sampling=Sampling(temperature=1.0), seed=first.seed, max_tokens=40))
    )
    other = finish(
        engine.generate(PROMPT, request=Request(sampling=Sampling(temperature=1.0), seed=first.seed + 1, max_tokens=40))
    )
    assert again.tokens == first.tokens != other.tokens
    assert (first.verify, again.verify) == ("match", "match")


def test_masked_tokens_are_never_proposed() -> None:
    masked = frozenset(range(4, 12))
    for request in (GREEDY, Request(sampling=Sampling(temperature=1.5, min_p=0.0), max_tokens=60)):
        drafter = ModelDrafter(FakeModel(LOOPY), frozenset({END}))
        engine = engine_for(FakeModel(LOOPY), drafter, 4, masked=masked)
        proposed = [t for e in engine.generate(PROMPT, request=request) if isinstance(e, RoundDone) for t in e.proposed]
        assert proposed and not masked & set(proposed)
