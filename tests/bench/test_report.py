"""What stands in a report, word for word where it matters, at the widths of real terminals."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.cells import cell_len
from rich.console import Console

from edgespec.bench.curve import break_even, speedup_at
from edgespec.bench.records import Arm, Fork, Measurements
from edgespec.bench.report import as_markdown, compare, report
from edgespec.bench.sheets import as_text
from tests.support.measured import ARMS, CURVE, FORKS, KINDS, RUN, all_figures, figure, measurements, speedup

PLAIN = figure("plain", tokens_per_second=14.2)


def told(measured: Measurements, figures: list, width: int = 120) -> str:
    return as_text(report(measured, figures, width), width)


def run_of(*arms: Arm, **changes: object) -> Measurements:
    return Measurements(replace(RUN, arms=arms, **changes))


def line(text: str, start: str) -> list[str]:
    """The cells of the first line that begins with `start`."""
    return next(one for one in text.splitlines() if one.startswith(start)).split()


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_every_line_fits_and_every_speed_up_is_there(width: int) -> None:
    text = told(measurements(), all_figures(), width)
    assert max(map(cell_len, text.splitlines())) <= width
    for one in all_figures():
        if one.speedup and one.speedup.low is not None:
            assert f"{one.speedup.value:.2f}× ({one.speedup.low:.2f}–{one.speedup.high:.2f})" in text
    assert all("…" not in one or one.startswith("ngram:15 ") for one in text.splitlines())  # nothing was cut


def test_arms_that_do_not_fit_side_by_side_stand_in_further_tables_with_the_kinds_again() -> None:
    speeds = told(measurements(), all_figures(), 80).split("The arms")[0]
    heads = [one.split()[1:] for one in speeds.splitlines() if one.startswith("kind ")]
    assert heads == [["plain", "plain", "again", "auto"], ["model:3", "ngram:15", "llama-server"]]
    assert all(speeds.count(f"\n{kind} ") == 2 for kind in (*KINDS, "all"))
    assert (
        sum(one.startswith("kind ") for one in told(measurements(), all_figures(), 120).splitlines()) == 3
    )  # overlap's


def test_a_speed_up_has_a_sign_only_where_it_is_proven_and_a_question_mark_where_pairs_are_few() -> None:
    arms = [Arm(name, "drafting") for name in ("up", "down", "above", "below", "few", "none")]
    ratios = (
        speedup(1.46, 0.05), speedup(0.88, 0.03), speedup(1.02, 0.03), speedup(0.98, 0.03), speedup(1.7, None), None,
    )  # fmt: skip
    figures = [PLAIN, *(figure(arm.name, speedup=one) for arm, one in zip(arms, ratios, strict=True))]
    text = told(run_of(Arm("plain", "plain"), *arms), figures, 160)
    assert "▲1.46× (1.41–1.51)" in text and "▼0.88× (0.85–0.91)" in text
    assert "  1.02× (0.99–1.05)   0.98× (0.95–1.01)   1.70× ? " in text and line(text, "all")[-1] == "–"
    assert line(text, "all")[1] == "14.2" and "95 % interval" in text


def test_the_null_arm_is_called_plain_again_whatever_its_name() -> None:
    arms = (Arm("plain", "plain"), Arm("null", "null"))
    assert "plain again" in told(run_of(*arms), [PLAIN, figure("null", speedup=speedup(1.0))])


def test_what_is_known_of_no_arm_is_left_out_and_what_is_known_of_one_is_not() -> None:
    arms = (Arm("plain", "plain"), Arm("model:3", "drafting"))
    drafting = figure("model:3", acceptance_rate=0.59, drafted=1000, accepted=590, draft_share=0.25, verify_share=0.742,
                      overhead_share=0.008, ttft_ms=1500.0, memory=2_310_000_000)  # fmt: skip
    text = told(run_of(*arms), [PLAIN, drafting])
    assert line(text, "acceptance rate") == ["acceptance", "rate", "–", "low", "59%"]
    assert line(text, "drafted") == ["drafted", "–", "1,000"]
    assert line(text, "% draft/verify/overhead")[-1] == "25/74/0.8"
    assert line(text, "time to first token")[-2:] == ["1.50", "s"]
    assert line(text, "memory, all models")[-2:] == ["2.3", "GB"]
    assert not any(word in text for word in ("J/token", "cost", "saving", "rounds", "mean acceptance length"))
    enough = told(run_of(*arms), [PLAIN, replace(drafting, acceptance_rate=0.6)])
    assert line(enough, "acceptance rate") == ["acceptance", "rate", "–", "60%"]


def test_cost_and_saving_stand_beside_plain() -> None:
    arms = (Arm("plain", "plain"), Arm("a", "drafting"), Arm("b", "drafting"))
    costs = [
        figure(arm.name, cost_per_million=cost, speedup=None if arm.kind == "plain" else speedup(2.0 / cost))
        for arm, cost in zip(arms, (2.0, 1.5, 2.2), strict=True)
    ]
    text = told(run_of(*arms), costs)
    assert line(text, "cost of 1M tokens")[-3:] == ["2.00", "1.50", "2.20"]
    assert line(text, "saving") == ["saving", "–", "25%", "-10%"]


def test_each_kind_has_its_speed_and_acceptance_and_on_demand_all_of_it() -> None:
    arms = (Arm("plain", "plain"), Arm("a", "drafting"))
    rows = [
        figure(arm, kind, tokens_per_second=speed, acceptance_rate=rate, drafted=9 if rate else None)
        for arm, speed, rate in (("plain", 10.0, None), ("a", 12.5, 0.815))
        for kind in ("code", "prose", None)
    ]
    text = told(run_of(*arms), rows)
    assert line(text.split("Tokens/s, and")[1], "code") == ["code", "10.0", "12.5", "(82%)"]
    assert "on prose" not in text
    console = Console(width=100, color_system=None)
    with console.capture() as captured:
        console.print(report(run_of(*arms), rows, each_kind=True))
    assert captured.get().count("The arms, on ") == 2 and "The arms, on prose" in captured.get()


def test_a_speed_up_of_few_tokens_is_marked_as_doubtful() -> None:
    arms = (Arm("plain", "plain"), Arm("a", "drafting"))
    text = told(run_of(*arms), [PLAIN, figure("a", speedup=replace(speedup(2.0), tokens=399))])
    assert "2.00× (1.96–2.04) ?" in text and "▲2" not in text


def test_acceptance_by_position_is_a_line_for_each_drafting_arm() -> None:
    arms = (Arm("plain", "plain"), Arm("short", "drafting"), Arm("long", "drafting"))
    short = figure("short", drafted_per_position=(10, 8, 4), accepted_per_position=(8, 2))
    long = figure("long", drafted_per_position=(2,) * 9, accepted_per_position=(1,) * 9)
    text = told(run_of(*arms), [PLAIN, short, long]).split("by position")[1]
    assert line(text, "short") == ["short", "80%", "25%", "0%"]
    assert line(text, "long") == ["long", *["50%"] * 8, "…"]
    assert "plain" not in text


def test_near_ties_are_a_sentence_and_proven_differences_a_table() -> None:
    tied = told(replace(measurements(), curve=None, overlaps=()), all_figures())
    assert "Texts that leave plain's: auto 1, model:3 1. Each parts where" in tied and "band" not in tied
    wrong = Fork("edit/2", "auto", 0, 17, False, 1.5, 0.11)
    text = told(Measurements(RUN, forks=(*FORKS, wrong)), all_figures(), 200)
    assert "auto 2, model:3 1. 1 of them is a proven difference; the others are near-ties" in text
    assert line(text, "edit/2") == ["edit/2", "auto", "17", "1.500", "0.110"]
    many = told(Measurements(RUN, forks=(wrong,) * 13), all_figures())
    assert many.count("edit/2") == 10 and "3 more are in the measurements" in many
    assert "13 of them are proven differences; none is a near-tie" in many
    assert "leave plain's" not in told(Measurements(RUN), all_figures())


def test_the_cost_curve_says_from_where_drafting_pays() -> None:
    text = told(Measurements(RUN, curve=CURVE), []).split("A target pass")[1]
    needed = break_even(CURVE, 7, "ngram")
    assert needed is not None
    gains = [f"{needed:.0%}", f"{speedup_at(CURVE, 7, 'ngram', 1.0):.2f}×"]
    assert line(text, "8 ")[:4] == ["8", "184.6", "2.60", "7"] and line(text, "8 ")[-2:] == gains
    assert line(text, "1 ") == ["1", "71.0", "1.00"]
    assert break_even(CURVE, 1, "model") is None and line(text, "2 ")[4] == "never"
    assert "model" not in told(Measurements(RUN, curve=replace(CURVE, draft_step=None)), []).split("A target pass")[1]


def test_a_pair_with_little_overlap_is_marked() -> None:
    text = told(measurements(), []).split("Draft and target")[1]
    assert line(text, "code") == ["code", "1,200", "81%", "96%", "79%"]
    assert line(text, "prose") == ["prose", "1,180", "61%", "low", "72%", "58%"]
    assert "shared at 0.8" in text


def test_the_heading_names_all_that_figures_depend_on() -> None:
    head = told(measurements(), all_figures(), 200).split("\n\n")[0].splitlines()
    assert head == [
        "target    qwen2.5-coder-1.5b-instruct-q4_k_m.gguf (pair qwen2.5-coder-1.5b)",
        "draft     qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        "machine   Intel(R) Xeon(R) Platinum 8488C, AVX2 AVX512 AMX, 2 cores, 25.2 GB memory, Linux x86_64",
        "build     edgespec 0.1.0, python 3.12.4, llama-cpp-python 0.3.36, 8f3a2c1d (CPU, clang 18.1.3)",
        "settings  suite quick, 22 prompts, repeat 3, max tokens 200, temperature 0, seed 4294967295, verify auto, "
        "ctx 4096, policy auto, threads 2",
        "measured  2026-03-01 10:22 UTC, 396 answers, 79,200 tokens",
    ]


def test_synthetic_acceptance_is_said_in_the_heading_and_in_every_title() -> None:
    wrong = Fork("edit/2", "auto", 0, 17, False, 1.5, 0.11)
    real = replace(measurements(), forks=(wrong,))
    text = told(replace(real, run=replace(RUN, synthetic=0.8)), all_figures())
    tables = sum(set(one) == {"─"} for one in text.splitlines())
    assert text.count("synthetic acceptance 0.80: times only") == tables + 1 == 8
    assert "synthetic" not in told(real, all_figures())


def test_names_are_never_markup_nor_control_characters() -> None:
    kind, arm = "[red]a[/red]\x1b[31m\nb|*", Arm("[bold]x", "peer")
    figures = [
        PLAIN, figure("plain", kind),
        figure(arm.name, kind, speedup=speedup(1.5)), figure(arm.name, speedup=speedup(1.0)),
    ]  # fmt: skip
    measured = run_of(ARMS[0], arm)
    text = told(measured, figures)
    assert "[red]a[/red] [31m b|*" in text and "[bold]x" in text and "\x1b" not in text
    assert r"| \[red\]a\[/red\] \[31m b\|\* |" in as_markdown(measured, figures)


def test_a_long_name_is_cut_where_it_would_take_the_table_s_place() -> None:
    kind = "k" * 70
    text = told(
        run_of(*ARMS[:2]), [PLAIN, figure("plain", kind), figure("plain again", kind, speedup=speedup(1.0))], 80
    )
    assert "k" * 27 + "…" in text and "k" * 28 not in text
    assert max(map(cell_len, text.splitlines())) <= 80


def test_colour_adds_nothing_that_the_text_does_not_say() -> None:
    shown = io.StringIO()
    console = Console(file=shown, width=120, force_terminal=True, color_system="standard")
    console.print(report(measurements(), all_figures(), 120))
    assert "\x1b[1;32m▲" in shown.getvalue()
    plain = io.StringIO()
    Console(file=plain, width=120, force_terminal=True, no_color=True).print(report(measurements(), all_figures(), 120))
    assert "▲1.12×" in plain.getvalue() and "\x1b[1;32m" not in plain.getvalue()


def test_a_file_in_a_poor_encoding_gets_ascii() -> None:
    assert "+1.12x (1.09-1.15)" in as_text(report(measurements(), all_figures()), encoding="cp1252")
    as_text(report(measurements(), [*all_figures(), figure("plain", "中文")]), encoding="ascii").encode("ascii")


@pytest.mark.parametrize("figures", [[], [figure(arm.name, answers=0, tokens=0) for arm in ARMS]])
def test_a_run_without_answers_says_so(figures: list) -> None:
    measured = Measurements(RUN)
    assert "No answers were measured." in told(measured, figures) and "Speed-up" not in told(measured, figures)
    assert as_markdown(measured, figures).endswith("No answers were measured.\n")


def test_markdown_has_what_was_measured_on_what_and_two_tables() -> None:
    arms = (Arm("plain", "plain"), Arm("auto", "drafting"))
    figures = [
        figure("plain", "code", tokens_per_second=14.0), PLAIN,
        figure("auto", "code", speedup=speedup(1.5)), figure("auto", speedup=speedup(1.4), tokens_per_second=20.0),
    ]  # fmt: skip
    text = as_markdown(run_of(*arms), figures)
    assert text.startswith("- target: qwen2.5-coder-1.5b-instruct-q4\\_k\\_m.gguf (pair")
    assert "| kind | plain | auto |\n| :-- | :-- | :-- |\n| code | 14.0 | ▲1.50× (1.46–1.54) |\n| all | 14.2 |" in text
    assert "|  | plain | auto |\n| :-- | --: | --: |\n| answers | 3 | 3 |" in text
    assert "| tokens/s | 14.2 | 20.0 |" in text


def test_runs_side_by_side_agree_where_their_intervals_meet() -> None:
    def figures(auto: float, code: float | None) -> list:
        few = figure("auto", "code", speedup=speedup(1.2, code))
        return [PLAIN, few, figure("auto", speedup=speedup(auto)), figure("auto", "prose", speedup=speedup(1.0))]

    first, second = (replace(measurements(), run=replace(RUN, started=f"2026-03-0{day}T10:00")) for day in (1, 2))
    text = as_text(compare([(first, figures(1.40, 0.1)), (second, figures(1.47, None))], 80), 80)
    assert line(text, "auto") == ["auto", "code", "?", "▲1.20×", "(1.10–1.30)", "1.20×", "?"]
    assert "prose  agree       1.00×" in text and "all    agree      ▲1.40× (1.36–1.44)  ▲1.47× (1.43–1.51)" in text
    assert "2026-03-01 10:00" in text and "Platinum 8488C" in text and "Intervals agree in 2 of 2." in text
    assert line(text, "plain")[:3] == ["plain", "all", "14.2"]
    text = as_text(compare([(first, figures(1.40, 0.1)), (second, figures(1.49, 0.1))], 80), 80)
    assert "all    differ" in text and "Intervals agree in 2 of 3." in text


def test_runs_are_compared_only_in_what_all_of_them_have() -> None:
    one, other = figure("auto", speedup=speedup(1.2)), figure("model:3", speedup=speedup(1.1))
    measured = measurements()
    both = as_text(compare([(measured, [one, other]), (measured, [one])]))
    assert "auto" in both and "model:3" not in both
    assert "nothing to compare" in as_text(compare([(measured, [one]), (measured, [other])]))
    assert "nothing to compare" in as_text(compare([]))
    more = [figure("auto", "code", speedup=speedup(1.2)), one]
    text = as_text(compare([(measured, more), (measured, [*more, figure("auto", "qa", speedup=speedup(1.0))])]))
    assert "code" in text and " all " not in text, "all of other kinds is another thing"
