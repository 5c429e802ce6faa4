"""The OpenAI protocol's questions and answers as values, with what llama-server adds to them.

Its own words about an answer stand in the `timings` of a stream's last event (tools/server/server-common.cpp,
`server_slot_stats::to_json`); times are always measured here, on our side of the connection.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from edgespec.bench.records import Answer
from edgespec.bench.suites import Prompt
from edgespec.settings import Request

SEEDS = 2**32 - 1
"""How many seeds there are: llama-server's have 32 bits, and its last one means "draw one"."""

_BAN = -100.0  # the protocol's own word for a token that may not be; JSON has no infinity


@dataclass(frozen=True, slots=True)
class PeerAnswer:
    """A peer's answer as it came, in seconds from the question.

    `text` holds a thinking model's thoughts, too; `first` is its first piece, which came at `ttft_seconds` (None:
    there was no text), and from there to the last piece it took `tail_seconds`. `finish_reason` is empty where the
    stream ended without one. Other things that the server does not say are None.
    """

    text: str
    first: str
    seconds: float
    ttft_seconds: float | None
    tail_seconds: float
    drafted: int | None
    accepted: int | None
    prompt_tokens: int | None
    finish_reason: str


def standard_fields(model: str, prompt: Prompt, request: Request, max_tokens: int | None) -> dict[str, Any]:
    """A question in the fields that every server knows."""
    sampling = request.sampling
    body: dict[str, Any] = {
        "model": model,
        "stream": True,
        "temperature": max(0.0, sampling.temperature),
        "top_p": sampling.top_p,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
    }
    body |= {"messages": list(prompt.messages)} if prompt.raw is None else {"prompt": prompt.raw}
    if request.seed is not None:
        body["seed"] = request.seed % SEEDS
    if max_tokens is not None:
        body["max_tokens"] = max_tokens
    if request.stop:
        body["stop"] = list(request.stop)
    if sampling.logit_bias:
        body["logit_bias"] = {str(token): max(_BAN, by) for token, by in sampling.logit_bias}
    return body


def further_fields(prompt: Prompt, request: Request, cold: bool) -> dict[str, Any]:
    """What llama-server takes besides, and other servers may refuse; a `cold` answer reads the whole prompt."""
    sampling = request.sampling
    more: dict[str, Any] = {
        "stream_options": {"include_usage": True},
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "repeat_penalty": sampling.repeat_penalty,
        "repeat_last_n": sampling.repeat_last_n,
        "cache_prompt": not cold,
    }
    if request.think != "auto" and prompt.raw is None:
        more["chat_template_kwargs"] = {"enable_thinking": request.think == "on"}
    return more


class Reading:
    """An answer that is coming in, event by event."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._began = self._last = self._seconds = 0.0
        self._reason = ""
        self._usage: dict[str, int] = {}
        self._timings: dict[str, int] = {}

    def add(self, seconds: float, event: dict[str, Any]) -> None:
        """An event that came after so many seconds. Raises TypeError or AttributeError where it is misshapen."""
        self._seconds = seconds
        for choice in event.get("choices") or ():
            delta = choice.get("delta") or {}
            thought = delta.get("reasoning_content") or delta.get("reasoning") or ""
            piece = thought + (delta.get("content") or choice.get("text") or "")
            if piece:
                self._began = self._began if self._pieces else seconds
                self._last = seconds
                self._pieces.append(piece)
            self._reason = choice.get("finish_reason") or self._reason
        self._usage = dict(event.get("usage") or self._usage)
        self._timings = dict(event.get("timings") or self._timings)

    def answer(self) -> PeerAnswer:
        """What has come."""
        usage, timings = self._usage, self._timings
        read = timings["prompt_n"] + timings.get("cache_n", 0) if "prompt_n" in timings else None
        return PeerAnswer(
            text="".join(self._pieces),
            first=self._pieces[0] if self._pieces else "",
            seconds=self._seconds,
            ttft_seconds=self._began if self._pieces else None,
            tail_seconds=self._last - self._began,
            # llama-server leaves these out where nothing was drafted
            drafted=timings.get("draft_n", 0) if timings else None,
            accepted=timings.get("draft_n_accepted", 0) if timings else None,
            prompt_tokens=usage.get("prompt_tokens", read),
            finish_reason=self._reason,
        )


def to_answer(
    found: PeerAnswer, prompt: Prompt, *, arm: str, repeat: int, place: int, cold: bool, seed: int,
    tokenize: Callable[[str], Sequence[int]], memory: int | None = None,
) -> Answer:  # fmt: skip
    """A peer's answer as a run keeps it; `tokenize` is the target's, so that tokens are counted one way for all.

    What came with the first piece (llama-server sends its first token alone) is no speed, as a first round is none.
    """
    tokens = tuple(tokenize(found.text))
    first = max(1, len(tokenize(found.first)))
    return Answer(
        prompt=prompt.id, kind=prompt.kind, arm=arm, repeat=repeat, place=place, cold=cold,
        text=found.text, tokens=tokens, finish_reason=found.finish_reason, seed=seed,
        prompt_tokens=found.prompt_tokens or 0, seconds=found.seconds,
        speed_tokens=max(0, len(tokens) - first), speed_seconds=found.tail_seconds,
        ttft_ms=None if found.ttft_seconds is None else 1000.0 * found.ttft_seconds,
        drafted=found.drafted, accepted=found.accepted, stats=None, memory=memory,
    )  # fmt: skip
