"""What can be done with an engine between two answers: forget, look at a row, exchange policy and judge, measure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from edgespec.control.fixed import FixedPolicy
from edgespec.drafters.model import ModelDrafter
from edgespec.engine import Engine
from edgespec.errors import Closed, EngineBusy, Interrupted
from edgespec.events import Done
from edgespec.judge import Judge
from edgespec.text import StopText
from tests.support.fakes import FakeModel, FakeVocabulary, PlainTemplate, hashed_table

TABLE = hashed_table(16, end=-99.0)
PROMPT = list(range(1, 14)) * 6  # more than two batches


class Rig:
    def __init__(self) -> None:
        self.target, self.draft, vocabulary = FakeModel(TABLE), FakeModel(TABLE), FakeVocabulary()
        self.engine = Engine(
            self.target,
            vocabulary,
            FixedPolicy("model", 3),
            lambda stops: StopText(vocabulary.piece, stops),
            drafters={"model": ModelDrafter(self.draft, vocabulary.end_tokens)},
            template=PlainTemplate(),
        )

    def answer(self, prompt: Sequence[int] = PROMPT, **options: Any) -> Done:
        *_, done = self.engine.generate(prompt, **{"temperature": 0.0, "max_tokens": 12} | options)
        assert isinstance(done, Done)
        return done


def test_forgetting_makes_the_next_answer_read_its_whole_prompt() -> None:
    rig = Rig()
    first = rig.answer()
    assert rig.answer().cached_prompt_tokens == len(PROMPT) - 1
    rig.engine.forget()
    assert rig.target.tokens == [] == rig.draft.tokens
    again = rig.answer()
    assert again.cached_prompt_tokens == 0 and again.tokens == first.tokens


def test_the_drafters_can_forget_alone() -> None:
    rig = Rig()
    rig.answer()
    rig.engine.forget(drafts_only=True)
    read = rig.draft.decoded
    assert rig.draft.tokens == [] and rig.target.tokens
    assert rig.answer().cached_prompt_tokens == len(PROMPT) - 1
    assert rig.draft.decoded - read >= len(PROMPT)


@pytest.mark.parametrize("length", [1, 2, 31, 32, 33, 34, 64, 65, 78])
@pytest.mark.parametrize("before", [lambda rig: None, lambda rig: rig.answer(), lambda rig: rig.answer([9, 9, 9])])
def test_a_row_is_what_the_target_says_after_a_text(length: int, before: Callable[[Rig], object]) -> None:
    rig = Rig()
    before(rig)
    history = PROMPT[:length]
    assert np.array_equal(rig.engine.row(history), TABLE(history).astype(np.float32))
    assert rig.target.widths[-1] == 1, "the last token is decoded alone"
    assert rig.target.tokens == history
    assert rig.answer().tokens == Rig().answer().tokens


def test_models_measured_bare_are_empty_before_and_the_engine_is_sound_afterwards() -> None:
    rig = Rig()
    first = rig.answer()
    with rig.engine.bare():
        assert rig.target.tokens == [] == rig.draft.tokens
        rig.target.decode([1, 2, 3], 0, 1)
        rig.target.trim(0)
    assert rig.answer().tokens == first.tokens


def test_what_is_broken_off_leaves_the_engine_sound() -> None:
    rig = Rig()
    first = rig.answer()
    rig.engine.forget()
    rig.target.before_decode = rig.engine.cancel  # it leaves half of the pass behind
    with pytest.raises(Interrupted):
        rig.engine.row(PROMPT)
    rig.target.before_decode = lambda: None
    assert rig.target.tokens == []
    assert rig.answer().tokens == first.tokens


def test_closing_in_the_midst_of_it_frees_when_it_is_done() -> None:
    rig = Rig()
    rig.target.before_decode = rig.engine.close  # as a signal handler would, in the same thread
    with pytest.raises(Interrupted):
        rig.engine.row(PROMPT)
    assert rig.target.closed == 1 == rig.draft.closed


def test_policy_and_judge_can_be_exchanged() -> None:
    rig = Rig()
    judged: list[int] = []

    class Watched(Judge):
        def verdict(self, draft: Any, rows: Any) -> Any:
            judged.append(len(draft.tokens))
            return super().verdict(draft, rows)

    assert rig.answer().stats.drafted > 0
    rig.engine.policy, rig.engine.judge = FixedPolicy(None, 0), Watched
    assert rig.answer().stats.drafted == 0 and judged == [0] * 12


def test_none_of_it_is_done_during_an_answer_or_after_the_end() -> None:
    rig = Rig()
    events = rig.engine.generate(PROMPT, max_tokens=9)
    next(events)
    for ask in (rig.engine.forget, lambda: rig.engine.row([1]), lambda: rig.engine.bare().__enter__()):
        with pytest.raises(EngineBusy):
            ask()
    list(events)
    rig.engine.forget()
    rig.engine.close()
    for ask in (rig.engine.forget, lambda: rig.engine.row([1])):
        with pytest.raises(Closed):
            ask()


def test_the_tokens_of_a_prompt_are_those_that_an_answer_reads() -> None:
    rig = Rig()
    messages = [{"role": "user", "content": "hello"}]
    *_, chat = rig.engine.chat(messages, max_tokens=1)
    *_, text = rig.engine.complete("hello", max_tokens=1)
    assert isinstance(chat, Done) and isinstance(text, Done)
    assert len(rig.engine.prompt(messages)) == chat.prompt_tokens
    assert len(rig.engine.prompt("hello")) == text.prompt_tokens == 5
