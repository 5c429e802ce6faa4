"""Peers: other programs that speak the OpenAI protocol (llama-server and its like), asked what our arms are asked."""

from __future__ import annotations

import json
import os
import secrets
import shlex
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from edgespec.bench.arms import NULL
from edgespec.bench.peer_http import SILENCE, Refused, Server, broken
from edgespec.bench.peer_program import Program
from edgespec.bench.peer_protocol import SEEDS, PeerAnswer, Reading, further_fields, standard_fields, to_answer
from edgespec.bench.records import PLAIN, Answer
from edgespec.bench.suites import Prompt
from edgespec.errors import PeerFailed, UsageError
from edgespec.settings import Request

KEY = "EDGESPEC_PEER_KEY"
LOADING = 600.0
"""Seconds that a server may take to load its model."""


@dataclass(frozen=True, slots=True)
class PeerSpec:
    """A peer as it was asked for: where it runs (`url`, without /v1), or the words of a command that starts it."""

    name: str
    url: str | None = None
    command: tuple[str, ...] | None = None


def parse_peer(text: str) -> PeerSpec:
    """The peer that NAME=URL or NAME=COMMAND describes. Raises UsageError."""
    name, _, rest = (part.strip() for part in text.partition("="))
    if not name or not rest:
        raise UsageError(f"{text!r} is no peer: write NAME=URL or NAME=COMMAND, like llama=http://localhost:8080.")
    if name in (PLAIN, NULL, "auto") or ":" in name:
        raise UsageError(f"A peer cannot be called {name!r}, which is one of our own arms: give it another name.")
    if rest.startswith(("http://", "https://")):
        return PeerSpec(name, url=_address(rest))
    lexer = shlex.shlex(rest, posix=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    if os.name == "nt":
        lexer.escape = ""  # there it parts folders
    try:
        words = tuple(lexer)
    except ValueError as error:
        raise UsageError(f"The command of the peer {name} cannot be read ({error}): look at its quotes.") from error
    if not any("{port}" in word for word in words):
        raise UsageError(f"The command of the peer {name} must say {{port}} where its port goes, like --port {{port}}.")
    return PeerSpec(name, command=words)


def _address(url: str) -> str:
    try:
        parts = urlsplit(url)
        sound = bool(parts.hostname) and parts.port != 0 and not parts.query and not parts.fragment
    except ValueError:
        sound = False
    if not sound or any(c.isspace() for c in url):
        raise UsageError(f"{url!r} is no address of a server: it is to look like http://localhost:8080.")
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


class Peer:
    """A server that is ready to be asked, one question at a time."""

    def __init__(self, server: Server, model: str, program: Program | None = None) -> None:
        self.name = server.name
        self._server, self._model, self._program = server, model, program
        self._standard_only = False  # it has refused the other fields

    def cancel(self) -> None:
        """End the answer in progress and refuse those to come, from any thread."""
        self._server.cancel()

    def memory(self) -> int | None:
        """Bytes in memory of the program and its children; None where we did not start it, or it is not said."""
        return None if self._program is None else self._program.memory()

    def answer(self, prompt: Prompt, request: Request, max_tokens: int | None, *, cold: bool) -> PeerAnswer:
        """Ask `prompt`; a `cold` answer reads the whole of it. `max_tokens` None: until the answer ends.

        `finish_reason` is "cancelled" after cancel(). Raises PeerFailed.
        """
        path = "/v1/chat/completions" if prompt.raw is None else "/v1/completions"
        body = standard_fields(self._model, prompt, request, max_tokens)
        try:
            if not self._standard_only:
                try:
                    return self._ask(path, body | further_fields(prompt, request, cold))
                except Refused as error:
                    if error.status not in (400, 422):
                        raise
            answer = self._ask(path, body)
        except PeerFailed as error:
            if self._program is not None and self._program.ended(within=1.0):
                raise self._program.death("while it was asked") from error
            raise
        self._standard_only = True
        return answer

    def _ask(self, path: str, body: dict[str, Any]) -> PeerAnswer:
        reading = Reading()
        try:
            with closing(self._server.stream(path, body)) as events:
                for seconds, event in events:
                    try:
                        reading.add(seconds, event)
                    except (TypeError, ValueError, AttributeError) as error:
                        raise broken(self.name, f"an event makes no sense, {error}") from error
        except PeerFailed:
            if not self._server.cancelled:
                raise
        answer = reading.answer()
        if self._server.cancelled:
            return replace(answer, finish_reason="cancelled")
        if not answer.finish_reason:
            raise broken(self.name, "its stream ended too early")
        return answer


@contextmanager
def open_peer(
    spec: PeerSpec,
    *,
    target: str,
    draft: str | None,
    say: Callable[[str], None],
    patience: float = LOADING,
    poll: float = 0.2,
    grace: float = 10.0,
    silence: float = SILENCE,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[Peer]:
    """The peer, ready to be asked, until the block is left; a program that was started ends with it.

    `target` and `draft` are the models' files, for a command that names them. `say` gets a sentence while it starts.
    All times are in seconds: `patience` for the start, looked at every `poll`; `grace` from asking the program to end
    to ending it; `silence` is the longest pause in an answer. Raises UsageError, PeerFailed.
    """
    key = os.environ.get(KEY, "").strip()
    if spec.url is not None:
        server = Server(spec.name, spec.url, key, clock=clock, silence=silence)
        yield Peer(server, _model(server))
        return
    port = _free_port()
    server = Server(spec.name, f"http://127.0.0.1:{port}", key, clock=clock, silence=silence)
    with Program(spec.name, _filled(spec, port, target, draft), grace) as program:
        say(f"{spec.name} is starting.")
        deadline = time.monotonic() + patience
        while not _ready(server):
            if program.ended(within=poll):
                raise program.death("before it was ready")
            if time.monotonic() > deadline:
                raise PeerFailed(f"{spec.name} was not ready after {patience:g} seconds: try its command by itself.")
        yield Peer(server, _model(server), program)


def _filled(spec: PeerSpec, port: int, target: str, draft: str | None) -> list[str]:
    words = spec.command or ()
    if draft is None and any("{draft}" in word for word in words):
        raise UsageError(f"The command of the peer {spec.name} names {{draft}}, but there is none: give --draft.")
    for mark, value in (("{port}", str(port)), ("{target}", target), ("{draft}", draft or "")):
        words = tuple(word.replace(mark, value) for word in words)
    return [os.path.expanduser(word) for word in words]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _ready(server: Server) -> bool:
    """Whether the server answers; llama-server's health is 503 while it loads, and some servers know no /health."""
    try:
        status, _ = server.get("/health")
        return status == 200 or (status != 503 and server.get("/v1/models")[0] == 200)
    except PeerFailed:
        return False


def _model(server: Server) -> str:
    """The name of the server's first model."""
    status, body = server.get("/v1/models")
    if status in (401, 403, 503):
        raise server.refusal(status, body)
    try:
        return str(json.loads(body)["data"][0]["id"])
    except (ValueError, TypeError, KeyError, IndexError):
        return "default"


class PeerArm:
    """A peer as an arm of a run; where the request has no seed, one is drawn for each answer."""

    def __init__(self, peer: Peer, tokenize: Callable[[str], Sequence[int]]) -> None:
        self.name = peer.name
        self._peer, self._tokenize = peer, tokenize

    def cancel(self) -> None:
        """End the answer in progress and refuse those to come, from any thread."""
        self._peer.cancel()

    def answer(self, prompt: Prompt, request: Request, repeat: int, place: int, cold: bool) -> Answer:
        """One answer. Raises PeerFailed."""
        seed = secrets.randbelow(SEEDS) if request.seed is None else request.seed
        found = self._peer.answer(prompt, replace(request, seed=seed), request.max_tokens, cold=cold)
        return to_answer(
            found, prompt, arm=self.name, repeat=repeat, place=place, cold=cold, seed=seed,
            tokenize=self._tokenize, memory=self._peer.memory(),
        )  # fmt: skip
