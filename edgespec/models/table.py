"""Reading a TOML file key by key, so that whatever is wrong in it is an error that names line and key."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from typing import NoReturn

from edgespec.errors import UsageError

Path = tuple[str | int, ...]
"""The keys and list positions that lead to a value."""


class Document:
    """The text of a TOML file, and what to call the file. Raises UsageError where it is not valid TOML."""

    def __init__(self, text: str, name: str) -> None:
        self._text, self._name = text, name
        try:
            self.root = Table(self, (), tomllib.loads(text))
        except tomllib.TOMLDecodeError as error:
            raise UsageError(f"{name} is not valid TOML, correct it: {error}.") from error

    def fail(self, path: Path, what: str) -> NoReturn:
        """Raise UsageError about the value at `path`, or, where that is missing, about the table it belongs to."""
        key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")
        raise UsageError(f"{self._name}, line {self._line(path)}: {key} {what}.")

    def _line(self, path: Path) -> int:
        """The line where the value begins, or the last table on its path.

        tomllib does not say where a value stands, but of the text up to a line it says whether the value is there yet.
        """
        lines = self._text.splitlines()
        depth, line, read = 0, 1, 0
        for count in range(1, len(lines) + 1):
            try:
                values = tomllib.loads("\n".join(lines[:count]))
            except tomllib.TOMLDecodeError:
                continue  # within a value of several lines, which began behind the last line that was read
            if (found := _depth(values, path)) > depth:
                depth, line = found, read + 1
            read = count
        return line


class Table:
    """One table of a document: its keys are taken one by one, and what is left over at the end is an error."""

    def __init__(self, document: Document, path: Path, values: Mapping[str, object]) -> None:
        self._document, self._path, self._left = document, path, dict(values)

    def __contains__(self, key: str) -> bool:
        return key in self._left

    def fail(self, key: str, what: str) -> NoReturn:
        self._document.fail((*self._path, key), what)

    def text(
        self, key: str, form: re.Pattern[str] | None = None, rule: str = "must be text", default: str | None = None
    ) -> str:
        if default is not None and key not in self._left:
            return default
        value = self._take(key)
        if not isinstance(value, str) or not value or (form is not None and not form.fullmatch(value)):
            self.fail(key, rule)
        return value

    def choice(self, key: str, known: tuple[str, ...], default: str | None = None) -> str:
        value = self.text(key, default=default)
        if value not in known:
            *most, last = [f'"{name}"' for name in known]
            self.fail(key, f'must be {", ".join(most)} or {last}, not "{value}"')
        return value

    def count(self, key: str, default: int | None = None) -> int:
        value = default if default is not None and key not in self._left else self._take(key)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            self.fail(key, "must be a whole number above 0")
        return value

    def texts(self, key: str, default: tuple[str, ...] | None = None) -> tuple[str, ...]:
        if default is not None and key not in self._left:
            return default
        value = self._take(key)
        if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
            self.fail(key, "must be a list of texts")
        return tuple(value)

    def tables(self, key: str) -> list[Table]:
        """A list of tables."""
        value = self._take(key)
        if not isinstance(value, list) or not value or not all(isinstance(item, dict) for item in value):
            self.fail(key, "must be a list of tables, with at least one")
        return [Table(self._document, (*self._path, key, i), item) for i, item in enumerate(value)]

    def named(self, key: str) -> list[tuple[str, Table]]:
        """A table of tables, such as [key.NAME]."""
        value = self._left.pop(key, {})
        if not isinstance(value, dict) or not all(isinstance(item, dict) for item in value.values()):
            self.fail(key, "must be a table of tables")
        return [(name, Table(self._document, (*self._path, key, name), item)) for name, item in value.items()]

    def finish(self) -> None:
        """Raise UsageError where a key is left that nobody asked for."""
        for key in self._left:
            self.fail(key, "is not a key that edgespec knows; correct or remove it")

    def _take(self, key: str) -> object:
        if key not in self._left:
            self.fail(key, "is missing")
        return self._left.pop(key)


def _depth(values: object, path: Path) -> int:
    """How many steps of `path` there are in `values`."""
    for steps, part in enumerate(path):
        try:
            values = values[part]  # type: ignore[index]
        except (KeyError, IndexError, TypeError):
            return steps
    return len(path)
