from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from edgespec.errors import BackendError, Closed
from edgespec.llama import LlamaVocabulary, Model

pytestmark = pytest.mark.real

TEXTS = ["Hello, world", "a\0b\0", "歪龘ñé 👩‍👩‍👧‍👦🇯🇵", "  two  spaces\n\n\ttab", "x" * 300, "\ud800 alone"]


@pytest.fixture(scope="module")
def model(smollm2_path: Path) -> Iterator[Model]:
    with Model.load(smollm2_path, vocab_only=True) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def words(model: Model) -> LlamaVocabulary:
    return model.vocabulary


@pytest.mark.parametrize("text", TEXTS)
def test_pieces_give_the_text_back_byte_for_byte(words: LlamaVocabulary, text: str) -> None:
    ids = words.tokenize(text, add_special=False)
    assert b"".join(map(words.piece, ids)) == text.encode("utf-8", "replace")


def test_empty_text(words: LlamaVocabulary) -> None:
    assert words.tokenize("", add_special=False) == []


def test_special_tokens_in_a_text_are_recognised_and_print_as_nothing(words: LlamaVocabulary) -> None:
    ids = words.tokenize("<|im_start|>user<|im_end|>", add_special=False)
    assert ids[0] == 1 and ids[-1] == 2 and len(ids) == 3
    assert words.piece(1) == b"" and words.text(1) == b"<|im_start|>"


def test_all_ends_are_known(words: LlamaVocabulary) -> None:
    assert words.end == 2 and words.end_tokens > {0, 2}
    assert all(words.attribute(token) & 8 for token in (0, 1, 2))


def test_a_long_piece_is_whole(words: LlamaVocabulary) -> None:
    longest = max(range(words.n_tokens), key=lambda token: len(words.texts[token]))
    assert len(words.piece(longest)) > 64, "too short to try the growing buffer"


def test_texts_agree_with_text(words: LlamaVocabulary) -> None:
    assert len(words.texts) == words.n_tokens == 49152
    assert all(words.texts[token] == words.text(token) for token in (0, 1, 300, 49151))


@pytest.mark.parametrize("token", [-1, 49152, 2**31 - 1])
def test_ids_out_of_range_are_refused_before_llama_cpp_sees_them(words: LlamaVocabulary, token: int) -> None:
    for ask in (words.piece, words.text, words.attribute):
        with pytest.raises(BackendError, match="not in this vocabulary"):
            ask(token)


def test_the_begin_token_is_added_where_the_model_wants_one(gemma_path: Path) -> None:
    with Model.load(gemma_path, vocab_only=True) as gemma:
        words = gemma.vocabulary
        assert (words.kind, words.begin, words.adds_begin) == ("spm", 2, True)
        assert words.tokenize("Hi", add_special=True) == [2, *words.tokenize("Hi", add_special=False)]
        assert b"".join(map(words.piece, words.tokenize("\x07é\0", add_special=False))).strip() == b"\x07\xc3\xa9\0"


def test_after_close_it_raises(smollm2_path: Path) -> None:
    model = Model.load(smollm2_path, vocab_only=True)
    model.close()
    for ask in (lambda: model.vocabulary.tokenize("a", add_special=False), lambda: model.vocabulary.piece(1)):
        with pytest.raises(Closed):
            ask()
