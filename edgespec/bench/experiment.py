"""A whole measurement: the answers, the cost curve, how alike the models are; and what it was made on."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from statistics import median
from typing import Any

import edgespec
from edgespec import hardware
from edgespec.bench.arms import Contender
from edgespec.bench.curve import measure_curve
from edgespec.bench.overlap import Position, overlap, summarise
from edgespec.bench.records import PLAIN, Answer, Arm, CostCurve, Overlap, RoundRecord, Run
from edgespec.bench.runner import Item, Progress, Rival, Runner
from edgespec.bench.suites import Prompt
from edgespec.bench.synthetic import synthetic
from edgespec.drafters.model import ModelDrafter
from edgespec.engine import Engine
from edgespec.errors import Interrupted, UsageError
from edgespec.events import Notice
from edgespec.llama import Context
from edgespec.llama.library import library
from edgespec.protocols import LanguageModel
from edgespec.settings import Request


@dataclass(frozen=True, slots=True)
class Plan:
    """How to measure. `synthetic`: accept drafted tokens by chance with this probability, for times alone.

    `suite`, `kinds`, `limit` and `peers` are what was asked for, to be remembered.
    """

    suite: str = "quick"
    kinds: tuple[str, ...] = ()
    limit: int | None = None
    peers: tuple[str, ...] = ()
    repeats: int = 2
    curve: bool = True
    overlap: bool = False
    synthetic: float | None = None


class Experiment:
    """Measures an engine's `arms`, and `peers`, on `prompts`; yields records and progress as they come.

    Raises UsageError where the plan asks for what this engine cannot give.
    """

    def __init__(
        self,
        engine: Engine,
        arms: Sequence[Contender],
        prompts: Sequence[Prompt],
        request: Request,
        plan: Plan,
        peers: Sequence[Rival] = (),
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._engine = engine
        self._prompts = list(prompts)
        self._plan = plan
        self._draft = draft_model(engine)
        if plan.overlap and self._draft is None:
            raise UsageError("--overlap compares the target with a draft model: give --draft.")
        self._request = request
        self._arms = [*(contender.arm for contender in arms), *(Arm(peer.name, "peer") for peer in peers)]
        self._clock = clock
        self._runner = Runner(
            engine,
            arms,
            prompts,
            request,
            repeats=plan.repeats,
            peers=peers,
            judged=plan.synthetic is None,
            clock=clock,
        )
        self._stopped = False

    def stop(self) -> None:
        """End it, from any thread; what was measured stays. The curve in progress is given up."""
        self._stopped = True
        self._runner.stop()

    def records(self) -> Iterator[Item]:
        yield self._described()
        own, said, overheads = self._engine.judge, dict[str, tuple[str, list[int]]](), list[float]()
        if self._plan.synthetic is not None:
            self._engine.judge = synthetic(self._plan.synthetic, self._engine.vocabulary.end_tokens)
        try:
            for item in self._runner.run():
                if isinstance(item, Answer) and item.arm == PLAIN:
                    said.setdefault(item.prompt, (item.kind, list(item.tokens)))
                elif isinstance(item, RoundRecord) and item.drafted:
                    overheads.append(item.overhead_seconds)
                yield item
            if self._plan.curve and said:
                yield from self._curve([token for _, tokens in said.values() for token in tokens], overheads)
            if self._plan.overlap and self._draft is not None:
                yield from self._overlaps(self._draft, said)
        except Interrupted:
            return  # stopped in the midst of a pass
        finally:
            self._engine.judge = own

    def _curve(self, tokens: Sequence[int], overheads: Sequence[float]) -> Iterator[CostCurve | Item]:
        if self._stopped:
            return
        if not self._engine.target.can_trim:
            yield Notice("This model cannot take tokens back, so its cost curve is not measured.")
            return
        yield Progress("measuring the cost curve", 0, 1)
        with self._engine.bare():
            curve = measure_curve(self._engine.target, self._draft, tokens, clock=self._clock, tell=self._heed_stop)
        yield replace(curve, overhead=median(overheads) if overheads else 0.0)

    def _heed_stop(self, _: float) -> None:
        if self._stopped:
            raise Interrupted("The measurement was ended.")

    def _overlaps(
        self, draft: LanguageModel, said: dict[str, tuple[str, list[int]]]
    ) -> Iterator[Overlap | Progress]:  # fmt: skip
        positions: dict[str, list[Position]] = {}
        first_turns = [prompt for prompt in self._prompts if prompt.id in said]
        for done, prompt in enumerate(first_turns):
            if self._stopped:
                break
            yield Progress(f"comparing draft and target on {prompt.id}", done, len(first_turns))
            kind, answer = said[prompt.id]
            if answer:
                tokens = self._runner.tokens(prompt)
                try:
                    with self._engine.bare():
                        found = overlap(self._engine.target, draft, tokens, answer, self._request.sampling)
                except Interrupted:
                    break  # and say what was compared
                positions.setdefault(kind, []).extend(found)
        yield from summarise(positions, self._request.sampling.temperature)

    def _described(self) -> Run:
        about, request = self._engine.about, self._request
        settings: dict[str, Any] = {
            "suite": self._plan.suite,
            "kinds": list(self._plan.kinds),
            "limit": self._plan.limit,
            "peers": list(self._plan.peers),
            "prompts": len(self._prompts),
            "repeat": self._plan.repeats,
            "max_tokens": request.max_tokens,
            **{name: value for name, value in asdict(request.sampling).items() if name != "logit_bias" or value},
            "seed": request.seed,
            "verify": request.verify,
            "think": request.think,
            "stop": list(request.stop),
            "ctx": self._engine.n_ctx,
            "policy": about.policy,
        }
        if isinstance(self._engine.target, Context):
            settings["threads"] = self._engine.target.threads
        return Run(
            arms=tuple(self._arms),
            target=_short(about.target),
            draft=_short(about.draft) if self._draft is not None and about.draft is not None else None,
            pair=about.pair,
            started=datetime.now(UTC).isoformat(timespec="seconds"),
            machine=hardware.machine(),
            versions=versions(),
            settings=settings,
            synthetic=self._plan.synthetic,
        )


def draft_model(engine: Engine) -> LanguageModel | None:
    """The draft model of an engine that has one."""
    drafter = engine.drafters.get("model")
    return drafter.model if isinstance(drafter, ModelDrafter) else None


def versions() -> dict[str, str]:
    """Of everything that a speed depends on."""
    found = {"edgespec": edgespec.__version__, "python": platform.python_version()}
    llama = library()
    build = llama.build
    made = ", ".join(str(build[name]) for name in ("backend", "compiler") if build.get(name))
    return found | {"llama-cpp-python": llama.version, "build": f"{llama.build_id()} ({made or 'of unknown making'})"}


def _short(reference: str) -> str:
    """A model's reference without a folder of somebody's machine."""
    return reference.replace("\\", "/").rsplit("/", 1)[-1] if reference.endswith(".gguf") else reference
