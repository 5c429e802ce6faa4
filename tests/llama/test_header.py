from __future__ import annotations

from pathlib import Path

import pytest

from edgespec.errors import ModelError, ModelNotFound, ModelUnreadable
from edgespec.llama.header import parts, read_head, refuse_other_kinds
from tests.llama.gguf_files import write_head


def test_values_before_the_first_array_are_read(tmp_path: Path) -> None:
    values: dict[str, str | int] = {"general.architecture": "llama", "llama.context_length": 77, "general.name": "ü"}
    assert read_head(write_head(tmp_path / "a.gguf", values)) == values


@pytest.mark.parametrize(
    ("content", "kind", "words"),
    [
        (None, ModelNotFound, "no file"),
        (b"", ModelUnreadable, "empty"),
        (b"PK\3\4 a zip", ModelUnreadable, "not a GGUF file"),
        (b"GGUF\3\0\0\0", ModelUnreadable, "cut short"),
        (b"GGUF\1\0\0\0" + bytes(16), ModelUnreadable, "version 1"),
        (b"GGUF\3\0\0\0" + bytes(8) + b"\1" + bytes(7) + b"\xff" * 8, ModelUnreadable, "cut short"),
    ],
)
def test_what_is_no_gguf_is_refused_in_a_sentence(
    tmp_path: Path, content: bytes | None, kind: type[ModelError], words: str
) -> None:
    file = tmp_path / "model.gguf"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(kind, match=words) as caught:
        read_head(file)
    assert str(caught.value).endswith(".") and "\n" not in str(caught.value)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelUnreadable, match="not a file"):
        read_head(tmp_path)


def test_a_head_cut_anywhere_is_refused_not_crashed_on(tmp_path: Path) -> None:
    whole = write_head(tmp_path / "a.gguf", {"general.architecture": "llama", "x": 1}, filler=0).read_bytes()
    for length in range(1, len(whole)):
        (tmp_path / "b.gguf").write_bytes(whole[:length])
        with pytest.raises(ModelUnreadable):
            read_head(tmp_path / "b.gguf")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"general.architecture": "llama", "general.type": "adapter"}, "LoRA"),
        ({"general.architecture": "clip"}, "projector"),
        ({"general.architecture": "llama", "general.type": "mmproj"}, "projector"),
        ({"general.architecture": "nomic-bert-moe"}, "encoder"),
        ({"general.architecture": "gemma-embedding"}, "encoder"),
        ({"general.architecture": "t5"}, "encoder-decoder"),
        ({"general.architecture": "qwen3", "qwen3.pooling_type": 3}, "embedding model"),
        ({"general.architecture": "eagle3"}, "draft head"),
        ({"general.architecture": "dream"}, "diffusion"),
    ],
)
def test_other_kinds_of_files_are_named(values: dict[str, str | int], words: str) -> None:
    with pytest.raises(ModelUnreadable, match=words):
        refuse_other_kinds(Path("x.gguf"), dict(values))


@pytest.mark.parametrize("values", [{}, {"general.architecture": "llama", "general.type": "model"}])
def test_language_models_pass(values: dict[str, str | int | float | bool]) -> None:
    refuse_other_kinds(Path("x.gguf"), values)


def test_split_models_are_loaded_from_their_first_part(tmp_path: Path) -> None:
    one, two = (tmp_path / f"big-0000{n}-of-00002.gguf" for n in (1, 2))
    one.touch()
    with pytest.raises(ModelNotFound, match=r"big-00002-of-00002\.gguf is missing"):
        parts(one)
    two.touch()
    assert parts(one) == [one, two]
    with pytest.raises(ModelUnreadable, match=r"give its first part, big-00001-of-00002\.gguf"):
        parts(two)
    assert parts(tmp_path / "small.gguf") == [tmp_path / "small.gguf"]
