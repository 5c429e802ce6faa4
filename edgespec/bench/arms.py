"""The arms of a run by their names: plain, auto, a drafter with its k, or another program."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from edgespec.bench.records import PLAIN, Arm
from edgespec.control.fixed import FixedPolicy
from edgespec.errors import UsageError
from edgespec.protocols import Policy

NULL = "plain again"


@dataclass(frozen=True, slots=True)
class Contender:
    """An arm of ours, with the policy that makes it one."""

    arm: Arm
    policy: Policy


def default_arms(drafters: Collection[str]) -> list[str]:
    """What is measured where nothing is asked for: plain twice, auto, and n-grams where there are some."""
    return [PLAIN, PLAIN, "auto", *(["ngram:8"] if "ngram" in drafters else [])]


def split(names: str) -> list[str]:
    """The arms of a list with commas. Raises UsageError for what is no arm anywhere."""
    asked = [name.strip() for name in names.split(",") if name.strip()]
    for name in asked:
        drafter, colon, length = name.partition(":")
        if name not in (PLAIN, "auto") and not (drafter and colon and length.isdecimal() and int(length) > 0):
            raise UsageError(f"{name!r} is no arm: use plain, auto, or a drafter with its k, like model:4 or ngram:8.")
    others = [name for name in asked if name != PLAIN]
    if asked.count(PLAIN) > 2:
        raise UsageError("Plain is measured once, or twice to see the noise: name it at most twice.")
    if twice := sorted({name for name in others if others.count(name) > 1}):
        raise UsageError(f"The arm {twice[0]} is named twice: only plain can be.")
    return asked


def contenders(names: Sequence[str], drafters: Collection[str], auto: Policy, most: int) -> list[Contender]:
    """The arms called `names` (see `split`), on an engine that has `drafters`, whose own policy is `auto`, and which
    submits at most `most` drafted tokens.

    Plain is always the first; the second `plain` is the null arm. Raises UsageError for what cannot be had here.
    """
    plain = FixedPolicy(None, 0)
    found = [Contender(Arm(PLAIN, "plain"), plain)]
    if names.count(PLAIN) > 1:
        found.append(Contender(Arm(NULL, "null"), plain))
    others = [name for name in names if name != PLAIN]
    return found + [Contender(Arm(name, "drafting"), _policy(name, drafters, auto, most)) for name in others]


def _policy(name: str, drafters: Collection[str], auto: Policy, most: int) -> Policy:
    if name == "auto":
        return auto
    drafter, _, length = name.partition(":")
    if drafter not in drafters:
        known = ", ".join(sorted(drafters)) or "none"
        hint = ": give --draft, or leave it out" if drafter == "model" else ""
        raise UsageError(f"The arm {name} needs the drafter {drafter!r}, and the drafters here are {known}{hint}.")
    if int(length) > most:
        raise UsageError(f"The arm {name} drafts more than the {most} tokens that can be checked at once: use fewer.")
    return FixedPolicy(drafter, int(length))
