"""One answer as it grows: what is committed, what of it is shown, and what ended it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from edgespec.drafters.crew import Crew
from edgespec.events import Done, FinishReason, Text
from edgespec.judge import Judge
from edgespec.protocols import Round, TextStream
from edgespec.settings import Request
from edgespec.stats import PrefillCost, summarize


@dataclass(slots=True)
class Answer:
    """`history` is the prompt and behind it what was committed; any of `ends` ends the answer."""

    request: Request
    history: list[int]
    prompt_tokens: int
    reused: int  # tokens of the prompt that were cached
    limit: int  # tokens that may come out in all
    ends: frozenset[int]
    judge: Judge
    text: TextStream
    crew: Crew
    shown: list[str] = field(default_factory=list)
    provenance: str = ""
    rounds: list[Round] = field(default_factory=list)
    finish: FinishReason | None = None
    ttft: float | None = None

    @property
    def tokens(self) -> tuple[int, ...]:
        return tuple(self.history[self.prompt_tokens :])

    @property
    def room(self) -> int:
        """Tokens that may still come out."""
        return self.limit - (len(self.history) - self.prompt_tokens)

    def commit(self, emitted: Sequence[int], provenance: str) -> Text:
        """Add tokens up to the answer's end, and say what ended it."""
        shown, kept = "", 0
        for token in emitted:
            if token in self.ends:
                self.finish = "stop"
                break
            self.history.append(token)
            kept += 1
            shown += self.text.push(token)
            if self.text.stopped:
                self.finish = "stop"
                break
            if self.room == 0:
                self.finish = "length"
                break
        self.provenance += provenance[:kept]
        self.shown.append(shown)
        return Text(shown, tuple(emitted[:kept]), provenance[:kept])

    def flush(self) -> Text | None:
        """The text that was withheld until the end, if any."""
        rest = self.text.finish()
        self.shown.append(rest)
        return Text(rest, (), "") if rest else None

    def done(self, prefill: PrefillCost, plain_seconds: float | None) -> Done:
        """The whole of it; `plain_seconds` is what a token of plain decoding takes here."""
        text = "".join(self.shown)
        return Done(
            text=text,
            raw=text,
            tokens=self.tokens,
            provenance=self.provenance,
            finish_reason=self.finish or "cancelled",
            prompt_tokens=self.prompt_tokens,
            cached_prompt_tokens=self.reused,
            seed=self.judge.seed,
            verify=self.judge.rule,
            request=self.request,
            stats=summarize(self.rounds, prefill, self.ttft, plain_seconds),
        )
