"""`edgespec run`: one answer to stdout."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from edgespec.cli.options import ANSWER, MODELS, OUTPUT, given, option, options

if TYPE_CHECKING:
    from edgespec.events import Done
    from edgespec.protocols import Round
    from edgespec.settings import About


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
    from edgespec.cli.console import Console, cancellable
    from edgespec.errors import UsageError
    from edgespec.events import Done, Loading, Notice, Prefill, RoundDone, Text
    from edgespec.loading import load

    context = click.get_current_context()
    if raw and system is not None:
        raise UsageError("A system message needs the chat template: leave out --system or --raw.")
    text = sys.stdin.read() if prompt == "-" else prompt
    if not text.strip():
        raise UsageError("The prompt is empty: say something.")
    console = Console(quiet=quiet, verbose=verbose)
    with load(on_event=console.tell, **given(context, MODELS, ANSWER)) as engine:
        messages = [{"role": "system", "content": system}] if system is not None else []
        messages.append({"role": "user", "content": text})
        events = engine.complete(text) if raw else engine.chat(messages)
        done, ended = None, "\n"
        for event in cancellable(engine, events):
            if isinstance(event, Prefill):
                if event.done < event.total:
                    console.tell(Loading("reading the prompt", event.done / event.total))
            elif isinstance(event, Notice):
                console.say(event.message)
            elif isinstance(event, RoundDone):
                console.detail(detail(event.round))
            elif isinstance(event, Text):
                console.clear()
                if event.text and not as_json:
                    ended = event.text[-1]
                    click.echo(event.text, nl=False)
            elif isinstance(event, Done):
                done = event
        console.clear()
        if done is None:
            return
        if as_json:
            click.echo(json.dumps(report(done, engine.about), ensure_ascii=False))
        elif ended != "\n":
            click.echo()
        if done.finish_reason == "cancelled":
            console.after_interrupt()
        console.say(summary(done))
        if done.finish_reason == "cancelled":
            context.exit(INTERRUPTED)


def report(done: Done, about: About) -> dict[str, Any]:
    """The object of `--json`, as CONTRACT.md 7 has it."""
    return {
        "text": done.text,
        "tokens": list(done.tokens),
        "provenance": done.provenance,
        "finish_reason": done.finish_reason,
        "prompt_tokens": done.prompt_tokens,
        "cached_prompt_tokens": done.cached_prompt_tokens,
        "completion_tokens": done.completion_tokens,
        "pair": about.pair,
        "target": about.target,
        "draft": about.draft,
        "seed": done.seed,
        "verify": done.verify,
        "policy": about.policy,
        "sampling": asdict(done.request.sampling),
        "stats": asdict(done.stats),
    }


def detail(round_: Round) -> str:
    """A round in a line, for -v."""
    times = f"draft {1000 * round_.draft_seconds:.0f} ms, verify {1000 * round_.verify_seconds:.0f} ms"
    return f"{round_.drafter or 'plain'}: {round_.accepted} of {round_.drafted} accepted, {times}"


def summary(done: Done) -> str:
    """One line of statistics."""
    stats = done.stats
    parts = [f"{done.completion_tokens} token{'' if done.completion_tokens == 1 else 's'}"]
    if stats.tokens_per_second is not None:
        parts.append(f"{stats.tokens_per_second:.1f} tokens/s")
    if stats.acceptance_rate is not None and stats.mean_acceptance_length is not None:
        drafters = " and ".join(name for name, part in stats.drafters.items() if part.drafted)
        low = " (low: compare with --drafter none)" if stats.acceptance_rate < 0.6 else ""
        parts.append(f"{drafters} drafted {stats.drafted}, {stats.acceptance_rate:.0%} accepted{low}")
        parts.append(f"{stats.mean_acceptance_length:.2f} tokens a drafting round")
    if stats.ttft_ms is not None:
        parts.append(f"first token after {stats.ttft_ms / 1000:.1f} s")
    if done.verify != "argmax":
        parts.append(f"seed {done.seed}")
    if done.finish_reason == "length":
        asked = done.completion_tokens == done.request.max_tokens
        parts.append("cut at --max-tokens" if asked else "cut because the context is full (--ctx)")
    elif done.finish_reason == "cancelled":
        parts.append("cancelled")
    return " · ".join(parts)
