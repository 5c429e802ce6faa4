"""A model's vocabulary: ids, bytes, texts, and which tokens end an answer."""

from __future__ import annotations

import ctypes
import functools
import itertools
from collections.abc import Callable
from typing import Any

from edgespec.errors import BackendError
from edgespec.llama.library import Library

_KINDS = {0: "none", 1: "spm", 2: "bpe", 3: "wpm", 4: "ugm", 5: "rwkv", 6: "plamo2"}

UNUSED, CONTROL, USER_DEFINED = 2, 8, 16
"""Bits of `attribute`."""


class LlamaVocabulary:
    """Token ids and their bytes, as the model file defines them; usable until the model is closed.

    `handle` gives llama.cpp's pointer, and raises Closed when the model is gone.
    """

    def __init__(self, library: Library, handle: Callable[[], Any]) -> None:
        self._api = library.api
        self._handle = handle
        vocab = handle()
        api = self._api
        self._n_tokens = int(api.llama_vocab_n_tokens(vocab))
        self.kind = _KINDS.get(int(api.llama_vocab_type(vocab)), "unknown")
        self.begin = _id(api.llama_vocab_bos(vocab))
        self.end = _id(api.llama_vocab_eos(vocab))
        self.adds_begin = bool(api.llama_vocab_get_add_bos(vocab))
        self.adds_end = bool(api.llama_vocab_get_add_eos(vocab))

    @property
    def n_tokens(self) -> int:
        return self._n_tokens

    @functools.cached_property
    def end_tokens(self) -> frozenset[int]:
        """Every token that ends a generation, not the end token alone."""
        ends, vocab = self._api.llama_vocab_is_eog, self._handle()
        ids = range(self._n_tokens)
        return frozenset(itertools.compress(ids, map(ends, itertools.repeat(vocab), ids)))

    @functools.cached_property
    def texts(self) -> list[bytes]:
        """The stored text of every token; not what it prints as, which is `piece`."""
        text, vocab = self._api.llama_vocab_get_text, self._handle()
        return list(map(text, itertools.repeat(vocab), range(self._n_tokens)))

    def text(self, token: int) -> bytes:
        """The stored text of one token."""
        return bytes(self._api.llama_vocab_get_text(self._handle(), self._checked(token)))

    def attribute(self, token: int) -> int:
        """llama.cpp's attribute bits of one token: UNUSED, CONTROL, USER_DEFINED and others."""
        return int(self._api.llama_vocab_get_attr(self._handle(), self._checked(token)))

    def tokenize(self, text: str, *, add_special: bool) -> list[int]:
        """Text to ids. Special tokens written in the text are recognised; lone surrogates become question marks."""
        raw = text.encode("utf-8", "replace")
        vocab, room = self._handle(), len(raw) + 8
        while True:
            ids = (ctypes.c_int32 * room)()
            count = self._api.llama_tokenize(vocab, raw, len(raw), ids, room, add_special, True)
            if count >= 0:
                return ids[:count]
            if -count <= room:
                raise BackendError(f"A text of {len(raw)} bytes is too long to tokenize: shorten it.")
            room = -count

    def piece(self, token: int) -> bytes:
        """The bytes of one token; control tokens have none. They may be part of a character."""
        vocab, room = self._handle(), 64
        self._checked(token)
        while True:
            buffer = ctypes.create_string_buffer(room)
            count = self._api.llama_token_to_piece(vocab, token, buffer, room, 0, False)
            if count >= 0:
                return buffer.raw[:count]
            if -count <= room:
                raise BackendError(f"llama.cpp has no text for token {token}: fetch the model file again.")
            room = -count

    def _checked(self, token: int) -> int:
        # Out of range, llama.cpp throws a C++ exception through ctypes, which ends the process.
        if not 0 <= token < self._n_tokens:
            raise BackendError(f"Token {token} is not in this vocabulary of {self._n_tokens} tokens.")
        return token


def _id(token: int) -> int | None:
    return int(token) if token >= 0 else None
