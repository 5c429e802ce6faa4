"""Where the lines of a chat come from: somebody who types, or a pipe or a file."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Protocol, TextIO

import click

from edgespec.errors import UsageError


class Lines(Protocol):
    """Where lines come from."""

    @property
    def interactive(self) -> bool:
        """Whether a person is typing."""

    def read(self, prompt: str) -> str | None:
        """The next line, without its end; None when there are no more."""


class Typed:
    """A person at a terminal; with readline where there is one, which keeps a pasted text together."""

    interactive = True

    def __init__(self) -> None:
        with suppress(ImportError):
            import readline

            if "libedit" not in (readline.__doc__ or ""):  # it has no bracketed paste
                readline.parse_and_bind("set enable-bracketed-paste on")

    def read(self, prompt: str) -> str | None:
        if not sys.stdout.isatty():  # stdout is for answers, and input() would write there
            click.echo(prompt, nl=False, err=True)
            return _line(sys.stdin)
        try:
            return input(prompt)
        except EOFError:
            return None


class Piped:
    """A pipe or a file."""

    interactive = False

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def read(self, prompt: str) -> str | None:
        return _line(self._stream)


def _line(stream: TextIO) -> str | None:
    try:
        line = stream.readline()
    except UnicodeDecodeError as error:
        raise UsageError("The input is no UTF-8 text: convert it.") from error
    return line.removesuffix("\n") if line else None
