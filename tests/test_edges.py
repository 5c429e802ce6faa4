"""Every edge of an answer, whatever the drafter does: contexts that fill, small batches, ends of every kind."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from edgespec.control.fixed import FixedPolicy
from edgespec.drafters.model import ModelDrafter
from edgespec.drafters.ngram import NgramDrafter
from edgespec.engine import Engine
from edgespec.errors import BadLogits, PromptTooLong
from edgespec.events import Done, Notice, RoundDone
from edgespec.protocols import Distribution, Drafter
from edgespec.settings import About, Request, Sampling
from edgespec.text import StopText
from tests.support.fakes import FakeModel, FakeVocabulary, Scripted, hashed_table, scripts

TABLE, OTHER = hashed_table(16, end=-99.0), hashed_table(16, order=1, end=-99.0)
GREEDY = Request(sampling=Sampling(temperature=0.0))


def engine(target: FakeModel, drafter: Drafter | None, k: int, vocabulary: FakeVocabulary | None = None) -> Engine:
    words = vocabulary or FakeVocabulary()
    return Engine(
        target,
        words,
        FixedPolicy(drafter.name if drafter else None, k),
        lambda stops: StopText(words.piece, stops),
        drafters={drafter.name: drafter} if drafter else {},
    )


def drafters(n_ctx: int) -> dict[str, Callable[[], Drafter]]:
    """Each forces another path: a draft model with a context of its own, n-grams, one that knows, one that errs."""
    return {
        "model": lambda: ModelDrafter(FakeModel(OTHER, n_ctx=n_ctx, n_batch=5), frozenset()),
        "same model": lambda: ModelDrafter(FakeModel(TABLE, n_ctx=n_ctx), frozenset()),
        "ngram": lambda: NgramDrafter(1),
        "oracle": lambda: Scripted(scripts(TABLE)["oracle"]),
        "overlong": lambda: Scripted(scripts(TABLE)["overlong"]),
        "garbage": lambda: Scripted(scripts(TABLE)["garbage"]),
    }


@pytest.mark.parametrize("name", drafters(0))
@pytest.mark.parametrize("length", [1, 2, 7, 8, 9, 15, 16, 17, 20, 21, 22, 23])
def test_a_context_that_fills_in_any_phase(length: int, name: str) -> None:
    """The target holds 24 tokens; the draft's context ends before, with, or after it."""
    prompt = [1 + i % 9 for i in range(length)]
    expected = None
    for draft_ctx, n_batch, k in product((length, 12, 20, 23, 24, 40), (4, 8, 32), (1, 3, 8)):
        *_, plain = engine(FakeModel(TABLE, n_ctx=24, n_batch=n_batch), None, 0).generate(prompt, request=GREEDY)
        target = FakeModel(TABLE, n_ctx=24, n_batch=n_batch)
        drafting = engine(target, drafters(draft_ctx)[name](), k)
        *_, done = drafting.generate(prompt, request=GREEDY)
        assert isinstance(done, Done) and isinstance(plain, Done)
        expected = expected or plain.tokens
        assert done.tokens == plain.tokens == expected and done.finish_reason == plain.finish_reason == "length"
        assert len(prompt) + done.completion_tokens == 24
        again = list(drafting.generate(prompt[: max(1, length - 3)], request=GREEDY))[-1]
        assert isinstance(again, Done) and again.cached_prompt_tokens == max(1, length - 3) - 1


@pytest.mark.parametrize("length", [24, 25, 60])
def test_a_prompt_that_leaves_no_room_is_an_error_before_anything_is_drafted(length: int) -> None:
    target, draft = FakeModel(TABLE, n_ctx=24), FakeModel(TABLE, n_ctx=24)
    with pytest.raises(PromptTooLong, match=f"{length} tokens and the context holds 24"):
        engine(target, ModelDrafter(draft, frozenset()), 3).generate([1] * length, request=GREEDY)
    assert target.calls == draft.calls == 0


@pytest.mark.parametrize("k", [1, 3, 8])
def test_any_of_several_end_tokens_ends_the_answer(k: int) -> None:
    for end in range(1, 16):
        words = FakeVocabulary()
        words.end_tokens = frozenset({0, end})
        for name, make in drafters(64).items():
            *_, plain = engine(FakeModel(TABLE), None, 0, words).generate([1, 2], request=GREEDY, max_tokens=30)
            *_, done = engine(FakeModel(TABLE), make(), k, words).generate([1, 2], request=GREEDY, max_tokens=30)
            assert isinstance(done, Done) and isinstance(plain, Done)
            assert (done.tokens, done.finish_reason) == (plain.tokens, plain.finish_reason), (name, end)
            assert not words.end_tokens & set(done.tokens)


def test_history_may_be_regenerated_edited_and_cut() -> None:
    """What a chat does with its cache, turn after turn, against a fresh engine for each prompt."""
    turns = [[1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 9, 4, 5, 6], [1, 2], [7, 7, 7], [1, 2, 3, 4]]
    for name, make in drafters(64).items():
        target = FakeModel(TABLE, n_ctx=64, n_batch=3)
        kept = engine(target, make(), 4)
        for turn in turns:
            *_, fresh = engine(FakeModel(TABLE, n_ctx=64), None, 0).generate(turn, request=GREEDY, max_tokens=9)
            events = list(kept.generate(turn, request=GREEDY, max_tokens=9))
            assert events[-1].tokens == fresh.tokens, name  # type: ignore[union-attr]
            assert target.tokens == [*turn, *fresh.tokens][: len(target.tokens)]
            assert sum(event.round.emitted for event in events if isinstance(event, RoundDone)) == 9


@pytest.mark.parametrize("q", [Distribution(np.array([3, 4]), np.array([0.5, 0.5])),
                               Distribution(np.array([3, 5]), np.array([0.5, np.nan]))])  # fmt: skip
def test_a_token_that_its_own_q_forbids_drops_the_drafter(q: Distribution) -> None:
    drafter = Scripted(lambda history, k: [5] * k, q=lambda token: q)
    *events, done = engine(FakeModel(TABLE), drafter, 3).generate([1, 2], max_tokens=5, seed=1, verify="block")
    assert isinstance(done, Done) and done.stats.drafted == 0 and done.completion_tokens == 5
    assert [event.message for event in events if isinstance(event, Notice)] == [
        "Drafting with scripted stopped for this answer: it proposed a token that its own q says is impossible."
    ]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_logits_that_are_no_numbers_name_the_model(temperature: float) -> None:
    words = FakeVocabulary()
    broken = Engine(
        FakeModel(lambda context: TABLE(context) * (np.nan if len(context) > 4 else 1.0)),
        words,
        FixedPolicy(None, 0),
        lambda stops: StopText(words.piece, stops),
        about=About("big.gguf"),
    )
    with pytest.raises(BadLogits, match=r"^The output of big\.gguf is not a number: fetch the file again"):
        list(broken.generate([1, 2], max_tokens=9, temperature=temperature))


@pytest.mark.parametrize("rule", ["token", "block", "match"])
def test_one_seed_does_not_repeat_itself_from_turn_to_turn(rule: str) -> None:
    flat = hashed_table(16, spread=0.0, end=-99.0)
    same = 0
    for seed in range(40):
        talk = engine(FakeModel(flat), ModelDrafter(FakeModel(flat), frozenset()), 2)
        request = Request(sampling=Sampling(temperature=1.0), seed=seed, max_tokens=3, verify=rule)  # type: ignore[arg-type]
        *_, one = talk.generate([1, 2], request=request)
        *_, two = talk.generate([1, 2, *one.tokens, 3], request=request)  # type: ignore[union-attr]
        same += one.tokens == two.tokens  # type: ignore[union-attr]
    assert same < 4
