"""What the loader decides before and after it loads, without a model."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import edgespec.loading as loading
from edgespec.errors import BackendError, ModelError, NoChatTemplate, UsageError
from edgespec.events import Notice
from edgespec.llama.proof import prove
from edgespec.models.registry import load_registry
from edgespec.settings import Sampling
from tests.llama.gguf_files import write_head


def model(metadata: Mapping[str, str]) -> Any:
    return SimpleNamespace(metadata=lambda key, default="": metadata.get(key, default))


def test_a_file_s_own_recommendations_come_before_llama_cpp_s_defaults() -> None:
    found = loading._recommended(
        model({"general.sampling.temp": "0.600000", "general.sampling.top_k": "20", "general.sampling.top_p": "0.95"})
    )
    assert found == Sampling(temperature=0.6, top_k=20, top_p=0.95)
    assert loading._recommended(model({})) == Sampling()


@pytest.mark.parametrize("value", ["much", "-4", "nan"])
def test_a_recommendation_that_cannot_be_is_none(value: str) -> None:
    assert loading._recommended(model({"general.sampling.top_p": value})) == Sampling()


def test_a_template_that_jinja_refuses_is_said_and_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []

    def broken(_: object) -> None:
        raise ModelError("The chat template is broken.")

    monkeypatch.setattr(loading.JinjaTemplate, "of", broken)
    assert loading._template(model({}), told.append) is None
    assert told == [Notice("The chat template is broken.")]

    def missing(_: object) -> None:
        raise NoChatTemplate("none")

    monkeypatch.setattr(loading.JinjaTemplate, "of", missing)
    assert loading._template(model({}), told.append) is None and len(told) == 1


def test_names_come_from_what_is_asked_the_environment_and_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = load_registry()
    monkeypatch.delenv("EDGESPEC_PAIR", raising=False)
    monkeypatch.setattr(loading.hardware, "free_memory", lambda: 64 * 10**9)
    assert loading._names(registry, None, None, None).pair == "qwen2.5-coder-1.5b"
    monkeypatch.setattr(loading.hardware, "free_memory", lambda: 10**9)
    assert loading._names(registry, None, None, None).pair == "smollm2"
    monkeypatch.setenv("EDGESPEC_PAIR", "qwen2.5-coder-1.5b")
    assert loading._names(registry, None, None, None).draft == "qwen2.5-coder-0.5b"
    assert loading._names(registry, "smollm2", None, None).target == "smollm2-135m"
    own = loading._names(registry, None, Path("a.gguf"), "b.gguf")
    assert (own.target, own.draft, own.pair) == ("a.gguf", "b.gguf", None)
    assert loading._names(registry, None, "a.gguf", None).draft is None


def test_what_drafts_follows_from_what_there_is() -> None:
    pair, alone = loading._Names("a", "b", None), loading._Names("a", None, None)
    assert [loading._kind(choice, pair) for choice in ("auto", "model", "ngram", "none")] == [
        "model", "model", "ngram", None,
    ]  # fmt: skip
    assert loading._kind("auto", alone) == "ngram"
    with pytest.raises(UsageError, match="--draft"):
        loading._kind("model", alone)


def test_a_frozen_program_is_not_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_head(tmp_path / "m.gguf", {"general.architecture": "llama"})
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    with pytest.raises(BackendError, match="python"):
        prove(file, cache=tmp_path)
