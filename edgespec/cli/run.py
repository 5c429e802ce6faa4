"""`edgespec run`: one answer to stdout."""

from __future__ import annotations

import sys
from typing import Any

import click

from edgespec.cli.options import ANSWER, MODELS, OUTPUT, given, option, options


@click.command("run")
@click.argument("prompt")
@option("--system", help="A system message before the prompt.")
@option("--raw", is_flag=True, help="Continue the prompt as it stands, without the model's chat template.")
@option("--json", "as_json", is_flag=True, help="Print one JSON object with text, tokens and statistics.")
@options(MODELS, ANSWER, OUTPUT)
def command(prompt: str, system: str | None, raw: bool, as_json: bool, verbose: bool, quiet: bool, **_: Any) -> None:
    """Answer PROMPT on stdout; - reads it from stdin.

    The text streams to stdout; progress and one line of statistics go to stderr. Every option has a variable:
    EDGESPEC_TOP_K is --top-k.
    """
    from edgespec.cli import INTERRUPTED
    from edgespec.cli.answers import show
    from edgespec.cli.console import Console
    from edgespec.errors import UsageError
    from edgespec.loading import load

    context = click.get_current_context()
    if raw and system is not None:
        raise UsageError("A system message needs the chat template: leave out --system or --raw.")
    if prompt == "-" and sys.stdin.isatty() and not quiet:
        click.echo("Type the prompt; Ctrl-D on a line of its own ends it.", err=True)
    text = sys.stdin.read() if prompt == "-" else prompt
    if not text.strip():
        raise UsageError("The prompt is empty: say something.")
    with (
        Console(quiet=quiet, verbose=verbose) as console,
        load(on_event=console.tell, **given(context, MODELS, ANSWER)) as engine,
    ):
        messages = [{"role": "system", "content": system}] if system is not None else []
        messages.append({"role": "user", "content": text})
        done = show(engine, engine.complete(text) if raw else engine.chat(messages), console, as_json=as_json)
        if done is not None and done.finish_reason == "cancelled":
            context.exit(INTERRUPTED)
