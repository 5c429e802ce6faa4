from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgespec.errors import BackendError, Closed, Interrupted, RollbackRefused
from edgespec.llama import Context, Model
from edgespec.llama import context as module
from edgespec.settings import ModelSettings

pytestmark = pytest.mark.real

TEXT = "The old lighthouse stood on the cliff, and its keeper counted the ships that passed by every night. " * 50


@pytest.fixture(scope="module")
def model(smollm2_path: Path) -> Iterator[Model]:
    with Model.load(smollm2_path) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def tokens(model: Model) -> list[int]:
    return model.vocabulary.tokenize(TEXT, add_special=True)


@pytest.fixture
def make(model: Model) -> Iterator[Callable[..., Context]]:
    made: list[Context] = []

    def one(**settings: int) -> Context:
        chosen = {"ctx": 256, "batch": 64, "max_draft": 15, "threads": 1, **settings}
        made.append(Context(model, ModelSettings(**chosen)))
        return made[-1]

    yield one
    for context in made:
        context.close()


class Watched:
    """llama.cpp's functions, with a call before `llama_decode`; `fail` answers in its place."""

    def __init__(self, api: Any, before: Callable[[], None], fail: int | None = None) -> None:
        self._api, self._before, self._fail = api, before, fail

    def __getattr__(self, name: str) -> Any:
        return getattr(self._api, name)

    def llama_decode(self, *arguments: Any) -> int:
        self._before()
        return int(self._api.llama_decode(*arguments)) if self._fail is None else self._fail


def test_sizes(make: Callable[..., Context], model: Model, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "edgespec.llama"):
        context = make(ctx=100_000, batch=8, max_draft=20)
    assert (context.n_vocab, context.n_ctx, context.n_batch, context.n_outputs) == (49152, 8192, 21, 21)
    assert context.can_trim and context.threads == 1
    assert any("8192" in record.getMessage() for record in caplog.records)
    assert (make(ctx=16).n_ctx, make(ctx=16).n_batch) == (16, 16)
    assert make(threads=0).threads >= 1


def test_rows_are_those_of_the_last_tokens(make: Callable[..., Context], tokens: list[int]) -> None:
    context = make()
    rows = context.decode(tokens[:20], 0, 5)
    assert rows.shape == (5, 49152) and rows.dtype == np.float32 and not rows.flags.writeable
    assert np.isfinite(rows).all()
    rows = rows.copy()
    context.trim(0)
    assert np.array_equal(context.decode(tokens[:20], 0, 1)[0], rows[-1])
    assert context.decode(tokens[20:25], 20, 0).shape == (0, 49152)
    assert context.n_cached == 25


def test_rows_stay_in_order_over_micro_batches(
    make: Callable[..., Context], tokens: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MICRO_BATCH", 32)
    context = make(batch=128, max_draft=63)
    together = context.decode(tokens[:72], 0, 50).copy()
    context.trim(0)
    first = context.decode(tokens[:32], 0, 10).copy()
    second = context.decode(tokens[32:64], 32, 32).copy()
    third = context.decode(tokens[64:72], 64, 8)
    assert np.array_equal(together, np.concatenate([first, second, third]))


def test_wide_and_narrow_decodes_agree_but_for_rounding(make: Callable[..., Context], tokens: list[int]) -> None:
    context = make()
    wide = context.decode(tokens[:12], 0, 12).copy()
    context.trim(0)
    for i, token in enumerate(tokens[:12]):
        row = context.decode([token], i, 1)[0]
        assert np.abs(row - wide[i]).max() < 1.0
        assert np.corrcoef(row, wide[i])[0, 1] > 0.999


def test_trim_and_go_on_equals_a_fresh_start(make: Callable[..., Context], tokens: list[int]) -> None:
    context = make()
    context.decode(tokens[:30], 0, 1)
    fresh = context.decode(tokens[30:34], 30, 4).copy()
    for _ in range(3):
        context.trim(30)
        context.decode([5, 6, 7, 8, 9], 30, 5)
        context.trim(30)
        assert np.array_equal(context.decode(tokens[30:34], 30, 4), fresh)
    context.trim(34)
    context.trim(99)
    assert context.n_cached == 34


@pytest.mark.parametrize(
    ("count", "position", "outputs", "words"),
    [
        (0, 4, 0, "1 to 64 tokens"),
        (65, 4, 1, "1 to 64 tokens"),
        (3, 4, 4, "0 to 3 rows"),
        (20, 4, 17, "0 to 16 rows"),
        (3, 4, -1, "rows"),
        (3, 3, 1, "position 3"),
        (3, 5, 1, "position 5"),
    ],
)
def test_what_would_end_the_process_is_refused(
    make: Callable[..., Context], tokens: list[int], count: int, position: int, outputs: int, words: str
) -> None:
    context = make()
    context.decode(tokens[:4], 0, 1)
    with pytest.raises(BackendError, match=words):
        context.decode(tokens[:count], position, outputs)
    assert context.decode(tokens[4:6], 4, 2).shape[0] == 2, "a refused request must change nothing"


@pytest.mark.parametrize("bad", [-1, 49152, 2**31, 2**70, "a"])
def test_ids_outside_the_vocabulary_are_refused(make: Callable[..., Context], bad: Any) -> None:
    context = make()
    with pytest.raises(BackendError, match=r"vocabulary"):
        context.decode([1, bad, 2], 0, 1)
    context.decode([1], 0, 1)


def test_a_full_context_is_refused(make: Callable[..., Context], tokens: list[int]) -> None:
    context = make(ctx=32, batch=32)
    context.decode(tokens[:30], 0, 1)
    with pytest.raises(BackendError, match="exceed the context of 32"):
        context.decode(tokens[30:33], 30, 1)
    context.decode(tokens[30:32], 30, 1)


def test_an_interrupt_from_another_thread_stops_a_long_decode(make: Callable[..., Context], tokens: list[int]) -> None:
    context = make(batch=256)
    context.decode(tokens[:20], 0, 1)
    began = time.perf_counter()
    rest = context.decode(tokens[20:220], 20, 4).copy()
    full = time.perf_counter() - began
    context.trim(20)

    entered = threading.Event()
    real, context._api = context._api, Watched(context._api, entered.set)
    stopper = threading.Thread(target=lambda: entered.wait(30) and context.interrupt())
    stopper.start()
    began = time.perf_counter()
    with pytest.raises(Interrupted):
        context.decode(tokens[20:220], 20, 4)
    assert time.perf_counter() - began < 0.5 * full
    stopper.join()
    context._api = real

    context.interrupt(False)
    with pytest.raises(BackendError, match="trim"):
        context.decode(tokens[20:30], 20, 1)
    context.trim(20)
    assert np.array_equal(context.decode(tokens[20:220], 20, 4), rest)


def test_an_interrupt_holds_until_it_is_taken_back(make: Callable[..., Context], tokens: list[int]) -> None:
    context = make()
    context.interrupt()
    for _ in range(2):
        with pytest.raises(Interrupted):
            context.decode(tokens[:4], 0, 1)
    context.interrupt(False)
    context.decode(tokens[:4], 0, 1)


def test_an_abort_in_a_later_micro_batch_leaves_no_cells(make: Callable[..., Context], tokens: list[int]) -> None:
    context = make()
    context.decode(tokens[:20], 0, 1)
    fresh = context.decode(tokens[20:30], 20, 1).copy()
    context.trim(20)
    # What such an abort leaves: earlier micro-batches are cached, and yet the call has failed.
    native = context._api
    context._api = Watched(native, lambda: None)
    context._api.llama_decode = lambda *a: (native.llama_decode(*a), 2)[1]
    with pytest.raises(Interrupted):
        context.decode(tokens[100:150], 20, 1)
    context._api = native
    context.trim(20)
    assert np.array_equal(context.decode(tokens[20:30], 20, 1), fresh)


@pytest.mark.parametrize(("status", "kind"), [(1, BackendError), (2, Interrupted), (-2, BackendError)])
def test_a_failed_decode_demands_a_trim(
    make: Callable[..., Context], tokens: list[int], status: int, kind: type[Exception]
) -> None:
    context = make()
    context.decode(tokens[:4], 0, 1)
    native, context._api = context._api, Watched(context._api, lambda: None, fail=status)
    with pytest.raises(kind):
        context.decode(tokens[4:6], 4, 1)
    context._api = native
    with pytest.raises(BackendError, match="trim"):
        context.decode(tokens[4:6], 4, 1)
    context.trim(4)
    context.decode(tokens[4:6], 4, 1)


def test_ctrl_c_out_of_a_decode_leaves_nothing_taken_for_certain(
    make: Callable[..., Context], tokens: list[int]
) -> None:
    context = make()
    fresh = context.decode(tokens[:6], 0, 1).copy()
    context.trim(4)

    def ctrl_c() -> None:
        raise KeyboardInterrupt

    native, context._api = context._api, Watched(context._api, ctrl_c)
    with pytest.raises(KeyboardInterrupt):
        context.decode(tokens[4:6], 4, 1)
    context._api = native
    context.trim(0)
    assert np.array_equal(context.decode(tokens[:6], 0, 1), fresh)


def test_a_refused_rollback_is_an_error_and_zero_always_works(make: Callable[..., Context], tokens: list[int]) -> None:
    context = make()
    fresh = context.decode(tokens[:8], 0, 1).copy()
    native = context._api
    context._api = Watched(native, lambda: None)
    context._api.llama_memory_seq_rm = lambda *_: False
    with pytest.raises(RollbackRefused):
        context.trim(4)
    with pytest.raises(BackendError, match="position 4"):
        context.decode(tokens[4:8], 4, 1)
    context.trim(0)
    assert np.array_equal(context.decode(tokens[:8], 0, 1), fresh)


def test_missing_logits_are_an_error(make: Callable[..., Context], tokens: list[int]) -> None:
    context = make()
    context._api = Watched(context._api, lambda: None)
    context._api.llama_get_logits_ith = lambda *_: None
    with pytest.raises(BackendError, match="no logits"):
        context.decode(tokens[:4], 0, 1)


def test_closing_during_a_decode_waits_for_it(make: Callable[..., Context], tokens: list[int]) -> None:
    context = make(batch=256)
    entered = threading.Event()
    context._api = Watched(context._api, entered.set)
    closer = threading.Thread(target=lambda: entered.wait(30) and context.close())
    closer.start()
    with pytest.raises(Interrupted):
        context.decode(tokens[:220], 0, 1)
    closer.join()
    with pytest.raises(Closed):
        context.decode(tokens[:4], 0, 1)


def test_sliding_windows_can_be_trimmed_far_back(gemma_path: Path) -> None:
    with Model.load(gemma_path) as gemma:
        context = Context(gemma, ModelSettings(ctx=1024, batch=512, max_draft=7, threads=1))
        assert int(gemma.metadata("gemma3.attention.sliding_window")) == 512
        ids = gemma.vocabulary.tokenize(TEXT, add_special=True)[:640]
        context.decode(ids[:40], 0, 1)
        fresh = context.decode(ids[40:44], 40, 1).copy()
        context.decode(ids[44:340], 44, 1)
        context.decode(ids[340:640], 340, 1)
        context.trim(40)
        assert np.array_equal(context.decode(ids[40:44], 40, 1), fresh)


def test_the_garbage_collector_frees_contexts_before_weights(
    smollm2_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a reference cycle objects are finalized in any order, and a context reads its model when it is freed."""
    order: list[str] = []
    model = Model.load(smollm2_path)
    for name in ("llama_free", "llama_model_free"):
        free = getattr(model.library.api, name)

        def noted(pointer: object, name: str = name, free: Callable[[object], object] = free) -> None:
            order.append(name)
            free(pointer)

        monkeypatch.setattr(model.library.api, name, noted)
    cycle: dict[str, Any] = {"context": Context(model, ModelSettings(ctx=64)), "model": model}
    cycle["itself"] = cycle
    del cycle, model
    gc.collect()
    assert order == ["llama_free", "llama_model_free"]
