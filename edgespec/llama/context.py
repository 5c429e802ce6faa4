"""A model at work: one sequence of cached tokens."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from edgespec.errors import BackendError, Closed, Interrupted, RollbackRefused
from edgespec.llama.library import Handle, aside
from edgespec.llama.model import Model
from edgespec.llama.threads import usable_cores
from edgespec.protocols import Logits
from edgespec.settings import ModelSettings

_MICRO_BATCH = 512
_FLASH_ATTENTION_AUTO = -1

_logger = logging.getLogger("edgespec.llama")


class Context:
    """A `LanguageModel` over a loaded model.

    Everything is checked here before llama.cpp is called: what it does not like it answers by ending the process.
    The logits that `decode` returns are llama.cpp's own memory, read-only, valid until the next decode or `close`.
    `interrupt` may come from any thread; everything else is done by one thread at a time (a lock sees to it).
    """

    def __init__(self, model: Model, settings: ModelSettings | None = None) -> None:
        settings = settings or ModelSettings()
        if model.vocab_only:
            raise BackendError(f"{model.path.name} was loaded without its weights: load it whole to decode.")
        self.model = model
        self._api: Any = model.library.api
        self._native = Handle(None, self._api.llama_free)
        self._lock = threading.Lock()
        self._n_vocab = model.n_vocab
        self._n_ctx = settings.ctx
        if 0 < model.n_ctx_train < settings.ctx:
            _logger.info("%s was trained for a context of %d tokens: using that, not %d", model.path.name,
                         model.n_ctx_train, settings.ctx)  # fmt: skip
            self._n_ctx = model.n_ctx_train
        self._n_batch = min(max(settings.batch, settings.max_draft + 1), self._n_ctx)
        self._n_outputs = min(settings.max_draft + 1, self._n_batch)
        self.threads = settings.threads or usable_cores()
        self._stop = ctypes.create_string_buffer(2)
        self._abort = self._abort_callback()
        self._native = Handle(aside(self._create, discard=self._api.llama_free), self._api.llama_free)
        self._memory = self._api.llama_get_memory(self._native.pointer)
        if not self._memory:
            self.close()
            raise BackendError(f"{model.path.name} has no memory of earlier tokens and cannot write text.")
        self._batch = _Batch(self._api, self._n_batch)
        self._cached = 0
        self._sound = True
        model.adopt(self, self._native)

    def _abort_callback(self) -> Any:
        """A native function for llama.cpp to ask after every graph node whether to stop.

        A Python function would take the interpreter lock hundreds of times in a decode, about a millisecond. libc's
        strlen has the right shape: it is given the address of our flag, and its result, 0 or 1, is read as a bool.
        """
        kind = self._api.ggml_abort_callback
        for name in (None, "msvcrt"):
            with contextlib.suppress(OSError, AttributeError, TypeError):
                return ctypes.cast(ctypes.CDLL(name).strlen, kind)
        return kind()

    def _create(self) -> Any:
        api, params = self._api, self._api.llama_context_default_params()
        params.n_ctx = self._n_ctx
        params.n_batch = self._n_batch
        params.n_ubatch = min(self._n_batch, _MICRO_BATCH)
        params.n_seq_max = 1
        # Sized to what is asked for: at the default every row of a batch would have a place in the compute buffer.
        params.n_outputs_max = params.n_outputs_max_per_seq = self._n_outputs
        # A pass over several tokens uses the batch threads; verifying and plain decoding should not differ.
        params.n_threads = params.n_threads_batch = self.threads
        params.flash_attn_type = _FLASH_ATTENTION_AUTO
        params.swa_full = True  # a sliding window that is cut to size could not be rolled back
        params.abort_callback = self._abort
        params.abort_callback_data = ctypes.addressof(self._stop)
        with self.model.library.log.errors() as errors:
            pointer = api.llama_init_from_model(self.model.handle, params)
        if not pointer:
            reason = f" ({errors[-1]})" if errors else ""
            raise BackendError(
                f"llama.cpp could not make a context of {self._n_ctx} tokens for {self.model.path.name}{reason}: "
                "choose a smaller --ctx or fewer --gpu-layers."
            )
        return pointer

    @property
    def n_vocab(self) -> int:
        return self._n_vocab

    @property
    def n_ctx(self) -> int:
        return self._n_ctx

    @property
    def n_batch(self) -> int:
        return self._n_batch

    @property
    def n_outputs(self) -> int:
        return self._n_outputs

    @property
    def can_trim(self) -> bool:
        return not (self.model.is_recurrent or self.model.is_hybrid)

    @property
    def n_cached(self) -> int:
        """Tokens cached for certain."""
        return self._cached

    def decode(self, tokens: Sequence[int], position: int, outputs: int) -> Logits:
        """Append `tokens` at `position`; return the last `outputs` rows, shape (outputs, n_vocab), float32.

        Raises Interrupted, Closed, and BackendError for a request that cannot be or a decode that failed; after an
        error from llama.cpp itself only `trim` is possible.
        """
        with self._lock:
            ids = self._checked(tokens, position, outputs)
            if self._stop.raw[0]:
                raise Interrupted("The decode was stopped.")
            batch = self._batch.fill(ids, position, outputs)
            # Until all is well nothing is certain, not even whether an exception (Ctrl-C) comes before the last line.
            self._sound, self._cached = False, position
            status = self._api.llama_decode(self._native.pointer, batch)
            self._api.llama_synchronize(self._native.pointer)
            if status != 0:
                self._fail(status, len(ids))
            rows = self._rows(len(ids) - outputs, outputs)
            self._sound, self._cached = True, position + len(ids)
            return rows

    def _checked(self, tokens: Sequence[int], position: int, outputs: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        self._alive()
        count = len(tokens)
        if not 1 <= count <= self._n_batch:
            raise BackendError(f"A decode takes 1 to {self._n_batch} tokens, not {count}.")
        if not 0 <= outputs <= min(count, self._n_outputs):
            raise BackendError(
                f"A decode of {count} tokens gives 0 to {min(count, self._n_outputs)} rows of logits, not {outputs}."
            )
        if not self._sound:
            raise BackendError("The last decode did not finish: trim to where it began before going on.")
        if position != self._cached:
            raise BackendError(f"Tokens for position {position} cannot follow the {self._cached} that are cached.")
        if position + count > self._n_ctx:
            raise BackendError(f"{position} cached and {count} new tokens exceed the context of {self._n_ctx}.")
        try:
            ids = np.asarray(tokens, dtype=np.int64)
        except (OverflowError, ValueError, TypeError) as error:
            raise BackendError("The tokens to decode must be whole numbers within the vocabulary.") from error
        if ids.min() < 0 or ids.max() >= self._n_vocab:
            bad = ids[(ids < 0) | (ids >= self._n_vocab)][0]
            raise BackendError(f"Token {bad} is not in this model's vocabulary of {self._n_vocab} tokens.")
        return ids

    def _fail(self, status: int, count: int) -> None:
        if status == 2:
            raise Interrupted("The decode was stopped.")
        if status == 1:
            raise BackendError(f"llama.cpp found no room in the cache for {count} tokens: choose a larger --ctx.")
        raise BackendError(
            f"llama.cpp failed to decode {count} tokens (status {status}): see the log, and look for free memory."
        )

    def _rows(self, first: int, outputs: int) -> Logits:
        # llama.cpp keeps the rows of a batch in batch order, one behind the other (llama_context::decode copies each
        # micro-batch's rows after those before it), so that the first row's address is enough.
        if outputs == 0:
            return np.empty((0, self._n_vocab), dtype=np.float32)
        row = self._api.llama_get_logits_ith(self._native.pointer, first)
        if not row:
            raise BackendError("llama.cpp has no logits for a decoded token: update the build of llama.cpp.")
        size = outputs * self._n_vocab
        memory = memoryview((ctypes.c_float * size).from_address(ctypes.addressof(row.contents)))
        rows: Logits = np.frombuffer(memory, dtype=np.float32).reshape(outputs, self._n_vocab)
        rows.flags.writeable = False
        return rows

    def trim(self, position: int) -> None:
        """Forget the cached tokens from `position` on; 0 always works. Raises RollbackRefused, Closed."""
        with self._lock:
            self._alive()
            if position < 0:
                raise BackendError(f"The cache cannot be trimmed to position {position}: positions begin at 0.")
            if self._sound and position >= self._cached:
                return
            position, sound = min(position, self._cached), self._sound
            # An exception (Ctrl-C) may come between the call and the last line: nothing is certain until then.
            self._sound = False
            if position == 0:
                self._api.llama_memory_clear(self._memory, False)
            elif not self._api.llama_memory_seq_rm(self._memory, 0, position, -1):
                self._sound = sound
                raise RollbackRefused(
                    f"{self.model.path.name} cannot take back single tokens (to position {position}): begin again at 0."
                )
            self._sound, self._cached = True, position

    def interrupt(self, on: bool = True) -> None:
        """Stop the decode in progress and those to come, or allow them again. Safe in any thread and after close."""
        self._stop[0] = b"\1" if on else b"\0"

    def close(self) -> None:
        """Stop a decode in progress and free the cache and buffers. Twice is fine."""
        self.interrupt()
        with self._lock:
            self._native.free()
            self.model.disown(self, self._native)

    def _alive(self) -> None:
        if self._native.pointer is None:
            raise Closed(f"The context of {self.model.path.name} is closed: make a new one.")

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()


class _Batch:
    """llama.cpp's batch over numpy arrays that are made once."""

    def __init__(self, api: Any, size: int) -> None:
        self._tokens = np.zeros(size, dtype=np.int32)
        self._positions = np.zeros(size, dtype=np.int32)
        self._counting = np.arange(size, dtype=np.int32)
        self._wanted = np.zeros(size, dtype=np.int8)
        self._sequence = np.zeros(1, dtype=np.int32)
        self._lengths = np.ones(size, dtype=np.int32)
        self._sequences = np.full(size, self._sequence.ctypes.data, dtype=np.uintp)
        kinds = dict(api.llama_batch._fields_)
        self._batch = api.llama_batch(
            token=ctypes.cast(self._tokens.ctypes.data, kinds["token"]),
            pos=ctypes.cast(self._positions.ctypes.data, kinds["pos"]),
            n_seq_id=ctypes.cast(self._lengths.ctypes.data, kinds["n_seq_id"]),
            seq_id=ctypes.cast(self._sequences.ctypes.data, kinds["seq_id"]),
            logits=ctypes.cast(self._wanted.ctypes.data, kinds["logits"]),
        )

    def fill(self, ids: np.ndarray[Any, np.dtype[np.int64]], position: int, outputs: int) -> Any:
        """The batch of `ids` from `position` on, with logits wanted for the last `outputs`."""
        count = len(ids)
        self._tokens[:count] = ids
        np.add(self._counting[:count], position, out=self._positions[:count])
        self._wanted[: count - outputs] = 0
        self._wanted[count - outputs : count] = 1
        self._batch.n_tokens = count
        return self._batch
