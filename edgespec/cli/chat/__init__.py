"""`edgespec chat`: a conversation, line by line."""

from __future__ import annotations

import sys
from typing import Any

import click

from edgespec.cli.options import ANSWER, MODELS, OUTPUT, given, option, options


@click.command("chat")
@option("--plain", is_flag=True, help="Line mode, which is the only one so far.")
@option("--file", help="Take the messages and commands from a file, line by line.",
        type=click.File(encoding="utf-8-sig"))  # fmt: skip
@option("--system", help="A system message before the conversation.")
@option("--json", "as_json", is_flag=True, help="Print one JSON object, on one line, for each answer.")
@options(MODELS, ANSWER, OUTPUT)
def command(file: Any, system: str | None, as_json: bool, verbose: bool, quiet: bool, **_: Any) -> None:
    """Talk with a model, line by line; answers go to stdout.

    At a terminal, /help lists the commands, Ctrl-C stops an answer and Ctrl-D leaves. Piped lines (or --file) are
    messages and commands likewise, all of one conversation; there, whatever fails makes the exit code 1. Every option
    has a variable: EDGESPEC_TOP_K is --top-k.
    """
    from edgespec.chat import Conversation
    from edgespec.cli.chat.lines import Lines, Piped, Typed
    from edgespec.cli.chat.session import Session
    from edgespec.cli.console import Console
    from edgespec.errors import UsageError
    from edgespec.loading import load

    context = click.get_current_context()
    source = file or sys.stdin
    if source is None:
        raise UsageError("There is no input to take messages from: pipe them in, or give --file.")
    with (
        Console(quiet=quiet, verbose=verbose) as console,
        load(on_event=console.tell, **given(context, MODELS, ANSWER)) as engine,
    ):
        conversation = Conversation(engine, system)
        # Whether the model can chat, and takes a system message, should be said before anything is typed.
        engine.prompt([*conversation.messages, {"role": "user", "content": "Hello"}])
        lines: Lines = Typed() if source is sys.stdin and source.isatty() else Piped(source)
        code = Session(engine, conversation, lines, console, as_json=as_json).run()
    context.exit(code)
