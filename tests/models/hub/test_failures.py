"""Each way in which the hub can fail is a clause that says what to do, and comes soon."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from types import SimpleNamespace

import httpx2
import pytest
from huggingface_hub import close_session, constants

from edgespec.errors import SourceError
from edgespec.models.entries import HubEntry
from edgespec.models.hub import client
from edgespec.models.hub.failures import explain
from edgespec.models.registry import NOTHING
from edgespec.models.store import Store
from tests.models.hub.conftest import REPO, Bench
from tests.models.hub.server import Fault
from tests.models.hub.test_source import FILES, MODEL, OTHER

FILE = HubEntry(REPO, "Tiny-Q4_K_M.gguf")


def clause(bench: Bench, entry: HubEntry = FILE) -> str:
    """Why it cannot be fetched, with the hub's address left out."""
    with pytest.raises(SourceError) as caught:
        bench.fetch(entry)
    said = str(caught.value)
    assert "\n" not in said and not said.endswith(".")
    return said.replace(constants.ENDPOINT, "URL").replace(constants.ENDPOINT.partition("//")[2], "HOST")


def test_a_person_reads_one_sentence(bench: Bench) -> None:
    reference = f"hf:{REPO}:Q9_X"
    bench.hub.add(REPO, FILES)
    with pytest.raises(SourceError) as caught:
        Store(NOTHING, bench.cache).fetch(reference)
    assert str(caught.value) == (
        f"{reference} could not be fetched from the hub ({REPO}): {REPO} has no Q9_X; ask for one of these: "
        "Q2_K, Q4_K_M, Q8_0."
    )


@pytest.mark.parametrize("entry", [FILE, MODEL])
def test_no_such_repository(bench: Bench, entry: HubEntry) -> None:
    said = f"there is no {REPO}, or it is private; check the name, or log in with `hf auth login` or set HF_TOKEN"
    assert clause(bench, entry) == said
    bench.hub.broken = 404
    assert clause(bench, entry) == said


def test_no_such_file(bench: Bench) -> None:
    bench.hub.add(REPO, {f"{n}.gguf": OTHER for n in range(7)})
    assert clause(bench) == (
        f"{REPO} has no such file; check the name, it has 0.gguf, 1.gguf, 2.gguf, 3.gguf, 4.gguf and 2 more"
    )
    bench.hub.add(REPO, {"README.md": b""})
    assert clause(bench) == f"{REPO} has no such file; check the name"
    assert clause(bench, MODEL).startswith(f"{REPO} holds no model in GGUF format; look for a repository")
    assert clause(bench, HubEntry(REPO, "../x.gguf")).startswith("../x.gguf is no path in a repository; write")


def test_no_such_revision(bench: Bench) -> None:
    bench.hub.add(REPO, FILES)
    for entry in (HubEntry(REPO, "Tiny-Q4_K_M.gguf", revision="v9"), HubEntry(REPO, revision="v9")):
        assert clause(bench, entry) == f"{REPO} has no such branch, tag or commit; check the revision at URL/{REPO}"


def test_no_such_name(bench: Bench) -> None:
    assert "no name that a repository can have" in clause(bench, HubEntry("acme/x--y", "x.gguf"))


def test_a_licence_to_be_accepted(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    repo = bench.hub.add(REPO, FILES, gated=True)
    said = (
        f"its makers ask you to accept their licence first; do so at URL/{REPO}, log in with `hf auth login` or set "
        "HF_TOKEN, and try again"
    )
    assert clause(bench) == said == clause(bench, MODEL)
    repo.token = "hf_right"
    assert clause(bench) == said
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    assert clause(bench) == "the hub does not know your token; log in with `hf auth login`, or correct HF_TOKEN"


@pytest.mark.parametrize("kept", [False, True], ids=["HF_TOKEN", "hf auth login"])
def test_the_token_goes_to_the_hub_and_nowhere_else(bench: Bench, monkeypatch: pytest.MonkeyPatch, kept: bool) -> None:
    bench.hub.add(REPO, FILES, token="hf_right")
    if kept:
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(bench.cache.parent / "mine"))
        (bench.cache.parent / "mine").write_text("hf_right")
    else:
        monkeypatch.setenv("HF_TOKEN", "hf_right")
    assert bench.fetch(MODEL)
    sent = {(asked.port, asked.headers.get("authorization")) for asked in bench.hub.asked}
    ports = [int(url.rpartition(":")[2]) for url in (bench.hub.url, bench.hub.content)]
    assert sent == {(ports[0], "Bearer hf_right"), (ports[1], None)}


def test_offline(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.hub.add(REPO, FILES)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert clause(bench) == "HF_HUB_OFFLINE forbids to ask the hub; unset it to fetch the model" == clause(bench, MODEL)
    assert not bench.hub.asked


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (500, "HOST has trouble of its own (500); try again later"),
        (503, "HOST has trouble of its own (503); try again later"),
        (429, "the hub has had too many questions from here; wait some minutes, or log in, and try again"),
        (403, f"the hub does not let you have it (403); see that your token may read {REPO}"),
        (418, "HOST refuses it (418); check HF_ENDPOINT and the proxy, and try again"),
    ],
)
def test_the_hub_s_own_trouble(
    bench: Bench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, status: int, said: str
) -> None:
    """Without the library's own tries, which take minutes."""
    bench.hub.broken = status
    for entry in (FILE, MODEL):
        assert clause(bench, entry) == said
    assert len(bench.hub.asked) == 2 and not [record for record in caplog.records if record.levelno > logging.INFO]


def test_trouble_in_a_download(bench: Bench) -> None:
    bench.hub.add(REPO, FILES)
    bench.hub.faults += [Fault(status=502)] * 3
    assert clause(bench) == "HOST has trouble of its own (502); try again later" and bench.is_sound()


def test_something_else_answers(bench: Bench) -> None:
    """A network that wants a log-in answers every question with its own page."""
    bench.hub.broken = 200
    for entry in (FILE, MODEL):
        assert clause(bench, entry).startswith("what answers at HOST is not the hub; log in to the network")
    bench.hub.headers["ETag"] = '"a page of its own"'
    assert clause(bench).startswith("what answers at HOST is not the hub; ")


def test_nobody_answers(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        _move(monkeypatch, f"http://127.0.0.1:{taken.getsockname()[1]}")
        for entry in (FILE, MODEL):
            assert clause(bench, entry) == "HOST cannot be reached; check the network and try again"


def test_somebody_listens_and_says_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_ETAG_TIMEOUT", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        _move(monkeypatch, f"http://127.0.0.1:{silent.getsockname()[1]}")
        for entry in (FILE, MODEL):
            assert clause(bench, entry) == "HOST does not answer; check the network and try again"


def test_a_name_that_cannot_be_looked_up(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    _look_up(monkeypatch, lambda: (_ for _ in ()).throw(socket.gaierror(-2, "Name or service not known")))
    _move(monkeypatch, "http://hub.invalid")
    assert clause(bench) == "the name HOST cannot be looked up; check the network and try again"


def test_a_look_up_that_hangs(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's resolver knows no time-out but its own."""
    over = threading.Event()
    monkeypatch.setattr(constants, "HF_HUB_ETAG_TIMEOUT", 0.1)
    monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 0.1)
    _look_up(monkeypatch, lambda: over.wait(30))
    _move(monkeypatch, "http://hub.invalid")
    try:
        assert clause(bench) == "HOST does not answer; check the network and try again"
    finally:
        over.set()


def test_proxies(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("http_proxy", f"http://me:secret@127.0.0.1:{taken.getsockname()[1]}")
        _move(monkeypatch, "http://hub.invalid")
        assert clause(bench) == "HOST cannot be reached through the proxy; check the network and try again"
    monkeypatch.setenv("http_proxy", "nonsense://x")
    close_session()
    said = clause(bench)
    assert said.startswith("the hub cannot be asked (") and said.endswith(
        "); check HF_ENDPOINT and the proxy's settings"
    )
    monkeypatch.delenv("http_proxy")
    monkeypatch.setenv("https_proxy", bench.hub.url)  # it knows no CONNECT
    _move(monkeypatch, "https://hub.invalid")
    assert clause(bench).startswith("the proxy lets nothing through to HOST (501 ")


def test_a_connection_that_cannot_be_trusted(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    _move(monkeypatch, bench.hub.url.replace("http", "https"))  # it speaks no TLS
    assert clause(bench).startswith("the connection to HOST cannot be trusted ([SSL")


def test_an_endpoint_that_is_none(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    _move(monkeypatch, "nonsense")
    with pytest.raises(
        SourceError, match=r"^the hub cannot be asked \(.*\); check HF_ENDPOINT and the proxy's settings$"
    ):
        bench.fetch(FILE)


def test_a_file_that_is_too_large_for_plain_http(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgespec.models.hub.source._MOST", 5)
    bench.hub.add(REPO, FILES)
    assert clause(bench) == (
        f"Tiny-Q4_K_M.gguf has over 50 GB; run `hf download {REPO} Tiny-Q4_K_M.gguf`, and edgespec will find it"
    )


def _move(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", url + "/{repo_id}/resolve/{revision}/{filename}")
    close_session()


def _look_up(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    def getaddrinfo(*_: object, **__: object) -> list[object]:
        act()
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


def test_a_name_and_password_in_the_address_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://user:s3cret@127.0.0.1:9")
    said = str(explain(httpx2.ConnectError("refused"), REPO))
    assert "127.0.0.1:9" in said and "s3cret" not in said


@pytest.mark.parametrize("header", [{"X-Repo-Commit": "../../x"}, {"ETag": '"../../x"', "X-Linked-Etag": '"../../x"'}])
def test_what_would_lead_out_of_the_cache_is_refused(header: dict[str, str]) -> None:
    found = SimpleNamespace(
        commit_hash=header.get("X-Repo-Commit", "a" * 40), etag=header.get("ETag", "b" * 64).strip('"'), size=1
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "get_hf_file_metadata", lambda *args, **kwargs: found)
        with pytest.raises(SourceError, match="is not the hub"):
            client.HubClient(REPO, lambda: None).describe("x.gguf", "main")
