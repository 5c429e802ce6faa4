"""`edgespec models` over sources that need no network."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import edgespec.cli.models
from edgespec import hardware
from edgespec.cli import main
from edgespec.models.entries import ModelEntry, PackagesEntry, Pair
from edgespec.models.registry import Registry
from edgespec.models.store import Store
from tests.support.sources import CONTENT, Sources

SIZE = len(CONTENT)


def model(name: str) -> ModelEntry:
    source = PackagesEntry(name, "1", "f")
    return ModelEntry(name, (source,), f"{name}.gguf", SIZE, "0" * 64, "MIT", 128, "optional")


PAIRS = [
    Pair("one", "big", ("small", "tiny"), "Good.", "Any machine."),
    Pair("two", "other", ("small",), "Better.", "Others."),
    Pair("lost", "/nowhere/x.gguf", (), "", ""),
    Pair("also", "other", ("small",), "As two.", "Others."),
]
REGISTRY = Registry({name: model(name) for name in ("big", "small", "tiny", "other")}, {p.name: p for p in PAIRS})


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sources:
    """The sources behind the command, whose cache is `tmp_path`."""
    opened = Sources()
    monkeypatch.setattr(edgespec.cli.models, "_store", lambda offline=False: Store(REGISTRY, tmp_path, offline, opened))
    monkeypatch.setattr(hardware, "memory", lambda: 600_000_000)
    monkeypatch.setattr(hardware, "gpu_memory", lambda: None)
    return opened


def models(*args: str) -> Result:
    return CliRunner().invoke(main, ["models", *args])


def test_the_list_says_what_is_here_and_what_fits(sources: Sources, monkeypatch: pytest.MonkeyPatch) -> None:
    models("pull", "big")
    assert json.loads(models("--json").stdout) == json.loads(models("list", "--json").stdout)
    monkeypatch.setenv("EDGESPEC_JSON", "1")
    assert json.loads(models().stdout)
    monkeypatch.delenv("EDGESPEC_JSON")
    for command in ([], ["list"]):
        head, one, two, lost, _ = lines = models(*command).stdout.splitlines()
        assert lines == [line.rstrip() for line in lines]
        assert head.split() == ["pair", "size", "here", "memory", "fits", "licence"]
        assert one.split() == ["one", "0.0", "GB", "in", "part", "0.5", "GB", "yes", "MIT"]
        assert two.split() == ["two", "0.0", "GB", "no", "0.5", "GB", "yes", "MIT"]
        assert lost.split() == ["lost", "?", "no", "?", "?"]
    monkeypatch.setattr(hardware, "memory", lambda: 400_000_000)
    monkeypatch.setattr(hardware, "gpu_memory", lambda: 600_000_000)
    report = {pair["pair"]: pair for pair in json.loads(models("list", "--json").stdout)}
    assert (report["one"]["here"], report["one"]["fits"], report["one"]["size"]) == ("part", "gpu", 2 * SIZE)
    monkeypatch.setattr(hardware, "gpu_memory", lambda: 400_000_000)
    assert json.loads(models("list", "--json").stdout)[0]["fits"] == "no"


def test_a_pair_is_pulled_with_its_first_draft(sources: Sources, tmp_path: Path) -> None:
    result = models("pull", "one", "big")
    assert result.stdout.split() == [str(tmp_path / "models" / f"{name}.gguf") for name in ("big", "small")]
    assert sources.asked == ["big", "small"]
    assert "Fetching big" in result.stderr and "fetching big: 46% of 0 MB" in result.stderr
    assert models("pull", "one", "-q").stderr == "" and sources.asked == ["big", "small"]


def test_a_wrong_name_is_said_before_anything_is_fetched(sources: Sources) -> None:
    result = models("pull", "big", "bigg")
    assert result.exit_code == 2 and "did you mean big" in result.stderr and not sources.asked


def test_a_failure_and_being_offline_are_a_sentence(sources: Sources) -> None:
    sources.fail = ("big",)
    result = models("pull", "one")
    assert result.exit_code == 1 and result.stdout == ""
    assert result.stderr.splitlines()[-1] == "edgespec: big could not be fetched from the big one: big is shut."
    result = models("pull", "small", "--offline")
    assert result.exit_code == 1 and "leave out --offline" in result.stderr and sources.asked == ["big"]


def test_what_is_known_of_a_pair_and_of_a_model(sources: Sources, tmp_path: Path) -> None:
    models("pull", "small")
    shown = models("show", "one").stdout
    for words in ("good for  Good.", "fits      yes", "target    big", "draft     small", "draft     tiny", "--think"):
        assert words in shown
    assert "here      no" in shown and f"here      {tmp_path / 'models' / 'small.gguf'}" in shown
    assert models("show", "big").stdout.startswith("model     big\n")
    assert json.loads(models("show", "one", "--json").stdout)["drafts"][0]["files"]
    assert json.loads(models("show", "big", "--json").stdout)["licence"] == "MIT"
    assert models("show", "nothing").exit_code == 2


def test_what_other_pairs_use_stays(sources: Sources, tmp_path: Path) -> None:
    models("pull", "one", "two")
    result = models("remove", "one")
    assert "small stays, for other pairs" in result.stderr and result.exit_code == 0
    assert sorted(path.name for path in tmp_path.rglob("*.gguf")) == ["other.gguf", "small.gguf"]
    models("remove", "two")
    assert not list(tmp_path.rglob("*.gguf"))
    result = models("remove", "two")
    assert result.exit_code == 1 and "is not on this machine" in result.stderr
    models("pull", "one", "two")
    assert "Nothing of small was removed" not in models("remove", "two").stderr
    assert sorted(path.name for path in tmp_path.rglob("*.gguf")) == ["big.gguf", "small.gguf"]
    models("remove", "small")
    assert [path.name for path in tmp_path.rglob("*.gguf")] == ["big.gguf"], "named by itself it goes"
