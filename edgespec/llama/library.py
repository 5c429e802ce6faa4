"""llama.cpp's library: loaded once in a process, quiet, and described."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import hashlib
import json
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from edgespec.errors import BackendMissing
from edgespec.llama.log import LogForwarder

Result = TypeVar("Result")

_loading = threading.Lock()
_EDGE = 65536


@dataclass(frozen=True, slots=True)
class Library:
    """llama.cpp as it was found: `api` is the llama_cpp module, `folder` holds the shared libraries."""

    api: Any
    folder: Path
    version: str
    log: LogForwarder
    keep: tuple[object, ...]
    """Callbacks that C holds pointers to."""

    @property
    def offloads(self) -> bool:
        """Whether this build can put layers on a GPU."""
        return bool(self.api.llama_supports_gpu_offload())

    @property
    def build(self) -> dict[str, Any]:
        """What the set-up wrote about the build (build.json beside the libraries), or nothing."""
        with contextlib.suppress(OSError, ValueError):
            found = json.loads((self.folder / "build.json").read_text(encoding="utf-8"))
            return found if isinstance(found, dict) else {}
        return {}

    def build_id(self) -> str:
        """Twelve hex digits that change when another build is installed."""
        return build_id(self.folder, self.version)


class Handle:
    """A native object that is freed once, by whoever comes first; `pointer` is None from then on."""

    def __init__(self, pointer: Any, free: Callable[[Any], object]) -> None:
        self.pointer = pointer
        self._free = free
        self._lock = threading.RLock()

    def free(self) -> None:
        with self._lock:  # who comes second must not go on before it is freed
            pointer, self.pointer = self.pointer, None
            if pointer is not None:
                self._free(pointer)


def library() -> Library:
    """llama.cpp, loaded on first use. Raises BackendMissing."""
    with _loading:
        return _load()


@functools.cache
def _load() -> Library:
    # A library must not make the host's logging speak up by itself.
    logging.getLogger("edgespec").addHandler(logging.NullHandler())
    logger = logging.getLogger("edgespec.llama")
    try:
        import llama_cpp
        from llama_cpp import llama_cpp as low
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise BackendMissing(
            f"llama.cpp could not be loaded ({reason}): run ./scripts/edgespec once to build it for this machine, or "
            "reinstall llama-cpp-python."
        ) from error
    forwarder = LogForwarder(logger)
    # llama_cpp's own import has just installed a callback that prints to stderr.
    callback = low.llama_log_callback(forwarder)
    low.llama_log_set(callback, ctypes.c_void_p(0))
    atexit.register(_silence, low)
    keep = (callback, _explain_aborts(low, logger))
    low.llama_backend_init()
    return Library(llama_cpp, Path(low._base_path), str(llama_cpp.__version__), forwarder, keep)


def _explain_aborts(low: Any, logger: logging.Logger) -> object:
    """Have an assertion that fails in ggml, which ends the process, say why in the log first."""

    def explain(message: bytes) -> None:
        with contextlib.suppress(Exception):
            logger.critical("llama.cpp ends this process: %s", message.decode("utf-8", "replace"))

    callback = ctypes.CFUNCTYPE(None, ctypes.c_char_p)(explain)
    with contextlib.suppress(AttributeError):  # not reachable through every platform's library
        low._lib.ggml_set_abort_callback(callback)
    return callback


def _silence(low: Any) -> None:
    # After Python has gone, a Python callback would crash; abs() ignores what it is given and returns. Without libc
    # nothing is done: llama.cpp rarely has anything to say that late.
    with contextlib.suppress(Exception):
        low.llama_log_set(ctypes.cast(ctypes.CDLL(None).abs, low.llama_log_callback), ctypes.c_void_p(0))


def build_id(folder: Path, version: str) -> str:
    """A short hash over the shared libraries in `folder` (name, size, time, first and last bytes) and `version`."""
    digest = hashlib.sha256(version.encode())
    seen: set[Path] = set()
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        real = path.resolve()
        if real in seen or not ({".so", ".dylib", ".dll"} & set(path.suffixes)) or not real.is_file():
            continue
        seen.add(real)
        stat = real.stat()
        digest.update(f"{real.name} {stat.st_size} {stat.st_mtime_ns}".encode())
        # The ends hold the linker's build note and the tables; reading all of a CUDA library would take a second.
        with real.open("rb") as file:
            digest.update(file.read(_EDGE))
            file.seek(max(0, stat.st_size - _EDGE))
            digest.update(file.read(_EDGE))
    return digest.hexdigest()[:12]


def aside(
    work: Callable[[], Result],
    *,
    discard: Callable[[Result], None],
    tick: Callable[[], None] = lambda: None,
    stop: Callable[[], None] = lambda: None,
) -> Result:
    """Run `work` in a thread of its own and wait for it, calling `tick` here about twenty times a second.

    llama.cpp calls back into Python while it loads. In the main thread a signal (Ctrl-C) would be raised inside such
    a callback, where ctypes prints and loses it; here it is raised in the waiting thread. Whatever is raised while
    waiting, by a signal or by `tick`, calls `stop`, waits for `work`, hands its result to `discard`, and goes on up.
    """
    done = threading.Event()
    outcome: list[Result] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(work())
        except BaseException as error:
            failure.append(error)
        finally:
            done.set()

    threading.Thread(target=run, name="edgespec-load", daemon=True).start()
    raised: BaseException | None = None
    while not done.is_set():
        try:
            if not done.wait(0.05) and raised is None:
                tick()
        except BaseException as error:
            raised = raised or error
            stop()
    if raised is not None:
        for result in outcome:
            discard(result)
        raise raised
    if failure:
        raise failure[0]
    return outcome[0]
