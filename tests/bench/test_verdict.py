"""What a run says, from figures written out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from edgespec.bench.figures import Figures, Speedup
from edgespec.bench.records import Answer, Arm, Fork, Measurements, Overlap, Run
from edgespec.bench.verdict import overall_lower_bound, verdict

ARMS = (
    Arm("plain", "plain"), Arm("plain again", "null"), Arm("auto", "drafting"), Arm("model:3", "drafting"),
    Arm("ngram:15", "drafting"), Arm("server", "peer"),
)  # fmt: skip
RUN = Measurements(Run(ARMS, "target", "draft", None, "now"))
STEADY = ("plain again", None, 1.0, 0.98, 1.02)
Row = tuple[str, str | None, float, float | None, float | None]
MIXED: list[Row] = [
    ("model:3", "edit", 1.1, 0.98, 1.2),
    ("model:3", "prose", 0.72, 0.70, 0.74),
    ("model:3", "qa", 0.9, 0.88, 0.93),
    ("model:3", None, 0.95, 0.93, 0.97),
    ("ngram:15", "quote", 1.2, 1.1, 1.3),
    ("ngram:15", "edit", 1.46, 1.41, 1.52),
    ("ngram:15", "prose", 1.02, 1.01, 1.03),
    ("ngram:15", None, 1.0, 0.97, 1.03),
]


def figures(rows: Sequence[Row]) -> list[Figures]:
    nothing: list[None] = [None] * 9
    return [
        Figures(arm, kind, 4, 400, 10.0, Speedup(value, low, high, 4, 400), *nothing, (), (), (), *[None] * 8)
        for arm, kind, value, low, high in rows
    ]


def said(*rows: Row, measurements: Measurements = RUN) -> list[str]:
    return verdict(measurements, figures(rows))


def answer(arm: str, repeat: int = 0) -> Answer:
    return Answer("code/x", "code", arm, repeat, 0, True, "", (7,), "stop", 1, 5, 2.0, 10, 1.0, 500.0, None, None)


def test_each_arm_has_its_best_kind_its_worst_kind_and_its_overall() -> None:
    assert said(*MIXED)[0] == (
        "The draft model (model:3) is 0.72× plain on prose prompts (0.70–0.74) and 0.95× overall (0.93–0.97); "
        "n-grams (ngram:15) are 1.46× plain on edit prompts (1.41–1.52) and 1.00× overall (0.97–1.03)."
    )
    both = said(("auto", "a", 2.0, 1.9, 2.1), ("auto", "b", 0.5, 0.4, 0.6), ("auto", None, 1.2, 1.1, 1.3))[0]
    assert both == (
        "Auto is 2.00× plain on a prompts (1.90–2.10), 0.50× on b prompts (0.40–0.60) and 1.20× overall (1.10–1.30)."
    )


def test_a_small_gain_or_loss_is_not_spoken_of() -> None:
    rows = [("auto", "a", 1.02, 1.01, 1.03), ("auto", "b", 0.98, 0.97, 0.99), ("auto", None, 1.0, 0.99, 1.01)]
    assert said(*rows) == [
        "Auto is 1.00× plain overall (0.99–1.01).",
        "Use --drafter none: no way of drafting is surely faster than plain decoding here.",
    ]


def test_the_kind_is_left_out_where_there_is_only_one() -> None:
    assert said(("ngram:15", "edit", 2.9, 2.8, 3.0), ("ngram:15", None, 2.8, 2.7, 2.9)) == [
        "N-grams (ngram:15) are 2.80× plain overall (2.70–2.90).",
        "Use --drafter ngram --k 15.",
    ]


def test_what_gains_over_all_is_advised_the_best_of_it() -> None:
    rows = [("auto", None, 1.2, 1.1, 1.3), ("model:3", None, 1.5, 0.9, 1.9), ("ngram:15", None, 1.1, 1.05, 1.2)]
    assert said(*rows)[1:] == ["Use --drafter auto."], "model:3 may as well be slower"
    assert said(*rows[1:])[1:] == ["Use --drafter ngram --k 15."]


def test_what_gains_on_kinds_only_is_advised_for_these() -> None:
    assert said(*MIXED)[1:] == ["Use --drafter ngram --k 15 for quote and edit prompts, and --drafter none otherwise."]
    better = [("model:3", "edit", 1.6, 1.5, 1.7) if row[:2] == ("model:3", "edit") else row for row in MIXED]
    assert said(*better)[1:] == [
        "Use --drafter model --k 3 for edit prompts, --drafter ngram --k 15 for quote prompts, "
        "and --drafter none otherwise."
    ]


def test_single_pairs_are_too_few() -> None:
    hint = (
        "These figures rest on too little to be sure of (400 tokens a side are wanted): run with a larger --repeat or "
        "--max-tokens."
    )
    alone = said(("model:3", "a", 2.0, None, None), ("model:3", None, 2.0, None, None))
    assert alone == ["The draft model (model:3) is 2.00× plain overall.", hint]
    some = said(("auto", "a", 2.0, None, None), ("auto", "b", 1.0, None, None), ("auto", None, 1.4, 1.0, 2.0))
    assert some[1:] == [
        "Use --drafter none: no way of drafting is surely faster than plain decoding here.",
        hint.replace("These", "Some of these"),
    ]


def test_where_nothing_was_drafted_beside_plain_that_is_said() -> None:
    assert said() == ["Nothing can be said of drafting: no drafting arm was measured beside plain."]
    assert said(STEADY, ("server", None, 2.0, 1.9, 2.1)) == said(), "a peer is no way of ours"


def test_an_unsteady_machine_is_named() -> None:
    pays = ("auto", None, 1.2, 1.1, 1.3)
    assert len(said(pays, STEADY)) == len(said(pays, ("plain again", None, 1.01, 1.004, 1.02))) == 2
    assert len(said(pays, ("plain again", None, 1.5, None, None))) == 2
    run = replace(RUN, answers=tuple(answer("plain", repeat) for repeat in range(4)))
    for bounds in ((1.05, 1.02, 1.08), (0.95, 0.92, 0.98), (1.0, 0.8, 1.2)):
        sentence = said(pays, ("plain again", None, *bounds), measurements=run)[-1]
        assert sentence.startswith("This machine was too unsteady during the run: plain decoding came out at ")
        assert "{:.2f}× itself ({:.2f}–{:.2f})".format(*bounds) in sentence
        assert sentence.endswith("close other programs and run again with --repeat 8.")


def test_without_a_null_arm_the_noise_is_not_known() -> None:
    bare = replace(RUN, run=replace(RUN.run, arms=tuple(arm for arm in ARMS if arm.kind != "null")))
    assert said(("auto", None, 1.2, 1.1, 1.3), measurements=bare)[-1] == (
        "How much of this is noise is not known: name plain twice in --arms to see it."
    )


def test_forks_are_counted_and_faults_named() -> None:
    arms = ("plain", "plain again", "auto", "model:3", "server")
    run = replace(RUN, answers=tuple(answer(arm, repeat) for arm in arms for repeat in range(2)))
    ties = tuple(Fork("code/x", arm, 0, 5, True, 0.01, 0.02) for arm in ("auto", "model:3"))
    assert said(STEADY, measurements=replace(run, forks=ties))[1:] == [
        "2 of 6 texts left plain's at a near-tie that this build's rounding explains."
    ]
    faults = tuple(Fork("code/x", "auto", repeat, 17, False, 0.5, 0.02) for repeat in range(5))
    both = said(STEADY, measurements=replace(run, forks=(ties[0], faults[0])))[1:]
    assert both == [
        "1 of 6 texts left plain's at a near-tie that this build's rounding explains.",
        "A fault of edgespec: 1 of 6 texts left plain's where this build's rounding does not explain it "
        "(auto on code/x at token 17); please report it.",
    ]
    many = said(STEADY, measurements=replace(run, forks=faults))[-1]
    assert many.count("auto on code/x") == 3 and "and 2 more" in many


def test_made_up_acceptance_is_said_first_and_nothing_is_advised() -> None:
    made_up = replace(RUN, run=replace(RUN.run, synthetic=0.8))
    sentences = said(("auto", None, 1.2, 1.1, 1.3), measurements=made_up)
    assert sentences == [
        "Acceptance was replaced by chance at 0.8, so the texts mean nothing: only the times count.",
        "Auto is 1.20× plain overall (1.10–1.30).",
    ]


def test_a_draft_unlike_its_target_is_named() -> None:
    def about(first: float, second: float) -> list[str]:
        alike = Overlap("code", 300, 0.5, first, 0.4, 0.8)
        overlaps = (alike, replace(alike, kind="prose", tokens=100, five=second))
        return said(STEADY, measurements=replace(RUN, overlaps=overlaps))[1:]

    assert about(0.6, 0.64) == [
        "The draft's five best tokens hold the target's choice in only 61 % of positions: this pair is unlikely to pay."
    ]
    assert about(0.8, 0.62) == [], "each position counts the same"


def test_the_bound_that_is_required_is_autos_or_the_best_ones() -> None:
    rows: list[Row] = [("model:3", None, 1.5, 1.2, 1.9), ("ngram:15", None, 1.4, 1.3, 1.5), ("server", None, 9, 8, 10)]
    assert overall_lower_bound(figures(rows), ARMS) == 1.2
    assert overall_lower_bound(figures([*rows, ("auto", None, 1.1, 1.0, 1.2)]), ARMS) == 1.0
    assert overall_lower_bound(figures([("auto", "edit", 1.1, 1.0, 1.2)]), ARMS) is None
    assert overall_lower_bound([], ARMS) is None
