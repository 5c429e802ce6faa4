"""One run of `edgespec bench`: load, measure, report."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path

import click

from edgespec.bench import arms
from edgespec.bench.experiment import Experiment, Plan
from edgespec.bench.figures import figures
from edgespec.bench.peers import PeerArm, PeerSpec, open_peer, parse_peer
from edgespec.bench.plots import check, plot
from edgespec.bench.records import Answer, Measurements, Record, RoundRecord, gather
from edgespec.bench.runner import Progress
from edgespec.bench.suites import open_suite
from edgespec.bench.verdict import overall_lower_bound
from edgespec.cli import INTERRUPTED, complain
from edgespec.cli.bench.keeper import Keeper
from edgespec.cli.bench.show import show
from edgespec.cli.console import Console, cancellable
from edgespec.cli.options import ANSWER, LOADING, PAIR, given
from edgespec.engine import Engine
from edgespec.errors import UsageError
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
            if self._interrupted:
                click.echo("edgespec: interrupted before there was anything to report.", err=True)
                return INTERRUPTED
            raise UsageError("Nothing was measured: no prompt fits the context.")
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
        names = arms.split(asked["arms"] or "")
        specs = [parse_peer(text) for text in asked["peer"]]
        if len({spec.name for spec in specs} | set(names)) < len(specs) + len(set(names)):
            raise UsageError("Two peers, or a peer and an arm, have the same name: give each its own.")
        keep = Keeper(stack, console, asked["as_json"], asked["rounds"])
        engine = stack.enter_context(load(on_event=console.tell, **self._loading))
        contenders = arms.contenders(
            names or arms.default_arms(engine.drafters), engine.drafters, engine.policy, engine.target.n_outputs - 1
        )
        peers = [self._peer(stack, spec, engine, console) for spec in specs]
        plan = Plan(
            suite=Path(asked["suite"]).name,
            kinds=tuple(kinds),
            limit=asked["limit"],
            peers=tuple(asked["peer"]),
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
        except Exception as error:
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
