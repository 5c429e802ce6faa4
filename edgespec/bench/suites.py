"""What is asked: our own quick suite, Spec-Bench, HumanEval, or a person's own prompts."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.resources import files
from itertools import count
from pathlib import Path
from typing import Any

from edgespec.errors import SourceError, UsageError
from edgespec.folders import cache_folder
from edgespec.protocols import Message

PUBLIC = {
    "spec-bench": "https://raw.githubusercontent.com/hemingkx/Spec-Bench/main/data/spec_bench/question.jsonl",
    "humaneval": "https://raw.githubusercontent.com/openai/human-eval/master/data/HumanEval.jsonl.gz",
}
"""Suites that are fetched once, from where their authors keep them."""

YOURS = "yours"
_ASKED = ("prompt", "text", "question", "instruction")
_ROLES = ("system", "user", "assistant")
_PATIENCE = 30.0  # seconds without a byte


@dataclass(frozen=True, slots=True)
class Prompt:
    """One thing to ask.

    Either `messages` of a conversation, or `raw` text to be continued as it stands. `turns` are what the user says
    after the answer, one after the other (Spec-Bench has prompts of two turns).
    """

    id: str
    kind: str
    messages: tuple[Message, ...] = ()
    raw: str | None = None
    turns: tuple[str, ...] = ()


def open_suite(
    name: str,
    *,
    kinds: Sequence[str] = (),
    limit: int | None = None,
    offline: bool = False,
    say: Callable[[str], None] = lambda sentence: None,
) -> list[Prompt]:
    """The prompts of a suite by name, or of a file; only those of `kinds`, and at most `limit` of each kind.

    A file has a prompt on each line: JSON in the format of Spec-Bench (`turns`, `category`), of HumanEval (`task_id`,
    `prompt`: continued as it stands), of our own (`messages`, with `id` and `kind` if wanted), or with a `prompt`,
    `text`, `question` or `instruction` (with `raw` true: continued as it stands). A file that does not begin with { is
    plain text, so that a prompt of several lines must be written as JSON. gzip is undone. A public suite is fetched the
    first time, which `say` tells, unless `offline`.
    Raises UsageError for what cannot be read as prompts, SourceError where a suite cannot be had.
    """
    where, text = _opened(name, offline, say)
    prompts = _told_apart(_prompts(text, where))
    if not prompts:
        raise UsageError(f"{name} has no prompts: write one on each line.")
    known = dict.fromkeys(prompt.kind for prompt in prompts)
    if unknown := [kind for kind in kinds if kind not in known]:
        raise UsageError(f"There are no prompts of kind {unknown[0]} in {name}: its kinds are {', '.join(known)}.")
    seen: Counter[str] = Counter()
    chosen = []
    for prompt in prompts:
        if prompt.kind in (kinds or known) and (limit is None or seen[prompt.kind] < limit):
            seen[prompt.kind] += 1
            chosen.append(prompt)
    return chosen


def _opened(name: str, offline: bool, say: Callable[[str], None]) -> tuple[str, str]:
    """What to call a suite in a sentence, and its text."""
    if name == "quick":
        return name, (files("edgespec.bench") / "quick.jsonl").read_text(encoding="utf-8")
    path = _kept(name, offline, say) if name in PUBLIC else Path(name).expanduser()
    try:
        return str(path), _text(path.read_bytes())
    except FileNotFoundError as error:
        suites = ", ".join(["quick", *PUBLIC])
        raise UsageError(f"There is no file {path}: name a file of prompts, or a suite ({suites}).") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{path} cannot be read ({reason}): prompts are kept in a file of UTF-8 text.") from error


def _text(content: bytes) -> str:
    """A file's text, unpacked where it is packed. Raises ValueError."""
    try:
        return (gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content).decode("utf-8-sig")
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(str(error)) from error


def _kept(name: str, offline: bool, say: Callable[[str], None]) -> Path:
    """The file of a public suite, fetched if it is not here."""
    path, url = cache_folder() / "suites" / f"{name}.jsonl", PUBLIC[name]
    if path.exists():
        return path
    if offline:
        raise SourceError(f"{name} is not on this machine: leave out --offline to fetch it, or give a file's path.")
    from edgespec.models.hub.attended import Late
    from edgespec.models.hub.failures import FAILURES

    say(f"Fetching {name} from {url}")
    try:
        text = _text(_downloaded(url))
        if not [_prompt(line, number) for number, line in _lines(text)]:  # nor a page that asks to log in, which raises
            raise ValueError("nothing came")
    except (*FAILURES, Late) as error:
        reason = " ".join(str(error).split()).rstrip(".") or "no answer"
        raise SourceError(
            f"{name} could not be fetched from {url} ({reason}): check the network, or give the path of its file."
        ) from error
    part = path.with_name(f"{name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(text, encoding="utf-8", newline="")
        part.replace(path)
    except OSError as error:
        raise SourceError(
            f"{name} cannot be kept in {path.parent} ({error.strerror}): make room there, or set EDGESPEC_CACHE to "
            "another folder."
        ) from error
    finally:
        with suppress(OSError):
            part.unlink()
    return path


def _downloaded(url: str) -> bytes:
    """What lies at an address. Through huggingface-hub's session, whose certificates and proxies hold for models."""
    from huggingface_hub.utils import get_session  # type: ignore[attr-defined]  # see models/hub/client.py

    from edgespec.models.hub.attended import attended

    def blocks() -> Iterator[bytes]:
        with get_session().stream("GET", url, timeout=_PATIENCE, follow_redirects=True) as response:
            if response.status_code != 200:
                raise ValueError(f"status {response.status_code}")
            yield from response.iter_bytes()

    return b"".join(attended(blocks, lambda: None, _PATIENCE, "edgespec-suite"))


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines that hold something, with their numbers; what else JSON may hold ends no line."""
    return ((number, line.strip()) for number, line in enumerate(text.split("\n"), 1) if line.strip())


def _prompts(text: str, where: str) -> Iterator[Prompt]:
    start = text.lstrip()[:1]
    if start == "[" and where.endswith(".json"):
        raise UsageError(f"{where} is one list of JSON: write an object on each line, without the list.")
    for number, line in _lines(text):
        try:
            yield _prompt(line, number) if start == "{" else Prompt(f"{YOURS}/{number}", YOURS, (_user(line),))
        except ValueError as error:
            raise UsageError(
                f"Line {number} of {where} is no prompt ({error}): correct it, or leave it out."
            ) from error


def _prompt(line: str, number: int) -> Prompt:
    """The prompt that a line of JSON describes. Raises ValueError."""
    row = json.loads(line)
    if not isinstance(row, dict):
        raise ValueError("it is no JSON object")
    if "task_id" in row:
        return Prompt(str(row["task_id"]), "humaneval", raw=_words(row.get("prompt")))
    kind = str(row.get("kind") or row.get("category") or YOURS)
    name = f"spec-bench/{row['question_id']}" if "question_id" in row else f"{kind}/{number}"
    name = str(row.get("id") or name)
    if "turns" in row:
        first, *others = map(_words, _several(row["turns"], "turns"))
        return Prompt(name, kind, (_user(first),), turns=tuple(others))
    if "messages" in row:
        messages = tuple(map(_message, _several(row["messages"], "messages")))
        if messages[-1]["role"] != "user":
            raise ValueError("its last message must be the user's")
        return Prompt(name, kind, messages)
    asked = next((key for key in _ASKED if key in row), None)
    if asked is None:
        raise ValueError(f"it needs one of messages, turns, {', '.join(_ASKED)}")
    words = _words(row[asked])
    return Prompt(name, kind, raw=words) if row.get("raw") is True else Prompt(name, kind, (_user(words),))


def _several(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise ValueError(f"its {what} must be a list with something in it")
    return value


def _message(value: Any) -> Message:
    role = value.get("role") if isinstance(value, dict) else None
    if role not in _ROLES:
        raise ValueError(f"a message needs one of the roles {', '.join(_ROLES)}")
    return {"role": role, "content": _words(value.get("content"))}


def _words(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("what is said must be text, and not empty")
    return value


def _user(words: str) -> Message:
    return {"role": "user", "content": words}


def _told_apart(prompts: Iterable[Prompt]) -> list[Prompt]:
    """The prompts with ids of their own. (`#` is for further turns: see Runner.)"""
    found: dict[str, Prompt] = {}
    for prompt in prompts:
        names = (prompt.id if i == 1 else f"{prompt.id} ({i})" for i in count(1))
        name = next(name for name in names if name not in found)
        found[name] = replace(prompt, id=name)
    return list(found.values())
