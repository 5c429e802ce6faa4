"""A hub on this machine, and an empty cache, for the tests that want them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from edgespec.models.entries import HubEntry, ModelEntry
from edgespec.models.hub import source as room
from edgespec.models.hub.source import HubSource
from edgespec.models.sources import Progress
from tests.models.hub.server import Hub

REPO = "acme/Tiny-GGUF"


class Bench:
    """A hub, the cache that files from it come to, and what a person was told on the way."""

    def __init__(self, hub: Hub, cache: Path) -> None:
        self.hub, self.cache = hub, cache
        self.folder = cache / "models--acme--Tiny-GGUF"
        self.said: list[str] = []
        self.seen: list[tuple[int, int]] = []

    def fetch(self, entry: HubEntry, progress: Progress | None = None, **promised: object) -> tuple[Path, ...]:
        model = ModelEntry("tiny", (entry,), **promised)  # type: ignore[arg-type]
        show = progress or (lambda done, total: self.seen.append((done, total)))
        return HubSource(entry).fetch(model, self.cache, show, self.said.append)

    def find(self, entry: HubEntry, **promised: object) -> tuple[Path, ...]:
        return HubSource(entry).find(ModelEntry("tiny", (entry,), **promised), self.cache)  # type: ignore[arg-type]

    def remove(self, entry: HubEntry) -> int:
        return HubSource(entry).remove(ModelEntry("tiny", (entry,)), self.cache)

    def left(self) -> list[str]:
        """What is in the repository's folder of the cache, but for folders."""
        return sorted(path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*") if not path.is_dir())

    def is_sound(self) -> bool:
        """Whether huggingface-hub finds nothing to complain of."""
        from huggingface_hub import scan_cache_dir

        return not self.cache.exists() or not scan_cache_dir(self.cache).warnings


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    from huggingface_hub import close_session

    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(room, "_PAUSE", 0.0)
    # The library reads its variables when it is imported, so they are set where it keeps them.
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)
    close_session()  # the last test's hub is gone
    with Hub() as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        template = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        yield Bench(hub, tmp_path / "cache")
    close_session()
