"""The run itself: every prompt is answered by all arms before the next one is asked, in an order that rotates."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from threading import Event as Flag
from typing import Protocol

from edgespec import hardware
from edgespec.bench.arms import Contender
from edgespec.bench.exactness import ForkJudge
from edgespec.bench.records import PLAIN, Answer, Fork, Record, RoundRecord
from edgespec.bench.suites import Prompt
from edgespec.engine import Engine
from edgespec.errors import PeerFailed
from edgespec.events import Done, Notice, RoundDone
from edgespec.protocols import Round
from edgespec.settings import Request

WARM_UP = "Count from one to twenty in words."
"""No prompt of a suite: a server may remember what it was asked before."""
WARM_UP_TOKENS = 12
PEER_MAY_FAIL = 2


@dataclass(frozen=True, slots=True)
class Progress:
    """`done` of `total` answers are there; `left` is an estimate in seconds, once there is one. `doing` says what."""

    doing: str
    done: int
    total: int
    left: float | None = None


Item = Record | Progress | Notice


class Rival(Protocol):
    """Another program's arm."""

    @property
    def name(self) -> str: ...

    def answer(self, prompt: Prompt, request: Request, repeat: int, place: int, cold: bool) -> Answer: ...

    def cancel(self) -> None:
        """End the answer in progress, and those to come; from any thread."""


class Runner:
    """Runs `arms` (plain is the first) and `peers` over `prompts`, `repeats` times.

    All arms share the engine's one load. In the first pass over the prompts everything is forgotten before each
    answer, so that each reads its prompt (a cold answer); in later passes the target keeps the prompt that the block
    shares, and only the drafters forget. `judged`: texts are compared with plain's, and where they part is judged.
    """

    def __init__(
        self,
        engine: Engine,
        arms: Sequence[Contender],
        prompts: Sequence[Prompt],
        request: Request,
        *,
        repeats: int = 1,
        peers: Sequence[Rival] = (),
        judged: bool = True,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._engine = engine
        self._arms = list(arms)
        self._peers = list(peers)
        self._prompts = list(prompts)
        self._request = request
        self._repeats = repeats
        keyed = request.rule == "match" and request.seed is not None
        self._judged = judged and (request.rule == "argmax" or keyed)  # else nothing makes texts the same
        self._clock = clock
        self._stopped = Flag()
        self._total = repeats * sum(1 + len(p.turns) for p in prompts) * (len(self._arms) + len(self._peers))
        self._done = 0
        self._started = 0.0
        self._told: set[str] = set()
        self._failures: dict[str, int] = {}  # of a peer, in a row
        self._said: dict[str, str] = {}  # plain's first answer to each prompt, which its next turn follows
        self._forks = ForkJudge(engine, request)

    def stop(self) -> None:
        """End the run, from any thread; the answer in progress is thrown away."""
        self._stopped.set()
        self._engine.cancel()
        for peer in self._peers:
            peer.cancel()

    def run(self) -> Iterator[Item]:
        """The run's answers, rounds and forks as they come, with progress between them.

        A prompt that does not fit the context is left out, and a peer that fails twice in a row; a Notice says so.
        """
        own = self._engine.policy
        try:
            yield Progress("warming up", 0, self._total)
            yield from self._warm_up()
            self._started = self._clock()
            for repeat in range(self._repeats):
                turns = (turn for prompt in self._prompts for turn in self._turns(prompt))
                for number, turn in enumerate(turns):
                    # Each prompt has another order each time that it is asked, however many prompts and arms there are.
                    yield from self._block(turn, repeat, number + repeat)
                    if self._stopped.is_set():
                        return
        finally:
            self._engine.policy = own

    def _warm_up(self) -> Iterator[Notice]:
        """A few tokens of every arm, uncounted."""
        request = replace(self._request, max_tokens=min(WARM_UP_TOKENS, self._request.max_tokens or WARM_UP_TOKENS))
        prompt = Prompt("warm-up", "warm-up", ({"role": "user", "content": WARM_UP},))
        if self._prompts[0].raw is not None:  # a base model may have no chat template
            prompt = Prompt("warm-up", "warm-up", raw=WARM_UP)
        contenders: list[Contender | Rival] = [*self._arms, *self._peers]
        for contender in contenders:
            if self._stopped.is_set():
                return
            if isinstance(contender, Contender):
                self._engine.policy = contender.policy
                if len(self.tokens(prompt)) < self._engine.n_ctx:
                    self._ask(self.tokens(prompt), request)
            else:
                try:
                    contender.answer(prompt, request, 0, 0, True)
                except PeerFailed as error:
                    yield self._failed(contender, error)

    def _turns(self, prompt: Prompt) -> Iterator[Prompt]:
        """A prompt and its further turns, each as a prompt of its own that follows plain's answer to the one before."""
        yield prompt
        first = prompt.id
        for number, words in enumerate(prompt.turns, 2):
            if prompt.id not in self._said:  # it was left out
                self._total -= (len(prompt.turns) + 2 - number) * (len(self._arms) + len(self._peers))
                return
            answer = {"role": "assistant", "content": self._said[prompt.id]}
            messages = (*prompt.messages, answer, {"role": "user", "content": words})
            prompt = replace(prompt, id=f"{first}#{number}", messages=messages)
            yield prompt

    def _block(self, prompt: Prompt, repeat: int, first: int) -> Iterator[Item]:
        """All arms on one prompt, beginning with the `first`-th."""
        contenders: list[Contender | Rival] = [*self._arms, *self._peers]
        length, room = len(self.tokens(prompt)), self._engine.n_ctx
        if length >= room:
            self._total -= len(contenders)
            yield from self._news(f"{prompt.id} is left out: ", [f"{length} tokens do not fit the context of {room}."])
            return
        if repeat > 0:
            self._engine.row(self.tokens(prompt))  # so that the first of them finds it read, too
        turn = first % len(contenders)
        answers: list[Answer] = []
        for place, contender in enumerate(contenders[turn:] + contenders[:turn]):
            if self._stopped.is_set():
                return
            yield Progress(f"{prompt.id} · {_name(contender)}", self._done, self._total, self._left())
            try:
                answer, rounds, notices = self._asked(contender, prompt, repeat, place)
            except PeerFailed as error:
                self._total -= 1
                yield self._failed(contender, error)
                continue
            if self._stopped.is_set() or answer.finish_reason == "cancelled":
                return
            self._done += 1
            answers.append(answer)
            if answer.arm == PLAIN:
                self._said.setdefault(prompt.id, answer.text)
            yield answer
            yield from rounds
            yield from self._news(f"{answer.arm}: ", notices)
        if self._judged:
            yield from self.parted(prompt, answers)

    def _asked(
        self, contender: Contender | Rival, prompt: Prompt, repeat: int, place: int
    ) -> tuple[Answer, list[RoundRecord], list[str]]:
        if not isinstance(contender, Contender):
            answer = contender.answer(prompt, self._request, repeat, place, repeat == 0)
            self._failures.pop(contender.name, None)
            return answer, [], []
        self._engine.forget(drafts_only=repeat > 0)
        self._engine.policy = contender.policy
        return self._own(prompt, contender.arm.name, repeat, place)

    def _failed(self, peer: Contender | Rival, error: PeerFailed) -> Notice:
        """One answer less, and after a second failure in a row no more of that peer: the run goes on."""
        name = _name(peer)
        self._failures[name] = self._failures.get(name, 0) + 1
        if self._failures[name] < PEER_MAY_FAIL:
            return Notice(f"{name} has no answer here: {error}")
        self._peers = [other for other in self._peers if other is not peer]
        return Notice(f"{name} is left out from here on: {error}")

    def _news(self, whose: str, sentences: Sequence[str]) -> Iterator[Notice]:
        """What the engine has to say of an arm, once."""
        for sentence in sentences:
            if whose + sentence not in self._told:
                self._told.add(whose + sentence)
                yield Notice(whose + sentence)

    def _left(self) -> float | None:
        return (self._clock() - self._started) / self._done * (self._total - self._done) if self._done else None

    def tokens(self, prompt: Prompt) -> list[int]:
        """A prompt as the target reads it."""
        return self._engine.prompt(prompt.messages if prompt.raw is None else prompt.raw, request=self._request)

    def _ask(self, tokens: Sequence[int], request: Request) -> tuple[Done, list[Round], list[str]]:
        """An answer, its rounds, and what was said of it."""
        done, rounds, notices = None, list[Round](), list[str]()
        for event in self._engine.generate(tokens, request=request):
            if isinstance(event, RoundDone):
                rounds.append(event.round)
            elif isinstance(event, Notice):
                notices.append(event.message)
            elif isinstance(event, Done):
                done = event
            if self._stopped.is_set():
                self._engine.cancel()  # a stop that came before the answer began was forgotten then
        assert done is not None, "an answer ends with Done"
        return done, rounds, notices

    def _own(
        self, prompt: Prompt, arm: str, repeat: int, place: int
    ) -> tuple[Answer, list[RoundRecord], list[str]]:  # fmt: skip
        """One of our arms' answers, with its rounds."""
        tokens = self.tokens(prompt)
        meter, started = hardware.energy(), self._clock()
        done, rounds, notices = self._ask(tokens, self._request)
        seconds, joules = self._clock() - started, hardware.used(meter, hardware.energy())
        later = [r for r in rounds if r.emitted][1:]
        answer = Answer(
            prompt=prompt.id,
            kind=prompt.kind,
            arm=arm,
            repeat=repeat,
            place=place,
            cold=repeat == 0,
            text=done.text,
            tokens=done.tokens,
            finish_reason=done.finish_reason,
            seed=done.seed,
            prompt_tokens=done.prompt_tokens,
            seconds=seconds,
            speed_tokens=sum(r.emitted for r in later),
            speed_seconds=sum(r.seconds for r in later),
            ttft_ms=done.stats.ttft_ms,
            drafted=done.stats.drafted,
            accepted=done.stats.accepted,
            stats=done.stats,
            memory=hardware.resident_memory(),
            joules=joules,
        )
        log = [
            RoundRecord(**asdict(r), prompt=prompt.id, kind=prompt.kind, arm=arm, repeat=repeat, index=i)
            for i, r in enumerate(rounds)
        ]
        return answer, log, notices

    def parted(self, prompt: Prompt, answers: Sequence[Answer]) -> Iterator[Fork]:
        """Judge where the arms' texts left plain's of the same block."""
        plain = next((answer for answer in answers if answer.arm == PLAIN), None)
        for answer in answers:
            if plain is not None and answer.stats is not None and answer is not plain:
                fork = self._forks.fork(self.tokens(prompt), plain, answer)
                if fork is not None:
                    yield fork


def _name(contender: Contender | Rival) -> str:
    return contender.arm.name if isinstance(contender, Contender) else contender.name
