"""A model file in memory."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgespec.errors import Closed, LoadCancelled, ModelUnreadable
from edgespec.llama.header import parts, read_head, refuse_other_kinds
from edgespec.llama.library import Handle, Library, aside, library
from edgespec.llama.vocabulary import LlamaVocabulary
from edgespec.settings import ModelSettings

if TYPE_CHECKING:
    from edgespec.llama.context import Context

Progress = Callable[[float], bool]
"""Called in the loading thread's caller with 0 to 1; False cancels."""

_DETAIL = re.compile(r"^\w+: (error loading model( \w+)?: )*")


class Model:
    """Weights and vocabulary of one GGUF file, made by `load`. Contexts made from it are freed with it."""

    def __init__(self, lib: Library, pointer: Any, path: Path, vocab_only: bool) -> None:
        self.library = lib
        self.path = path
        self.vocab_only = vocab_only
        self._api = lib.api
        self._pointer = pointer
        self._lock = threading.RLock()
        self._contexts: weakref.WeakSet[Context] = weakref.WeakSet()
        self._natives: set[Handle] = set()
        self.vocabulary = LlamaVocabulary(lib, lambda: self._api.llama_model_get_vocab(self.handle))

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        settings: ModelSettings | None = None,
        *,
        vocab_only: bool = False,
        extra_buffers: bool = True,
        progress: Progress | None = None,
    ) -> Model:
        """Read a GGUF file; `vocab_only` leaves the weights out (half a second for 150,000 tokens).

        `extra_buffers` allows llama.cpp to repack weights for this CPU. `progress` is called in this thread; what it
        raises stops the load and comes out here. Raises ModelNotFound, ModelUnreadable, LoadCancelled, BackendMissing.
        """
        settings = settings or ModelSettings()
        file = Path(path)
        head = read_head(file)
        parts(file)
        refuse_other_kinds(file, head)
        lib = library()
        params = lib.api.llama_model_default_params()
        params.n_gpu_layers = settings.gpu_layers
        params.vocab_only = vocab_only
        params.use_extra_bufts = extra_buffers
        model = cls._open(lib, file, params, progress, vocab_only)
        try:
            model._refuse_other_kinds()
        except BaseException:
            model.close()
            raise
        return model

    @classmethod
    def _open(cls, lib: Library, file: Path, params: Any, progress: Progress | None, vocab_only: bool) -> Model:
        state = {"done": 0.0}
        stopped = threading.Event()

        def report(done: float, _data: object) -> bool:
            state["done"] = done
            return not stopped.is_set()

        callback = type(params.progress_callback)(report)
        params.progress_callback = callback
        errors: list[str] = []

        def work() -> Model | None:
            with lib.log.errors() as lines:
                pointer = lib.api.llama_model_load_from_file(os.fsencode(file), params)
            errors.extend(lines)
            return cls(lib, pointer, file, vocab_only) if pointer else None

        def tick() -> None:
            if progress is not None and not progress(min(1.0, max(0.0, state["done"]))):
                raise LoadCancelled(f"Loading {file.name} was cancelled.")

        def discard(model: Model | None) -> None:
            if model is not None:
                model.close()

        tick()
        model = aside(work, discard=discard, tick=tick, stop=stopped.set)
        if model is None:
            raise ModelUnreadable(f"{file} cannot be loaded ({_reason(errors)}): fetch it again, or choose another.")
        state["done"] = 1.0
        try:
            tick()
        except BaseException:
            model.close()
            raise
        return model

    def _refuse_other_kinds(self) -> None:
        api, pointer, what = self._api, self.handle, None
        if self.vocabulary.kind == "none" or not self.vocabulary.n_tokens:
            what = "a model without a vocabulary"
        elif api.llama_model_has_encoder(pointer) or not api.llama_model_has_decoder(pointer):
            what = "a model with an encoder"
        elif api.llama_model_is_diffusion(pointer):
            what = "a diffusion model"
        elif self.metadata(f"{self.architecture}.pooling_type", "0") not in ("0", "-1"):
            what = "an embedding model"
        elif self.metadata(f"{self.architecture}.attention.causal") == "false":
            what = "a text encoder"
        if what is not None:
            raise ModelUnreadable(f"{self.path.name} is {what} and cannot write text: give a language model's file.")

    @property
    def handle(self) -> Any:
        """llama.cpp's pointer. Raises Closed."""
        if self._pointer is None:
            raise Closed(f"The model {self.path.name} is closed: load it again.")
        return self._pointer

    def metadata(self, key: str, default: str = "") -> str:
        """A value of the file's metadata as text; `default` where there is none (arrays have none)."""
        size = 256
        while True:
            buffer = ctypes.create_string_buffer(size)
            needed = int(self._api.llama_model_meta_val_str(self.handle, key.encode(), buffer, size))
            if needed < 0:
                return default
            if needed < size:
                return buffer.value.decode("utf-8", "replace")
            size = needed + 1

    @property
    def architecture(self) -> str:
        return self.metadata("general.architecture")

    @property
    def name(self) -> str:
        return self.metadata("general.name", self.path.stem)

    @property
    def size(self) -> int:
        """Bytes of all tensors."""
        return int(self._api.llama_model_size(self.handle))

    @property
    def n_vocab(self) -> int:
        return self.vocabulary.n_tokens

    @property
    def n_ctx_train(self) -> int:
        """Tokens of context that the model was trained for."""
        found = int(self._api.llama_model_n_ctx_train(self.handle))
        # With `vocab_only` llama.cpp leaves this out.
        return found or int(self.metadata(f"{self.architecture}.context_length", "0"))

    @property
    def is_recurrent(self) -> bool:
        return bool(self._api.llama_model_is_recurrent(self.handle))

    @property
    def is_hybrid(self) -> bool:
        return bool(self._api.llama_model_is_hybrid(self.handle))

    @property
    def chat_template(self) -> str | None:
        """The file's own Jinja template, if it has one."""
        found = self._api.llama_model_chat_template(self.handle, None)
        return found.decode("utf-8", "replace") if found else None

    def adopt(self, context: Context, native: Handle) -> None:
        """Remember a context, to be freed before the weights it reads."""
        self._contexts.add(context)
        self._natives.add(native)

    def disown(self, context: Context, native: Handle) -> None:
        """A context was closed by itself."""
        self._contexts.discard(context)
        self._natives.discard(native)

    def close(self) -> None:
        """Free the contexts, then the weights. Twice is fine."""
        with self._lock:
            for context in list(self._contexts):
                context.close()
            for native in list(self._natives):  # of contexts that the garbage collector has in hand already
                native.free()
            self._natives.clear()
            pointer, self._pointer = self._pointer, None
            if pointer is not None:
                self._api.llama_model_free(pointer)

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()


def _reason(errors: list[str]) -> str:
    """llama.cpp's own reason, without its function names; its last line only says that it failed."""
    telling = [line for line in errors if "failed to load model" not in line] or errors
    if not telling:
        return "llama.cpp gave no reason, perhaps memory ran out"
    return _DETAIL.sub("", telling[-1]).rstrip(". ")
