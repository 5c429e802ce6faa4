"""What models.toml says: the models and pairs known by name, those of the person after those that are shipped."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import NoReturn, cast, get_args

from edgespec.errors import UsageError
from edgespec.folders import config_folder
from edgespec.models.entries import (
    HubEntry,
    ModelEntry,
    PackagesEntry,
    Pair,
    PathEntry,
    SourceEntry,
    Thinking,
    numbered,
)
from edgespec.models.references import hub_entry, local_path
from edgespec.models.table import Document, Table

DEFAULT_PAIR = "qwen2.5-coder-1.5b"
SMALL_PAIR = "smollm2"
SMALL_MEMORY_BYTES = 4_000_000_000

# Names go into a command line and into paths, so nothing is allowed that could mean something else there.
_PACKAGE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.!+_-]*")
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*\.gguf")
_REVISION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Registry:
    """All models and pairs that are known by name; `default` is the pair that the person's own file names, if any."""

    models: Mapping[str, ModelEntry]
    pairs: Mapping[str, Pair]
    default: str | None = None

    def model(self, name: str) -> ModelEntry:
        """The model called `name`. Raises UsageError, with the names that exist."""
        return self.models[name] if name in self.models else _unknown("model", name, self.models)

    def pair(self, name: str) -> Pair:
        """The pair called `name`. Raises UsageError, with the names that exist."""
        return self.pairs[name] if name in self.pairs else _unknown("pair", name, self.pairs)


NOTHING = Registry(MappingProxyType({}), MappingProxyType({}))


def default_pair_name(free_memory_bytes: int | None) -> str:
    """The pair to use where none is asked for; None where the free memory is not known."""
    small = free_memory_bytes is not None and free_memory_bytes < SMALL_MEMORY_BYTES
    return SMALL_PAIR if small else DEFAULT_PAIR


def pair_to_use(registry: Registry, free_memory_bytes: int | None) -> str:
    """The pair where none is named: $EDGESPEC_PAIR, else the person's own default, else the one that fits."""
    return os.environ.get("EDGESPEC_PAIR") or registry.default or default_pair_name(free_memory_bytes)


def load_registry() -> Registry:
    """The models.toml that came with edgespec, and over it the person's own. Raises UsageError where one is bad."""
    shipped = resources.files("edgespec").joinpath("models.toml")
    # A wheel carries the file inside the package; in a checkout it lies at the root, where people look for it.
    found = shipped if shipped.is_file() else Path(__file__).resolve().parents[2] / "models.toml"
    registry = parse_registry(found.read_text(encoding="utf-8"), str(found))
    own = config_folder() / "models.toml"
    try:
        text = own.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return registry
    except (OSError, UnicodeError) as error:
        raise UsageError(f"{own} cannot be read ({error}): correct it, or move it away.") from error
    return parse_registry(text, str(own), base=registry)


def parse_registry(text: str, where: str = "models.toml", base: Registry = NOTHING) -> Registry:
    """Add what the text of a models.toml says to `base`, whose models and pairs it replaces by name.

    Raises UsageError, which names `where`, the line and the key that is wrong.
    """
    root = Document(text, where).root
    tables = root.named("model")
    models = {**base.models, **{name: _model(name, table) for name, table in tables}}
    pairs = {**base.pairs, **{name: _pair(name, table, models) for name, table in root.named("pair")}}
    default = root.text("default") if "default" in root else base.default
    if default is not None and default not in pairs:
        root.fail("default", f'names the pair "{default}", which is not known')
    root.finish()
    owner = {model.file.lower(): name for name, model in base.models.items() if model.file}
    for name, table in tables:
        # Names that differ in case alone are one file on many systems.
        other = owner.setdefault(models[name].file.lower(), name) if models[name].file else name
        if other != name:
            table.fail("file", f"must differ from that of {other}")
    return Registry(MappingProxyType(models), MappingProxyType(pairs), default)


def _model(name: str, table: Table) -> ModelEntry:
    sources = tuple(_source(source) for source in table.tables("sources"))
    carried = any(isinstance(source, PackagesEntry) for source in sources)
    file = "must be a plain file name that ends in .gguf"
    entry = ModelEntry(
        name=name,
        sources=sources,
        # Packages know nothing of what they carry, so that everything must be said here.
        file=table.text("file", _FILE, file, default=None if carried else ""),
        size=table.count("size") if carried or "size" in table else None,
        sha256=table.text("sha256", _SHA256, "must be 64 hexadecimal digits in lower case")
        if carried or "sha256" in table
        else None,
        licence=table.text("licence", default=""),
        context=table.count("context") if "context" in table else None,
        thinking=cast(Thinking, table.choice("thinking", get_args(Thinking), default="never")),
    )
    table.finish()
    return entry


def _source(table: Table) -> SourceEntry:
    match table.choice("kind", ("path", "hub", "packages")):
        case "path":
            return _path_source(table)
        case "hub":
            return _hub_source(table)
        case _:
            return _packages_source(table)


def _path_source(table: Table) -> PathEntry:
    entry = PathEntry(table.text("path"))
    table.finish()
    return entry


def _hub_source(table: Table) -> HubEntry:
    repo, file = table.text("repo"), table.text("file")
    revision = table.text("revision", _REVISION, "must be a branch, a tag or a commit", default="main")
    entry = HubEntry(repo, file, revision=revision)
    table.finish()
    if (found := hub_entry(f"hf:{repo}")) is None or found.repo != repo:
        table.fail("repo", 'must be a repository on the hub, such as "user/name"')
    if not file.endswith(".gguf") or ".." in PurePosixPath(file).parts or file.startswith("/"):
        table.fail("file", "must be the path of a .gguf file in that repository")
    return entry


def _packages_source(table: Table) -> PackagesEntry:
    entry = PackagesEntry(table.text("package"), table.text("version"), table.text("file"), table.count("parts", 1))
    table.finish()
    if not _PACKAGE.fullmatch(numbered(entry.package, 1)):
        table.fail("package", "must be a package's name, with {n} or {i} for the number of the part")
    if not _VERSION.fullmatch(entry.version):
        table.fail("version", 'must be one version, such as "1.0.0"')
    if re.search(r"[{}]", numbered(entry.file, 1)):
        table.fail("file", "must be a path, with {n}, {i}, {n:02} or {i:02} for the number of the part")
    if entry.parts > 1 and entry.package == numbered(entry.package, 1) and entry.file == numbered(entry.file, 1):
        table.fail("file", "must hold {n} or {i} where there are several parts")
    return entry


def _pair(name: str, table: Table, models: Mapping[str, ModelEntry]) -> Pair:
    pair = Pair(
        name,
        target=table.text("target"),
        drafts=table.texts("drafts", default=()),
        note=table.text("note", default=""),
        hardware=table.text("hardware", default=""),
    )
    for key, model in [("target", pair.target), *(("drafts", draft) for draft in pair.drafts)]:
        if model not in models and hub_entry(model) is None and local_path(model, models) is None:
            table.fail(key, f'names the model "{model}", which has no [model] entry and is no path or hub file')
    table.finish()
    return pair


def _unknown(what: str, name: str, known: Iterable[str]) -> NoReturn:
    names = sorted(known)
    close = difflib.get_close_matches(name.lower(), names, n=2)
    hint = f" (did you mean {' or '.join(close)}?)" if close else ""
    raise UsageError(f"There is no {what} called {name}{hint}; known are: {', '.join(names) or 'none'}.")
