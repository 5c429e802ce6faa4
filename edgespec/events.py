"""What the engine says while it works: the only thing that command line, app and host programs see of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from edgespec.settings import Request, VerifyRule

if TYPE_CHECKING:  # numpy comes with it, and the command line is to start at once
    from edgespec.protocols import Round

FinishReason = Literal["stop", "length", "cancelled"]


@dataclass(frozen=True, slots=True)
class Loading:
    """Progress before the engine is ready.

    `stage` is a short phrase, or a sentence where there is no `fraction` (from 0 to 1) of it; `size` is how many bytes
    a download has in all.
    """

    stage: str
    fraction: float | None = None
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Prefill:
    """`done` of `total` prompt tokens are in the target's cache; `cached` of them were there before."""

    done: int
    total: int
    cached: int


@dataclass(frozen=True, slots=True)
class Text:
    """New tokens, where each came from, and the text that is now certain.

    `provenance` has a letter for each token: a accepted, c correction, b bonus, p plain round. The text may lag behind
    the tokens by what could still become a stop string or is part of a character. `thought` is new text of a thinking
    model's thoughts, which are no part of its answer.
    """

    text: str
    tokens: tuple[int, ...]
    provenance: str
    thought: str = ""


@dataclass(frozen=True, slots=True)
class RoundDone:
    """A round, the tokens that were proposed in it, and in a few words why it was done so ("" where nobody chose)."""

    round: Round
    proposed: tuple[int, ...]
    why: str = ""


@dataclass(frozen=True, slots=True)
class Notice:
    """Something a person should know, in one sentence; the answer goes on."""

    message: str


@dataclass(frozen=True, slots=True)
class DrafterStats:
    """One drafter's part: `seconds` is all the time it took, model decodes included."""

    rounds: int
    drafted: int
    accepted: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Stats:
    """Names, numerators and denominators are the contract's; a ratio without a denominator is None.

    All times leave out what the consumer of the events did between them.
    """

    rounds: int
    target_calls: int
    draft_calls: int
    drafted: int
    accepted: int
    acceptance_rate: float | None
    drafting_rounds: int
    avg_accepted_tokens: float | None
    mean_acceptance_length: float | None
    drafted_per_position: tuple[int, ...]
    accepted_per_position: tuple[int, ...]
    k_histogram: tuple[int, ...]
    tokens_per_second: float | None
    prompt_tokens_per_second: float | None
    ttft_ms: float | None
    plain_tokens_per_second: float | None
    speedup: float | None
    draft_ms: float
    verify_ms: float
    overhead_ms: float
    drafters: dict[str, DrafterStats] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Done:
    """The answer, whole. The end token is in neither `tokens` nor `text`.

    `raw` is the text as the model wrote it, thoughts with their tags included (and closed, where the answer ended in
    one): what a conversation's history keeps, so that the template can strip what it strips.
    """

    text: str
    raw: str
    tokens: tuple[int, ...]
    provenance: str
    finish_reason: FinishReason
    prompt_tokens: int
    cached_prompt_tokens: int
    seed: int
    verify: VerifyRule
    request: Request
    stats: Stats
    thought: str = ""

    @property
    def completion_tokens(self) -> int:
        return len(self.tokens)


Event = Prefill | Text | RoundDone | Notice | Done
