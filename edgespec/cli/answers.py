"""An answer on the command line: its text or its JSON object to stdout, all about it to stderr."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import click

from edgespec.cli.console import Console, cancellable
from edgespec.engine import Engine
from edgespec.events import Done, Event, Loading, Notice, Prefill, RoundDone, Text
from edgespec.settings import About


def show(
    engine: Engine, events: Iterator[Event], console: Console, *, as_json: bool = False, prompt_figures: bool = False
) -> Done | None:
    """Show an answer as it comes, which Ctrl-C can end, and a line of statistics. `Done` is returned when it came."""
    done, ended, details = None, "\n", list[str]()
    try:
        for event in cancellable(engine.cancel, events):
            if isinstance(event, Prefill):
                if event.done < event.total:
                    new = event.total - event.cached
                    console.tell(Loading("reading the prompt", (event.done - event.cached) / new))
            elif isinstance(event, Notice):
                console.say(event.message)
            elif isinstance(event, RoundDone):
                details.append(detail(event))  # shown afterwards: they would tear the text apart
            elif isinstance(event, Text) and not as_json:
                console.clear()
                console.think(event.thought)
                if event.text:
                    console.stop_thinking()
                    ended = event.text[-1]
                    click.echo(event.text, nl=False)
            elif isinstance(event, Done):
                done = event
    finally:
        console.clear()
        console.stop_thinking()
        if ended != "\n":
            click.echo()
    for line in details:
        console.detail(line)
    if done is not None:
        if as_json:
            click.echo(json.dumps(report(done, engine.about), ensure_ascii=False))
        if done.finish_reason == "cancelled":
            console.after_interrupt()
        console.say(f"{summary(done)} · {prompt_summary(done)}" if prompt_figures else summary(done))
    return done


def report(done: Done, about: About) -> dict[str, Any]:
    """The object of `--json`, as CONTRACT.md 7 has it, and the thoughts where there are any."""
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
    } | ({"thought": done.thought} if done.thought else {})


def detail(done: RoundDone) -> str:
    """A round in a line, for -v, with the reason for what was done."""
    round_ = done.round
    times = f"draft {1000 * round_.draft_seconds:.0f} ms, verify {1000 * round_.verify_seconds:.0f} ms"
    what = f"{(round_.drafted and round_.drafter) or 'plain'}: {round_.accepted} of {round_.drafted} accepted"
    return f"{what}, {times}" + (f" ({done.why})" if done.why else "")


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
    if stats.speedup is not None and stats.drafted:
        parts.append(f"{stats.speedup:.2f}× plain decoding")
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


def prompt_summary(done: Done) -> str:
    """What of the conversation was read for this answer."""
    return f"prompt {done.prompt_tokens} tokens, {done.cached_prompt_tokens} of them cached"
