"""The acceptance rules, row by row; that whole answers follow the target's law is proved in test_exact."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from edgespec import verify
from edgespec.protocols import Distribution, Draft


def row(*p: float) -> Distribution:
    """A distribution that lists only tokens of positive probability, as a truncated row does."""
    weights = np.array(p, float)
    tokens = np.flatnonzero(weights > 0)
    return Distribution(tokens, weights[tokens] / weights[tokens].sum())


class Scripted:
    """A stream that notes the probabilities it is asked about, and says yes to those of at least `bar`."""

    def __init__(self, bar: float) -> None:
        self.bar = bar
        self.asked: list[float] = []

    def happens(self, probability: float) -> bool:
        self.asked.append(probability)
        return probability >= self.bar

    def draw(self, p: Distribution) -> int:
        return p.mode


RULES = [verify.token, verify.block]


@pytest.mark.parametrize("rule", RULES)
def test_equal_p_and_q_are_always_accepted(rule: type[verify.token]) -> None:
    p = row(0.2, 0.5, 0.3)
    stream = Scripted(1.0)
    assert rule(Draft((1, 0), (p, p)), lambda i: p, stream) == verify.Verdict(2, 1)
    assert all(asked >= 1.0 for asked in stream.asked)


def test_where_nothing_is_left_the_residual_is_p() -> None:
    p = row(0.2, 0.5, 0.3)
    assert verify.residual(p, 1, p) is p


@pytest.mark.parametrize("rule", RULES)
def test_a_token_outside_the_target_s_support_is_never_accepted(rule: type[verify.token]) -> None:
    p, q = row(0.0, 0.5, 0.5), row(0.5, 0.5, 0.0)
    assert rule(Draft((0,), (q,)), lambda i: p, Scripted(1e-300)) == verify.Verdict(0, 2)
    left = verify.residual(p, 0, q)
    assert left[2] == pytest.approx(1.0) and left[0] == 0.0 == left[1]


@pytest.mark.parametrize("rule", RULES)
def test_a_certain_token_is_accepted_with_p_and_taken_out_of_the_residual(rule: type[verify.token]) -> None:
    p = row(0.2, 0.5, 0.3)
    stream = Scripted(0.6)
    assert rule(Draft((1,), (None,)), lambda i: p, stream) == verify.Verdict(0, 2)
    assert stream.asked == [pytest.approx(0.5)]
    assert verify.residual(p, 1, None).p == pytest.approx([0.4, 0.0, 0.6])


def test_the_probabilities_of_block_verification_are_those_of_the_paper() -> None:
    """Two rows by hand: c1 = .5/.8, c2 = c1 (.4/.9), s1 = max(c1 .4 - .9, 0) + max(c1 .6 - .1, 0) = .275."""
    rows, drawn = [row(0.5, 0.5), row(0.4, 0.6), row(1.0)], (row(0.8, 0.2), row(0.9, 0.1))
    stream = Scripted(2.0)
    assert verify.block(Draft((0, 0), drawn), rows.__getitem__, stream) == verify.Verdict(0, 1)
    covered = 0.5 / 0.8
    assert stream.asked == pytest.approx([covered * 0.4 / 0.9, 0.275 / (0.275 + 1.0 - covered)])


def test_rows_are_looked_at_lazily_and_in_order() -> None:
    seen: list[int] = []

    def chosen(i: int) -> int:
        seen.append(i)
        return 5

    assert verify.match((5, 5, 1, 5), chosen) == verify.Verdict(2, 5)
    assert seen == [0, 1, 2]
    assert verify.match((), chosen) == verify.Verdict(0, 5)

    def p(i: int) -> Distribution:
        seen.append(i)
        return row(0.0, 1.0)

    for rule in RULES:
        seen.clear()
        assert rule(Draft((1, 0, 1), (None, None, None)), p, Scripted(0.5)) == verify.Verdict(1, 1)
        assert seen == [0, 1], "behind a token that the target never says no row matters"


@pytest.mark.parametrize(
    ("p", "q", "expected"),
    [
        ([0.2, 0.5, 0.3], [0.2, 0.5, 0.3], 1.0),
        ([0.5, 0.5, 0.0], [0.0, 0.5, 0.5], 0.5),
        ([0.5, 0.5, 0.0], [0.0, 0.0, 1.0], 0.0),
        ([0.1, 0.2, 0.3, 0.4], [0.5, 0.5], 0.3),
        ([0.5, 0.5], [0.1, 0.2, 0.3, 0.4], 0.3),
        ([0.0, 0.0, 1.0], [0.3, 0.0, 0.7], 0.7),
    ],
)
def test_supports_may_differ(p: Sequence[float], q: Sequence[float], expected: float) -> None:
    assert verify.overlap(row(*p), row(*q)) == pytest.approx(expected)
    left = verify.residual(row(*p), 0, row(*q))
    size = max(len(p), len(q))
    wide = [np.pad(np.array(side), (0, size - len(side))) for side in (p, q)]
    right = np.maximum(wide[0] - wide[1], 0.0)
    right = right / right.sum() if right.sum() > 0 else wide[0]
    assert [left[token] for token in range(size)] == pytest.approx(list(right))
