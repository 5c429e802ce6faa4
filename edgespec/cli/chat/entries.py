"""What lines of a chat mean: messages and commands, apart from reading them and doing them."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from edgespec.errors import UsageError

BLOCK = '"""'

COMMANDS = {
    "help": ("", "what can be typed here"),
    "stats": ("", "the figures of the last answer"),
    "reset": ("", "forget the conversation, but for the system prompt"),
    "system": ("[TEXT]", "show the system prompt, or change it; none removes it"),
    "regenerate": ("", "answer the last message once more"),
    "set": ("[NAME VALUE]", "change an option of the answers, default takes it back; alone: show all"),
    "save": ("FILE", "write the conversation to a file"),
    "load": ("FILE", "go on with a conversation from a file"),
    "quit": ("", "leave, like Ctrl-D"),
}

HELP = "\n".join(
    [
        *(f"{f'/{name} {argument}':20} {what}" for name, (argument, what) in COMMANDS.items()),
        f"{'//text':20} send /text as a message",
        f"{BLOCK:20} begins and ends a message of several lines; so does \\ at the end of a line, for one more",
        f"{'Ctrl-C':20} stops an answer and keeps what came",
    ]
)


@dataclass(frozen=True, slots=True)
class Say:
    """A message to the model."""

    text: str


@dataclass(frozen=True, slots=True)
class Command:
    """A command, which need not exist, and what follows it."""

    name: str
    argument: str


class Composer:
    """Puts lines together until they are a message or a command."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._block = False

    @property
    def pending(self) -> bool:
        """Whether more lines belong to what has begun."""
        return self._block or bool(self._lines)

    def feed(self, line: str) -> Say | Command | None:
        """Take a line; return what it completes. Blank lines alone are nothing. A pasted text may be one line here."""
        if self._block:
            if line.strip() != BLOCK:
                self._lines.append(line)
                return None
            return self.finish()
        if line.strip() == BLOCK and not self._lines:
            self._block = True
            return None
        if "\n" in line:
            self._lines.append(line)
            self._block = True  # what was pasted is no command
            return self.finish()
        body = line.rstrip("\\")
        if (len(line) - len(body)) % 2:
            self._lines.append(line[:-1])
            return None
        self._lines.append(line)
        return self.finish()

    def finish(self) -> Say | Command | None:
        """What the lines so far are, where no more come."""
        text, literal = "\n".join(self._lines), self._block
        self._lines, self._block = [], False
        if not text.strip():
            return None
        if literal or not text.startswith("/"):
            return Say(text)
        if text.startswith("//"):
            return Say(text[1:])
        name, *rest = text[1:].split(maxsplit=1) or [""]
        return Command(name, "".join(rest).strip())


def unknown_command(name: str) -> UsageError:
    close = difflib.get_close_matches(name, COMMANDS, n=1)
    hint = f"did you mean /{close[0]}?" if close else "/help lists them."
    return UsageError(f"There is no command /{name} (//{name} sends it as text): {hint}")
