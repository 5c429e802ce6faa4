"""Whether a draft can propose tokens for a target: do both mean the same by an id?

The rules are llama.cpp's (common/speculative.cpp), but a few special tokens that differ are masked, not refused: they
can never be proposed, and everything else means the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from edgespec.errors import VocabularyMismatch

MAX_SIZE_DIFFERENCE = 128
FIRST_COMPARED = 5
MAX_MASKED = 32

# llama.cpp's attribute bits: unused, control, user-defined. Tokens that were added to a tokenizer, not learned by it.
_ADDED = 2 | 8 | 16

Verdict = Literal["pass", "warning", "fail"]


class TokenTable(Protocol):
    """What is compared; `LlamaVocabulary` is one."""

    @property
    def n_tokens(self) -> int: ...
    @property
    def kind(self) -> str: ...
    @property
    def begin(self) -> int | None: ...
    @property
    def end(self) -> int | None: ...
    @property
    def adds_begin(self) -> bool: ...
    @property
    def adds_end(self) -> bool: ...
    @property
    def texts(self) -> list[bytes]: ...

    def attribute(self, token: int) -> int: ...


@dataclass(frozen=True, slots=True)
class Finding:
    """One rule and what came of it."""

    rule: str
    verdict: Verdict
    detail: str


@dataclass(frozen=True, slots=True)
class Compatibility:
    """The findings, rule by rule, and the draft's ids that may never be proposed."""

    findings: tuple[Finding, ...]
    masked: frozenset[int]

    @property
    def fits(self) -> bool:
        return all(finding.verdict != "fail" for finding in self.findings)

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(finding.detail for finding in self.findings if finding.verdict == "warning")

    def require(self) -> None:
        """Raise VocabularyMismatch, with the first reason, unless the draft fits."""
        for finding in self.findings:
            if finding.verdict == "fail":
                raise VocabularyMismatch(
                    f"The draft does not speak the target's tokens ({finding.detail}): choose a draft of the same "
                    "family, or --drafter ngram."
                )


def compare(target: TokenTable, draft: TokenTable) -> Compatibility:
    """Check every rule; the texts are compared over the ids that both have."""
    common = min(target.n_tokens, draft.n_tokens)
    texts, odd = _texts(target, draft, common)
    findings = (
        _same("type", target.kind, draft.kind),
        _added("begin token", (target.adds_begin, target.begin), (draft.adds_begin, draft.begin)),
        _added("end token", (target.adds_end, target.end), (draft.adds_end, draft.end)),
        _size(target.n_tokens, draft.n_tokens),
        texts,
    )
    return Compatibility(findings, odd | frozenset(range(common, draft.n_tokens)))


def _same(rule: str, target: str, draft: str) -> Finding:
    if target == draft:
        return Finding(rule, "pass", f"both are {target}")
    return Finding(rule, "fail", f"the tokenizers are of different types, {target} and {draft}")


def _added(rule: str, target: tuple[bool, int | None], draft: tuple[bool, int | None]) -> Finding:
    if target[0] != draft[0]:
        who = "the target" if target[0] else "the draft"
        return Finding(rule, "fail", f"only {who} adds the {rule} to a text")
    if not target[0]:
        return Finding(rule, "pass", "neither adds one")
    if target[1] != draft[1]:
        return Finding(rule, "fail", f"the {rule} is {target[1]} for the target and {draft[1]} for the draft")
    return Finding(rule, "pass", f"both add {target[1]}")


def _size(target: int, draft: int) -> Finding:
    detail = f"the target has {target} tokens and the draft {draft}"
    return Finding("size", "pass" if abs(target - draft) <= MAX_SIZE_DIFFERENCE else "fail", detail)


def _texts(target: TokenTable, draft: TokenTable, common: int) -> tuple[Finding, frozenset[int]]:
    ours, theirs = target.texts[:common], draft.texts[:common]
    if ours == theirs:
        return Finding("texts", "pass", f"all {common} tokens read the same"), frozenset()
    odd = frozenset(i for i, (one, other) in enumerate(zip(ours, theirs, strict=True)) if one != other)
    compared = sorted(token for token in odd if token >= FIRST_COMPARED)
    learned = [i for i in compared if not (target.attribute(i) & _ADDED and draft.attribute(i) & _ADDED)]
    if not compared:
        return Finding("texts", "pass", f"the texts from id {FIRST_COMPARED} up are the same"), odd
    if learned or len(compared) > MAX_MASKED:
        first = (learned or compared)[0]
        pair = f"{_show(ours[first])} for the target and {_show(theirs[first])} for the draft"
        return Finding("texts", "fail", f"token {first} is {pair}, and {len(compared)} differ in all"), odd
    detail = f"{len(compared)} special tokens differ, from id {compared[0]} on, and are never proposed"
    return Finding("texts", "warning", detail), odd


def _show(text: bytes) -> str:
    return repr(text.decode("utf-8", "replace"))
