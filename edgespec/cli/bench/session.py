"""One run of `edgespec bench`: load, measure, report."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TextIO

import click

from edgespec.bench import arms
from edgespec.bench.experiment import Experiment, Plan
from edgespec.bench.figures import figures
from edgespec.bench.peers import PeerArm, PeerSpec, open_peer, parse_peer
from edgespec.bench.plots import check, plot
from edgespec.bench.records import (
    Answer,
    CostCurve,
    Fork,
    Measurements,
    Overlap,
    Record,
    RoundRecord,
    Run,
    gather,
    to_line,
)
from edgespec.bench.runner import Progress
from edgespec.bench.suites import open_suite
from edgespec.bench.verdict import overall_lower_bound
from edgespec.cli import INTERRUPTED, complain
from edgespec.cli.bench.show import show
from edgespec.cli.console import Console, cancellable
from edgespec.cli.options import ANSWER, LOADING, PAIR, given
from edgespec.engine import Engine
from edgespec.errors import EdgespecError, UsageError
from edgespec.events import Loading, Notice
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
        self._failed = False

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
        if self._failed or any(not fork.honest for fork in measured.forks):
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
        keep = _Keeper(stack, console, asked["as_json"], asked["rounds"])
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
        try:
            for item in cancellable(stop, experiment.records()):
                if isinstance(item, Progress):
                    told.tell(item)
                elif isinstance(item, Notice):
                    console.say(item.message)
                else:
                    keep.write(item)
                    if not isinstance(item, RoundRecord):
                        records.append(item)
                    if isinstance(item, Answer):
                        console.detail(_line(item))
        except EdgespecError as error:
            if not any(isinstance(record, Answer) for record in records):
                raise
            console.clear()
            complain(click.get_current_context(), error)  # and report what there is
            self._failed = True
        return gather(records)

    def _peer(self, stack: ExitStack, spec: PeerSpec, engine: Engine, console: Console) -> PeerArm:
        """Another program, started where it must be, whose tokens are counted as ours are."""
        target = engine.about.target_file or engine.about.target
        peer = stack.enter_context(open_peer(spec, target=target, draft=engine.about.draft_file, say=console.say))
        return PeerArm(peer, partial(engine.vocabulary.tokenize, add_special=False))


class _Keeper:
    """Writes records into the files that were asked for, line by line, so that nothing is lost.

    Rounds go into one of their own, which says of what run they are. What a file held before goes with the first line:
    not for a run that never began.
    """

    def __init__(self, stack: ExitStack, console: Console, as_json: Path | None, rounds: Path | None) -> None:
        self._console = console
        self._files: list[tuple[TextIO, tuple[type, ...]]] = []
        for path, kinds in ((as_json, (Run, Answer, Fork, CostCurve, Overlap)), (rounds, (Run, RoundRecord))):
            if path is not None:
                self._files.append((_opened(stack, path), kinds))

    def write(self, record: Record) -> None:
        for file, kinds in list(self._files):
            if isinstance(record, kinds):
                try:
                    if isinstance(record, Run):
                        file.truncate(0)
                    file.write(to_line(record) + "\n")
                    file.flush()
                except OSError as error:
                    self._files.remove((file, kinds))
                    self._console.say(f"{file.name} is not written any further ({error.strerror}); the run goes on.")


def _opened(stack: ExitStack, path: Path) -> TextIO:
    try:
        file = path.open("a", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be written ({error.strerror}): choose another file.") from error
    stack.callback(_closed, file)
    return file


def _closed(file: TextIO) -> None:
    with suppress(OSError):  # on a full disk what is left cannot be written here, either
        file.close()


class _Told:
    """Progress for a person: a line that is rewritten on a terminal, a line for each tenth elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._said: tuple[int, bool] | None = None

    def tell(self, progress: Progress) -> None:
        news = (10 * progress.done // max(1, progress.total), progress.left is not None)
        if not self._console.live and news == self._said:
            return
        self._said = news
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
