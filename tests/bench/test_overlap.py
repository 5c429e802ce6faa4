"""How alike two models are, recomputed by hand from the tables that they are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from edgespec.bench.overlap import Position, overlap, rows, summarise
from edgespec.errors import Interrupted
from edgespec.settings import Sampling
from tests.support.fakes import FakeModel, hashed_table

PLAIN = Sampling(temperature=0.8, top_k=0, top_p=1.0, min_p=0.0)
PROMPT = [5, 2, 7, 1, 3, 3, 8]
ANSWER = [4, 9, 1, 1, 6, 2, 12, 5, 11, 3]


def pair(n_vocab: int = 16, draft_vocab: int = 16, **draft_options: int) -> tuple[FakeModel, FakeModel]:
    """A target, and a draft that is like it in part."""
    large, other = hashed_table(n_vocab), hashed_table(draft_vocab, seed=1)

    def small(context: Sequence[int]) -> np.ndarray:
        row, both = other(context), min(n_vocab, draft_vocab)
        row[:both] += large(context)[:both]
        return row

    return FakeModel(large, n_vocab=n_vocab), FakeModel(small, n_vocab=draft_vocab, **draft_options)


def by_hand(target: FakeModel, draft: FakeModel, history: Sequence[int]) -> Position:
    p, q = target.table(history).astype(np.float64), draft.table(history).astype(np.float64)
    best, ranked = int(p.argmax()), sorted(range(len(q)), key=lambda token: -q[token])
    p, q = np.exp(p / 0.8), np.exp(q / 0.8)
    shared = sum(min(a, b) for a, b in zip(p / p.sum(), q / q.sum(), strict=False))
    return Position(best == ranked[0], best in ranked[:5], pytest.approx(shared, rel=1e-5))  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{}, {"n_outputs": 1}, {"n_batch": 3}])
def test_each_token_of_the_answer_is_a_position(options: dict[str, int]) -> None:
    target, draft = pair(**options)
    target.tokens, draft.tokens = [1, 1], [2]  # what lies in the caches is forgotten first
    found = overlap(target, draft, PROMPT, ANSWER, PLAIN)
    assert found == [by_hand(target, draft, [*PROMPT, *ANSWER[:i]]) for i in range(len(ANSWER))]
    assert len({position.first for position in found}) == len({position.five for position in found}) == 2
    assert target.tokens == draft.tokens == []
    assert overlap(target, draft, PROMPT[:1], [], PLAIN) == []


def test_passes_are_no_wider_than_a_model_takes() -> None:
    target, draft = pair(n_batch=4, n_outputs=2)
    overlap(target, draft, PROMPT, ANSWER, PLAIN)
    assert draft.widths == [4, 2] + [2] * 5
    assert target.widths == [6, 10]


def test_a_model_is_like_itself() -> None:
    table = hashed_table(16)
    for position in overlap(FakeModel(table), FakeModel(table), PROMPT, ANSWER, Sampling()):
        assert position.first and position.five and position.shared == pytest.approx(1.0)


def test_at_temperature_0_what_is_shared_is_the_first() -> None:
    found = overlap(*pair(), PROMPT, ANSWER, Sampling(temperature=0.0))
    assert [position.shared for position in found] == [float(position.first) for position in found]


@pytest.mark.parametrize(("n_vocab", "draft_vocab"), [(16, 20), (20, 16), (16, 3)])
def test_vocabularies_may_be_of_different_lengths(n_vocab: int, draft_vocab: int) -> None:
    target, draft = pair(n_vocab, draft_vocab)
    answer = [token % draft_vocab for token in ANSWER]
    prompt = [token % draft_vocab for token in PROMPT]
    found = overlap(target, draft, prompt, answer, PLAIN)
    for i, position in enumerate(found):
        p, q = target.table([*prompt, *answer[:i]]), draft.table([*prompt, *answer[:i]])[:n_vocab]
        assert position.first == (p.argmax() == q.argmax())
        assert position.five == (p.argmax() in np.argsort(-q)[:5])
        p, q = np.exp(p / 0.8), np.exp(q / 0.8)
        pairs = zip(p / p.sum(), q / q.sum(), strict=False)
        assert position.shared == pytest.approx(sum(min(both) for both in pairs), rel=1e-5)
    assert len(found) == len(answer)


def test_the_draft_has_a_say_as_far_as_it_can_read() -> None:
    whole = overlap(*pair(), PROMPT, ANSWER, PLAIN)
    assert overlap(*pair(n_ctx=len(PROMPT) + 3), PROMPT, ANSWER, PLAIN) == whole[:4]
    assert overlap(*pair(n_ctx=len(PROMPT)), PROMPT, ANSWER, PLAIN) == whole[:1]
    assert overlap(*pair(n_ctx=len(PROMPT) - 1), PROMPT, ANSWER, PLAIN) == []
    assert len(overlap(*pair(draft_vocab=12), PROMPT, ANSWER, PLAIN)) == ANSWER.index(12) + 1
    assert overlap(*pair(draft_vocab=8), PROMPT, ANSWER, PLAIN) == []


def test_a_comparison_that_is_stopped_leaves_both_caches_empty() -> None:
    target, draft = pair(n_outputs=1)
    draft.before_decode = lambda: draft.interrupt(draft.calls == 4)
    with pytest.raises(Interrupted) as stopped:
        overlap(target, draft, PROMPT, ANSWER, PLAIN)
    assert stopped.value and target.tokens == draft.tokens == []


def test_rows_that_are_not_all_wanted_leave_an_empty_cache() -> None:
    model = FakeModel(hashed_table(16), n_outputs=2)
    some = rows(model, PROMPT, ANSWER)
    assert next(some) == pytest.approx(model.table(PROMPT), rel=1e-5)
    assert next(some) == pytest.approx(model.table([*PROMPT, ANSWER[0]]), rel=1e-5)
    some.close()
    assert model.tokens == []


def test_kinds_are_summed_up_one_by_one_and_together() -> None:
    positions = {
        "code": [Position(True, True, 0.9), Position(False, True, 0.5)],
        "none": [],
        "prose": [Position(False, False, 0.1)],
    }
    code, prose, every = summarise(positions, 0.7)
    assert (code.kind, code.tokens, code.first, code.five, code.shared) == ("code", 2, 0.5, 1.0, pytest.approx(0.7))
    assert (prose.kind, prose.tokens, prose.first, prose.five, prose.shared) == ("prose", 1, 0.0, 0.0, 0.1)
    assert (every.kind, every.tokens, every.temperature) == ("all", 3, 0.7)
    assert (every.first, every.five, every.shared) == pytest.approx((1 / 3, 2 / 3, 0.5))
    assert list(summarise({}, 0.7)) == list(summarise({"code": []}, 0.7)) == []
