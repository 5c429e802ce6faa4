"""A small hub on this machine: the calls that huggingface-hub makes for models, and every way in which they go wrong.

Large files are answered with a redirect to a second port, which stands for the content network: it wants no token, and
ought not to see one.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections import deque
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "c0ffee" + "0" * 34


@dataclass(slots=True)
class Repo:
    """Files by path, at one commit; `token` is what it wants to see, `gated` that its licence must be accepted."""

    files: dict[str, bytes]
    commit: str = COMMIT
    token: str | None = None
    gated: bool = False
    plain: bool = False  # small files are not redirected, and their etag is no sha256


@dataclass(slots=True)
class Asked:
    port: int
    method: str
    path: str
    headers: dict[str, str]


@dataclass(slots=True)
class Fault:
    """What happens to one download: after `after` bytes it is `cut`, or `stalls` until the hub is closed.

    `kind` may say "no ranges", for a server that does not know them. `status` is answered, or `body` sent, instead.
    """

    after: int = 0
    kind: str = ""
    status: int = 0
    body: bytes | None = None


class Hub:
    """Serves `repos`; the next downloads suffer from `faults`, in order. `asked` and `served` say what it was used for.

    `broken` is a status that every question gets for an answer.
    """

    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.faults: deque[Fault] = deque()
        self.asked: list[Asked] = []
        self.served = 0
        self.broken = 0
        self.headers: dict[str, str] = {}
        self.stalled = threading.Event()
        self._release = threading.Event()
        self._servers = [_Server(self), _Server(self)]
        self.url, self.content = (f"http://127.0.0.1:{server.server_port}" for server in self._servers)

    def __enter__(self) -> Hub:
        for server in self._servers:
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._release.set()
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def add(self, repo: str, files: dict[str, bytes], **more: Any) -> Repo:
        self.repos[repo] = Repo(dict(files), **more)
        return self.repos[repo]

    def downloads(self) -> list[Asked]:
        return [asked for asked in self.asked if asked.method == "GET" and "/resolve/" in asked.path]


@dataclass(slots=True)
class _Answer:
    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # a client that has gone away


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        hub, path = self.server.hub, unquote(urlsplit(self.path).path)
        headers = {name.lower(): value for name, value in self.headers.items()}
        hub.asked.append(Asked(self.server.server_port, self.command, path, headers))
        if hub.broken:
            return self._send(_Answer(hub.broken))
        if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/(.+))?", path):
            return self._send(self._info(match[1], match[2] or "main"))
        match = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        if match is None:
            return self._send(_Answer(404))
        refused = self._refused(match[1], match[2])
        repo = hub.repos.get(match[1])
        if repo is None or refused is not None:
            return self._send(refused or _Answer(404))
        if match[3] not in repo.files:
            return self._send(_Answer(404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": repo.commit}))
        content = repo.files[match[3]]
        about = {"X-Repo-Commit": repo.commit}
        if self.server.server_port == urlsplit(hub.url).port and not repo.plain:
            etag = f'"{hashlib.sha256(content).hexdigest()}"'
            about |= {"X-Linked-Etag": etag, "X-Linked-Size": str(len(content)), "Location": hub.content + self.path}
            return self._send(_Answer(302, about))
        about["ETag"] = f'"{hashlib.sha1(content).hexdigest()}"'
        if self.command == "HEAD":
            return self._send(_Answer(200, about, content))
        self._content(content, about)

    def _refused(self, name: str, revision: str) -> _Answer | None:
        hub = self.server.hub
        repo = hub.repos.get(name)
        if self.server.server_port != urlsplit(hub.url).port:
            return None
        if repo is None:
            return _Answer(401, {"X-Error-Code": "RepoNotFound"})
        said = self.headers.get("authorization")
        if repo.token is not None and said != f"Bearer {repo.token}":
            if said is not None:
                return _Answer(401, {"X-Error-Message": "Invalid credentials in Authorization header"})
            return _Answer(401, {"X-Error-Code": "GatedRepo" if repo.gated else "RepoNotFound"})
        if repo.token is None and repo.gated and self.path.startswith(f"/{name}/"):
            return _Answer(403, {"X-Error-Code": "GatedRepo"})
        if revision not in ("main", repo.commit):
            return _Answer(404, {"X-Error-Code": "RevisionNotFound"})
        return None

    def _info(self, name: str, revision: str) -> _Answer:
        if (refused := self._refused(name, revision)) is not None:
            return refused
        repo = self.server.hub.repos[name]
        siblings = [{"rfilename": path} for path in repo.files]
        info = {"id": name, "sha": repo.commit, "siblings": siblings}
        return _Answer(200, {"Content-Type": "application/json"}, json.dumps(info).encode())

    def _content(self, content: bytes, about: dict[str, str]) -> None:
        hub = self.server.hub
        fault = hub.faults.popleft() if hub.faults else Fault()
        if fault.status:
            return self._send(_Answer(fault.status))
        start, status = 0, 200
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("range", ""))
        if asked and "no ranges" not in fault.kind:
            start, status = int(asked[1]), 206
            about["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        body = content[start:] if fault.body is None else fault.body
        self.send_response(status)
        for name, value in {**about, "Content-Length": str(len(body)), **hub.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        sent = body[: fault.after] if "cut" in fault.kind or "stall" in fault.kind else body
        self.wfile.write(sent)
        hub.served += len(sent)
        if "stall" in fault.kind:
            hub.stalled.set()
            hub._release.wait(60)
        self.close_connection = len(sent) < len(body)

    def _send(self, answer: _Answer) -> None:
        self.send_response(answer.status)
        headers = {"Content-Length": str(len(answer.body)), **answer.headers, **self.server.hub.headers}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)
