"""A loader that makes fake engines, for the commands that answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import edgespec.loading
from edgespec.control.fixed import FixedPolicy
from edgespec.engine import Engine
from edgespec.events import Loading, Notice
from edgespec.settings import About, Request
from edgespec.text import StopText
from tests.support.fakes import FakeModel, FakeVocabulary, PlainTemplate, Scripted, continuation, hashed_table

TABLE = hashed_table(16, end=-99.0)


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    """Replace the loader by one that makes a fake engine; yields what it was asked for."""
    calls: list[dict[str, Any]] = []

    def load(pair: str | None = None, *, on_event: Any, **options: Any) -> Engine:
        calls.append({"pair": pair, **options})
        on_event(Loading("loading something", 0.5))
        on_event(Notice("Something to know."))
        vocabulary = FakeVocabulary()
        answer = {k: v for k, v in options.items() if k in ("temperature", "max_tokens", "seed", "stop", "top_k")}
        return Engine(
            FakeModel(TABLE),
            vocabulary,
            FixedPolicy("scripted", 3),
            lambda stops: StopText(vocabulary.piece, stops),
            drafters={"scripted": Scripted(continuation(TABLE))},
            template=PlainTemplate(),
            about=About("big", "small", pair),
            defaults=Request().having(**answer),
        )

    monkeypatch.setattr(edgespec.loading, "load", load)
    yield calls
