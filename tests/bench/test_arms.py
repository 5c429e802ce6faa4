"""Arms by their names."""

from __future__ import annotations

import pytest

from edgespec.bench.arms import contenders, default_arms, split
from edgespec.bench.records import Arm
from edgespec.control.fixed import FixedPolicy
from edgespec.errors import UsageError
from edgespec.protocols import Choice

AUTO = FixedPolicy("model", 4)


def named(*names: str, drafters: tuple[str, ...] = ("model", "ngram")) -> dict[Arm, Choice]:
    return {c.arm: c.policy.choose(99) for c in contenders(split(",".join(names)), drafters, AUTO, 63)}


def test_names_become_policies() -> None:
    assert named("plain", "plain", "auto", "ngram:15") == {
        Arm("plain", "plain"): Choice(),
        Arm("plain again", "null"): Choice(),
        Arm("auto", "drafting"): Choice("model", 4),
        Arm("ngram:15", "drafting"): Choice("ngram", 15),
    }


def test_plain_is_always_there_and_first() -> None:
    assert list(named("model:3")) == [Arm("plain", "plain"), Arm("model:3", "drafting")]
    assert next(iter(named(" ngram:2", "plain "))) == Arm("plain", "plain")


def test_the_usual_arms_are_those_that_can_be() -> None:
    assert default_arms(["model", "ngram"]) == ["plain", "plain", "auto", "ngram:8"]
    assert default_arms(["model"]) == ["plain", "plain", "auto"]


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["plain"] * 3, "at most twice"),
        (["ngram:2", "ngram:2"], "ngram:2 is named twice"),
        (["fast"], "'fast' is no arm"),
        (["ngram:0"], "is no arm"),
        (["ngram:-1"], "is no arm"),
        ([":3"], "is no arm"),
        (["eagle:3"], "the drafters here are model, ngram"),
        (["ngram:64"], "more than the 63 tokens"),
    ],
)
def test_what_is_no_arm_is_said_in_a_sentence(names: list[str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        named(*names)


def test_a_missing_draft_model_is_named() -> None:
    with pytest.raises(UsageError, match="drafters here are ngram: give --draft"):
        named("model:3", drafters=("ngram",))
