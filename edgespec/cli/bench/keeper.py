"""The files that keep what a run measures."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TextIO

from edgespec.bench.records import Answer, CostCurve, Fork, Overlap, Record, RoundRecord, Run, to_line
from edgespec.cli.console import Console
from edgespec.errors import UsageError


class Keeper:
    """Writes records into the files that were asked for, line by line, so that nothing is lost.

    Rounds go into one of their own, which says of what run they are. What a file held before goes with the first line:
    not for a run that never began.
    """

    def __init__(self, stack: ExitStack, console: Console, as_json: Path | None, rounds: Path | None) -> None:
        self._console = console
        self._files: list[tuple[TextIO, tuple[type, ...]]] = []
        for path, kinds in ((as_json, (Run, Answer, Fork, CostCurve, Overlap)), (rounds, (Run, RoundRecord))):
            if path is not None:
                self._files.append((_opened(stack, path), kinds))

    def write(self, record: Record) -> None:
        for file, kinds in list(self._files):
            if isinstance(record, kinds):
                try:
                    if isinstance(record, Run) and file.seekable():
                        file.truncate(0)
                    file.write(to_line(record) + "\n")
                    file.flush()
                except (OSError, ValueError) as error:
                    self._files.remove((file, kinds))
                    reason = getattr(error, "strerror", None) or error
                    self._console.say(f"{file.name} is not written any further ({reason}); the run goes on.")


def _opened(stack: ExitStack, path: Path) -> TextIO:
    try:
        file = path.open("a", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be written ({error.strerror}): choose another file.") from error
    stack.callback(_closed, file)
    return file


def _closed(file: TextIO) -> None:
    with suppress(OSError):  # on a full disk what is left cannot be written here, either
        file.close()
