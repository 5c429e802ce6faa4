"""The pictures: that they are made, that what was not measured is left out, and what is refused."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest

matplotlib = pytest.importorskip("matplotlib")

from edgespec.bench.plots import check, plot  # noqa: E402
from edgespec.bench.records import Arm, Measurements  # noqa: E402
from edgespec.errors import UsageError  # noqa: E402
from tests.support.measured import CURVE, RUN, all_figures, figure, measurements, speedup  # noqa: E402

PANELS = {"Speed-up by kind", "Cost of a target pass", "From where drafting pays", "Accepted by position"}


def panels(path: Path) -> set[str]:
    """The titles in an SVG: matplotlib notes each text as a comment beside its outlines."""
    return {panel for panel in PANELS if f"<!-- {panel} -->" in path.read_text("utf-8")}


def test_all_of_a_run_makes_a_picture_and_leaves_matplotlib_s_own_state_alone(tmp_path: Path) -> None:
    before = dict.copy(matplotlib.rcParams)
    plot(measurements(), all_figures(), tmp_path / "all.png")
    assert (tmp_path / "all.png").read_bytes().startswith(b"\x89PNG")
    plot(measurements(), all_figures(), tmp_path / "all.SVG")
    assert panels(tmp_path / "all.SVG") == PANELS
    text = (tmp_path / "all.SVG").read_text("utf-8")
    for word in (RUN.target, f"drafted by {RUN.draft}", "8488C, 2026-03-01", "translation", "llama-server", "1.5×"):
        assert word in text
    assert dict.copy(matplotlib.rcParams) == before


def test_panels_with_nothing_to_show_are_left_out(tmp_path: Path) -> None:
    path, few = tmp_path / "a.svg", [figure("auto", "code", speedup=speedup(1.3, None))]
    plot(Measurements(RUN), few, path)
    assert panels(path) == {"Speed-up by kind"}
    plot(Measurements(replace(RUN, synthetic=0.8), curve=CURVE), [], path)
    assert panels(path) == {"Cost of a target pass", "From where drafting pays"}
    assert "synthetic acceptance 0.80: times only" in path.read_text("utf-8")
    plot(Measurements(RUN, curve=CURVE), few, path)
    assert panels(path) == PANELS - {"Accepted by position"}


def test_users_names_are_drawn_without_warnings_or_mathematics(tmp_path: Path) -> None:
    run = replace(RUN, arms=(Arm("_a$x^$b$", "peer"),), target="模型", draft=None)
    plot(Measurements(run), [figure("_a$x^$b$", "中文 $\\frac$ é", speedup=speedup(1.3))], tmp_path / "a.svg")
    text = (tmp_path / "a.svg").read_text("utf-8")
    assert "?? $\\frac$ é" in text and "_a$x^$b$" in text


def test_what_cannot_be_drawn_is_refused_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"ends in \.png or \.svg: a\.pdf does not"):
        plot(measurements(), all_figures(), tmp_path / "a.pdf")
    with pytest.raises(UsageError, match="nothing to plot"):
        plot(Measurements(RUN), [], tmp_path / "a.svg")
    with pytest.raises(UsageError, match="cannot be written: there is no folder"):
        plot(Measurements(RUN, curve=CURVE), [], tmp_path / "none" / "a.svg")
    check(tmp_path / "a.svg")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="-m pip install matplotlib"):
        check(tmp_path / "a.svg")
