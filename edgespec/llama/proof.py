"""The proof decode: whether a model file decodes soundly with this build on this machine, found out in a child process.

A build made for another machine, or by a compiler with a fault, can end the process at the first decode. So the first
load of a file happens in a child; what it finds is remembered for that build, file, processor and settings.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from edgespec import errors
from edgespec.errors import BackendError, EdgespecError, ModelUnreadable
from edgespec.folders import Shelf, cache_folder
from edgespec.llama.header import fingerprint, read_head, refuse_other_kinds
from edgespec.llama.library import library
from edgespec.llama.threads import usable_cores
from edgespec.settings import ModelSettings

CHILD = "edgespec.llama.proof_child"

_FORMAT = 4
MOST_NOISE = 2.0
"""Logits: honest rounding stays far below (0.25 was the most seen), garbage is far above (50)."""

_logger = logging.getLogger("edgespec.llama")


@dataclass(frozen=True, slots=True)
class Proof:
    """What the proof decode found. Noise is in logits, over the top 40 of each row, against single-token decodes.

    With fewer than `invariant_below` tokens cached a row was the same, bit for bit, at every width (0: never).
    `width_noise` is the largest standard deviation over the widths that were tried, `width_noise_max` the largest
    single difference. `warning` is a sentence for the user, or empty.
    """

    extra_buffers: bool
    invariant_below: int
    width_noise: float
    width_noise_max: float
    can_trim: bool
    seconds: float
    warning: str = ""


def prove(
    path: str | os.PathLike[str],
    settings: ModelSettings | None = None,
    *,
    say: Callable[[str], None] = lambda _: None,
    command: Sequence[str] | None = None,
    cache: Path | None = None,
    timeout: float = 900.0,
) -> Proof:
    """The proof for a model file: remembered, else found now (one load of the model and a few seconds).

    `command` starts the child, by default `edgespec.llama.proof_child` in this interpreter; a frozen program has no
    usable one and must give a command of its own. `say` is told before the child starts. Load the model with the
    `extra_buffers` that the proof names. Raises ModelUnreadable or another EdgespecError with the child's reason,
    BackendError if it dies whatever is tried.
    """
    settings = settings or ModelSettings()
    file = Path(path)
    refuse_other_kinds(file, read_head(file))
    shelf, facts = Shelf((cache or cache_folder()) / "proofs"), _facts(file, settings)
    remembered = shelf.recall(facts)
    if remembered is not None and set(remembered) == {field.name for field in fields(Proof)}:
        return Proof(**remembered)
    if command is None:
        if getattr(sys, "frozen", False):  # its executable is the program itself, which would start once more
            raise BackendError("This program has no Python to start a child process with: give load() a `python`.")
        command = [sys.executable, "-m", CHILD]
    say(f"Trying {file.name} on this machine (once, a few seconds)…")
    proof, first_death = _try(file, settings, True, command, timeout)
    if proof is None:
        say(f"llama.cpp {first_death} with {file.name}; trying again without repacked weights…")
        proof, second_death = _try(file, settings, False, command, timeout)
        if proof is None:
            raise BackendError(
                f"llama.cpp {second_death} when it decodes {file.name}, so this build does not fit this machine or the "
                "file is damaged: delete .venv and the cache folder's builds and start ./scripts/edgespec again, or "
                "fetch the file again."
            )
        _logger.warning("%s", proof.warning)
        if "SIGKILL" in first_death or "finish" in first_death:
            return proof  # perhaps memory or time was short for once: the next load tries again
    shelf.remember(facts, asdict(proof))
    return proof


def _try(
    file: Path, settings: ModelSettings, extra_buffers: bool, command: Sequence[str], timeout: float
) -> tuple[Proof | None, str]:
    """A proof, or None and what became of the child, as a verb. Raises what the child says is wrong with the file."""
    request = {
        "path": os.path.abspath(file),
        "gpu_layers": settings.gpu_layers,
        "threads": settings.threads,
        "extra_buffers": extra_buffers,
    }
    try:
        child = subprocess.run(
            list(command), input=json.dumps(request), capture_output=True, encoding="utf-8", errors="replace",
            env=_environment(os.environ, command[0] == sys.executable), timeout=timeout, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return None, f"does not finish within {timeout:.0f} s"
    except OSError as error:
        raise BackendError(f"The child process for the proof decode did not start ({error}): see `command`.") from error
    if child.stderr.strip():
        _logger.debug("proof decode: %s", child.stderr.strip())
    answer: dict[str, Any] = {}
    with contextlib.suppress(ValueError, IndexError):
        answer = json.loads(child.stdout.strip().splitlines()[-1])
    if "error" in answer:
        kind = getattr(errors, str(answer.get("kind")), ModelUnreadable)
        raise (kind if issubclass(kind, EdgespecError) else ModelUnreadable)(str(answer["error"]))
    if child.returncode > 0:
        reason = (child.stderr.strip().splitlines() or ["it gave no reason"])[-1].rstrip(".")
        raise BackendError(f"The child process for the proof decode failed ({reason}): see -v, and repair the Python.")
    if child.returncode != 0 or "finite" not in answer:
        return None, _death(child.returncode)
    if not answer.pop("finite"):
        return None, "gives logits that are not numbers"
    if answer["width_noise"] > MOST_NOISE:
        return None, "gives quite different logits when several tokens are decoded at once"
    warning = ""
    if not extra_buffers:
        warning = (
            f"llama.cpp decodes {file.name} here only without repacked weights, which is slower: for a better build, "
            "install clang, delete .venv and start ./scripts/edgespec."
        )
    return Proof(extra_buffers=extra_buffers, warning=warning, **answer), ""


def _death(code: int) -> str:
    if code < 0:
        with contextlib.suppress(ValueError):
            name = signal.Signals(-code).name
            return f"dies with {name}" + (" (out of memory?)" if name == "SIGKILL" else "")
    return f"fails (exit code {code})"


def _environment(host: Mapping[str, str], same_python: bool) -> dict[str, str]:
    """The host's environment, with this very edgespec importable and nothing of the working folder.

    Another Python could not use the rest of our path, and has libraries of its own.
    """
    home = str(Path(__file__).resolve().parents[2])
    paths = dict.fromkeys([home, *(entry for entry in sys.path if entry and same_python)])
    return {
        "OMP_WAIT_POLICY": "passive",  # on a busy machine, threads that spin while they wait take ten times as long
        **host,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONSAFEPATH": "1",
        "PYTHONIOENCODING": "utf-8",
        "GGML_NO_BACKTRACE": "1",  # an abort would start a debugger to print one
    }


def _facts(file: Path, settings: ModelSettings) -> list[object]:
    """What the proof holds for."""
    threads = settings.threads or usable_cores()
    return [_FORMAT, library().build_id(), fingerprint(file), settings.gpu_layers, threads, _processor()]


def _processor(info: Path = Path("/proc/cpuinfo")) -> str:
    """What the processor is and can do, as far as the system says."""
    wanted = ("model name", "flags", "Features", "CPU part")
    with contextlib.suppress(OSError):
        first = info.read_text(encoding="utf-8", errors="replace").split("\n\n")[0].splitlines()
        return "|".join(line for line in first if line.startswith(wanted))
    return f"{platform.machine()} {platform.processor()}"
