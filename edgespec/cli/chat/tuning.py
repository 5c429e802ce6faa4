"""The options of an answer, as a chat changes them on the way."""

from __future__ import annotations

import difflib
from typing import Any

import click

from edgespec.cli.options import ANSWER, MODELS, parameters
from edgespec.engine import Engine
from edgespec.errors import UsageError

DEFAULT, NONE = "default", "none"


class Tuning:
    """`options` is what was changed, over what the engine was loaded with."""

    def __init__(self, engine: Engine) -> None:
        self.options: dict[str, Any] = {}
        self._engine = engine
        self._parameters = {param.name: param for param in parameters(ANSWER) if param.name}

    def set(self, name: str, text: str) -> None:
        """Change an option as the command line would; `default` takes the change back, `none` is no limit or seed.

        Raises UsageError, and nothing is changed.
        """
        key = self._key(name)
        if text == DEFAULT:
            self.options.pop(key, None)
            return
        options = {**self.options, key: self._value(key, text)}
        self._engine.request(**options)
        self.options = options

    def effective(self, name: str = "") -> dict[str, str]:
        """The value that holds now, of one option or of all, each marked where it was changed here."""
        request = self._engine.request(**self.options)
        shown = {}
        for key in [self._key(name)] if name else self._parameters:
            value = getattr(request if hasattr(request, key) else request.sampling, key)
            if isinstance(value, tuple):
                value = " ".join(map(repr, value))
            shown[_dashed(key)] = (
                f"{NONE if value in (None, '') else value}{' (set here)' if key in self.options else ''}"
            )
        return shown

    def _value(self, key: str, text: str) -> Any:
        if text == NONE and key in ("seed", "max_tokens", "stop"):
            return () if key == "stop" else None
        param = self._parameters[key]
        try:
            value = param.type.convert(text, param, None)
        except click.BadParameter as error:
            raise UsageError(f"{_dashed(key)} stays as it is: {error.message}") from error
        return (value,) if param.multiple else value

    def _key(self, name: str) -> str:
        key = name.removeprefix("--").replace("-", "_")
        if key in self._parameters:
            return key
        if key in {param.name for param in parameters(MODELS)}:
            raise UsageError(f"{name} is chosen at the start: leave, and give --{_dashed(key)}.")
        close = difflib.get_close_matches(name, [_dashed(key) for key in self._parameters], n=1)
        hint = f"did you mean {close[0]}?" if close else "/set alone shows them all."
        raise UsageError(f"There is no option {name}: {hint}")


def _dashed(key: str) -> str:
    return key.replace("_", "-")
