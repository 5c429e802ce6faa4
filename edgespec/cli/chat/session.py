"""A chat in lines: reads what is typed or piped, does it, and goes on after what goes wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import click

from edgespec.chat import Conversation
from edgespec.cli import INTERRUPTED, complain
from edgespec.cli.answers import prompt_summary, show, summary
from edgespec.cli.chat.entries import HELP, Command, Composer, Say, unknown_command
from edgespec.cli.chat.lines import Lines
from edgespec.cli.chat.tuning import NONE, Tuning
from edgespec.cli.console import Console
from edgespec.engine import Engine
from edgespec.errors import UsageError
from edgespec.events import Done, Event


class Session:
    """One conversation from its first line to its last."""

    def __init__(
        self, engine: Engine, conversation: Conversation, lines: Lines, console: Console, *, as_json: bool = False
    ) -> None:
        self._engine = engine
        self._conversation = conversation
        self._lines = lines
        self._console = console
        self._as_json = as_json
        self._tuning = Tuning(engine)
        self._last: Done | None = None
        self._over = False
        self._code = 0
        self._commands: dict[str, Callable[[str], None]] = {
            "help": lambda _: self._console.reply(HELP),
            "stats": lambda _: self._stats(),
            "reset": lambda _: self._reset(),
            "system": self._system,
            "regenerate": lambda _: self._answer(conversation.regenerate(**self._tuning.options)),
            "set": self._set,
            "save": self._save,
            "load": self._load,
            "quit": lambda _: self._quit(),
        }

    def run(self) -> int:
        """Go on to the end; return the exit code."""
        if self._lines.interactive:
            self._console.say(
                f"Talking with {self._engine.about.target}: /help lists what can be typed, Ctrl-D leaves."
            )
        while not self._over:
            try:
                entry = self._entry()
                if entry is None:
                    break
                self._try(entry)
            except KeyboardInterrupt:
                self._interrupted()
        return self._code

    def _entry(self) -> Say | Command | None:
        """The next message or command; None at the end. What fails here ends the chat: it would fail again."""
        composer = Composer()
        while True:
            line = self._lines.read("... " if composer.pending else "> ")
            if line is None and not composer.pending:
                if self._lines.interactive:
                    self._console.reply("")  # the shell's prompt is to have its own line
                return None
            entry = composer.finish() if line is None else composer.feed(line)
            if entry is not None:
                return entry

    def _try(self, entry: Say | Command) -> None:
        try:
            self._do(entry)
        except BrokenPipeError:  # nobody reads the answers any more
            raise
        except Exception as error:
            complain(click.get_current_context(), error)
            self._code = 0 if self._lines.interactive else 1

    def _do(self, entry: Say | Command) -> None:
        if isinstance(entry, Say):
            self._answer(self._conversation.ask(entry.text, **self._tuning.options))
        elif entry.name in self._commands:
            self._commands[entry.name](entry.argument)
        else:
            raise unknown_command(entry.name)

    def _answer(self, events: Iterator[Event]) -> None:
        self._last = show(self._engine, events, self._console, as_json=self._as_json, prompt_figures=True)
        if self._last is not None and self._last.finish_reason == "cancelled" and not self._lines.interactive:
            self._interrupted()

    def _interrupted(self) -> None:
        if self._lines.interactive:
            self._console.reply("\nCtrl-D or /quit leaves.")
        else:  # there is no prompt to return to
            self._over, self._code = True, INTERRUPTED

    def _quit(self) -> None:
        self._over = True

    def _stats(self) -> None:
        if self._last is None:
            raise UsageError("There is no answer yet, so there are no figures.")
        figures = {name: value for name, value in asdict(self._last.stats).items() if value not in (None, {}, ())}
        for name, value in figures.items():
            self._console.reply(f"{name:26} {f'{value:.4g}' if isinstance(value, float) else value}")
        self._console.reply(f"{summary(self._last)} · {prompt_summary(self._last)}")
        said, left_out = len(self._conversation.turns), self._conversation.left_out
        out = f", the oldest {left_out} of them left out of the prompt" if left_out else ""
        self._console.reply(f"{said} questions answered{out}")

    def _reset(self) -> None:
        self._conversation.reset()
        self._console.say("The conversation begins anew.")

    def _system(self, text: str) -> None:
        if text:
            self._conversation.system = None if text == NONE else text
        self._console.reply(self._conversation.system or "There is no system prompt.")

    def _set(self, argument: str) -> None:
        name, _, value = argument.partition(" ")
        if value.strip():
            self._tuning.set(name, value.strip())
        for shown, effective in self._tuning.effective(name).items():
            self._console.reply(f"{shown:18} {effective}")

    def _save(self, name: str) -> None:
        self._conversation.save(_path(name, "/save"))
        self._console.say(f"Saved to {name}.")

    def _load(self, name: str) -> None:
        self._conversation.load(_path(name, "/load"))
        self._console.say(f"Loaded {len(self._conversation.turns)} questions with their answers from {name}.")


def _path(name: str, command: str) -> Path:
    if not name:
        raise UsageError(f"{command} needs the name of a file: {command} FILE.")
    return Path(name).expanduser()
