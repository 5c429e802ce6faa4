"""The options that several commands share; each has an EDGESPEC_… variable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.core import ParameterSource

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


class Bias(click.ParamType):  # type: ignore[type-arg]
    """`TOKEN=BIAS`: a token's id, and what is added to its logit."""

    name = "token=bias"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        token, _, bias = str(value).partition("=")
        try:
            return int(token), float(bias)
        except ValueError:
            self.fail(f"{value!r} is not like 123=-1.5: the id of a token, and what is added to its logit.", param, ctx)


class Words(click.types.StringParamType):
    """Text that may hold spaces, also where it comes from a variable and could be a list."""

    def split_envvar_value(self, value: str) -> list[str]:
        return [value]


def option(*flags: str, help: str, **attributes: Any) -> Callable[[Command], Command]:
    """A click option with the EDGESPEC_… variable of its long name, or another `envvar`."""
    long = next(flag for flag in flags if flag.startswith("--"))
    attributes.setdefault("envvar", f"EDGESPEC_{long[2:].upper().replace('-', '_')}")
    return click.option(*flags, help=help, **attributes)


def _remember(ctx: click.Context, _: click.Parameter, value: bool) -> bool:
    ctx.meta["edgespec.verbose"] = value  # for the errors, which are shown outside the command
    return value


OFFLINE = (
    option("--offline", is_flag=True, help="Ask nothing of the network: use what is on this machine."),
)  # fmt: skip

PAIR = (
    option("--pair", help="A target with its draft, by its name in models.toml."),
    option("--target", help="The model that answers: a path, a model's name, or user/repo:QUANT on the hub."),
    option("--draft", help="The small model that drafts, written likewise."),
)  # fmt: skip

DRAFTING = (
    option("--drafter", help="What proposes tokens; auto: the draft model, where there is one, and n-grams.",
            default="auto", show_default=True, type=click.Choice(["auto", "none", "model", "ngram"])),
    option("--k", help="Tokens to draft in a round; auto leaves it to the policy.", default="auto", show_default=True,
            type=AutoOrInt()),
    option("--policy", help="What picks drafter and k: auto by what pays here, fixed is 4 tokens; threshold and "
           "heuristic are for comparison.", default="auto", show_default=True,
            type=click.Choice(["auto", "fixed", "threshold", "heuristic"])),
    option("--no-profile", "profile", flag_value=False, type=bool, default=True,
           help="Measure nothing at the first load; learn what passes cost from the answers alone."),
)  # fmt: skip

LOADING = (
    option("--ctx", help="Tokens of context, at most what the model was made for.  [default: 8192]", type=int),
    option("--gpu-layers", help="Layers of the target on the GPU; -1 is all, where the build can.", type=int),
    option("--draft-gpu-layers", help="Layers of the draft on the GPU.", type=int),
    option("--threads", help="Threads; 0 is one for each physical core. On a busy machine try 1.", type=int),
    *OFFLINE,
)  # fmt: skip

MODELS = (*PAIR, *DRAFTING, *LOADING)

ANSWER = (
    option("--temperature", help="0 is the most probable token, always.  [default: 0.8]", type=float),
    option("--top-k", help="Only the k most probable tokens; 0 is off.  [default: 40]", type=int),
    option("--top-p", help="Only the most probable tokens that reach this sum; 1 is off.  [default: 0.95]", type=float),
    option("--min-p", help="Only tokens of at least this part of the top one; 0 is off.  [default: 0.05]", type=float),
    option("--repeat-penalty", help="Over 1: tokens of the last 64 become less probable.  [default: 1.0]", type=float),
    option("--presence-penalty", help="Taken off the logits of tokens seen.  [default: 0]", type=float),
    option("--frequency-penalty", help="Taken off for each time a token was seen.  [default: 0]", type=float),
    option("--logit-bias", help="Add to the logit of a token by its id, like 123=-1.5; -inf forbids it; can be given "
           "several times.", multiple=True, type=Bias()),
    option("--seed", help="Draw the same way again, whatever is drafted.  [default: drawn]", type=int),
    option("--max-tokens", help="End the answer after so many tokens.  [default: none]", type=int),
    option("--stop", help="End the answer before this text; can be given several times.", multiple=True, type=Words()),
    option("--verify", help="The acceptance rule: with match the text does not depend on the drafts."
            "  [default: auto]", type=click.Choice(["auto", "match", "token", "block"])),
    option("--think", help="Whether a thinking model thinks before it answers; auto leaves it to the model."
           "  [default: auto]", type=click.Choice(["auto", "on", "off"])),
)  # fmt: skip

OUTPUT = (
    option("-v", "--verbose", is_flag=True, callback=_remember, is_eager=True,
           help="Say more on stderr; errors with their traceback."),
    option("-q", "--quiet", is_flag=True, help="Nothing on stderr but errors."),
)  # fmt: skip


def options(*groups: tuple[Callable[[Any], Any], ...]) -> Callable[[Command], Command]:
    """A decorator that adds groups of options in the order in which they are listed."""

    def decorate(command: Command) -> Command:
        for option in reversed([option for group in groups for option in group]):
            command = option(command)
        return command

    return decorate


def parameters(*groups: tuple[Callable[[Any], Any], ...]) -> list[click.Parameter]:
    """The parameters that groups of options make, in the order in which they are listed."""
    probe = options(*groups)(lambda: None)
    return list(reversed(getattr(probe, "__click_params__", [])))


def given(ctx: click.Context, *groups: tuple[Callable[[Any], Any], ...]) -> dict[str, Any]:
    """The options of `groups` that were given, or have a default.

    On the command line a pair or a target replaces the other one's variable.
    """
    names = [param.name for param in parameters(*groups)]
    values = {name: ctx.params[name] for name in names if name and ctx.params[name] not in (None, ())}
    typed = {name for name in values if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    if "target" in typed and "pair" not in typed:
        values.pop("pair", None)
    if "pair" in typed and not {"target", "draft"} & typed:
        values = {name: value for name, value in values.items() if name not in ("target", "draft")}
    return values
