"""What is asked: our own quick suite, Spec-Bench, HumanEval, or a person's own prompts."""

from __future__ import annotations

import gzip
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from edgespec.errors import UsageError
from edgespec.folders import cache_folder
from edgespec.protocols import Message

PUBLIC = {
    "spec-bench": "https://raw.githubusercontent.com/hemingkx/Spec-Bench/main/data/spec_bench/question.jsonl",
    "humaneval": "https://raw.githubusercontent.com/openai/human-eval/master/data/HumanEval.jsonl.gz",
}
"""Suites that are fetched once, from where their authors keep them."""

YOURS = "yours"
_ASKED = ("prompt", "question", "instruction", "text")
_PATIENCE = 30.0


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
    `prompt`: continued as it stands), of our own (`messages`, with `id` and `kind` if wanted), or with a `prompt` (with
    `raw` true: continued as it stands); anything else is plain text. Raises UsageError.
    """
    prompts = _told_apart(_prompts(_text(name, offline, say), name))
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


def _text(name: str, offline: bool, say: Callable[[str], None]) -> str:
    if name == "quick":
        return (files("edgespec.bench") / "quick.jsonl").read_text(encoding="utf-8")
    path = _fetched(name, offline, say) if name in PUBLIC else Path(name).expanduser()
    try:
        content = path.read_bytes()
        return (gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content).decode("utf-8-sig")
    except FileNotFoundError as error:
        suites = ", ".join(["quick", *PUBLIC])
        raise UsageError(f"There is no file {path}: name a file of prompts, or a suite ({suites}).") from error
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read as prompts ({error}): it must be UTF-8 text.") from error


def _fetched(name: str, offline: bool, say: Callable[[str], None]) -> Path:
    """The file of a public suite, fetched if it is not here."""
    url = PUBLIC[name]
    path = cache_folder() / "suites" / url.rsplit("/", 1)[-1]
    if path.exists():
        return path
    if offline:
        raise UsageError(f"{name} is not on this machine and --offline forbids fetching it: give its file's path.")
    from urllib.request import urlopen

    say(f"fetching {name} from {url}")
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with urlopen(url, timeout=_PATIENCE) as response:
            part.write_bytes(response.read())
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        reason = getattr(error, "reason", None) or error
        raise UsageError(f"{name} could not be fetched from {url} ({reason}): give its file's path instead.") from error
    return path


def _prompts(text: str, name: str) -> Iterator[Prompt]:
    lines = [(number, line.strip()) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines or not lines[0][1].startswith("{"):
        yield from (Prompt(f"{YOURS}/{number}", YOURS, (_user(line),)) for number, line in lines)
        return
    for number, line in lines:
        try:
            yield _prompt(json.loads(line), number)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise UsageError(f"Line {number} of {name} is no prompt ({error}): see edgespec bench --help.") from error


def _prompt(row: dict[str, Any], number: int) -> Prompt:
    if "turns" in row:
        first, *others = (_words(turn) for turn in row["turns"])
        kind = str(row.get("category", YOURS))
        return Prompt(f"{kind}/{row.get('question_id', number)}", kind, (_user(first),), turns=tuple(others))
    if "task_id" in row:
        return Prompt(str(row["task_id"]), "humaneval", raw=_words(row["prompt"]))
    kind = str(row.get("kind", YOURS))
    id = str(row.get("id", f"{kind}/{number}"))
    if "messages" in row:
        messages = tuple({"role": str(m["role"]), "content": _words(m["content"])} for m in row["messages"])
        if not messages or messages[-1]["role"] != "user":
            raise ValueError("its last message must be the user's")
        if odd := {m["role"] for m in messages} - {"system", "user", "assistant"}:
            raise ValueError(f"{min(odd)!r} is no role")
        return Prompt(id, kind, messages)
    asked = next((name for name in _ASKED if name in row), None)
    if asked is None:
        raise ValueError("it has no prompt, messages or turns")
    words = _words(row[asked])
    return Prompt(id, kind, raw=words) if row.get("raw") else Prompt(id, kind, (_user(words),))


def _words(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("what is asked must be text, and not empty")
    return value


def _user(words: str) -> Message:
    return {"role": "user", "content": words}


def _told_apart(prompts: Iterator[Prompt]) -> list[Prompt]:
    """The prompts with ids of their own."""
    seen: Counter[str] = Counter()
    found = []
    for prompt in prompts:
        seen[prompt.id] += 1
        again = seen[prompt.id]
        found.append(prompt if again == 1 else replace(prompt, id=f"{prompt.id} ({again})"))
    return found
