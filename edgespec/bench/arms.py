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
    """What is measured where nothing is asked for: plain twice, auto, and each drafter at a usual length."""
    return [PLAIN, PLAIN, "auto", *(f"{name}:{k}" for name, k in (("model", 4), ("ngram", 8)) if name in drafters)]


def contenders(names: Sequence[str], drafters: Collection[str], auto: Policy) -> list[Contender]:
    """The arms called `names`, on an engine that has `drafters` and whose own policy is `auto`.

    Plain is always the first; the second `plain` is the null arm. Raises UsageError for what is no arm here.
    """
    asked = [name.strip() for name in names if name.strip()]
    again = asked.count(PLAIN) == 2
    others = [name for name in asked if name != PLAIN]
    if asked.count(PLAIN) > 2:
        raise UsageError("Plain is measured once, or twice to see the noise: name it at most twice.")
    if twice := sorted({name for name in others if others.count(name) > 1}):
        raise UsageError(f"The arm {twice[0]} is named twice: only plain can be.")
    plain = FixedPolicy(None, 0)
    found = [Contender(Arm(PLAIN, "plain"), plain)]
    if again:
        found.append(Contender(Arm(NULL, "null"), plain))
    return found + [Contender(Arm(name, "drafting"), _policy(name, drafters, auto)) for name in others]


def _policy(name: str, drafters: Collection[str], auto: Policy) -> Policy:
    if name == "auto":
        return auto
    drafter, colon, length = name.partition(":")
    if not colon or not length.isdecimal() or int(length) < 1:
        raise UsageError(f"{name!r} is no arm: use plain, auto, or a drafter with its k, like model:4 or ngram:8.")
    if drafter not in drafters:
        known = ", ".join(sorted(drafters)) or "none"
        hint = ": give --draft, or leave it out" if drafter == "model" else ""
        raise UsageError(f"The arm {name} needs the drafter {drafter!r}, and the drafters here are {known}{hint}.")
    return FixedPolicy(drafter, int(length))
