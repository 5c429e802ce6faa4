"""From a clean clone to a ready environment, and what is done again when something changes: with fake commands."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from setup import SetupError, library, prepare, stamp
from setup.library import Library
from setup.places import Places
from setup.report import Report
from setup.toolchain import Compiler, Machine, Wishes, decide

from .conftest import FakeRunner, text

MACHINE = Machine(cpu="CPU", features=("avx2",), compiler=Compiler("cc", "c++", "gcc", "c++ 12"))
SetUp = Callable[..., FakeRunner]


@pytest.fixture
def set_up(places: Places, report: Report, monkeypatch: pytest.MonkeyPatch) -> SetUp:
    """Runs the set-up; gives the runner that saw its commands. Wishes and machine may differ from run to run."""
    monkeypatch.setattr(library.probe, "program_version", lambda name, environ: (99, 0))

    def run(level: str = "run", machine: Machine = MACHINE, failing: str | None = None, **chosen: str) -> FakeRunner:
        runner = FakeRunner(places)
        runner.failing = failing
        wishes = Wishes(
            cmake_args=tuple(chosen.get("CMAKE_ARGS", "").split()), wheel_index=chosen.get("EDGESPEC_WHEEL_INDEX", "")
        )
        plan = decide(machine, wishes)
        prepare.Preparation(places, level, chosen, {}, plan, runner, report).run()
        return runner

    return run


def complete(places: Places, level: str = "run", **environ: str) -> bool:
    return stamp.is_complete(str(places.root), str(places.venv), level, environ)


def installed(places: Places) -> Path:
    return Path(stamp.read(str(places.venv))["libraries"])


def test_from_nothing_to_ready(places: Places, set_up: SetUp, report: Report) -> None:
    assert not complete(places)
    runner = set_up()
    assert complete(places)
    assert not complete(places, "dev")
    lib = installed(places)
    assert (lib / "libllama.so").is_symlink()  # two copies would be two libraries in memory
    assert (lib / "libllama.so").read_text() == "machine code"
    description = json.loads((lib / "build.json").read_text())
    assert description["compiler"] == "c++ 12"
    assert description["cpu"] == "CPU"
    assert str(places.root) in (lib.parents[1] / "edgespec-repository.pth").read_text().splitlines()
    assert "numpy>=1" in next(command for command in runner.commands if "numpy>=1" in command)
    assert not runner.count("pytest")
    assert "building llama.cpp for this machine" in text(report)


def test_a_second_run_does_nothing_but_try_the_library(set_up: SetUp) -> None:
    set_up()
    assert [command[-1] for command in set_up().commands] == ["import llama_cpp"]


def test_test_tools_come_on_top_and_stay(places: Places, set_up: SetUp) -> None:
    set_up()
    runner = set_up("dev")
    assert runner.count("pytest") == 1
    assert not runner.count("cmake")
    assert complete(places, "dev")
    assert complete(places, "run")
    places.constraints.write_text("llama-cpp-python==1.0\nnumpy==1.6\n")
    assert not complete(places)
    assert set_up("run").count("pytest") == 1
    assert complete(places, "dev")


def test_only_what_changed_is_done_again(places: Places, set_up: SetUp) -> None:
    set_up()
    places.project.write_text(places.project.read_text() + "\n[tool.ruff]\nline-length = 100\n")
    assert not complete(places)
    assert not set_up().count("pip")  # its dependencies are the same
    assert complete(places)
    runner = set_up(machine=replace(MACHINE, cpu="Another CPU"))
    assert runner.count("--build") == 1
    assert not runner.count("install")


def test_a_build_is_kept_for_the_next_clone(places: Places, set_up: SetUp) -> None:
    set_up()
    shutil.rmtree(places.venv)
    runner = set_up()
    assert complete(places)
    assert not runner.count("--build")
    assert not runner.count("download")
    assert not runner.count("wheel")


def test_switching_builds_to_and_fro_builds_each_once(places: Places, set_up: SetUp) -> None:
    set_up()
    one = stamp.read(str(places.venv))["library"]
    assert set_up(CMAKE_ARGS="-DGGML_LTO=ON").count("--build") == 1
    assert stamp.read(str(places.venv))["library"] != one
    assert not set_up().count("--build")
    assert json.loads((installed(places) / "build.json").read_text())["key"] == one


@pytest.mark.parametrize("step", ["venv", "download", "wheel", "numpy>=1", "-S", "--build", "import llama_cpp"])
def test_a_set_up_that_broke_off_is_finished_by_the_next(places: Places, set_up: SetUp, step: str) -> None:
    with pytest.raises(SetupError):
        set_up(failing=step)
    assert not complete(places)
    builds = places.cache / "builds"
    assert not any((folder / "build.json").exists() for folder in builds.glob("*")) or step not in ("-S", "--build")
    set_up()
    assert complete(places)
    assert (installed(places) / "libllama.so").exists()


def test_a_failed_build_stops_what_runs_beside_it(set_up: SetUp, places: Places, report: Report) -> None:
    runner = FakeRunner(places)
    runner.failing = "--build"
    with pytest.raises(SetupError, match="could not be built"):
        prepare.Preparation(places, "run", {}, {}, decide(MACHINE, Wishes()), runner, report).run()
    assert runner.stopped


def test_a_half_made_build_is_no_build(places: Places, report: Report, runner: FakeRunner, set_up: SetUp) -> None:
    builder = Library(places, decide(MACHINE, Wishes()), "1.0", runner, report, {})
    builder.build_folder.mkdir(parents=True)
    (builder.build_folder / "libllama.so").write_text("half of it")
    assert not builder.is_built
    set_up()
    assert (installed(places) / "libllama.so").read_text() == "machine code"


def test_a_folder_that_is_not_ours_is_left_alone(places: Places, set_up: SetUp) -> None:
    places.venv.mkdir()
    (places.venv / "diary.txt").write_text("mine")
    with pytest.raises(SetupError, match="EDGESPEC_VENV"):
        set_up()
    assert (places.venv / "diary.txt").read_text() == "mine"


def test_a_moved_repository_makes_its_environment_anew(places: Places, set_up: SetUp, report: Report) -> None:
    set_up()
    moved = replace(places, root=places.root.with_name("moved"), venv=places.root.with_name("moved") / ".venv")
    places.root.rename(moved.root)
    assert not complete(moved)
    runner = FakeRunner(moved)
    prepare.Preparation(moved, "run", {}, {}, decide(MACHINE, Wishes()), runner, report).run()
    assert complete(moved)
    assert not runner.count("--build")
    assert not moved.venv.with_name(".venv.old").exists()


def test_a_wheel_index_takes_the_place_of_the_build(places: Places, set_up: SetUp) -> None:
    index = "https://me:secret@example.org/whl"
    set_up()
    runner = set_up(EDGESPEC_WHEEL_INDEX=index)
    assert runner.count("--only-binary", "llama-cpp-python", "--extra-index-url", index, "llama-cpp-python==1.0") == 1
    assert not runner.count("--build")
    assert complete(places)  # it holds without being said again
    assert complete(places, EDGESPEC_WHEEL_INDEX=index)
    assert not complete(places, EDGESPEC_WHEEL_INDEX="")
    assert os.stat(stamp.path_in(str(places.venv))).st_mode & 0o077 == 0
    set_up()
    assert (installed(places) / "libllama.so").read_text() == "machine code"


def test_what_the_user_chose_holds_until_something_else_is_said(places: Places, set_up: SetUp) -> None:
    set_up(CMAKE_ARGS="-DGGML_VULKAN=ON")
    assert complete(places)
    assert complete(places, CMAKE_ARGS="-DGGML_VULKAN=ON")
    assert not complete(places, CMAKE_ARGS="")
    assert not complete(places, CMAKE_ARGS="-DGGML_LTO=ON")


def test_an_nvcc_that_was_not_there_before_calls_for_another_look(
    places: Places, set_up: SetUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = {"nvcc": False, "nvidia": True}
    monkeypatch.setattr(stamp.glance, "accelerators", lambda environ: seen)
    set_up()
    assert complete(places)
    seen = {"nvcc": True, "nvidia": True}
    assert not complete(places)
    set_up()
    seen = {"nvcc": False, "nvidia": True}  # another shell, another PATH: what was built is still good
    assert complete(places)


def test_libraries_that_went_missing_are_put_back(places: Places, set_up: SetUp) -> None:
    set_up()
    shutil.rmtree(installed(places))
    assert not complete(places)
    assert not set_up().count("--build")
    assert complete(places)


def test_pip_and_python_are_not_led_astray() -> None:
    environ = {"PATH": "/bin", "PYTHONPATH": "x", "PIP_TARGET": "x", "CMAKE_ARGS": "x", "CC": "old", "HOME": "/h"}
    chosen = {"CC": "gcc-13", "CMAKE_ARGS": "x", "EDGESPEC_WHEEL_INDEX": "secret"}
    assert prepare.inner_environ(environ, chosen, "/venv/bin") == {
        "PATH": "/venv/bin:/bin",
        "CC": "gcc-13",
        "HOME": "/h",
    }


def test_the_question_whether_all_is_done_is_quick(places: Places, set_up: SetUp) -> None:
    """No heavy module may slip into it: they cost more than the check."""
    set_up()
    code = "import sys; sys.path.insert(0, sys.argv[1]); import setup.stamp as s; s.read('/'); print(*sys.modules)"
    scripts = Path(prepare.__file__).parents[1]
    out = subprocess.run([sys.executable, "-I", "-S", "-c", code, str(scripts)], capture_output=True, check=True).stdout
    assert not {"pathlib", "dataclasses", "subprocess", "shutil", "typing", "hashlib"} & set(out.decode().split())
