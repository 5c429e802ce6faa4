"""How llama.cpp is to be built for a machine: decisions only, no look at the machine and no side effect.

`decide` takes a Machine (what `probe` read) and Wishes (what the user's environment variables say) and gives a Plan.
The user's wishes always win: their -D options come last, and a backend or compiler of theirs replaces our choice.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Literal

from . import SetupError

# A wish for one of these, on or off, leaves the choice of a backend to the user.
BACKENDS = ("CUDA", "METAL", "VULKAN", "HIP", "SYCL", "MUSA", "CANN", "OPENCL", "WEBGPU")

# Shared libraries that find each other in whatever folder they lie, tuned for this CPU, and only what is loaded.
# (GGML_NATIVE is said because a SOURCE_DATE_EPOCH in the environment would turn it off.)
ALWAYS = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DBUILD_SHARED_LIBS=ON",
    "-DCMAKE_BUILD_WITH_INSTALL_RPATH=ON",
    "-DCMAKE_INSTALL_RPATH_USE_LINK_PATH=ON",
    "-DGGML_NATIVE=ON",
    *(f"-DLLAMA_BUILD_{part}=OFF" for part in ("COMMON", "TESTS", "TOOLS", "EXAMPLES", "SERVER", "APP")),
)

# Compute capabilities of Jetson boards; a board that is not listed is asked itself ("native").
JETSONS = (("Orin", "87"), ("Xavier", "72"), ("TX2", "62"), ("Jetson Nano", "53"), ("TX1", "53"))

INSTALL_COMPILER = {
    "linux": "Debian, Ubuntu: apt install build-essential; Fedora: dnf install gcc-c++; Arch: pacman -S base-devel",
    "darwin": "xcode-select --install",
    "win32": "install the Visual Studio Build Tools with the C++ workload",
}

CPU_BUILD_NOTICE = """\
****************************************************************************
This machine has an NVIDIA GPU, but no nvcc: llama.cpp is about to be built
for the CPU only, and the GPU will not be used. Two ways out:
  - install the CUDA toolkit (it holds nvcc) and start again, or
  - set EDGESPEC_WHEEL_INDEX to the address of an index of ready CUDA wheels
    of llama-cpp-python and start again.
****************************************************************************"""


@dataclass(frozen=True, slots=True)
class Compiler:
    """A pair of C and C++ compilers. `version` is the first line that it says about itself."""

    cc: str
    cxx: str
    family: Literal["gcc", "clang", "other"]
    version: str


@dataclass(frozen=True, slots=True)
class Machine:
    """What matters about a machine. `compiler` is the user's choice or cmake's; `clang` is looked for with AMX only."""

    system: str = "linux"
    arch: str = "x86_64"
    cpu: str = ""
    features: tuple[str, ...] = ()
    libc: str = ""
    cores: int = 1
    memory: int | None = None  # bytes available
    compiler: Compiler | None = None
    clang: Compiler | None = None
    nvcc: str | None = None
    nvcc_version: str = ""
    nvidia: bool = False
    jetson: str = ""  # the board's name
    rosetta: bool = False

    @property
    def amx(self) -> bool:
        return self.arch in ("x86_64", "amd64", "AMD64") and {"amx_tile", "amx_int8"} <= set(self.features)


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the user's environment says: CMAKE_ARGS (split), CC, CXX, CFLAGS, CXXFLAGS, EDGESPEC_WHEEL_INDEX."""

    cmake_args: tuple[str, ...] = ()
    cc: str = ""
    cxx: str = ""
    cflags: str = ""
    cxxflags: str = ""
    wheel_index: str = ""

    def definition(self, name: str) -> str | None:
        """The value that the last -DNAME=VALUE (or -DNAME:TYPE=VALUE, or with a space after -D) gives."""
        found = None
        for before, argument in zip(("", *self.cmake_args), self.cmake_args, strict=False):
            text = argument[2:] if argument.startswith("-D") else argument if before == "-D" else ""
            key, equals, value = text.partition("=")
            if equals and key.partition(":")[0] == name:
                found = value
        return found

    @property
    def compiler(self) -> tuple[str, str]:
        """The C and C++ compilers that the user wants, each empty if left open."""
        return (
            self.definition("CMAKE_C_COMPILER") or self.cc,
            self.definition("CMAKE_CXX_COMPILER") or self.cxx,
        )

    @property
    def backend(self) -> bool:
        return any(self.definition(f"GGML_{name}") is not None for name in BACKENDS)


@dataclass(frozen=True, slots=True)
class Plan:
    """How llama.cpp gets here. With `wheel_index` a ready wheel is taken from there, and the rest means nothing."""

    backend: str
    machine: Machine
    compiler: Compiler | None = None
    arguments: tuple[str, ...] = ()
    environ: tuple[tuple[str, str], ...] = ()
    c_flags: str = ""  # the user's own, to go with the header
    cxx_flags: str = ""
    force_header: bool = False
    jobs: int = 1
    minutes: int = 0
    cmake: tuple[int, int] = (3, 21)  # the oldest that will do
    notices: tuple[str, ...] = ()
    wheel_index: str = ""

    def cmake_arguments(self, header: str) -> tuple[str, ...]:
        """All of cmake's arguments. The header's path may hold spaces, and comes before the user's own flags."""
        if not self.force_header:
            return self.arguments
        forced = f'-include "{header}"'
        flags = ((lang, f"{forced} {own}".strip()) for lang, own in (("C", self.c_flags), ("CXX", self.cxx_flags)))
        return (*self.arguments, *(f"-DCMAKE_{lang}_FLAGS={value}" for lang, value in flags))

    def key(self, version: str, header: str, environ: dict[str, str]) -> str:
        """Names the build: equal for two builds exactly where they would come out the same.

        `version` is llama-cpp-python's, `header` the forced-in header's text, `environ` the variables that a compiler
        heeds.
        """
        machine = asdict(self.machine)
        same = ("system", "arch", "cpu", "features", "libc")
        facts = {
            "version": version,
            "machine": {name: machine[name] for name in same},
            "compiler": asdict(self.compiler) if self.compiler else None,
            "nvcc": self.machine.nvcc_version if self.backend == "CUDA" else None,
            "arguments": self.cmake_arguments("HEADER"),
            "header": header if self.force_header else None,
            "environ": environ,
        }
        digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
        return f"{version}-{self.backend.lower()}-{digest[:16]}"


def decide(machine: Machine, wishes: Wishes) -> Plan:
    """The way to build llama.cpp here. Raises SetupError where there is none."""
    if wishes.wheel_index:
        return Plan(backend="wheel", machine=machine, wheel_index=wishes.wheel_index)
    if machine.rosetta:
        raise SetupError("this Python is made for Intel and runs translated: take a Python for Apple silicon instead")
    compiler, chosen = _compiler(machine, wishes)
    backend, chosen_backend, notices = _backend(machine, wishes)
    cuda = backend == "CUDA"
    arguments = [*ALWAYS, f"-DCMAKE_INSTALL_RPATH={'@loader_path' if machine.system == 'darwin' else '$ORIGIN'}"]
    if machine.system == "darwin":
        arguments.append(f"-DCMAKE_OSX_ARCHITECTURES={machine.arch}")  # Python's, whatever else the machine can run
    if machine.system == "win32":
        arguments.append("-DCMAKE_WINDOWS_EXPORT_ALL_SYMBOLS=ON")
    jobs = _jobs(machine, cuda)
    force_header = machine.amx and compiler.family == "gcc"
    return Plan(
        backend=backend,
        machine=machine,
        compiler=compiler,
        arguments=(*arguments, *chosen, *chosen_backend, *wishes.cmake_args),
        environ=_environ(machine, wishes, compiler, cuda),
        c_flags=_flags(wishes.definition("CMAKE_C_FLAGS"), wishes.cflags),
        cxx_flags=_flags(wishes.definition("CMAKE_CXX_FLAGS"), wishes.cxxflags),
        force_header=force_header,
        jobs=jobs,
        minutes=-(-(2400 if cuda else 400) // (60 * jobs)),  # in seconds of one core, as measured or guessed
        cmake=(3, 24) if cuda else (3, 21),  # 3.24 learned of CMAKE_CUDA_ARCHITECTURES=native
        notices=notices,
    )


def _compiler(machine: Machine, wishes: Wishes) -> tuple[Compiler, list[str]]:
    """The compiler, and the arguments that choose it if it is not what cmake takes by itself.

    With AMX, clang is about a fifth faster than gcc, and gcc needs the header (see amx_tileconfig.h).
    """
    if machine.amx and machine.clang and not any(wishes.compiler):
        clang = machine.clang
        return clang, [f"-DCMAKE_C_COMPILER={clang.cc}", f"-DCMAKE_CXX_COMPILER={clang.cxx}"]
    if machine.compiler is None:
        wanted = " ".join(filter(None, wishes.compiler))
        if wanted:
            raise SetupError(
                f"the compiler that was asked for ({wanted}) does not run: correct CC and CXX, or unset them"
            )
        how = INSTALL_COMPILER.get(machine.system, "gcc or clang")
        raise SetupError(f"no C++ compiler was found, and llama.cpp is built here: install one ({how}) and start again")
    return machine.compiler, []


def _backend(machine: Machine, wishes: Wishes) -> tuple[str, list[str], tuple[str, ...]]:
    """The backend's name, its arguments, and what the user should know about it."""
    wanted = [name for name in BACKENDS if _on(wishes.definition(f"GGML_{name}"))]
    if wanted == ["CUDA"] or (not wishes.backend and machine.nvcc and machine.nvidia):
        return "CUDA", _cuda(machine), ()
    if wishes.backend:
        return wanted[0] if wanted else "CPU", [], ()
    if machine.system == "darwin":
        if machine.arch == "arm64":
            return "Metal", ["-DGGML_METAL=ON", "-DGGML_METAL_EMBED_LIBRARY=ON"], ()
        return "CPU", ["-DGGML_METAL=OFF"], ()  # on Intel Macs it is slower than the CPU, or wrong
    return "CPU", [], (CPU_BUILD_NOTICE,) if machine.nvidia else ()


def _cuda(machine: Machine) -> list[str]:
    native = "native" if machine.nvidia else None
    board = next((code for name, code in JETSONS if name in machine.jetson), native)
    arguments = ["-DGGML_CUDA=ON"]
    if board:
        arguments.append(f"-DCMAKE_CUDA_ARCHITECTURES={board}")
    if machine.jetson:
        arguments.append("-DGGML_CUDA_NO_VMM=ON")  # small boards cannot reserve the address space
    return arguments


def _environ(machine: Machine, wishes: Wishes, compiler: Compiler, cuda: bool) -> tuple[tuple[str, str], ...]:
    """Variables for cmake. Of a user who named one compiler of the pair, the other should not be of another make."""
    pair = (("CC", compiler.cc), ("CXX", compiler.cxx)) if any(wishes.compiler) else ()
    return (*pair, ("CUDACXX", machine.nvcc)) if cuda and machine.nvcc else pair


def _jobs(machine: Machine, cuda: bool) -> int:
    """As many as there are cores, but no more than memory is there for: nvcc takes about 2 GB, a C++ compiler 1."""
    if machine.memory is None:
        return machine.cores
    return max(1, min(machine.cores, machine.memory // ((2 if cuda else 1) * 10**9)))


def _flags(definition: str | None, variable: str) -> str:
    """cmake's rule: a definition replaces the variable."""
    return variable if definition is None else definition


def _on(value: str | None) -> bool:
    return value is not None and value.upper() not in ("", "0", "OFF", "NO", "FALSE", "N", "IGNORE", "NOTFOUND")
