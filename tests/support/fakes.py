"""A language model that is a table, a vocabulary of short words, and drafters that do as they are told."""

from __future__ import annotations

import functools
import re
import zlib
from collections.abc import Callable, Sequence

import numpy as np

from edgespec.errors import BackendError, Interrupted, RollbackRefused
from edgespec.protocols import Choose, Distribution, Draft, GoesOn, Logits, Offer, always

Table = Callable[[Sequence[int]], np.ndarray]
END = 0


def hashed_table(n_vocab: int, spread: float = 3.0, order: int = 3, seed: int = 0, end: float = -2.0) -> Table:
    """Logits that depend on the last `order` tokens, the same in every process; `end` is the end token's bias."""

    @functools.cache
    def row(tail: tuple[int, ...]) -> np.ndarray:
        logits = np.random.default_rng(zlib.crc32(repr((seed, tail)).encode())).normal(0.0, spread, n_vocab)
        logits[END] += end
        return logits

    return lambda context: row(tuple(context[-order:])).copy()


class FakeModel:
    """Logits from a table of the whole context; every rule of the real cache is enforced."""

    def __init__(
        self,
        table: Table,
        n_vocab: int = 16,
        n_ctx: int = 4096,
        n_batch: int = 32,
        n_outputs: int = 17,
        can_trim: bool = True,
    ) -> None:
        self.table = table
        self.n_vocab, self.n_ctx, self.n_batch, self.n_outputs = n_vocab, n_ctx, n_batch, n_outputs
        self.can_trim = can_trim
        self.tokens: list[int] = []
        self.decoded = 0
        self.calls = 0
        self.widths: list[int] = []
        self.closed = 0
        self.interrupted = False
        self.before_decode: Callable[[], None] = lambda: None

    def decode(self, tokens: Sequence[int], position: int, outputs: int) -> Logits:
        assert not self.closed
        assert position == len(self.tokens), f"decode at {position} with {len(self.tokens)} cached"
        assert 1 <= len(tokens) <= self.n_batch and 0 <= outputs <= min(self.n_outputs, len(tokens))
        assert position + len(tokens) <= self.n_ctx
        assert all(0 <= token < self.n_vocab for token in tokens)
        self.before_decode()
        self.calls += 1
        if self.interrupted:
            self.tokens.extend(tokens[: len(tokens) // 2])  # an interrupted decode leaves some of its work behind
            raise Interrupted("stopped")
        self.decoded += len(tokens)
        self.widths.append(len(tokens))
        self.tokens.extend(tokens)
        first = len(self.tokens) - outputs
        rows = [self.table(self.tokens[: first + i + 1]) for i in range(outputs)]
        return np.array(rows, np.float32).reshape(outputs, self.n_vocab)

    def trim(self, position: int) -> None:
        assert position >= 0
        if position and position < len(self.tokens) and not self.can_trim:
            raise RollbackRefused("cannot")
        del self.tokens[position:]

    def interrupt(self, on: bool = True) -> None:
        self.interrupted = on

    def close(self) -> None:
        self.closed += 1


class FakeVocabulary:
    """Token n is a word such as `<7>`; token 0 ends the answer. Some tokens can be given bytes of their own."""

    def __init__(self, n_tokens: int = 16, pieces: dict[int, bytes] | None = None) -> None:
        self.n_tokens = n_tokens
        self.end_tokens = frozenset({END})
        self.pieces = pieces or {}

    def tokenize(self, text: str, *, add_special: bool) -> list[int]:
        return [1 + ord(c) % (self.n_tokens - 1) for c in text]

    def piece(self, token: int) -> bytes:
        return self.pieces.get(token, f"<{token}>".encode())


class WordVocabulary:
    """Bytes are tokens; so are some words, which a model may say but a text is never read as, and control words.

    That is how tokenizers differ from models: the text of an answer is read as other tokens than those that were said.
    """

    BEGIN = 257

    def __init__(self, words: Sequence[bytes] = (), controls: Sequence[str] = (), *, begins: bool = False) -> None:
        self.controls = {text: 258 + i for i, text in enumerate(controls)}
        self.words = {word: 258 + len(controls) + i for i, word in enumerate(words)}
        self.begins = begins
        self.n_tokens = 258 + len(controls) + len(words)
        self.end_tokens = frozenset({END})
        self._pieces = {token: word for word, token in self.words.items()}
        self._texts = {token: text for text, token in self.controls.items()}
        self.read: list[str] = []

    def tokenize(self, text: str, *, add_special: bool) -> list[int]:
        self.read.append(text)
        parts = re.split(f"({'|'.join(map(re.escape, self.controls)) or '(?!)'})", text)
        ids = [
            [self.controls[part]] if part in self.controls else [1 + b for b in part.encode("utf-8", "replace")]
            for part in parts
        ]
        return [self.BEGIN] * (add_special and self.begins) + [token for part in ids for token in part]

    def piece(self, token: int) -> bytes:
        return bytes([token - 1]) if 1 <= token <= 256 else self._pieces.get(token, b"")

    def spell(self, tokens: Sequence[int]) -> str:
        """All of the text, control words too."""
        return b"".join(self._texts[t].encode() if t in self._texts else self.piece(t) for t in tokens).decode()


class ChatWords:
    """A chat template for tests, of control words: <u>question<e><a>answer<e>…<a>."""

    CONTROLS = ("<s>", "<u>", "<a>", "<e>")
    has_thoughts = False
    has_think_switch = False

    def render(self, messages: Sequence[dict[str, str]], think: bool | None = None) -> str:
        marks = {"system": "<s>", "user": "<u>", "assistant": "<a>"}
        return "".join(f"{marks[m['role']]}{m['content']}<e>" for m in messages) + "<a>"

    def begins_itself(self, prompt: str) -> bool:
        return False


def saying(vocabulary: WordVocabulary, *answers: Sequence[int]) -> Table:
    """A table for ChatWords that gives one answer after the other: the n-th to the n-th question in the prompt.

    Answers are words and control words; bytes behind the last <a> are the template's.
    """
    asks, replies = vocabulary.controls["<u>"], vocabulary.controls["<a>"]

    def table(context: Sequence[int]) -> np.ndarray:
        behind = list(context[::-1]).index(replies) if replies in context else 0
        said = sum(token > vocabulary.BEGIN for token in context[len(context) - behind :])
        answer = answers[(list(context).count(asks) - 1) % len(answers)]
        row = np.zeros(vocabulary.n_tokens, np.float32)
        row[answer[said] if said < len(answer) else END] = 99.0
        return row

    return table


class PlainTemplate:
    """A chat template for tests: contents, one after the other."""

    has_thoughts = False
    has_think_switch = False

    def render(self, messages: Sequence[dict[str, str]], think: bool | None = None) -> str:
        return "".join(message["content"] for message in messages)

    def begins_itself(self, prompt: str) -> bool:
        return False


class Scripted:
    """A drafter that proposes what `script(history, k)` says, one-hot or with a q for each token."""

    def __init__(
        self,
        script: Callable[[Sequence[int], int], Sequence[int]],
        q: Callable[[int], Distribution | None] = lambda token: None,
        name: str = "scripted",
    ) -> None:
        self.name = name
        self.script, self.q = script, q
        self.settled: list[int] = []

    def begin(self, history: Sequence[int]) -> None:
        self.settled.clear()

    def offer(self, history: Sequence[int]) -> Offer:
        return Offer(63, unread=1)

    def draft(self, history: Sequence[int], k: int, choose: Choose, goes_on: GoesOn = always) -> Draft:
        tokens = tuple(self.script(history, k))
        return Draft(tokens, tuple(self.q(token) for token in tokens))

    def settle(self, accepted: int) -> None:
        self.settled.append(accepted)

    def interrupt(self, on: bool = True) -> None:
        pass

    def close(self) -> None:
        pass


def continuation(table: Table) -> Callable[[Sequence[int], int], list[int]]:
    """The target's own greedy continuation: the oracle."""

    def script(history: Sequence[int], k: int) -> list[int]:
        tokens = list(history)
        for _ in range(k):
            tokens.append(int(table(tokens).argmax()))
        return tokens[len(history) :]

    return script


def scripts(table: Table, n_vocab: int = 16) -> dict[str, Callable[[Sequence[int], int], Sequence[int]]]:
    """The drafters of notes on faults, by name: each forces another path through the loop."""
    oracle = continuation(table)

    def flip(i: int) -> Callable[[Sequence[int], int], list[int]]:
        def script(history: Sequence[int], k: int) -> list[int]:
            tokens = oracle(history, k)
            if i < k:
                tokens[i] = 1 + tokens[i] % (n_vocab - 1)
            return tokens

        return script

    def ending(i: int) -> Callable[[Sequence[int], int], list[int]]:
        return lambda history, k: [*oracle(history, k)[:i], END, *oracle(history, k)[i:]][:k]

    def failing(history: Sequence[int], k: int) -> list[int]:
        raise BackendError("it broke.")

    return {
        "oracle": oracle,
        "garbage": lambda history, k: [3] * k,
        "flip0": flip(0),
        "flip1": flip(1),
        "flip3": flip(3),
        "eog0": ending(0),
        "eog2": ending(2),
        "overlong": lambda history, k: oracle(history, k + 40),
        "empty": lambda history, k: [],
        "oov": lambda history, k: [n_vocab] * k,
        "negative": lambda history, k: [-1] * k,
        "failing": failing,
    }
