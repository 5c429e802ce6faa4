"""One run of `edgespec bench`: load, measure, report."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TextIO

import click

from edgespec.bench import arms
from edgespec.bench.experiment import Experiment, Plan
from edgespec.bench.figures import figures
from edgespec.bench.peers import PeerArm, PeerSpec, open_peer, parse_peer
from edgespec.bench.plots import check, plot
from edgespec.bench.records import Answer, Measurements, Record, RoundRecord, gather, to_line
from edgespec.bench.runner import Progress
from edgespec.bench.suites import open_suite
from edgespec.bench.verdict import overall_lower_bound
from edgespec.cli import INTERRUPTED
from edgespec.cli.bench.show import show
from edgespec.cli.console import Console, cancellable
from edgespec.cli.options import ANSWER, LOADING, PAIR, given
from edgespec.engine import Engine
from edgespec.errors import UsageError
from edgespec.events import Loading
from edgespec.loading import load
from edgespec.settings import Request

DEFAULTS = {"temperature": 0.0, "max_tokens": 128}


class Session:
    """Does what the command was asked for; `asked` are its options."""

    def __init__(self, ctx: click.Context) -> None:
        self._asked = ctx.params
        self._loading = given(ctx, PAIR, LOADING)
        self._answer = DEFAULTS | given(ctx, ANSWER)
        self._interrupted = False

    def run(self) -> int:
        """Measure and report; the exit code."""
        asked = self._asked
        Request().having(**self._answer)  # what is wrong should be said before a model is loaded
        if asked["plot"] is not None:
            check(asked["plot"])
        with ExitStack() as stack:
            console = stack.enter_context(Console(quiet=asked["quiet"], verbose=asked["verbose"]))
            measured = self._measured(stack, console)
        if not measured.answers:
            raise UsageError("Nothing was measured before the end: let it run for longer.")
        found = figures(measured, asked["price_per_hour"])
        show(measured, found)
        if asked["plot"] is not None:
            plot(measured, found, asked["plot"])
            console.say(f"Drawn into {asked['plot']}.")
        if self._interrupted:
            return INTERRUPTED
        if any(not fork.honest for fork in measured.forks):
            return 1
        if asked["require"] is not None:
            bound = overall_lower_bound(found, measured.run.arms)
            if bound is None or bound < asked["require"]:
                is_ = "cannot be said with so few answers" if bound is None else f"is only {bound:.2f}"
                click.echo(f"edgespec: --require {asked['require']}: the lower bound of the speed-up {is_}.", err=True)
                return 1
        return 0

    def _measured(self, stack: ExitStack, console: Console) -> Measurements:
        asked = self._asked
        kinds = [kind.strip() for kind in (asked["kinds"] or "").split(",") if kind.strip()]
        prompts = open_suite(
            asked["suite"], kinds=kinds, limit=asked["limit"], offline=asked["offline"], say=console.say
        )
        specs = [parse_peer(text) for text in asked["peer"]]
        keep = _Keeper(stack, asked["as_json"], asked["rounds"])
        engine = stack.enter_context(load(on_event=console.tell, **self._loading))
        names = asked["arms"].split(",") if asked["arms"] else arms.default_arms(engine.drafters)
        contenders = arms.contenders(names, engine.drafters, engine.policy)
        peers = [self._peer(stack, spec, engine, console) for spec in specs]
        plan = Plan(
            suite=Path(asked["suite"]).name,
            repeats=asked["repeat"],
            curve=asked["curve"],
            overlap=asked["overlap"],
            synthetic=asked["synthetic_acceptance"],
        )
        request = engine.request(**self._answer)
        experiment = Experiment(engine, contenders, prompts, request, plan, peers)

        def stop() -> None:
            self._interrupted = True
            experiment.stop()

        records: list[Record] = []
        told = _Told(console)
        for item in cancellable(stop, experiment.records()):
            if isinstance(item, Progress):
                told.tell(item)
            else:
                keep.write(item)
                if not isinstance(item, RoundRecord):
                    records.append(item)
                if isinstance(item, Answer):
                    console.detail(_line(item))
        return gather(records)

    def _peer(self, stack: ExitStack, spec: PeerSpec, engine: Engine, console: Console) -> PeerArm:
        """Another program, started where it must be, whose tokens are counted as ours are."""
        target = engine.about.target_file or engine.about.target
        peer = stack.enter_context(open_peer(spec, target=target, draft=engine.about.draft_file, say=console.say))
        return PeerArm(peer, partial(engine.vocabulary.tokenize, add_special=False))


class _Keeper:
    """Writes records into the files that were asked for, line by line, so that nothing is lost."""

    def __init__(self, stack: ExitStack, as_json: Path | None, rounds: Path | None) -> None:
        self._json = _opened(stack, as_json)
        self._rounds = _opened(stack, rounds)

    def write(self, record: Record) -> None:
        is_round = isinstance(record, RoundRecord)
        for file, wanted in (
            (self._json, not is_round),
            (self._rounds, is_round or record.__class__.__name__ == "Run"),
        ):
            if file is not None and wanted:
                file.write(to_line(record) + "\n")
                file.flush()


def _opened(stack: ExitStack, path: Path | None) -> TextIO | None:
    if path is None:
        return None
    try:
        return stack.enter_context(path.open("w", encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path} cannot be written ({error.strerror}): choose another file.") from error


class _Told:
    """Progress for a person: a line that is rewritten on a terminal, a line for each tenth elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._tenth = -1

    def tell(self, progress: Progress) -> None:
        tenth = 10 * progress.done // max(1, progress.total)
        if not self._console.live and tenth == self._tenth:
            return
        self._tenth = tenth
        left = "" if progress.left is None else f" · about {duration(progress.left)} left"
        done = "" if progress.total <= 1 else f" · {progress.done} of {progress.total}"
        self._console.tell(Loading(f"{progress.doing}{done}{left}"))


def duration(seconds: float) -> str:
    """A time for people."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def _line(answer: Answer) -> str:
    speed = answer.speed_tokens / answer.speed_seconds if answer.speed_seconds else 0.0
    accepted = f", {answer.accepted} of {answer.drafted} accepted" if answer.drafted else ""
    return f"{answer.prompt} · {answer.arm}: {len(answer.tokens)} tokens, {speed:.1f} tokens/s{accepted}"
