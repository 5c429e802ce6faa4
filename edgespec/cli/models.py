"""`edgespec models`: what is known, what is on this machine, and how it gets there and away again."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from edgespec.cli.options import OFFLINE, OUTPUT, option, options

if TYPE_CHECKING:
    from edgespec.models.entries import SourceEntry
    from edgespec.models.inventory import Fit, Holding, Stock
    from edgespec.models.store import Store

JSON = (option("--json", "as_json", is_flag=True, help="Print JSON for machines."),)
HERE = {"yes": "yes", "part": "in part", "no": "no"}
FITS = {"gpu": "on the GPU", "yes": "yes", "no": "no", "unknown": "?"}


class Listing(click.Group):
    """A group that lists where no command is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        named = args and (not args[0].startswith("-") or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if named else ["list", *args])


@click.group("models", cls=Listing)
def command() -> None:
    """List, pull, show and remove models.

    Without a command they are listed.
    A file models.toml of your own adds pairs and models; `edgespec models list` says where it belongs.
    """


@command.command("list")
@options(JSON, OUTPUT)
def list_(as_json: bool, quiet: bool, **_: Any) -> None:
    """The pairs: size, on this machine or not, fit, licence."""
    from edgespec import hardware
    from edgespec.folders import config_folder
    from edgespec.models.inventory import stock
    from edgespec.models.registry import pair_to_use

    store = _store()
    stocks = [stock(store, pair) for pair in store.registry.pairs.values()]
    memory, gpu = _memory()
    default = pair_to_use(store.registry, hardware.free_memory())
    if as_json:
        reports = [_pair_report(one, one.fits(memory, gpu)) | {"default": one.pair.name == default} for one in stocks]
        click.echo(json.dumps(reports, ensure_ascii=False))
        return
    rows = [
        (one.pair.name, _gigabytes(one.size), HERE[one.here], _gigabytes(one.memory), FITS[one.fits(memory, gpu)],
         ", ".join(one.licences))
        for one in stocks
    ]  # fmt: skip
    _table(("pair", "size", "here", "memory", "fits", "licence"), rows)
    if not quiet:
        gpu_too = "" if gpu is None else f" and a GPU with {_gigabytes(gpu)}"
        room = "" if memory is None else f"; this machine has {_gigabytes(memory)}{gpu_too}"
        click.echo(
            f"\nSize: the target and its first draft. Memory: an estimate for both{room}.\n"
            f"Without --pair it is {default}. "
            "`edgespec models show PAIR` says more, `edgespec models pull PAIR` fetches one.\n"
            f"Your own pairs belong into {config_folder() / 'models.toml'}.",
            err=True,
        )


@command.command("pull")
@click.argument("references", nargs=-1, required=True, metavar="NAME...")
@options(OFFLINE, OUTPUT)
def pull(references: tuple[str, ...], verbose: bool, quiet: bool, offline: bool) -> None:
    """Fetch pairs or models, and print where their files are.

    NAME is a pair (its target and first draft), a model, or a file on the Hugging Face hub: user/repository:QUANT or
    user/repository/file.gguf. What Ctrl-C or a lost network breaks off goes on from there the next time.
    """
    from edgespec.cli.console import Console
    from edgespec.events import Loading

    store = _store(offline)
    with Console(quiet=quiet, verbose=verbose) as console:
        for reference in _each_model(store, references):

            def progress(done: int, total: int, name: str = reference) -> None:
                console.tell(Loading(f"fetching {name}", done / total if total else 0.0, total or None))

            try:
                path = store.fetch(reference, progress, console.say)
            except KeyboardInterrupt:
                console.say(
                    "\nWhat is kept of it is not fetched again: of a file its beginning, of packages whole parts."
                )
                raise
            console.clear()
            click.echo(path)


@command.command("show")
@click.argument("name")
@options(JSON, OUTPUT)
def show(name: str, as_json: bool, **_: Any) -> None:
    """All that is known of a pair, or of a model."""
    from edgespec.models.inventory import holding, stock

    store = _store()
    _check(store, name)
    if name not in store.registry.pairs:
        held = holding(store, name)
        click.echo(json.dumps(_model_report(held), ensure_ascii=False)) if as_json else _show_model(held)
        return
    one = stock(store, store.registry.pair(name))
    fit = one.fits(*_memory())
    if as_json:
        click.echo(json.dumps(_pair_report(one, fit), ensure_ascii=False))
        return
    _lines([
        ("pair", name), ("good for", one.pair.note), ("wants", one.pair.hardware),
        ("memory", f"about {_gigabytes(one.memory)}" if one.memory else ""), ("fits", FITS[fit]),
    ])  # fmt: skip
    for role, held in [("target", one.target), *(("draft", draft) for draft in one.drafts)]:
        click.echo()
        _show_model(held, role)


@command.command("remove")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@options(OUTPUT)
def remove(names: tuple[str, ...], verbose: bool, quiet: bool) -> None:
    """Delete pairs or models from this machine.

    A draft that another pair on this machine uses stays. Files on the hub's cache are shared with other programs, which
    will miss them, too.
    """
    from edgespec.cli.console import Console
    from edgespec.errors import ModelNotFound
    from edgespec.models.inventory import holding, removable

    store, console = _store(), Console(quiet=quiet, verbose=verbose)
    for name in names:
        _check(store, name)
        pair = store.registry.pairs.get(name)
        gone, stay = removable(store, pair) if pair else ([holding(store, name)], [])
        freed = sum(store.remove(held.reference) for held in gone)
        kept = " and ".join(held.reference for held in stay)
        if freed:
            more = f"; {kept} stays, for other pairs" if kept else ""
            console.say(f"Removed {name}: {_gigabytes(freed)} are free again{more}.")
        elif kept:
            console.say(f"Nothing of {name} was removed: other pairs use {kept}.")
        else:
            raise ModelNotFound(f"{name} is not on this machine: there is nothing to remove.")


def _store(offline: bool = False) -> Store:
    from edgespec.models.registry import load_registry
    from edgespec.models.store import Store

    return Store(load_registry(), offline=offline)


def _memory() -> tuple[int | None, int | None]:
    from edgespec import hardware

    return hardware.memory(), hardware.gpu_memory()


def _each_model(store: Store, references: Iterable[str]) -> list[str]:
    """The models that the references come to: those of a pair, or the one itself."""
    found = []
    for reference in references:
        pair = store.registry.pairs.get(reference)
        found += [pair.target, *pair.drafts[:1]] if pair else [reference]
    for reference in found:
        _check(store, reference)  # a wrong name is better said before anything is fetched
    return list(dict.fromkeys(found))


def _check(store: Store, name: str) -> None:
    """Raise UsageError where `name` is neither a pair nor anything that can be a model."""
    from difflib import get_close_matches

    from edgespec.errors import UsageError

    registry = store.registry
    if name in registry.pairs:
        return
    try:
        store.entry(name)
    except UsageError as error:
        close = get_close_matches(name.lower(), sorted({*registry.pairs, *registry.models}), n=2)
        hint = f"did you mean {' or '.join(close)}?" if close else "`edgespec models` lists them."
        raise UsageError(f"There is no pair or model called {name}: {hint}") from error


def _pair_report(one: Stock, fit: Fit) -> dict[str, Any]:
    return {
        "pair": one.pair.name,
        "note": one.pair.note,
        "hardware": one.pair.hardware,
        "size": one.size,
        "memory": one.memory,
        "here": one.here,
        "fits": fit,
        "licences": list(one.licences),
        "target": _model_report(one.target),
        "drafts": [_model_report(draft) for draft in one.drafts],
    }


def _model_report(held: Holding) -> dict[str, Any]:
    entry = held.entry
    return {
        "model": held.reference,
        "size": held.size,
        "files": [str(file) for file in held.files],
        "licence": entry.licence if entry else "",
        "context": entry.context if entry else None,
        "thinking": entry.thinking if entry else None,
        "sha256": entry.sha256 if entry else None,
        "sources": [_source(source) for source in entry.sources] if entry else [],
    }


def _show_model(held: Holding, role: str = "model") -> None:
    entry = held.entry
    thinking = {"never": "", "optional": "on request (--think)", "always": "always"}
    _lines([
        (role, held.reference),
        ("size", _gigabytes(held.size)),
        ("licence", entry.licence if entry else ""),
        ("context", f"{entry.context} tokens" if entry and entry.context else ""),
        ("thinks", thinking[entry.thinking] if entry else ""),
        ("from", "; ".join(_source(source) for source in entry.sources) if entry else ""),
        ("here", str(held.files[0]) if held.files else "no"),
    ])  # fmt: skip


def _source(entry: SourceEntry) -> str:
    from edgespec.models.sources import open_source

    return open_source(entry).name


def _lines(pairs: Iterable[tuple[str, str]]) -> None:
    for key, value in pairs:
        if value:
            click.echo(f"{key:<9} {value}")


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(*head, box=None, header_style="bold", pad_edge=False)
    for row in rows:
        table.add_row(*row)
    # Without a terminal there is no width to fold to, and what reads it wants whole lines.
    console = Console(width=None if sys.stdout.isatty() else 1000, highlight=False, markup=False)
    with console.capture() as captured:
        console.print(table)
    click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))


def _gigabytes(size: int | None) -> str:
    return "?" if size is None else f"{size / 1e9:.1f} GB"
