"""Draft, verify, accept: a round is one function, and an answer is a loop over rounds that yields events.

Between calls the target's cache holds a prefix of the last answer's history. Within an answer `history` is what is
committed; its last token (at the start: the prompt's end) is not decoded yet.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from threading import Event as Flag
from threading import Lock, RLock, get_ident
from typing import Any

from edgespec.answer import Answer
from edgespec.cached import CachedModel
from edgespec.control.mode import DraftMode
from edgespec.drafters.crew import Crew
from edgespec.errors import BadLogits, Closed, EngineBusy, Interrupted, NoChatTemplate, PromptTooLong, UsageError
from edgespec.events import Event, Notice, Prefill, RoundDone, Text
from edgespec.judge import Judge
from edgespec.prompts import ChatPrompt, ChatPrompts
from edgespec.protocols import (
    ChatTemplate,
    Drafter,
    LanguageModel,
    Logits,
    Message,
    Policy,
    Round,
    Situation,
    TextStream,
    Vocabulary,
)
from edgespec.settings import About, Request
from edgespec.stats import PrefillCost, plain_seconds

PLAIN_ROUNDS_KEPT = 512

MakeJudge = Callable[[Request, Sequence[int], int, frozenset[int], DraftMode], Judge]
"""What makes an answer's judge: see Judge for the arguments."""

Reading = Callable[[Iterator[Event]], Iterator[Event]]
"""What makes something of an answer's events before anybody sees them."""


class Engine:
    """A target with its drafters, ready to answer; one answer at a time.

    `policy` is asked for drafter and k in every round, `judge` makes what verifies an answer; both may be exchanged
    between answers. `defaults` holds where a call says nothing else. Tokens in `masked` are never proposed. Where
    `widest` is given, drafts make no pass wider than that: up to there this build gives a row the same logits at every
    width. `close()` gives all memory back, that of `owned` included.
    """

    def __init__(
        self,
        target: LanguageModel,
        vocabulary: Vocabulary,
        policy: Policy,
        text_stream: Callable[[Sequence[str]], TextStream],
        *,
        drafters: Mapping[str, Drafter] | None = None,
        template: ChatTemplate | None = None,
        about: About | None = None,
        defaults: Request | None = None,
        owned: ExitStack | None = None,
        masked: frozenset[int] = frozenset(),
        widest: int | None = None,
        judge: MakeJudge = Judge,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.about = about or About(target="")
        self.target = target
        self._cached = CachedModel(target)
        self.vocabulary = vocabulary
        self._ends = vocabulary.end_tokens
        self.policy = policy
        self._text_stream = text_stream
        self.drafters = dict(drafters or {})
        self._prompts = ChatPrompts(template, vocabulary) if template is not None else None
        self._defaults = defaults or Request()
        self._owned = owned or ExitStack()
        self._masked = masked
        self._mode = DraftMode()
        self.judge = judge
        self._widest = widest
        self._clock = clock
        self._away = 0.0  # seconds that consumers have spent between events
        self._plain: deque[Round] = deque(maxlen=PLAIN_ROUNDS_KEPT)
        self._said: set[str] = set()
        self._busy = Lock()  # an answer is in progress
        self._native = RLock()  # the models are in use at this moment; close() waits for it
        self._worker: int | None = None  # the thread that is using them
        self._closed = False
        self._cancelled = Flag()

    def chat(self, messages: Sequence[Message], *, wait: bool = False, **options: Any) -> Iterator[Event]:
        """Answer a conversation, written as the model's own template has it. Options and events as in `generate`.

        Thoughts of a thinking model come apart from its answer (Text.thought, Done.thought). Put Done.raw into the next
        call's messages: then only what follows it is decoded.
        """
        started, request = self._clock(), self.request(**options)
        prompts, prompt = self._written(messages, request)
        read = partial(prompts.read, prompt, request.think)
        return self._start(list(prompt.tokens), request, started, wait, read)

    def complete(self, prompt: str, *, wait: bool = False, **options: Any) -> Iterator[Event]:
        """Continue a text as it stands, without a template. Options and events as in `generate`."""
        started, request = self._clock(), self.request(**options)
        return self._start(self.prompt(prompt), request, started, wait)

    def generate(self, prompt: Sequence[int], *, wait: bool = False, **options: Any) -> Iterator[Event]:
        """Continue the tokens of `prompt`; yields Prefill, RoundDone, Text and Notice events, and Done at the end.

        `options` are the fields of Request and Sampling by name (temperature=0.7, max_tokens=200, …) over the engine's
        defaults; `request` gives a whole one. While an answer is in progress, a second call raises EngineBusy, or waits
        for its end with `wait`. Closing the iterator early ends the answer and leaves the engine sound. Raises
        PromptTooLong where the context has no room for an answer.
        """
        return self._start(list(prompt), self.request(**options), self._clock(), wait)

    def prompt(self, asked: str | Sequence[Message], **options: Any) -> list[int]:
        """The tokens that `chat` reads for a conversation, or `complete` for a text; nothing is decoded."""
        if not isinstance(asked, str):
            return list(self._written(asked, self.request(**options))[1].tokens)
        with self._native:
            self._alive()
            return self.vocabulary.tokenize(asked, add_special=True)

    def request(self, *, request: Request | None = None, **options: Any) -> Request:
        """What an answer with these options is asked with, the engine's defaults included."""
        return (request or self._defaults).having(**options)

    def forget(self, *, drafts_only: bool = False) -> None:
        """Empty the caches, so that the next answer reads its prompt anew: all of them, or those of the drafters.

        What was learned of earlier drafts is forgotten, too.
        """
        with self._idle():
            self._mode = DraftMode()
            if not drafts_only:
                self._cached.reuse(())
            for drafter in self.drafters.values():
                drafter.begin(())

    def row(self, history: Sequence[int]) -> Logits:
        """A copy of the logits (n_vocab,) after `history`, whose last token is decoded alone, as by a plain round."""
        with self._idle():
            *rest, last = history
            self._cached.reuse(history)
            while unread := rest[len(self._cached.tokens) :]:
                self._cached.read(unread[: self.target.n_batch], outputs=0)
            row: Logits = self._cached.read([last], outputs=1)[0].copy()
            return row

    @property
    def n_ctx(self) -> int:
        """Tokens of context, for prompt and answer together."""
        return self.target.n_ctx

    def cancel(self) -> None:
        """End the answer in progress, from any thread; its Done says `cancelled` and keeps what came."""
        self._cancelled.set()
        self._interrupt(True)

    def close(self) -> None:
        """Free the models, ending an answer in progress. Closing twice is harmless, and any thread may do it."""
        self._closed = True
        self.cancel()
        if self._worker != get_ident():  # else a signal came in the midst of our own work, which frees when it is done
            self._free()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def bare(self) -> Iterator[None]:
        """For measurements on the models themselves (`target`, a drafter's): empty caches, and empty again after."""
        self.forget()
        with self._idle():
            yield

    @contextmanager
    def _idle(self) -> Iterator[None]:
        """The models, for work between answers."""
        if not self._busy.acquire(blocking=False):
            raise EngineBusy("The engine is answering: wait for the answer's end, or cancel it.")
        try:
            with self._native:
                self._alive()
                self._interrupt(False)
                self._worker = get_ident()
                try:
                    yield
                except BaseException:
                    self._cached.repair()
                    raise
                finally:
                    self._worker = None
        finally:
            if self._closed:
                self._free()
            self._busy.release()

    def _free(self) -> None:
        with self._native:
            for drafter in self.drafters.values():
                drafter.close()
            self.target.close()
            self._owned.close()

    def _written(self, messages: Sequence[Message], request: Request) -> tuple[ChatPrompts, ChatPrompt]:
        if self._prompts is None:
            raise NoChatTemplate("This model has no chat template: use a plain prompt (run --raw, or complete()).")
        with self._native:
            self._alive()
            return self._prompts, self._prompts.write(messages, request.think)

    def _start(
        self, prompt: list[int], request: Request, started: float, wait: bool, read: Reading = iter
    ) -> Iterator[Event]:
        if not prompt:
            raise UsageError("The prompt is empty: say something.")
        if len(prompt) >= self.target.n_ctx:
            raise PromptTooLong(
                f"The prompt has {len(prompt)} tokens and the context holds {self.target.n_ctx}: "
                "shorten it, or raise --ctx where the model allows that."
            )
        spent = self._clock() - started
        return self._guarded(lambda started: read(self._answer(prompt, request, started - spent)), wait)

    def _guarded(self, answer: Callable[[float], Iterator[Event]], wait: bool) -> Iterator[Event]:
        """The answer's events, with the models locked only while it works, and a sound cache however it ends."""
        started = self._now()
        if not self._busy.acquire(blocking=wait):
            raise EngineBusy("The engine is answering already: wait for that answer's end, or cancel it.")
        events = answer(started)
        try:
            self._cancelled.clear()
            self._interrupt(False)
            while True:
                with self._native:
                    self._alive()
                    self._worker = get_ident()
                    try:
                        event = next(events, None)
                    finally:
                        self._worker = None
                if self._closed:
                    self._free()
                if event is None:
                    return
                left = self._clock()
                try:
                    yield event
                finally:
                    self._away += self._clock() - left
        except BaseException:
            with self._native, suppress(Closed):  # somebody closed the engine before the iterator
                self._cached.repair()
            raise
        finally:
            self._busy.release()

    def _answer(self, prompt: list[int], request: Request, started: float) -> Iterator[Event]:
        room = self.target.n_ctx - len(prompt)
        answer = Answer(
            request=request,
            history=prompt,
            prompt_tokens=len(prompt),
            reused=self._cached.reuse(prompt),
            limit=room if request.max_tokens is None else min(room, request.max_tokens),
            ends=self._ends,
            judge=self.judge(request, prompt, self.target.n_vocab, self._masked, self._mode),
            text=self._text_stream(request.stop),
            crew=Crew(self.drafters, self.target.n_vocab, self._ends, self._clock),
        )
        if not self.target.can_trim:
            answer.crew.dismiss("This model cannot take tokens back, so it is decoded without drafting.")
        answer.crew.begin(prompt)
        yield Prefill(answer.reused, len(prompt), answer.reused)

        passes, prefill_seconds = 0, 0.0
        try:
            while len(prompt) - len(self._cached.tokens) > self.target.n_batch:
                before = self._clock()
                self._cached.read(prompt[len(self._cached.tokens) :][: self.target.n_batch], outputs=0)
                prefill_seconds += self._clock() - before
                passes += 1
                yield Prefill(len(self._cached.tokens), len(prompt), answer.reused)
                self._heed_cancel()
            while answer.finish is None:
                round_done, text = self._round(answer)
                if text.tokens and answer.ttft is None:
                    answer.ttft = self._now() - started
                if len(answer.rounds) == 1:
                    yield Prefill(answer.prompt_tokens, answer.prompt_tokens, answer.reused)
                while answer.crew.notices:
                    yield Notice(answer.crew.notices.pop(0))
                yield round_done
                if text.tokens:
                    yield text
                if answer.finish is None:
                    self._heed_cancel()
        except Interrupted:
            self._interrupt(False)
            self._cached.repair()
            answer.finish = "cancelled"
        if rest := answer.flush():
            yield rest
        read = answer.prompt_tokens if answer.rounds else len(self._cached.tokens)
        prefill = PrefillCost(read - answer.reused, passes, prefill_seconds)
        if answer.rounds:
            self.policy.observe(answer.rounds[-1])
        if remark := self.policy.remark(request.sampling.temperature):
            yield from self._once(remark)
        plain = self.policy.plain_seconds or plain_seconds(self._plain, len(answer.history))
        yield answer.done(prefill, plain)

    def _round(self, answer: Answer) -> tuple[RoundDone, Text]:
        """One round: draft, verify in one target pass, commit, trim."""
        started = self._clock()
        context = len(self._cached.tokens)
        pending = answer.history[context:]
        width = min(self.target.n_batch, self._widest or self.target.n_batch)
        room = max(0, min(answer.room - 1, width - len(pending), self.target.n_outputs - 1))
        if answer.rounds:
            self.policy.observe(answer.rounds[-1])  # here, so that its time is counted
        offers = answer.crew.offers(answer.history) if room else {}
        choice = self.policy.choose(
            Situation(room, answer.room, context, len(pending), not answer.rounds, offers)
        )  # fmt: skip
        draft = answer.crew.draft(
            choice.drafter,
            answer.history,
            min(choice.k, room),
            answer.judge.choose,
            lambda drafted: self.policy.goes_on(drafted, answer.judge.confidence),
        )
        drafter_seconds = self._clock() - started

        before = self._clock()
        size = self.target.n_batch
        while len(pending) > size:  # the model forgot its cache instead of trimming it
            self._cached.read(pending[:size], outputs=0)
            pending = pending[size:]
        rows = self._cached.read([*pending, *draft.tokens], outputs=1 + len(draft.tokens))
        verify_seconds = self._clock() - before
        try:
            verdict = answer.judge.verdict(draft, rows)
        except BadLogits as error:
            raise BadLogits(f"The output of {self.about.target or 'the target'} is not a number: fetch the file again, "
                            "or make another build of llama.cpp.") from error  # fmt: skip

        decoded = len(answer.history)
        emitted = [*draft.tokens[: verdict.accepted], verdict.token]
        last = "p" if not draft.tokens else "b" if verdict.accepted == len(draft.tokens) else "c"
        text = answer.commit(emitted, "a" * verdict.accepted + last)
        kept = len(text.tokens)
        drafted, accepted = len(draft.tokens), verdict.accepted
        if kept < len(emitted):  # the end cut the round: what lies behind the cut does not count
            drafted = accepted = min(accepted, kept)
        if draft.tokens:
            answer.crew.settle(choice.drafter, accepted)
        if not self._cached.keep(decoded + accepted):
            answer.crew.dismiss("The model could not take tokens back, so this answer goes on without drafting.")

        round_ = Round(
            drafter=choice.drafter if choice.drafter in self.drafters else None,
            k=choice.k,
            drafted=drafted,
            accepted=accepted,
            emitted=kept,
            context=context,
            width=decoded - context + len(draft.tokens),
            seconds=self._clock() - started,
            draft_seconds=draft.seconds,
            verify_seconds=verify_seconds,
            drafter_seconds=drafter_seconds,
            draft_calls=draft.calls,
        )
        answer.rounds.append(round_)
        if round_.width == 1 and not round_.draft_seconds:
            self._plain.append(round_)
        return RoundDone(round_, draft.tokens, choice.why), text

    def _once(self, sentence: str) -> Iterator[Notice]:
        """Something that is said but once."""
        if sentence not in self._said:
            self._said.add(sentence)
            yield Notice(sentence)

    def _now(self) -> float:
        """The clock, less what consumers have spent between events."""
        return self._clock() - self._away

    def _alive(self) -> None:
        if self._closed:
            raise Closed("The engine is closed: load it again.")

    def _heed_cancel(self) -> None:
        if self._cancelled.is_set():
            raise Interrupted("The answer was cancelled.")

    def _interrupt(self, on: bool) -> None:
        self.target.interrupt(on)
        for drafter in self.drafters.values():
            drafter.interrupt(on)
