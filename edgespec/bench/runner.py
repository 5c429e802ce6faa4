"""The run itself: every prompt is answered by all arms before the next one is asked, in an order that rotates."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from threading import Event as Flag
from typing import Protocol

from edgespec import hardware
from edgespec.bench.arms import Contender
from edgespec.bench.exactness import TIMES_NOISE, candidates, gap, parting
from edgespec.bench.records import PLAIN, Answer, Fork, Record, RoundRecord
from edgespec.bench.suites import Prompt
from edgespec.engine import Engine
from edgespec.errors import PeerFailed, PromptTooLong
from edgespec.events import Done, Notice, RoundDone
from edgespec.settings import Request

WARM_UP_TOKENS = 12


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
        self._judged = judged and request.rule in ("argmax", "match")
        self._clock = clock
        self._stopped = Flag()
        self._total = repeats * sum(1 + len(p.turns) for p in prompts) * (len(self._arms) + len(self._peers))
        self._done = 0
        self._started = 0.0
        self._said: dict[str, str] = {}  # plain's first answer to each prompt, which its next turn follows
        self._forks: dict[tuple[int, ...], Fork] = {}

    def stop(self) -> None:
        """End the run, from any thread; the answer in progress is thrown away."""
        self._stopped.set()
        self._engine.cancel()
        for peer in self._peers:
            peer.cancel()

    def run(self) -> Iterator[Item]:
        """The run's answers, rounds and forks as they come, with progress between them.

        A prompt that does not fit the context is left out, and so is a peer from where it fails on; a Notice says so.
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
        """Each arm's shapes once, uncounted."""
        request = replace(self._request, max_tokens=min(WARM_UP_TOKENS, self._request.max_tokens or WARM_UP_TOKENS))
        for arm in self._arms:
            if not self._stopped.is_set():
                self._engine.policy = arm.policy
                self._ask(self.tokens(self._prompts[0]), request)
        for peer in list(self._peers):
            if not self._stopped.is_set():
                try:
                    peer.answer(self._prompts[0], request, 0, 0, True)
                except PeerFailed as error:
                    yield self._dismissed(peer, error)

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
        if repeat > 0:
            if prompt.id not in self._said:  # it was left out before
                self._total -= len(contenders)
                return
            self._engine.row(self.tokens(prompt))  # so that the first of them finds it read, too
        turn = first % len(contenders)
        answers: list[Answer] = []
        for place, contender in enumerate(contenders[turn:] + contenders[:turn]):
            if self._stopped.is_set():
                return
            name = contender.arm.name if isinstance(contender, Contender) else contender.name
            yield Progress(f"{prompt.id} · {name}", self._done, self._total, self._left())
            try:
                answer, rounds = self._asked(contender, prompt, repeat, place)
            except PromptTooLong as error:
                self._total -= len(contenders)
                yield Notice(f"{prompt.id} is left out: {error}")
                return
            except PeerFailed as error:
                yield self._dismissed(contender, error)
                continue
            if self._stopped.is_set() or answer.finish_reason == "cancelled":
                return
            self._done += 1
            answers.append(answer)
            if answer.arm == PLAIN:
                self._said.setdefault(prompt.id, answer.text)
            yield answer
            yield from rounds
        if self._judged:
            yield from self.parted(prompt, answers)

    def _asked(
        self, contender: Contender | Rival, prompt: Prompt, repeat: int, place: int
    ) -> tuple[Answer, list[RoundRecord]]:
        if not isinstance(contender, Contender):
            return contender.answer(prompt, self._request, repeat, place, repeat == 0), []
        self._engine.forget(drafts_only=repeat > 0)
        self._engine.policy = contender.policy
        return self._own(prompt, contender.arm.name, repeat, place)

    def _dismissed(self, contender: Contender | Rival, error: PeerFailed) -> Notice:
        """Go on without a peer that failed: an hour's measurement is not lost for it."""
        self._peers = [peer for peer in self._peers if peer is not contender]
        return Notice(f"It is left out from here on: {error}")

    def _left(self) -> float | None:
        return (self._clock() - self._started) / self._done * (self._total - self._done) if self._done else None

    def tokens(self, prompt: Prompt) -> list[int]:
        """A prompt as the target reads it."""
        return self._engine.prompt(prompt.messages if prompt.raw is None else prompt.raw, request=self._request)

    def _ask(self, tokens: Sequence[int], request: Request) -> tuple[Done, list[RoundDone]]:
        done, rounds = None, []
        for event in self._engine.generate(tokens, request=request):
            if isinstance(event, RoundDone):
                rounds.append(event)
            elif isinstance(event, Done):
                done = event
        assert done is not None, "an answer ends with Done"
        return done, rounds

    def _own(self, prompt: Prompt, arm: str, repeat: int, place: int) -> tuple[Answer, list[RoundRecord]]:
        """One of our arms' answers, with its rounds."""
        tokens = self.tokens(prompt)
        joules, started = hardware.energy(), self._clock()
        done, events = self._ask(tokens, self._request)
        seconds, after = self._clock() - started, hardware.energy()
        rounds = [event.round for event in events]
        later = [r for r in rounds if r.emitted][1:]
        ttft = done.stats.ttft_ms
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
            ttft_seconds=None if ttft is None else ttft / 1000.0,
            drafted=done.stats.drafted,
            accepted=done.stats.accepted,
            stats=done.stats,
            memory=hardware.resident_memory(),
            joules=None if joules is None or after is None else after - joules,
        )
        log = [RoundRecord(prompt.id, arm, repeat, i, **asdict(r)) for i, r in enumerate(rounds)]
        return answer, log

    def parted(self, prompt: Prompt, answers: Sequence[Answer]) -> Iterator[Fork]:
        """Judge where the arms' texts left plain's of the same block."""
        plain = next((answer for answer in answers if answer.arm == PLAIN), None)
        for answer in answers:
            if plain is None or answer.stats is None or answer is plain:
                continue
            at = parting(plain.tokens, answer.tokens)
            if at is not None:
                yield self._judge(prompt, plain, answer, at)

    def _judge(self, prompt: Prompt, plain: Answer, other: Answer, at: int) -> Fork:
        engine, sampling = self._engine, self._request.sampling
        vocabulary = engine.vocabulary
        ends = vocabulary.end_tokens
        history = [*self.tokens(prompt), *plain.tokens[:at]]
        ones, others = candidates(plain.tokens, at, ends), candidates(other.tokens, at, ends)
        key = (*history, -1, *ones, -1, *others)
        if key not in self._forks:
            band = TIMES_NOISE * engine.about.width_noise
            row = engine.row(history)
            window = history[-sampling.repeat_last_n :] if sampling.repeat_last_n > 0 else history
            smallest = min(
                gap(row, one, another, band, sampling, plain.seed, len(history), window)
                for one in ones
                for another in others
            )
            honest = len(history) >= engine.about.invariant_below and smallest < band
            self._forks[key] = Fork(prompt.id, other.arm, other.repeat, at, honest, smallest, band)
        return replace(self._forks[key], arm=other.arm, repeat=other.repeat)
