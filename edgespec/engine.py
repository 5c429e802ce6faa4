"""Draft, verify, accept: a round is one function, and an answer is a loop over rounds that yields events.

State between calls: the target's cache holds `_cached`, a prefix of the last answer's history. Within an answer
`history` is what is committed; its last token (at the start: the prompt's end) is not decoded yet.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from threading import Event as Flag
from threading import Lock
from typing import Any

from edgespec.drafters.model import common_prefix
from edgespec.errors import (
    Closed,
    EdgespecError,
    EngineBusy,
    Interrupted,
    NoChatTemplate,
    PromptTooLong,
    RollbackRefused,
    UsageError,
)
from edgespec.events import Done, Event, FinishReason, Notice, Prefill, RoundDone, Text
from edgespec.judge import Judge
from edgespec.protocols import (
    ChatTemplate,
    Choice,
    Draft,
    Drafter,
    LanguageModel,
    Logits,
    Message,
    Policy,
    Round,
    TextStream,
    Vocabulary,
)
from edgespec.settings import About, Request
from edgespec.stats import PrefillCost, plain_seconds, summarize

PLAIN_ROUNDS_KEPT = 512


@dataclass(slots=True)
class _Answer:
    """One answer as it grows."""

    history: list[int]
    prompt_tokens: int
    limit: int  # tokens that may still come out at the start
    judge: Judge
    text: TextStream
    drafters: dict[str, Drafter]  # those that have not failed
    shown: list[str] = field(default_factory=list)
    provenance: str = ""
    rounds: list[Round] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    finish: FinishReason | None = None

    @property
    def tokens(self) -> tuple[int, ...]:
        return tuple(self.history[self.prompt_tokens :])

    @property
    def room(self) -> int:
        """Tokens that may still come out."""
        return self.limit - (len(self.history) - self.prompt_tokens)


class Engine:
    """A target with its drafters, ready to answer; one answer at a time.

    `policy` is asked for drafter and k in every round. `defaults` holds where a call says nothing else. `close()` gives
    all memory back, that of `owned` included.
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
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._target = target
        self._vocabulary = vocabulary
        self._policy = policy
        self._text_stream = text_stream
        self._drafters = dict(drafters or {})
        self._template = template
        self.about = about or About(target="")
        self._defaults = defaults or Request()
        self._owned = owned or ExitStack()
        self._masked = masked
        self._clock = clock
        self._cached: list[int] = []
        self._plain: deque[Round] = deque(maxlen=PLAIN_ROUNDS_KEPT)
        self._busy = Lock()
        self._cancelled = Flag()

    def chat(self, messages: Sequence[Message], *, wait: bool = False, **options: Any) -> Iterator[Event]:
        """Answer a conversation, written as the model's own template has it. Options and events as in `generate`."""
        if self._template is None:
            raise NoChatTemplate("This model has no chat template: use a plain prompt (--raw, or complete()).")
        prompt = self._template.render(messages)
        add_special = not self._template.begins_itself(prompt)
        return self.generate(self._vocabulary.tokenize(prompt, add_special=add_special), wait=wait, **options)

    def complete(self, prompt: str, *, wait: bool = False, **options: Any) -> Iterator[Event]:
        """Continue a text as it stands, without a template. Options and events as in `generate`."""
        return self.generate(self._vocabulary.tokenize(prompt, add_special=True), wait=wait, **options)

    def generate(
        self, prompt: Sequence[int], request: Request | None = None, *, wait: bool = False, **options: Any
    ) -> Iterator[Event]:
        """Continue the tokens of `prompt`; yields Prefill, RoundDone, Text and Notice events, and Done at the end.

        `options` are the fields of Request and Sampling by name (temperature=0.7, max_tokens=200, …), over `request`
        or the engine's defaults. While an answer is in progress, a second call raises EngineBusy, or waits for its end
        with `wait`. Closing the iterator early ends the answer and leaves the engine sound. Raises PromptTooLong where
        the context has no room for an answer.
        """
        request = (request or self._defaults).having(**options)
        if not prompt:
            raise UsageError("The prompt is empty: say something.")
        if len(prompt) >= self._target.n_ctx:
            raise PromptTooLong(
                f"The prompt has {len(prompt)} tokens and the context holds {self._target.n_ctx}: "
                "shorten it or raise --ctx."
            )
        return self._guarded(list(prompt), request, wait)

    def cancel(self) -> None:
        """End the answer in progress, from any thread; its Done says `cancelled` and keeps what came."""
        self._cancelled.set()
        self._interrupt(True)

    def close(self) -> None:
        """Free the models, ending an answer in progress. Closing twice is harmless."""
        self.cancel()
        for drafter in self._drafters.values():
            drafter.close()
        self._target.close()
        self._owned.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _guarded(self, prompt: list[int], request: Request, wait: bool) -> Iterator[Event]:
        if not self._busy.acquire(blocking=wait):
            raise EngineBusy("The engine is answering already: wait for that answer's end, or cancel it.")
        try:
            self._cancelled.clear()
            self._interrupt(False)
            yield from self._answer(prompt, request)
        except BaseException:
            with suppress(Closed):  # somebody closed the engine before the iterator
                self._trim(len(self._cached))
            raise
        finally:
            self._busy.release()

    def _answer(self, prompt: list[int], request: Request) -> Iterator[Event]:
        started = self._clock()
        room = self._target.n_ctx - len(prompt)
        answer = _Answer(
            history=prompt,
            prompt_tokens=len(prompt),
            limit=room if request.max_tokens is None else min(room, request.max_tokens),
            judge=Judge(request, prompt, self._target.n_vocab, self._masked),
            text=self._text_stream(request.stop),
            drafters=dict(self._drafters) if self._target.can_trim else {},
        )
        if self._drafters and not self._target.can_trim:
            yield Notice("This model cannot take tokens back, so it is decoded without drafting.")
        cached = self._reuse(prompt)
        for drafter in answer.drafters.values():
            drafter.begin(prompt)
        yield Prefill(cached, len(prompt), cached)

        passes, prefill_seconds, ttft = 0, 0.0, None
        try:
            while answer.finish is None:
                while len(answer.history) - len(self._cached) > self._target.n_batch:
                    before = self._clock()
                    self._decode(answer.history[len(self._cached) :][: self._target.n_batch], outputs=0)
                    prefill_seconds += self._clock() - before
                    passes += 1
                    yield Prefill(len(self._cached), answer.prompt_tokens, cached)
                    self._heed_cancel()
                round_done, text = self._round(answer)
                if ttft is None:
                    ttft = self._clock() - started
                    yield Prefill(answer.prompt_tokens, answer.prompt_tokens, cached)
                while answer.notices:
                    yield Notice(answer.notices.pop(0))
                yield round_done
                if text.tokens:
                    yield text
                if answer.finish is None:
                    self._heed_cancel()
        except Interrupted:
            self._interrupt(False)
            self._trim(len(self._cached))
            answer.finish = "cancelled"
        if rest := answer.text.finish():
            answer.shown.append(rest)
            yield Text(rest, (), "")
        yield self._done(
            answer, request, cached, PrefillCost(answer.prompt_tokens - cached, passes, prefill_seconds), ttft
        )

    def _round(self, answer: _Answer) -> tuple[RoundDone, Text]:
        """One round: draft, verify in one target pass, commit, trim."""
        started = self._clock()
        pending = answer.history[len(self._cached) :]
        context = len(self._cached)
        room = min(answer.room - 1, self._target.n_batch - len(pending), self._target.n_outputs - 1)
        choice = self._policy.choose(max(room, 0))
        draft = self._draft(answer, choice, room)
        drafter_seconds = self._clock() - started

        before = self._clock()
        rows = self._decode([*pending, *draft.tokens], outputs=1 + len(draft.tokens))
        verify_seconds = self._clock() - before
        verdict = answer.judge.verdict(draft, rows)

        emitted = [*draft.tokens[: verdict.accepted], verdict.token]
        last = "p" if not draft.tokens else "b" if verdict.accepted == len(draft.tokens) else "c"
        text = self._commit(answer, emitted, "a" * verdict.accepted + last)
        kept = len(text.tokens)
        drafted, accepted = len(draft.tokens), verdict.accepted
        if kept < len(emitted):  # the end cut the round: what lies behind the cut does not count
            drafted = accepted = min(accepted, kept)
        if choice.drafter in answer.drafters and draft.tokens:
            answer.drafters[choice.drafter].settle(accepted)
        if accepted < len(draft.tokens):
            self._trim(context + len(pending) + accepted)

        round_ = Round(
            drafter=choice.drafter if choice.drafter in answer.drafters else None,
            k=choice.k,
            drafted=drafted,
            accepted=accepted,
            emitted=kept,
            context=context,
            width=len(pending) + len(draft.tokens),
            seconds=self._clock() - started,
            draft_seconds=draft.seconds,
            verify_seconds=verify_seconds,
            drafter_seconds=drafter_seconds,
            draft_calls=draft.calls,
        )
        answer.rounds.append(round_)
        self._policy.observe(round_)
        if round_.width == 1:
            self._plain.append(round_)
        return RoundDone(round_, draft.tokens), text

    def _draft(self, answer: _Answer, choice: Choice, room: int) -> Draft:
        """Ask the chosen drafter; one that fails is dropped for this answer, which goes on plain."""
        drafter = answer.drafters.get(choice.drafter or "")
        k = min(choice.k, room)
        if drafter is None or k < 1:
            return Draft()
        try:
            return self._checked(drafter.draft(answer.history, k, answer.judge.choose), k)
        except Interrupted:
            raise
        except Exception as error:
            reason = str(error) if isinstance(error, EdgespecError) else f"{type(error).__name__}: {error}"
            answer.notices.append(f"Drafting with {drafter.name} stopped for this answer: {reason}")
            del answer.drafters[drafter.name]
            return Draft()

    def _checked(self, draft: Draft, k: int) -> Draft:
        """The draft up to k tokens and up to its first end token; ids that the target lacks are a fault."""
        if len(draft.q) != len(draft.tokens):
            raise UsageError("a draft needs one q for each token.")
        tokens = draft.tokens[:k]
        if bad := [token for token in tokens if not 0 <= token < self._target.n_vocab]:
            raise UsageError(f"it proposed token {bad[0]}, which the target does not have.")
        ends = self._vocabulary.end_tokens
        length = next((i + 1 for i, token in enumerate(tokens) if token in ends), len(tokens))
        return Draft(tokens[:length], draft.q[:length], draft.calls, draft.seconds)

    def _commit(self, answer: _Answer, emitted: Sequence[int], provenance: str) -> Text:
        """Add tokens to the answer up to its end, and say what ended it."""
        shown, kept = "", 0
        for token in emitted:
            if token in self._vocabulary.end_tokens:
                answer.finish = "stop"
                break
            answer.history.append(token)
            kept += 1
            shown += answer.text.push(token)
            if answer.text.stopped:
                answer.finish = "stop"
                break
            if answer.room == 0:
                answer.finish = "length"
                break
        answer.provenance += provenance[:kept]
        answer.shown.append(shown)
        return Text(shown, tuple(emitted[:kept]), provenance[:kept])

    def _done(self, answer: _Answer, request: Request, cached: int, prefill: PrefillCost, ttft: float | None) -> Done:
        plain = plain_seconds(self._plain, len(answer.history))
        return Done(
            text="".join(answer.shown),
            tokens=answer.tokens,
            provenance=answer.provenance,
            finish_reason=answer.finish or "cancelled",
            prompt_tokens=answer.prompt_tokens,
            cached_prompt_tokens=cached,
            seed=answer.judge.seed,
            verify=answer.judge.rule,
            request=request,
            stats=summarize(answer.rounds, prefill, ttft, plain),
        )

    def _reuse(self, prompt: Sequence[int]) -> int:
        """Keep the cached prefix that `prompt` begins with, but for its last token; return its length."""
        self._trim(min(common_prefix(self._cached, prompt), len(prompt) - 1))
        return len(self._cached)

    def _decode(self, tokens: Sequence[int], outputs: int) -> Logits:
        rows = self._target.decode(tokens, len(self._cached), outputs)
        self._cached.extend(tokens)
        return rows

    def _trim(self, length: int) -> None:
        """Keep the first `length` cached tokens; a model that cannot take some back starts over."""
        try:
            self._target.trim(length)
        except RollbackRefused:
            length = 0
            self._target.trim(0)
        del self._cached[length:]

    def _heed_cancel(self) -> None:
        if self._cancelled.is_set():
            raise Interrupted("The answer was cancelled.")

    def _interrupt(self, on: bool) -> None:
        self._target.interrupt(on)
        for drafter in self._drafters.values():
            drafter.interrupt(on)
