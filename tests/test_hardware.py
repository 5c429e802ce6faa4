"""Readings of this machine, each optional on its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgespec import hardware


@pytest.fixture
def powercap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(hardware, "_gpus", lambda reading: [])
    for zone, name, microjoules in (
        ("intel-rapl:0", "package-0", "5000000"),
        ("intel-rapl:0:0", "core", "4000000"),
        ("intel-rapl:1", "psys", "9000000"),
        ("intel-rapl:2", "package-1", "1000000"),
    ):
        (tmp_path / zone).mkdir()
        (tmp_path / zone / "name").write_text(name + "\n")
        (tmp_path / zone / "energy_uj").write_text(microjoules + "\n")
    return tmp_path


def test_the_energy_is_that_of_the_packages_and_of_nothing_within_or_around_them(powercap: Path) -> None:
    assert hardware.energy(powercap) == {"package-0": 5.0, "package-1": 1.0}
    (powercap / "intel-rapl:2" / "energy_uj").unlink()
    assert hardware.energy(powercap) == {"package-0": 5.0}
    assert hardware.energy(powercap / "nothing") == {}


def test_gpus_that_count_their_energy_are_added(powercap: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "_gpus", lambda reading: [100.0, 20.0])
    assert hardware.energy(powercap / "nothing") == {"gpu 0": 100.0, "gpu 1": 20.0}


def test_what_was_used_is_the_difference_of_all_counters_or_not_known() -> None:
    before = {"package-0": 5.0, "gpu 0": 100.0}
    assert hardware.used(before, {"package-0": 7.0, "gpu 0": 130.0}) == 32.0
    assert hardware.used(before, {"package-0": 1.0, "gpu 0": 130.0}) is None, "a counter began anew"
    assert hardware.used(before, {"package-0": 7.0}) is None, "a reading failed"
    assert hardware.used({}, {}) is None


def test_the_machine_is_described_in_plain_values() -> None:
    described = hardware.machine()
    assert list(described) == ["processor", "features", "cores", "memory", "gpus", "system"]
    assert described["processor"] and described["cores"] >= 1 and described["memory"] > 1e8
    assert isinstance(described["features"], list) and isinstance(described["gpus"], list)
    assert hardware.resident_memory() > 1e6
