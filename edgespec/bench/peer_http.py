"""A server that speaks the OpenAI protocol, asked over HTTP: one question at a time, its stream read as it comes.

The standard library's client is used as it is: it knows no proxies and follows no redirects, so that the time measured
is the server's and the key goes nowhere else.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

from edgespec.errors import PeerFailed, UsageError

CONNECTING = 10.0
SILENCE = 300.0
"""Seconds: how long a connection may take, and how long a server may send nothing while it answers."""

_LONGEST = 200  # characters of a server's own words that are quoted
_MOST = 1 << 20  # bytes of an answer that is no stream


class Refused(PeerFailed):
    """The server answered with a status that is no success."""

    def __init__(self, sentence: str, status: int) -> None:
        super().__init__(sentence)
        self.status = status


class Server:
    """The server called `name` at `url` (without /v1). What fails raises PeerFailed.

    `key` is sent as a bearer token. `clock` gives seconds; `silence` is how many of them may pass without a byte.
    """

    def __init__(
        self,
        name: str,
        url: str,
        key: str = "",
        *,
        clock: Callable[[], float] = time.perf_counter,
        silence: float = SILENCE,
    ) -> None:
        if not (key.isascii() and key.isprintable()):
            raise UsageError("EDGESPEC_PEER_KEY holds characters that no key has: set it anew.")
        self.name, self.url = name, url
        self._clock, self._silence = clock, silence
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        self._cancelled = threading.Event()
        self._socket: socket.socket | None = None

    @property
    def cancelled(self) -> bool:
        return self._cancelled.is_set()

    def cancel(self) -> None:
        """Break off the question in progress and refuse those to come, from any thread."""
        self._cancelled.set()
        self._break_off()

    def get(self, path: str) -> tuple[int, bytes]:
        """The status and the body at `path`."""
        with self._asked("GET", path, None, CONNECTING) as (response, _):
            return response.status, response.read(_MOST)

    def stream(self, path: str, body: Mapping[str, Any]) -> Generator[tuple[float, dict[str, Any]], None, None]:
        """The events of the answer to `body`, each with the seconds since it was asked; an empty one is the end.

        Raises Refused, and PeerFailed where the stream holds an error, is no such stream or breaks off.
        """
        with self._asked("POST", path, json.dumps(body).encode(), self._silence) as (response, started):
            if response.status != 200:
                raise self.refusal(response.status, response.read(_MOST))
            kind = response.headers.get_content_type()
            if kind != "text/event-stream":
                raise PeerFailed(f"{self.name} sent {kind} where a stream was wanted: it cannot be measured.")
            while line := response.readline():
                field, _, value = line.partition(b":")
                if field != b"data":
                    continue  # a blank line, a comment, or a field that this protocol does not use
                seconds = self._clock() - started
                if value.strip() == b"[DONE]":
                    yield seconds, {}
                    return
                yield seconds, self._event(value)

    def refusal(self, status: int, body: bytes) -> Refused:
        """What an answer with this status means."""
        if status in (401, 403):
            advice = "set EDGESPEC_PEER_KEY to its key"
        elif status == 503:
            advice = "try again when it is ready"
        else:
            advice = "look at what it logs"
        said = _message(body)
        return Refused(
            f"{self.name} refused with status {status}{f' ({said})' if said else ''}: {advice}.", status
        )  # fmt: skip

    def _event(self, text: bytes) -> dict[str, Any]:
        try:
            event = json.loads(text)
        except ValueError:
            event = None
        if not isinstance(event, dict):
            said = _clipped(text.decode("utf-8", "replace"))
            raise PeerFailed(f"{self.name} sent what is no event ({said}): is it an OpenAI-compatible server?")
        if event.get("error"):
            raise PeerFailed(f"{self.name} failed in the midst of its answer ({_message(text)}): look at what it logs.")
        return event

    @contextmanager
    def _asked(
        self, method: str, path: str, body: bytes | None, silence: float
    ) -> Iterator[tuple[HTTPResponse, float]]:
        """The response to a question, and when it was asked; the connection is there before that."""
        parts = urlsplit(self.url)
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        connection = kind(parts.hostname or "", parts.port, timeout=CONNECTING)
        response = None
        try:
            try:
                connection.connect()
            except (OSError, HTTPException, UnicodeError) as error:
                why = _reason(error)
                raise PeerFailed(f"{self.name} cannot be reached at {self.url} ({why}): is it running?") from error
            connection.sock.settimeout(silence)
            self._socket = connection.sock
            if self.cancelled:
                self._break_off()
            started = self._clock()
            connection.request(method, parts.path + path, body, self._headers)
            response = connection.getresponse()
            yield response, started
        except TimeoutError as error:
            raise PeerFailed(f"{self.name} sent nothing for {silence:g} seconds: look at what it logs.") from error
        except (OSError, HTTPException) as error:
            raise broken(self.name, _reason(error)) from error
        finally:
            self._socket = None
            if response is not None:
                response.close()
            connection.close()

    def _break_off(self) -> None:
        if (open_ := self._socket) is not None:
            with suppress(OSError):
                open_.shutdown(socket.SHUT_RDWR)


def broken(name: str, why: str) -> PeerFailed:
    """A stream that ended before the answer did."""
    return PeerFailed(f"{name} broke off its answer ({why}): look at what it logs.")


def _message(body: bytes) -> str:
    """What a server says is wrong: the message of its error object, else its first line."""
    text = body.decode("utf-8", "replace")
    with suppress(ValueError):
        found = json.loads(text)
        for key in ("error", "message"):
            found = found.get(key, found) if isinstance(found, dict) else found
        text = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
    return _clipped(text)


def _clipped(text: str) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line.rstrip(".") if len(line) <= _LONGEST else line[:_LONGEST] + "…"


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or _clipped(str(error)) or type(error).__name__
