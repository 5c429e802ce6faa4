"""Which build a machine gets: pure decisions, as tables."""

from __future__ import annotations

from dataclasses import replace

import pytest

from setup import SetupError
from setup.toolchain import Compiler, Machine, Plan, Wishes, decide

GCC = Compiler("cc", "c++", "gcc", "c++ (Debian) 12.2.0")
CLANG = Compiler("clang-16", "clang++-16", "clang", "clang version 16.0.6")
APPLE = Compiler("cc", "c++", "clang", "Apple clang version 17")
AMX = ("amx_bf16", "amx_int8", "amx_tile", "avx2")

PC = Machine(cpu="Some CPU", features=("avx2",), cores=4, compiler=GCC)
WITH_AMX = replace(PC, features=AMX)
WITH_GPU = replace(PC, nvcc="/usr/local/cuda/bin/nvcc", nvcc_version="13.0", nvidia=True)
ORIN = replace(WITH_GPU, arch="aarch64", jetson="NVIDIA Jetson AGX Orin Developer Kit", features=("asimd",))
MAC = Machine(system="darwin", arch="arm64", cpu="Apple M4", cores=10, compiler=APPLE)
INTEL_MAC = replace(MAC, arch="x86_64")


def added(plan: Plan) -> set[str]:
    """The arguments that tell this plan from the plainest."""
    return set(plan.arguments) - set(decide(PC, Wishes()).arguments)


@pytest.mark.parametrize(
    ("machine", "backend", "arguments"),
    [
        (PC, "CPU", set()),
        (replace(PC, nvcc="/bin/nvcc"), "CPU", set()),
        (replace(PC, nvidia=True), "CPU", set()),
        (WITH_GPU, "CUDA", {"-DGGML_CUDA=ON", "-DCMAKE_CUDA_ARCHITECTURES=native"}),
        (ORIN, "CUDA", {"-DGGML_CUDA=ON", "-DCMAKE_CUDA_ARCHITECTURES=87", "-DGGML_CUDA_NO_VMM=ON"}),
        (
            replace(ORIN, jetson="Jetson of tomorrow"),
            "CUDA",
            {"-DGGML_CUDA=ON", "-DCMAKE_CUDA_ARCHITECTURES=native", "-DGGML_CUDA_NO_VMM=ON"},
        ),
        (
            MAC,
            "Metal",
            {
                "-DGGML_METAL=ON",
                "-DGGML_METAL_EMBED_LIBRARY=ON",
                "-DCMAKE_OSX_ARCHITECTURES=arm64",
                "-DCMAKE_INSTALL_RPATH=@loader_path",
            },
        ),
        (
            INTEL_MAC,
            "CPU",
            {"-DGGML_METAL=OFF", "-DCMAKE_OSX_ARCHITECTURES=x86_64", "-DCMAKE_INSTALL_RPATH=@loader_path"},
        ),
    ],
)
def test_backend(machine: Machine, backend: str, arguments: set[str]) -> None:
    plan = decide(machine, Wishes())
    assert plan.backend == backend
    assert added(plan) == arguments


def test_always_shared_release_libraries_that_find_each_other() -> None:
    arguments = decide(PC, Wishes()).arguments
    for wanted in ("BUILD_SHARED_LIBS=ON", "CMAKE_BUILD_TYPE=Release", "LLAMA_BUILD_COMMON=OFF", "GGML_NATIVE=ON"):
        assert f"-D{wanted}" in arguments
    assert "-DCMAKE_INSTALL_RPATH=$ORIGIN" in arguments


@pytest.mark.parametrize(
    ("machine", "wishes", "compiler", "header"),
    [
        (PC, Wishes(), GCC, False),
        (WITH_AMX, Wishes(), GCC, True),
        (replace(WITH_AMX, clang=CLANG), Wishes(), CLANG, False),
        (replace(WITH_AMX, compiler=None, clang=CLANG), Wishes(), CLANG, False),
        (replace(WITH_AMX, clang=CLANG), Wishes(cc="gcc"), GCC, True),
        (replace(WITH_AMX, clang=CLANG), Wishes(cmake_args=("-DCMAKE_CXX_COMPILER:PATH=g++",)), GCC, True),
        (replace(WITH_AMX, compiler=CLANG), Wishes(cxx="clang++-16"), CLANG, False),
        (replace(WITH_AMX, features=("amx_tile",)), Wishes(), GCC, False),
        (replace(WITH_AMX, arch="aarch64"), Wishes(), GCC, False),
    ],
)
def test_compiler(machine: Machine, wishes: Wishes, compiler: Compiler, header: bool) -> None:
    plan = decide(machine, wishes)
    assert plan.compiler == compiler
    assert plan.force_header == header
    assert ("-DCMAKE_CXX_COMPILER=clang++-16" in plan.arguments) == (compiler is CLANG and not any(wishes.compiler))
    assert not any("amx" in argument.lower() for argument in plan.arguments)  # it is never turned off


def test_half_a_pair_of_compilers_is_made_whole() -> None:
    chosen = replace(PC, compiler=Compiler("clang", "clang++", "clang", "clang version 18"))
    assert decide(chosen, Wishes(cc="clang")).environ == (("CC", "clang"), ("CXX", "clang++"))
    assert decide(PC, Wishes()).environ == ()


def test_the_header_goes_before_the_users_flags_and_bears_spaces() -> None:
    wishes = Wishes(cmake_args=("-DCMAKE_CXX_FLAGS=-O1",), cflags="-g", cxxflags="-g")
    arguments = decide(WITH_AMX, wishes).cmake_arguments("/a b/header.h")
    assert arguments[-2:] == (
        '-DCMAKE_C_FLAGS=-include "/a b/header.h" -g',
        '-DCMAKE_CXX_FLAGS=-include "/a b/header.h" -O1',
    )


@pytest.mark.parametrize(
    ("machine", "arguments", "backend", "ours"),
    [
        (WITH_GPU, ("-DGGML_CUDA=OFF",), "CPU", False),
        (WITH_GPU, ("-DGGML_VULKAN=ON",), "VULKAN", False),
        (WITH_GPU, ("-D", "GGML_HIP:BOOL=1"), "HIP", False),
        (WITH_GPU, ("-DGGML_CUDA=on", "-DCMAKE_CUDA_ARCHITECTURES=89"), "CUDA", True),
        (replace(PC, nvcc="/bin/nvcc"), ("-DGGML_CUDA=ON",), "CUDA", True),
        (WITH_GPU, ("-DGGML_LTO=ON",), "CUDA", True),
        (MAC, ("-DGGML_METAL=OFF",), "CPU", False),
    ],
)
def test_the_users_cmake_arguments_win(machine: Machine, arguments: tuple[str, ...], backend: str, ours: bool) -> None:
    plan = decide(machine, Wishes(cmake_args=arguments))
    assert plan.backend == backend
    assert plan.arguments[-len(arguments) :] == arguments
    assert (
        any(argument.startswith(("-DGGML_CUDA=ON", "-DGGML_METAL=")) for argument in plan.arguments[: -len(arguments)])
        == ours
    )


def test_nvcc_is_named_to_cmake() -> None:
    assert ("CUDACXX", "/usr/local/cuda/bin/nvcc") in decide(ORIN, Wishes()).environ
    assert decide(WITH_GPU, Wishes()).cmake == (3, 24)


@pytest.mark.parametrize(
    ("machine", "jobs"),
    [
        (PC, 4),
        (replace(PC, memory=2_500_000_000), 2),
        (replace(PC, memory=100_000_000), 1),
        (replace(ORIN, cores=6, memory=6_100_000_000), 3),
        (replace(ORIN, cores=12, memory=60_000_000_000), 12),
    ],
)
def test_no_more_jobs_than_memory_bears(machine: Machine, jobs: int) -> None:
    assert decide(machine, Wishes()).jobs == jobs


def test_a_gpu_without_nvcc_is_told_loudly_of_both_ways_out() -> None:
    (notice,) = decide(replace(PC, nvidia=True), Wishes()).notices
    assert "CPU only" in notice
    assert "nvcc" in notice
    assert "EDGESPEC_WHEEL_INDEX" in notice
    for quiet in (PC, WITH_GPU, ORIN, MAC):
        assert decide(quiet, Wishes()).notices == ()
    assert decide(replace(PC, nvidia=True), Wishes(cmake_args=("-DGGML_CUDA=OFF",))).notices == ()


def test_a_wheel_index_builds_nothing_and_needs_no_compiler() -> None:
    plan = decide(replace(PC, nvidia=True, compiler=None), Wishes(wheel_index="https://user:word@example.org/whl"))
    assert (plan.backend, plan.wheel_index, plan.notices) == ("wheel", "https://user:word@example.org/whl", ())


@pytest.mark.parametrize(
    ("machine", "wishes", "says"),
    [
        (replace(PC, compiler=None), Wishes(), "apt install build-essential"),
        (replace(MAC, compiler=None), Wishes(), "xcode-select --install"),
        (replace(PC, system="win32", compiler=None), Wishes(), "Visual Studio Build Tools"),
        (replace(PC, compiler=None), Wishes(cxx="g++-99"), "g++-99"),
        (replace(INTEL_MAC, rosetta=True), Wishes(), "Apple silicon"),
    ],
)
def test_what_is_missing_is_said_in_one_sentence(machine: Machine, wishes: Wishes, says: str) -> None:
    with pytest.raises(SetupError, match=says.replace("+", r"\+")) as caught:
        decide(machine, wishes)
    assert "\n" not in str(caught.value)


def test_the_key_tells_builds_apart_that_differ_and_no_others() -> None:
    def key(machine: Machine = WITH_AMX, wishes: Wishes | None = None, **given: object) -> str:
        facts = {"version": "1.0", "header": "text", "environ": {}} | given
        return decide(machine, wishes or Wishes()).key(**facts)  # type: ignore[arg-type]

    same = key()
    assert key(replace(WITH_AMX, memory=5, cores=1)) == same
    others = [
        key(replace(WITH_AMX, cpu="Another CPU")),
        key(replace(WITH_AMX, features=(*AMX, "avx512f"))),
        key(replace(WITH_AMX, compiler=replace(GCC, version="13"))),
        key(replace(WITH_AMX, clang=CLANG)),
        key(wishes=Wishes(cmake_args=("-DGGML_LTO=ON",))),
        key(version="1.1"),
        key(header="other text"),
        key(environ={"CXXFLAGS": "-g"}),
    ]
    assert len({same, *others}) == len(others) + 1
    assert key(PC, header="text") == key(PC, header="other text")  # it takes no part there
