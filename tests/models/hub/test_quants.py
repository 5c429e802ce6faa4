"""Which of a repository's files is meant."""

import pytest

from edgespec.models.hub.quants import choose, is_inside, models, parts, quants

MANY = [
    "README.md",
    "imatrix.gguf",
    "mmproj-model-Q4_K_M.gguf",
    "mtp-Tiny-Q4_K_M.gguf",
    "Tiny-IQ4_K_M.gguf",
    "Tiny-Q4_K_M.gguf",
    "Tiny-Q4_K_M-other.gguf",
    "Tiny-Q4_K.gguf",
    "Tiny-UD-Q4_K_XL.gguf",
    "tiny_q5_k_m.gguf",
    "tiny.BF16.GGUF",
    "Q8_0/Tiny-Q8_0-00002-of-00002.gguf",
    "Q8_0/Tiny-Q8_0-00001-of-00002.gguf",
    "Q2_K/tiny-00001-of-00001.gguf",
]


@pytest.mark.parametrize(
    ("quant", "file"),
    [
        ("Q4_K_M", "Tiny-Q4_K_M.gguf"),
        ("q4_k_m", "Tiny-Q4_K_M.gguf"),
        (None, "Tiny-Q4_K_M.gguf"),
        ("IQ4_K_M", "Tiny-IQ4_K_M.gguf"),
        ("q4_k", "Tiny-Q4_K.gguf"),
        ("UD-Q4_K_XL", "Tiny-UD-Q4_K_XL.gguf"),
        ("Q4_K_XL", "Tiny-UD-Q4_K_XL.gguf"),
        ("Q5_K_M", "tiny_q5_k_m.gguf"),
        ("bf16", "tiny.BF16.GGUF"),
        ("f16", None),
        ("gguf", None),
        ("Q4_.", None),
        ("Q8_0", "Q8_0/Tiny-Q8_0-00001-of-00002.gguf"),
        ("Q2_K", "Q2_K/tiny-00001-of-00001.gguf"),
    ],
)
def test_a_quant_is_a_whole_word_in_the_name_or_else_the_folder(quant: str | None, file: str | None) -> None:
    chosen = choose(models(MANY), quant)
    assert (chosen[0] if chosen else None) == file


def test_without_a_quant_the_defaults_come_first_and_then_the_first() -> None:
    files = ["z-Q8_0.gguf", "a-Q2_K.gguf", "mmproj-a.gguf"]
    assert choose(models(files), None) == ("z-Q8_0.gguf",)
    assert choose(models(files[1:]), None) == () and choose(models(files[1:]), None, settle=True) == ("a-Q2_K.gguf",)
    assert choose(models(files[2:]), None, settle=True) == () == choose([], "Q8_0", settle=True)


def test_a_split_model_has_all_its_parts_in_order() -> None:
    split = tuple(f"dir/x-{n:05d}-of-00003.gguf" for n in (1, 2, 3))
    assert all(parts(file) == split for file in split) and models(reversed(split)) == [split]
    assert parts("x-00001-of-00000.gguf") == ("x-00001-of-00000.gguf",)


def test_the_quants_there_are() -> None:
    assert quants(models(MANY)) == ["BF16", "IQ4_K_M", "Q2_K", "Q4_K", "Q4_K_M", "Q5_K_M", "Q8_0", "UD-Q4_K_XL"]
    assert quants(models(["plain.gguf"])) == ["plain.gguf"]


@pytest.mark.parametrize("path", ["/x.gguf", "../x.gguf", "a/../../x.gguf", "./x.gguf", "a//x.gguf"])
def test_a_path_that_leads_out_is_no_model(path: str) -> None:
    assert not is_inside(path) and models([path]) == []
