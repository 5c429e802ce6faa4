"""What is asked: suites by name, files by their rows, and what is said of files that are none."""

from __future__ import annotations

import errno
import gzip
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import close_session, constants

from edgespec.bench import suites
from edgespec.bench.suites import Prompt, open_suite
from edgespec.errors import EdgespecError

SPEC = [
    {"question_id": 81, "category": "writing", "turns": ["Write a post.", "Rewrite it."]},
    {"question_id": 241, "category": "qa", "turns": ["Who?"], "reference": ["She."]},
]
HUMAN = [{"task_id": "HumanEval/0", "prompt": "def f():\n    ", "entry_point": "f", "canonical_solution": "pass"}]
OURS = {"id": "edit/a", "kind": "edit", "messages": [{"role": "user", "content": "Rename it."}]}


def user(words: str) -> tuple[dict[str, str], ...]:
    return ({"role": "user", "content": words},)


def lines(*rows: Any) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def written(tmp_path: Path) -> Any:
    def write(content: str | bytes, name: str = "mine.jsonl") -> str:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write


def refusal(suite: str, **options: Any) -> str:
    with pytest.raises(EdgespecError) as caught:
        open_suite(suite, **options)
    sentence = str(caught.value)
    assert sentence.endswith(".") and "\n" not in sentence
    return sentence


class Site:
    """Serves `pages` by path; what was `asked` for is kept."""

    def __init__(self, url: str, pages: dict[str, bytes], asked: list[str]) -> None:
        self.url, self.pages, self.asked = url, pages, asked


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    pages: dict[str, bytes] = {}
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            body = pages.get(self.path)
            self.send_response(404 if body is None else 200)
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, *_: object) -> None:
            pass

    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("EDGESPEC_CACHE", str(tmp_path / "cache"))
    close_session()
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}"
        for name in suites.PUBLIC:
            monkeypatch.setitem(suites.PUBLIC, name, f"{url}/{name}")
        yield Site(url, pages, asked)
        server.shutdown()
        thread.join()
    close_session()


def test_the_quick_suite_comes_with_edgespec() -> None:
    prompts = open_suite("quick")
    assert len(prompts) == 15 and len({prompt.id for prompt in prompts}) == 15
    assert {"code", "edit", "prose", "chinese", "extraction", "multi"} <= {prompt.kind for prompt in prompts}
    assert all(prompt.messages[-1]["role"] == "user" and prompt.raw is None for prompt in prompts)
    assert [m["role"] for m in prompts[-1].messages] == ["user", "assistant", "user"]


def test_spec_bench_rows_have_a_category_and_further_turns(written: Any) -> None:
    assert open_suite(written(lines(*SPEC))) == [
        Prompt("spec-bench/81", "writing", user("Write a post."), turns=("Rewrite it.",)),
        Prompt("spec-bench/241", "qa", user("Who?")),
    ]


def test_humaneval_rows_are_continued_as_they_stand(written: Any) -> None:
    expected = [Prompt("HumanEval/0", "humaneval", raw="def f():\n    ")]
    assert open_suite(written(lines(*HUMAN))) == expected
    assert open_suite(written(gzip.compress(lines(*HUMAN).encode()), "he.jsonl.gz")) == expected


def test_rows_of_ours_have_messages(written: Any) -> None:
    talk = {"messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello\u2028you"}]}
    named, unnamed = open_suite(written("\ufeff" + lines(OURS) + "\r\n" + json.dumps(talk, ensure_ascii=False)))
    assert named == Prompt("edit/a", "edit", user("Rename it."))
    assert unnamed == Prompt("yours/3", "yours", tuple(talk["messages"]))


@pytest.mark.parametrize("key", ["prompt", "text", "question", "instruction"])
def test_a_row_with_words_is_one_message_or_raw(written: Any, key: str) -> None:
    said, raw = open_suite(written(lines({key: "Why?\nTell me."}, {key: " Once", "raw": True, "kind": "tale"})))
    assert said == Prompt("yours/1", "yours", user("Why?\nTell me."))
    assert raw == Prompt("tale/2", "tale", raw=" Once")


def test_each_line_of_a_text_is_a_prompt(written: Any) -> None:
    prompts = open_suite(written("Why is the sky blue?\r\n\r\n  [1] {odd} line \n", "mine.txt"))
    assert prompts == [
        Prompt("yours/1", "yours", user("Why is the sky blue?")),
        Prompt("yours/3", "yours", user("[1] {odd} line")),
    ]


def test_ids_that_come_twice_are_told_apart(written: Any) -> None:
    path = written(lines(OURS, OURS, {**OURS, "id": "edit/a (2)"}, OURS))
    assert [prompt.id for prompt in open_suite(path)] == ["edit/a", "edit/a (2)", "edit/a (2) (2)", "edit/a (3)"]


def test_kinds_and_limit_choose(written: Any) -> None:
    rows = [{"prompt": f"{kind}{i}", "kind": kind} for i in range(3) for kind in "abc"]
    path = written(lines(*rows))

    def said(**options: Any) -> list[str]:
        return [prompt.messages[0]["content"] for prompt in open_suite(path, **options)]

    assert said(limit=2) == ["a0", "b0", "c0", "a1", "b1", "c1"]
    assert said(kinds=["c", "a"]) == ["a0", "c0", "a1", "c1", "a2", "c2"]
    assert said(kinds=["b"], limit=1) == ["b0"]
    assert refusal(path, kinds=["a", "x"]).endswith("its kinds are a, b, c.")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("nonsense", "Expecting value"),
        (lines([1]), "no JSON object"),
        (lines({"id": 1}), "needs one of messages, turns, prompt"),
        (lines({"prompt": " "}), "must be text, and not empty"),
        (lines({"prompt": 7}), "must be text"),
        (lines({"task_id": "x"}), "must be text"),
        (lines({"turns": []}), "its turns must be a list"),
        (lines({"turns": "one"}), "its turns must be a list"),
        (lines({"turns": ["one", None]}), "must be text"),
        (lines({"messages": []}), "its messages must be a list"),
        (lines({"messages": ["hello"]}), "needs one of the roles"),
        (lines({"messages": [{"role": "tool", "content": "x"}]}), "needs one of the roles system, user, assistant"),
        (lines({"messages": [{"role": ["user"], "content": "x"}]}), "needs one of the roles"),
        (lines({"messages": [{"role": "user"}]}), "must be text"),
        (lines({"messages": [*user("x"), {"role": "assistant", "content": "y"}]}), "must be the user's"),
    ],
)
def test_a_line_that_is_no_prompt_is_named(written: Any, row: str, reason: str) -> None:
    path = written(lines(OURS) + "\n" + row)
    sentence = refusal(path)
    assert sentence.startswith(f"Line 3 of {path} is no prompt (") and reason in sentence


def test_files_that_hold_no_prompts_are_refused(written: Any, tmp_path: Path) -> None:
    assert "There is no file" in refusal(str(tmp_path / "none")) and "spec-bench" in refusal("specbench")
    assert "has no prompts" in refusal(written(" \n\n"))
    assert "Is a directory" in refusal(str(tmp_path)) or "Permission" in refusal(str(tmp_path))
    assert "cannot be read" in refusal(written(b"caf\xe9"))
    packed = gzip.compress(b"x" * 999)
    for damaged in (packed[:-4], packed[:10] + b"\xff" + packed[11:], packed[:-8] + b"12345678"):
        assert "cannot be read" in refusal(written(damaged))
    assert "write an object on each line" in refusal(written(json.dumps([OURS], indent=1), "mine.json"))


def test_a_public_suite_is_fetched_once(site: Site, tmp_path: Path) -> None:
    said: list[str] = []
    site.pages["/spec-bench"] = lines(*SPEC).encode()
    first = open_suite("spec-bench", say=said.append)
    assert [prompt.id for prompt in first] == ["spec-bench/81", "spec-bench/241"]
    assert said == [f"Fetching spec-bench from {site.url}/spec-bench"]
    assert open_suite("spec-bench", offline=True, say=said.append) == first
    assert site.asked == ["/spec-bench"] and len(said) == 1
    assert [path.name for path in (tmp_path / "cache" / "suites").iterdir()] == ["spec-bench.jsonl"]


def test_a_packed_suite_is_unpacked(site: Site) -> None:
    site.pages["/humaneval"] = gzip.compress(lines(*HUMAN).encode())
    (prompt,) = open_suite("humaneval")
    assert prompt.raw == HUMAN[0]["prompt"]
    assert open_suite("humaneval") == [prompt] and site.asked == ["/humaneval"]


def test_what_is_not_here_and_may_not_be_fetched_can_be_given_as_a_path(site: Site) -> None:
    sentence = refusal("humaneval", offline=True)
    assert "--offline" in sentence and "path" in sentence and not site.asked


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        (None, "status 404"),
        (b"<html>Log in first</html>", "Expecting value"),
        (lines(*SPEC).encode()[:-20], "Unterminated"),
        (b"", "nothing came"),
        (b"\x1f\x8bnot packed", "Unknown compression method"),
    ],
)
def test_what_is_no_suite_is_not_kept(site: Site, tmp_path: Path, page: bytes | None, reason: str) -> None:
    if page is not None:
        site.pages["/spec-bench"] = page
    sentence = refusal("spec-bench")
    assert reason in sentence and f"{site.url}/spec-bench" in sentence and "path" in sentence
    assert not (tmp_path / "cache" / "suites").exists()


def test_a_site_that_cannot_be_reached_is_named(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(suites.PUBLIC, "spec-bench", "http://127.0.0.1:1/x")
    assert "could not be fetched from http://127.0.0.1:1/x" in refusal("spec-bench")


def test_a_cache_that_cannot_be_written_is_named(site: Site, tmp_path: Path) -> None:
    site.pages["/spec-bench"] = lines(*SPEC).encode()
    (tmp_path / "cache").write_text("a file where the folder should be")
    assert "set EDGESPEC_CACHE" in refusal("spec-bench")


def test_a_full_disk_leaves_nothing_behind(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write_some(self: Path, text: str, **_: object) -> None:
        self.write_bytes(text[:20].encode())
        raise OSError(errno.ENOSPC, "No space left on device")

    site.pages["/spec-bench"] = lines(*SPEC).encode()
    monkeypatch.setattr(Path, "write_text", write_some)
    assert "(No space left on device): make room there" in refusal("spec-bench")
    assert not list((tmp_path / "cache" / "suites").iterdir())
