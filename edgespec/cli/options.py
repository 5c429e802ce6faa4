"""The options that several commands share; each has an EDGESPEC_… variable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


class AutoOrInt(click.ParamType):  # type: ignore[type-arg]
    """`auto` or a whole number of at least 0."""

    name = "auto|N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "auto" or isinstance(value, int):
            return value
        if not str(value).isdecimal():
            self.fail(f"{value!r} is neither auto nor a whole number of at least 0.", param, ctx)
        return int(value)


def _option(flag: str, help_: str, **attributes: Any) -> Callable[[Command], Command]:
    variable = "EDGESPEC_" + flag.removeprefix("--").upper().replace("-", "_")
    return click.option(flag, help=f"{help_}", envvar=variable, show_envvar=False, **attributes)


MODELS = (
    _option("--pair", "A target with its draft, by its name in models.toml."),
    _option("--target", "The model that answers: a path, or a model's name."),
    _option("--draft", "The small model that drafts: a path, or a model's name."),
    _option("--drafter", "What proposes tokens; auto: the draft model where there is one.", default="auto",
            show_default=True, type=click.Choice(["auto", "none", "model", "ngram"])),
    _option("--k", "Tokens to draft in a round.", default="auto", show_default=True, type=AutoOrInt()),
    _option("--ctx", "Tokens of context, at most what the model was made for.", type=int),
    _option("--gpu-layers", "Layers of the target on the GPU; -1 is all, where the build can.", type=int),
    _option("--draft-gpu-layers", "Layers of the draft on the GPU.", type=int),
    _option("--threads", "Threads; 0 is one for each physical core.", type=int),
)  # fmt: skip

ANSWER = (
    _option("--temperature", "0 is the most probable token, always.  [default: 0.8]", type=float),
    _option("--top-k", "Only the k most probable tokens; 0 is off.  [default: 40]", type=int),
    _option("--top-p", "Only the most probable tokens that reach this sum; 1 is off.  [default: 0.95]", type=float),
    _option("--min-p", "Only tokens of at least this part of the top one; 0 is off.  [default: 0.05]", type=float),
    _option("--repeat-penalty", "Over 1: tokens of the last 64 become less probable.  [default: 1.0]", type=float),
    _option("--presence-penalty", "Taken off the logits of tokens seen.  [default: 0]", type=float),
    _option("--frequency-penalty", "Taken off for each time a token was seen.  [default: 0]", type=float),
    _option("--seed", "Same seed, same text, whatever is drafted.  [default: drawn]", type=int),
    _option("--max-tokens", "End the answer after so many tokens.  [default: none]", type=int),
    _option("--stop", "End the answer before this text; can be given several times.", multiple=True),
    _option("--verify", "The acceptance rule.  [default: auto]", type=click.Choice(["auto", "match", "token"])),
)  # fmt: skip

OUTPUT = (
    click.option("-v", "--verbose", is_flag=True, help="Say more on stderr; errors with their traceback."),
    click.option("-q", "--quiet", is_flag=True, help="Nothing on stderr but errors."),
)


def options(*groups: tuple[Callable[[Any], Any], ...]) -> Callable[[Command], Command]:
    """A decorator that adds groups of options in the order in which they are listed."""

    def decorate(command: Command) -> Command:
        for option in reversed([option for group in groups for option in group]):
            command = option(command)
        return command

    return decorate


def given(values: dict[str, Any], *groups: tuple[Callable[[Any], Any], ...]) -> dict[str, Any]:
    """The values of the options of `groups` that were given (or have a default)."""
    probe = click.Command("probe", callback=options(*groups)(lambda: None))
    names = {param.name for param in getattr(probe.callback, "__click_params__", [])}
    return {name: value for name, value in values.items() if name in names and value not in (None, ())}
