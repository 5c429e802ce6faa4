"""Which of the known models are on this machine, and which of them would fit it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from edgespec.errors import ModelError
from edgespec.models.entries import ModelEntry, Pair
from edgespec.models.store import Store

Fit = Literal["gpu", "yes", "no", "unknown"]

# Caches and compute buffers: a share that grows with the model, and what even a small one takes.
_SHARE, _LEAST_BYTES = 1.1, 500_000_000


@dataclass(frozen=True, slots=True)
class Holding:
    """A model by the reference that names it (`entry` is None for a path), its files on this machine, the one to load
    first, and its size in bytes, where that is known."""

    reference: str
    entry: ModelEntry | None
    files: tuple[Path, ...]
    size: int | None

    @property
    def here(self) -> bool:
        return bool(self.files)


@dataclass(frozen=True, slots=True)
class Stock:
    """A pair with what there is of it: the target, and its drafts, the best first."""

    pair: Pair
    target: Holding
    drafts: tuple[Holding, ...]

    @property
    def used(self) -> tuple[Holding, ...]:
        """What an answer needs: the target, and the first draft."""
        return (self.target, *self.drafts[:1])

    @property
    def here(self) -> Literal["yes", "part", "no"]:
        found = [holding.here for holding in self.used]
        return "yes" if all(found) else "part" if any(found) else "no"

    @property
    def size(self) -> int | None:
        """Bytes of the target and the first draft, where both are known."""
        return _total(self.used)

    @property
    def memory(self) -> int | None:
        """Bytes of memory that the pair wants at the default context; an estimate from the size of its files."""
        return None if self.size is None else int(_SHARE * self.size) + _LEAST_BYTES

    @property
    def licences(self) -> tuple[str, ...]:
        """The licences of the models used, without repeats."""
        return tuple(dict.fromkeys(held.entry.licence or "unknown" for held in self.used if held.entry is not None))

    def fits(self, memory: int | None, gpu: int | None) -> Fit:
        """Where the pair would fit: on a GPU of `gpu` bytes, or in a machine of `memory` bytes."""
        if self.memory is None or memory is None:
            return "unknown"
        return "gpu" if gpu is not None and self.memory <= gpu else "yes" if self.memory <= memory else "no"


def holding(store: Store, reference: str) -> Holding:
    """What there is of one model. Raises UsageError for an unknown name."""
    entry = store.entry(reference)
    try:
        files = store.find(reference)
    except ModelError:  # a path that leads nowhere
        files = ()
    size = sum(file.stat().st_size for file in files) if files else entry.size if entry is not None else None
    return Holding(reference, entry, files, size)


def stock(store: Store, pair: Pair) -> Stock:
    """What there is of a pair."""
    return Stock(pair, holding(store, pair.target), tuple(holding(store, draft) for draft in pair.drafts))


def removable(store: Store, pair: Pair) -> tuple[list[Holding], list[Holding]]:
    """The models of a pair that can go, and those that stay because a pair with another target on this machine uses
    them."""
    own = stock(store, pair)
    others = [stock(store, other) for other in store.registry.pairs.values() if other.target != pair.target]
    needed = {held.reference for other in others if other.target.here for held in (other.target, *other.drafts)}
    held = [own.target, *own.drafts]
    return [h for h in held if h.reference not in needed], [h for h in held if h.reference in needed and h.here]


def _total(holdings: Sequence[Holding]) -> int | None:
    sizes = [held.size for held in holdings]
    return None if None in sizes else sum(size for size in sizes if size is not None)
