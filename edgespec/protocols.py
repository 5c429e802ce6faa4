"""The seams: what the engine asks of a model, a vocabulary, a drafter, a policy, and the values that cross them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

Logits = npt.NDArray[np.float32]
"""One row is (n_vocab,), rows are (n, n_vocab); a view that is valid until the same model decodes again."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """A distribution over tokens: `tokens` (int64, ascending, without repeats) with probabilities `p` (float64, sum 1).

    Tokens that are not listed have probability 0, so that what is done with a truncated row costs its support and not
    the vocabulary.
    """

    tokens: npt.NDArray[np.int64]
    p: npt.NDArray[np.float64]

    def __getitem__(self, token: int) -> float:
        """The probability of `token`."""
        at = int(self.tokens.searchsorted(token))
        return float(self.p[at]) if at < len(self.tokens) and self.tokens[at] == token else 0.0

    @property
    def mode(self) -> int:
        """The most probable token, the lowest id on ties."""
        return int(self.tokens[self.p.argmax()])


class LanguageModel(Protocol):
    """A model with one cached sequence of tokens, addressed by position from 0."""

    @property
    def n_vocab(self) -> int: ...

    @property
    def n_ctx(self) -> int:
        """Tokens that the cache holds."""

    @property
    def n_batch(self) -> int:
        """Tokens that one decode takes at most."""

    @property
    def n_outputs(self) -> int:
        """Rows of logits that one decode gives at most."""

    @property
    def can_trim(self) -> bool:
        """Whether single tokens can be taken back; recurrent models cannot."""

    def decode(self, tokens: Sequence[int], position: int, outputs: int) -> Logits:
        """Append `tokens` at `position` (the number of tokens cached so far); return the last `outputs` rows.

        The rows have shape (outputs, n_vocab) and are a view that is valid until the next decode. The call returns
        when the device has finished. Raises Interrupted, Closed or BackendError, after which tokens from `position`
        on may or may not be cached: trim before going on.
        """

    def trim(self, position: int) -> None:
        """Forget the cached tokens from `position` on. Raises RollbackRefused where the model cannot."""

    def interrupt(self, on: bool = True) -> None:
        """Stop the decode in progress and those to come (from any thread), or allow them again."""

    def close(self) -> None: ...


class Vocabulary(Protocol):
    """Token ids and their bytes."""

    @property
    def n_tokens(self) -> int: ...

    @property
    def end_tokens(self) -> frozenset[int]:
        """Every token that ends a generation."""

    def tokenize(self, text: str, *, add_special: bool) -> list[int]:
        """Text to ids; special tokens written in the text are recognised; `add_special` puts the begin token in front
        where the model wants one."""

    def piece(self, token: int) -> bytes:
        """The bytes of one token; control tokens have none. They may be part of a character."""


class TextStream(Protocol):
    """Turns the tokens of one answer into text that may be shown, and watches for stop strings."""

    @property
    def stopped(self) -> bool:
        """Whether a stop string is complete; what comes after it is ignored."""

    def push(self, token: int) -> str:
        """Take the answer's next token; return the text that is now certain (often empty)."""

    def finish(self) -> str:
        """Return what was withheld, at the end of the answer."""


THOUGHT_OPENS, THOUGHT_ENDS = "<think>", "</think>"
"""What thinking models write around their thoughts."""


class ChatTemplate(Protocol):
    """The model's own way of writing a conversation."""

    @property
    def has_thoughts(self) -> bool:
        """Whether answers may begin with thoughts, between <think> and </think>."""

    @property
    def has_think_switch(self) -> bool:
        """Whether `think` makes a difference."""

    def render(self, messages: Sequence[Message], think: bool | None = None) -> str:
        """The conversation as a prompt that asks for the assistant's next message, with thoughts or without them.

        None leaves the thinking to the template.
        """

    def begins_itself(self, prompt: str) -> bool:
        """Whether the rendered prompt has the begin token already, so that tokenizing must not add another."""


Message = dict[str, str]
"""{"role": "system" | "user" | "assistant", "content": text}"""

Choose = Callable[[Logits, Sequence[int]], "tuple[int, Distribution | None]"]
"""(one row of the draft's logits, tokens drafted so far in this round) to (token, its q; None is one-hot)."""

GoesOn = Callable[[int], bool]
"""Whether to draft one more token behind those drafted so far in this round (their number); asked before it is drawn,
and before a model decodes for it."""


@dataclass(frozen=True, slots=True)
class Draft:
    """Proposed tokens with, for each, the distribution q it was drawn from (None: one-hot, it was certain).

    `calls` and `seconds` are the decodes of a draft model that it took, and the time inside them.
    """

    tokens: tuple[int, ...] = ()
    q: tuple[Distribution | None, ...] = ()
    calls: int = 0
    seconds: float = 0.0


def always(drafted: int) -> bool:
    """The GoesOn that never stops."""
    return True


@dataclass(frozen=True, slots=True)
class Evidence:
    """Why a token that was copied may be right.

    `match` tokens before it stand before what is copied, too. Of the earlier places where the last few of them stand,
    the part `agreement`, above 0 and up to 1, was followed by the same token.
    """

    match: int
    agreement: float = 1.0


@dataclass(frozen=True, slots=True)
class Offer:
    """What a drafter says, before it drafts, of the draft that it could make: at most `longest` tokens (0: none).

    A draft model must decode `unread` tokens of the history first; what decodes nothing has 0. A drafter that copies
    has `evidence` for its first token. `outcomes` are the guesses that it has made since it was last asked, at tokens
    that were committed since, used or not: the evidence, and whether the token was the one that was guessed.
    """

    longest: int
    unread: int = 0
    evidence: Evidence | None = None
    outcomes: tuple[tuple[Evidence, bool], ...] = ()


class Drafter(Protocol):
    """Whatever proposes tokens."""

    @property
    def name(self) -> str: ...

    def begin(self, history: Sequence[int]) -> None:
        """An answer begins: `history` is its prompt, which may share any prefix with what was seen before."""

    def offer(self, history: Sequence[int]) -> Offer:
        """What it could draft to follow `history`, which has only grown since `begin`. Cheap: nothing is decoded."""

    def draft(self, history: Sequence[int], k: int, choose: Choose, goes_on: GoesOn = always) -> Draft:
        """Propose up to `k` ≥ 1 tokens to follow `history`, which has only grown since `begin`.

        A token that was drawn with `choose` must be proposed: whether to go on is decided before drawing. `goes_on` is
        asked by drafters to which a further token is a cost.
        """

    def settle(self, accepted: int) -> None:
        """The target kept the first `accepted` tokens of the last draft."""

    def interrupt(self, on: bool = True) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Situation:
    """What a policy may know before a round.

    At most `room` tokens can be drafted, and `wanted` may still come out in this answer. The target has `context`
    tokens cached and reads `pending` ones besides the draft: 1, or more where the end of the prompt rides along.
    `first` is an answer's first round. `offers` are those of the drafters that are at work, by name.
    """

    room: int
    wanted: int
    context: int
    pending: int
    first: bool
    offers: Mapping[str, Offer]


@dataclass(frozen=True, slots=True)
class Choice:
    """What to do in a round: which drafter (None: plain), how many tokens to ask it for at most, and why, in words."""

    drafter: str | None = None
    k: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class Round:
    """What a round did and what it cost.

    `drafted` were submitted to the target, `accepted` of them kept; `emitted` tokens came out. `context` tokens were
    cached before the pass over `width` tokens. `seconds` is the whole round, `draft_seconds` and `verify_seconds` are
    inside decode calls of draft and target; `drafter_seconds` is all the time that the drafter took.
    """

    drafter: str | None
    k: int
    drafted: int
    accepted: int
    emitted: int
    context: int
    width: int
    seconds: float
    draft_seconds: float
    verify_seconds: float
    drafter_seconds: float
    draft_calls: int

    @property
    def overhead_seconds(self) -> float:
        """Our own part: sampling, verification, policy, n-gram search, bookkeeping."""
        return self.seconds - self.draft_seconds - self.verify_seconds


class Policy(Protocol):
    """Picks drafter and k for each round and learns from what came of it."""

    @property
    def plain_seconds(self) -> float | None:
        """What a token of plain decoding would have taken in this answer, by this run's plain rounds; None: unknown."""

    def choose(self, situation: Situation) -> Choice:
        """What to do in the next round."""

    def goes_on(self, drafted: int, confidence: Callable[[], float]) -> bool:
        """Whether the draft model is to draft another token behind `drafted` ones.

        `confidence` gives the probability that the model saw in the most probable token at the last of them; asking
        costs about 0.2 ms for a large vocabulary.
        """

    def observe(self, round_: Round) -> None:
        """Learn from the round that was chosen last."""

    def remark(self, temperature: float) -> str | None:
        """Why drafting did not gain in the answer that ends, and what to try, in a sentence; None where it did."""
