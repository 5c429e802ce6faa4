"""A small server that speaks the OpenAI protocol as llama-server does, and every way in which such a server goes wrong.

It runs in a thread, or as a program of its own: `python peer.py --port N`, so it imports nothing of this project.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

STANDARD = frozenset((
    "model", "messages", "prompt", "temperature", "top_p", "seed", "max_tokens", "stop", "stream",
    "presence_penalty", "frequency_penalty", "logit_bias",
))  # fmt: skip
TIMINGS = {
    "cache_n": 4, "prompt_n": 7, "prompt_ms": 30.1, "prompt_per_token_ms": 4.3, "prompt_per_second": 232.6,
    "predicted_n": 3, "predicted_ms": 20.0, "predicted_per_token_ms": 6.7, "predicted_per_second": 150.0,
}  # fmt: skip
"""What llama-server says of an answer for which nothing was drafted."""


@dataclass(slots=True)
class Script:
    """How the server behaves. `lines` are sent as they stand, instead of `pieces` and what belongs to them.

    `before` is called with the index of a piece before it is sent, and once more before the end. After `cut` pieces
    the connection is closed, and before piece `stall` nothing comes until the server is closed. `loading` is how often
    it says that it loads.
    """

    pieces: tuple[str, ...] = ("Hel", "lo", " you")
    thoughts: tuple[str, ...] = ()
    finish: str | None = "stop"
    timings: dict[str, float] | None = field(default_factory=lambda: dict(TIMINGS))
    lines: tuple[str, ...] | None = None
    before: Callable[[int], None] = lambda index: None
    cut: int | None = None
    stall: int | None = None
    kind: str = "text/event-stream"
    chunked: bool = True
    loading: int = 0
    health: bool = True
    models: str = '{"object": "list", "data": [{"id": "tiny"}]}'
    strict: bool = False
    key: str = ""
    status: int = 200
    said: str = '{"error": {"code": 500, "message": "out of memory.", "type": "server_error"}}'


@dataclass(frozen=True, slots=True)
class Asked:
    path: str
    headers: dict[str, str]
    body: dict[str, Any]


class FakePeer:
    """The server, running while the block is; `asked` are the questions that it got."""

    def __init__(self, script: Script | None = None, port: int = 0) -> None:
        self.script = script or Script()
        self.asked: list[Asked] = []
        self.release = threading.Event()
        self._server = _Server(self, port)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> FakePeer:
        threading.Thread(target=self.serve, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.release.set()
        self._server.shutdown()
        self._server.server_close()

    def serve(self) -> None:
        self._server.serve_forever(0.01)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, peer: FakePeer, port: int) -> None:
        self.peer = peer
        super().__init__(("127.0.0.1", port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # a client that has gone away


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        script = self.server.peer.script
        if self.path == "/health" and not script.health:
            return self._send(404, '{"error": {"message": "File Not Found"}}')
        if script.loading > 0:
            script.loading -= 1
            return self._send(503, '{"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}')
        if script.key and self.path != "/health" and self.headers["Authorization"] != f"Bearer {script.key}":
            return self._send(401, '{"error": {"code": 401, "message": "Invalid API Key"}}')
        if self.path == "/health":
            return self._send(200, '{"status": "ok"}')
        self._send(*((200, script.models) if self.path == "/v1/models" and script.models else (404, "")))

    def do_POST(self) -> None:
        peer, script = self.server.peer, self.server.peer.script
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        peer.asked.append(Asked(self.path, {name.lower(): value for name, value in self.headers.items()}, body))
        unknown = sorted(set(body) - STANDARD)
        if script.strict and unknown:
            return self._send(400, json.dumps({"error": {"message": f"Unrecognized request argument: {unknown[0]}"}}))
        if script.status != 200:
            return self._send(script.status, script.said)
        self.send_response(200)
        self.send_header("Content-Type", script.kind)
        self.send_header(*(("Transfer-Encoding", "chunked") if script.chunked else ("Connection", "close")))
        self.end_headers()
        for data in self._lines(body):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data) if script.chunked else data)
        self.close_connection = True
        if script.chunked and script.cut is None:
            self.wfile.write(b"0\r\n\r\n")

    def _lines(self, body: dict[str, Any]) -> Iterator[bytes]:
        script = self.server.peer.script
        if script.lines is not None:
            yield from (line.encode() for line in script.lines)
            return
        chat = "messages" in body
        yield b":\n\n"  # llama-server's ping
        if chat:
            yield self._event(delta={"role": "assistant", "content": None})
        pieces = [("reasoning_content", piece) for piece in script.thoughts] + [("content", p) for p in script.pieces]
        for index, (name, piece) in enumerate(pieces):
            if index == script.cut:
                return
            if index == script.stall:
                self.server.peer.release.wait(10)
            script.before(index)
            yield self._event(delta={name: piece}) if chat else self._event(text=piece)
        script.before(len(pieces))
        last: dict[str, Any] = {"timings": script.timings} if script.timings else {}
        if body.get("stream_options", {}).get("include_usage"):
            last["usage"] = {"completion_tokens": 3, "prompt_tokens": 11, "total_tokens": 14}
        if script.finish:
            ends = {"finish_reason": script.finish}
            yield self._event(delta={}, **ends) if chat else self._event(text="", **ends)
        yield f"data: {json.dumps({'choices': [], 'object': 'chat.completion.chunk', **last})}\n\n".encode()
        yield b"data: [DONE]\n\n"

    def _event(self, **choice: Any) -> bytes:
        return f"data: {json.dumps({'choices': [{'index': 0, 'finish_reason': None, **choice}]})}\n\n".encode()

    def _send(self, status: int, body: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=utf-8")
        self.send_header("Content-Length", str(len(body.encode())))
        self.end_headers()
        self.wfile.write(body.encode())


def main() -> None:
    """The server as a program; `--child` leaves the work to one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--loading", type=int, default=0)
    parser.add_argument("--die", default="", help="last words, at the start")
    parser.add_argument("--die-asked", default="", help="last words, when it is asked something")
    parser.add_argument("--stubborn", action="store_true", help="does not end when it is asked to")
    parser.add_argument("--child", action="store_true")
    parser.add_argument("--no-health", action="store_true")
    parser.add_argument("--says", default="Hello")
    options = parser.parse_args()
    if options.die:
        sys.exit(f"a line before\n{options.die}\n\n")
    if options.stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if options.child:
        sys.exit(subprocess.call([sys.executable, *(word for word in sys.argv if word != "--child")]))

    def die(index: int) -> None:
        print(options.die_asked, file=sys.stderr, flush=True)
        os._exit(4)

    script = Script((*options.says,), loading=options.loading, health=not options.no_health)
    if options.die_asked:
        script.before = die
    FakePeer(script, options.port).serve()


if __name__ == "__main__":
    main()
