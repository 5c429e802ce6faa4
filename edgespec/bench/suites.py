"""What is asked: our own quick suite, Spec-Bench, HumanEval, or a person's own prompts."""

from __future__ import annotations

from dataclasses import dataclass

from edgespec.protocols import Message


@dataclass(frozen=True, slots=True)
class Prompt:
    """One thing to ask.

    Either `messages` of a conversation, or `raw` text to be continued as it stands. `turns` are what the user says
    after the answer, one after the other (Spec-Bench has prompts of two turns).
    """

    id: str
    kind: str
    messages: tuple[Message, ...] = ()
    raw: str | None = None
    turns: tuple[str, ...] = ()
