"""Other programs over the OpenAI protocol: how they are named, started, asked, timed, and all that can go wrong."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from edgespec.bench.peer_protocol import PeerAnswer, to_answer
from edgespec.bench.peers import Peer, PeerArm, PeerSpec, open_peer, parse_peer
from edgespec.bench.suites import Prompt
from edgespec.errors import PeerFailed, UsageError
from edgespec.settings import Request
from tests.support.peer import STANDARD, TIMINGS, FakePeer, Script

PROGRAM = Path(__file__).parents[1] / "support" / "peer.py"
PROMPT = Prompt("qa/1", "qa", ({"role": "user", "content": "Hello?"},))
RAW = Prompt("code/1", "code", raw="def f(")
REQUEST = Request().having(temperature=0.7, top_k=5, min_p=0.1, repeat_penalty=1.1, seed=7, max_tokens=9, stop=("##",))


@contextmanager
def asked(script: Script | None = None, **options: Any) -> Iterator[tuple[FakePeer, Peer]]:
    """A server in a thread, and the peer that asks it."""
    with FakePeer(script) as server, open_peer(PeerSpec("other", server.url), **(QUIET | options)) as peer:
        yield server, peer


def answer(script: Script, **options: Any) -> PeerAnswer:
    with asked(script, **options) as (_, peer):
        return peer.answer(PROMPT, REQUEST, 9, cold=True)


def failure(script: Script, **options: Any) -> str:
    with pytest.raises(PeerFailed) as caught:
        answer(script, **options)
    return str(caught.value)


def command(*words: str) -> PeerSpec:
    """The same server as a program of its own."""
    return PeerSpec("other", command=(sys.executable, str(PROGRAM), "--port", "{port}", *words))


def started(*words: str, **options: Any) -> Any:
    return open_peer(command(*words), **(QUIET | {"poll": 0.01} | options))


def say_nothing(sentence: str) -> None:
    pass


def letters(text: str) -> list[int]:
    return [ord(c) for c in text]


BROKEN_OFF = "other broke off its answer (its stream ended too early): look at what it logs."
QUIET: dict[str, Any] = {"target": "target.gguf", "draft": None, "say": say_nothing}


class SteppedClock:
    """Shows the seconds that the server's script sets, once everything that it has sent before was looked at.

    A stream that is read in blocks instead of as it comes never gets there.
    """

    def __init__(self, *times: float) -> None:
        self._times, self._now, self._looks = times, 0.0, 0
        self._looked = threading.Condition()

    def __call__(self) -> float:
        with self._looked:
            self._looks += 1
            self._looked.notify()
            return self._now

    def before(self, index: int) -> None:
        with self._looked:
            assert self._looked.wait_for(lambda: self._looks == 3 + index, 5)  # two questions, the role, each piece
            self._now = self._times[index]


def running() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


# Names


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("llama=http://localhost:8080", "http://localhost:8080"),
        ("llama = http://localhost:8080/v1", "http://localhost:8080"),
        ("llama=https://host/models/v1/", "https://host/models"),
        ("llama=http://[::1]:8080/", "http://[::1]:8080"),
    ],
)
def test_a_peer_by_its_address(text: str, url: str) -> None:
    assert parse_peer(text) == PeerSpec("llama", url=url)


def test_a_peer_by_its_command() -> None:
    spec = parse_peer("llama=server -m '{target}' --alias \"a b\" --port={port} --set x=1 # 2")
    words = ("server", "-m", "{target}", "--alias", "a b", "--port={port}", "--set", "x=1", "#", "2")
    assert spec == PeerSpec("llama", command=words)


def test_on_windows_a_backslash_parts_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "name", "nt")
        spec = parse_peer(r'llama="C:\Program Files\server.exe" {port}')
    assert spec.command == (r"C:\Program Files\server.exe", "{port}")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("llama", "'llama' is no peer: write NAME=URL or NAME=COMMAND, like llama=http://localhost:8080."),
        ("=http://x", "'=http://x' is no peer: write NAME=URL or NAME=COMMAND, like llama=http://localhost:8080."),
        ("llama= ", "'llama= ' is no peer: write NAME=URL or NAME=COMMAND, like llama=http://localhost:8080."),
        ("plain=http://x", "A peer cannot be called 'plain', which is one of our own arms: give it another name."),
        ("auto=http://x", "A peer cannot be called 'auto', which is one of our own arms: give it another name."),
        ("a:4=http://x", "A peer cannot be called 'a:4', which is one of our own arms: give it another name."),
        ("llama=http://", "'http://' is no address of a server: it is to look like http://localhost:8080."),
        ("llama=http://x:y", "'http://x:y' is no address of a server: it is to look like http://localhost:8080."),
        ("llama=http://x y", "'http://x y' is no address of a server: it is to look like http://localhost:8080."),
        ("llama=http://x?a", "'http://x?a' is no address of a server: it is to look like http://localhost:8080."),
        (
            "llama=server 'x",
            "The command of the peer llama cannot be read (No closing quotation): look at its quotes.",
        ),
        (
            "llama=server -m x",
            "The command of the peer llama must say {port} where its port goes, like --port {port}.",
        ),
    ],
)
def test_what_is_no_peer_is_said(text: str, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_peer(text)
    assert str(caught.value) == sentence


# Answers


def test_an_answer_is_timed_by_its_pieces_as_they_come() -> None:
    clock = SteppedClock(2.0, 3.0, 5.5, 6.0)
    assert answer(Script(before=clock.before), clock=clock) == PeerAnswer(
        text="Hello you",
        first="Hel",
        seconds=6.0,
        ttft_seconds=2.0,
        tail_seconds=3.5,
        drafted=0,
        accepted=0,
        prompt_tokens=11,
        finish_reason="stop",
    )


def test_a_stream_without_chunks_is_read_as_it_comes_too() -> None:
    clock = SteppedClock(2.0, 3.0, 5.5, 6.0)
    found = answer(Script(before=clock.before, chunked=False), clock=clock)
    assert (found.text, found.ttft_seconds, found.tail_seconds, found.seconds) == ("Hello you", 2.0, 3.5, 6.0)


def test_a_conversation_is_asked_with_all_settings() -> None:
    with asked() as (server, peer):
        peer.answer(PROMPT, REQUEST, 9, cold=True)
        (question,) = server.asked
    assert question.path == "/v1/chat/completions"
    assert question.body == {
        "model": "tiny",
        "messages": [{"role": "user", "content": "Hello?"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.7,
        "top_k": 5,
        "top_p": 0.95,
        "min_p": 0.1,
        "repeat_penalty": 1.1,
        "repeat_last_n": 64,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "seed": 7,
        "max_tokens": 9,
        "stop": ["##"],
        "cache_prompt": False,
    }


def test_a_raw_prompt_is_continued_and_a_warm_one_need_not_be_read_again() -> None:
    with asked() as (server, peer):
        found = peer.answer(RAW, Request(), None, cold=False)
        (question,) = server.asked
    assert found.text == "Hello you"
    assert question.path == "/v1/completions"
    assert question.body["prompt"] == "def f(" and question.body["cache_prompt"] is True
    assert not {"messages", "max_tokens", "seed", "stop"} & set(question.body)


def test_thinking_biases_and_large_seeds_are_said_in_the_servers_words() -> None:
    request = Request().having(
        temperature=-1.0, think="off", seed=2**32 + 4, logit_bias={3: float("-inf"), 5: 1.5}
    )  # fmt: skip
    with asked() as (server, peer):
        peer.answer(PROMPT, request, 9, cold=True)
        body = server.asked[0].body
    assert body["chat_template_kwargs"] == {"enable_thinking": False}
    assert body["logit_bias"] == {"3": -100.0, "5": 1.5}
    assert (body["temperature"], body["seed"]) == (0.0, 5)


def test_thoughts_count_as_text() -> None:
    found = answer(Script(thoughts=("Hm", "m."), pieces=("Yes",)))
    assert (found.text, found.first) == ("Hmm.Yes", "Hm")


def test_what_a_server_says_of_its_drafting_is_kept() -> None:
    found = answer(Script(timings={**TIMINGS, "draft_n": 8, "draft_n_accepted": 5}))
    assert (found.drafted, found.accepted) == (8, 5)


def test_a_server_that_says_nothing_of_drafting_is_not_said_to_draft_nothing() -> None:
    found = answer(Script(timings=None))
    assert (found.drafted, found.accepted, found.prompt_tokens) == (None, None, 11)


def test_a_server_that_refuses_some_settings_is_asked_without_them_from_then_on() -> None:
    with asked(Script(strict=True)) as (server, peer):
        found = [peer.answer(PROMPT, REQUEST, 9, cold=True) for _ in range(2)]
        refused, *others = (set(question.body) for question in server.asked)
    assert [a.text for a in found] == ["Hello you"] * 2
    assert found[0].prompt_tokens == 4 + 7  # without usage: what was cached and what was read
    assert "top_k" in refused and len(others) == 2 and all(fields <= STANDARD for fields in others)


def test_a_question_that_is_refused_in_any_form_says_why_and_changes_nothing() -> None:
    with asked(Script(status=400, said='{"error": "too long"}')) as (server, peer):
        with pytest.raises(PeerFailed) as caught:
            peer.answer(PROMPT, REQUEST, 9, cold=True)
        server.script.status = 200
        peer.answer(PROMPT, REQUEST, 9, cold=True)
        assert "top_k" in server.asked[-1].body
    assert str(caught.value) == "other refused with status 400 (too long): look at what it logs."


def test_a_key_is_sent_where_one_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "not-for-others")
    with asked() as (server, peer):
        peer.answer(PROMPT, REQUEST, 9, cold=True)
        assert "authorization" not in server.asked[0].headers
    monkeypatch.setenv("EDGESPEC_PEER_KEY", "sesame")
    with asked(Script(key="sesame")) as (server, peer):
        peer.answer(PROMPT, REQUEST, 9, cold=True)
        assert server.asked[0].headers["authorization"] == "Bearer sesame"


def test_a_key_that_cannot_be_sent_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGESPEC_PEER_KEY", "s\u00e9same")
    with (
        pytest.raises(UsageError, match=r"^EDGESPEC_PEER_KEY holds characters that no key has: set it anew\.$"),
        asked(),
    ):
        pass


@pytest.mark.parametrize("models", ["", "[]", '{"data": []}', "nonsense"])
def test_a_server_that_names_no_model_is_asked_for_its_default(models: str) -> None:
    with asked(Script(models=models)) as (server, peer):
        peer.answer(PROMPT, REQUEST, 9, cold=True)
        assert server.asked[0].body["model"] == "default"


def test_a_stream_may_be_written_in_other_ways() -> None:
    lines = (
        "event: message\r\n",
        'data:{"choices": [{"del',
        'ta": {"content": "a\u00e9"}}]}\r\n\r\n: ping\r\n\r\n',
        'data: {"choices": [{"delta": null, "finish_reason": "length"}], "usage": null}\n\n',
    )
    found = answer(Script(lines=lines))
    assert (found.text, found.finish_reason) == ("a\u00e9", "length")


def test_an_answer_without_text_has_no_first_piece() -> None:
    found = answer(Script(pieces=()))
    assert (found.text, found.first, found.ttft_seconds, found.tail_seconds) == ("", "", None, 0.0)


# What goes wrong


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        (Script(status=500), "other refused with status 500 (out of memory): look at what it logs."),
        (Script(status=502, said=""), "other refused with status 502: look at what it logs."),
        (Script(status=502, said="\n Gone \nx"), "other refused with status 502 (Gone): look at what it logs."),
        (Script(status=500, said="x" * 300), f"other refused with status 500 ({'x' * 200}…): look at what it logs."),
        (
            Script(status=500, said='{"error": {"code": 3}}'),
            'other refused with status 500 ({"code": 3}): look at what it logs.',
        ),
        (Script(key="x"), "other refused with status 401 (Invalid API Key): set EDGESPEC_PEER_KEY to its key."),
        (Script(loading=9), "other refused with status 503 (Loading model): try again when it is ready."),
        (Script(kind="text/html"), "other sent text/html where a stream was wanted: it cannot be measured."),
        (Script(cut=2), BROKEN_OFF),
        (Script(cut=2, chunked=False), BROKEN_OFF),
        (Script(finish=None), BROKEN_OFF),
        (
            Script(lines=("data: <html>\n\n",)),
            "other sent what is no event (<html>): is it an OpenAI-compatible server?",
        ),
        (Script(lines=("data: [1]\n\n",)), "other sent what is no event ([1]): is it an OpenAI-compatible server?"),
        (
            Script(lines=('data: {"error": {"message": "the context is full."}}\n\n',)),
            "other failed in the midst of its answer (the context is full): look at what it logs.",
        ),
        (
            Script(lines=('data: {"choices": 3}\n\n',)),
            "other broke off its answer (an event makes no sense, 'int' object is not iterable): look at what it logs.",
        ),
    ],
)
def test_what_goes_wrong_is_said(script: Script, sentence: str) -> None:
    assert failure(script) == sentence


def test_a_server_that_falls_silent_is_said() -> None:
    assert failure(Script(stall=1), silence=0.05) == "other sent nothing for 0.05 seconds: look at what it logs."


def test_a_server_that_is_not_there_is_said() -> None:
    with FakePeer() as server:
        url = server.url
    with pytest.raises(PeerFailed) as caught, open_peer(PeerSpec("other", url), **QUIET):
        pass
    assert str(caught.value) == f"other cannot be reached at {url} (Connection refused): is it running?"


def test_what_is_no_web_server_is_said() -> None:
    def talk() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"220 mail\r\n")
            connection.recv(1 << 16)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=talk)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(PeerFailed) as caught, open_peer(PeerSpec("other", url), **QUIET):
            pass
        thread.join()
    assert str(caught.value) == "other broke off its answer (220 mail): look at what it logs."


def test_an_answer_can_be_cancelled_from_another_thread() -> None:
    looks: list[int] = []
    seen = threading.Event()

    def clock() -> float:
        looks.append(1)
        if len(looks) == 4:  # two questions, the role, and the first piece
            seen.set()
        return 0.0

    def cancel(index: int) -> None:
        if index == 1 and seen.wait(5):
            peer.cancel()
            server.release.wait(5)

    with asked(Script(before=cancel), clock=clock) as (server, peer):
        found = peer.answer(PROMPT, REQUEST, 9, cold=True)
        assert (found.finish_reason, found.text) == ("cancelled", "Hel")
        assert peer.answer(PROMPT, REQUEST, 9, cold=True).finish_reason == "cancelled"
        assert len(server.asked) == 1


# Programs


def test_a_command_is_started_waited_for_asked_and_ended() -> None:
    said: list[str] = []
    with started("--loading", "2", "--says", "{target}", say=said.append) as peer:
        assert peer.answer(PROMPT, REQUEST, 9, cold=True).text == "target.gguf"
        assert peer.memory() > 1 << 20
        (program,) = running()
        assert os.name == "nt" or os.getpgid(program.pid) != os.getpgid(0)  # Ctrl-C is ours alone
    assert not running() and said == ["other is starting."]


def test_a_command_names_the_draft() -> None:
    with started("--says", "{draft}", "--no-health", draft="draft.gguf") as peer:  # and not all know /health
        assert peer.answer(PROMPT, REQUEST, 9, cold=True).text == "draft.gguf"


def test_a_command_that_wants_a_draft_needs_one() -> None:
    sentence = r"^The command of the peer other names \{draft\}, but there is none: give --draft\.$"
    with pytest.raises(UsageError, match=sentence), started("{draft}"):
        pass


def test_a_command_that_does_not_exist_is_said() -> None:
    spec = PeerSpec("other", command=("./no-such-server", "{port}"))
    with pytest.raises(PeerFailed) as caught, open_peer(spec, **QUIET):
        pass
    sentence = "other cannot be started as ./no-such-server (No such file or directory): check its command."
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("words", "quoted"),
    [
        ("no such model.", "no such model"),
        (" ", "a line before"),
        ("Error: no such option\nto see all, use --help", "Error: no such option"),
    ],
)
def test_a_program_that_dies_while_it_loads_is_quoted(words: str, quoted: str) -> None:
    with pytest.raises(PeerFailed) as caught, started("--die", words):
        pass
    assert str(caught.value) == f"other ended with 1 before it was ready ({quoted}): try its command by itself."


def test_a_program_that_dies_while_it_is_asked_is_quoted() -> None:
    with started("--die-asked", "out of memory") as peer:
        with pytest.raises(PeerFailed) as caught:
            peer.answer(PROMPT, REQUEST, 9, cold=True)
        assert peer.memory() is None
    assert str(caught.value) == "other ended with 4 while it was asked (out of memory): try its command by itself."


def test_a_program_that_is_never_ready_is_ended() -> None:
    with pytest.raises(PeerFailed) as caught, started("--loading", "999999", patience=0.0):
        pass
    assert str(caught.value) == "other was not ready after 0 seconds: try its command by itself."
    assert not running()


def test_an_interrupted_start_leaves_no_program_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    wait = subprocess.Popen.wait
    seen: list[int] = []

    def interrupted(self: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        if not seen:
            seen.append(len(running()))
            raise KeyboardInterrupt
        return wait(self, timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt), started("--loading", "999999"):
        pass
    assert seen == [1] and not running()


def test_a_program_ends_with_its_children_even_against_their_will() -> None:
    with started("--child", "--stubborn", grace=0.05) as peer:
        assert peer.answer(PROMPT, REQUEST, 9, cold=True).text == "Hello"
        tree = running()
    _, left = psutil.wait_procs(tree, timeout=5)
    assert len(tree) == 2 and all(process.status() == psutil.STATUS_ZOMBIE for process in left)


# Records


def whole(**changes: Any) -> PeerAnswer:
    fields: dict[str, Any] = {
        "text": "Hello you", "first": "H", "seconds": 6.0, "ttft_seconds": 2.0, "tail_seconds": 3.5,
        "drafted": 8, "accepted": 5, "prompt_tokens": 11, "finish_reason": "stop",
    }  # fmt: skip
    return PeerAnswer(**(fields | changes))


def recorded(found: PeerAnswer, tokenize: Callable[[str], list[int]] = letters) -> Any:
    return to_answer(found, PROMPT, arm="other", repeat=1, place=2, cold=False, seed=7, tokenize=tokenize, memory=99)


def test_an_answer_is_recorded_in_the_targets_tokens() -> None:
    record = recorded(whole())
    assert (record.prompt, record.kind, record.arm, record.repeat, record.place) == ("qa/1", "qa", "other", 1, 2)
    assert (record.cold, record.seed, record.memory, record.stats, record.joules) == (False, 7, 99, None, None)
    assert (record.text, record.tokens, record.finish_reason) == ("Hello you", tuple(letters("Hello you")), "stop")
    assert (record.seconds, record.ttft_ms, record.prompt_tokens) == (6.0, 2000.0, 11)
    assert (record.drafted, record.accepted) == (8, 5)
    assert (record.speed_tokens, record.speed_seconds) == (8, 3.5)


@pytest.mark.parametrize(
    ("changes", "speed_tokens"),
    [
        ({"first": "Hello"}, 4),  # a burst at the start is no speed
        ({"first": "Hello you"}, 0),
        ({"text": "", "first": ""}, 0),
    ],
)
def test_what_comes_with_the_first_piece_is_no_speed(changes: dict[str, str], speed_tokens: int) -> None:
    assert recorded(whole(**changes)).speed_tokens == speed_tokens


def test_a_peer_is_an_arm_that_reports_the_seed_it_was_given() -> None:
    with asked() as (server, peer):
        arm = PeerArm(peer, letters)
        given = arm.answer(PROMPT, REQUEST, 0, 3, True)
        drawn = arm.answer(PROMPT, Request(max_tokens=5), 1, 0, False)
        first, second = (question.body for question in server.asked)
    assert (arm.name, given.arm, given.seed, given.memory) == ("other", "other", 7, None)
    assert (given.repeat, given.place, given.cold, first["cache_prompt"]) == (0, 3, True, False)
    assert second["seed"] == drawn.seed and second["max_tokens"] == 5


def test_a_cancelled_arm_answers_so() -> None:
    with asked() as (_, peer):
        arm = PeerArm(peer, letters)
        arm.cancel()
        assert arm.answer(PROMPT, REQUEST, 0, 0, True).finish_reason == "cancelled"


def test_the_command_as_people_type_it() -> None:
    words = shlex.join([sys.executable, str(PROGRAM), "--port", "{port}", "--says"])
    with open_peer(parse_peer(f"fake={words} 'a b'"), **(QUIET | {"poll": 0.01})) as peer:
        assert (peer.name, peer.answer(PROMPT, REQUEST, 9, cold=True).text) == ("fake", "a b")
