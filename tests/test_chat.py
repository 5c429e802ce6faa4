"""A conversation: its turns, what of them is left out, and its file."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from edgespec.chat import Conversation, Turn
from edgespec.errors import PromptTooLong, UsageError
from edgespec.events import Done, Notice, Text
from tests.support.talk import GREEDY, THOUGHTS, Talk, Thinking, finish, thinking


def told(events: object) -> tuple[Done, list[str]]:
    seen = list(events)
    return seen[-1], [event.message for event in seen if isinstance(event, Notice)]


def talk(**options) -> tuple[Talk, Conversation]:
    made = Talk([b"Hello", b" there"], [b"Good", b"bye"], [b"bye"], **options)
    return made, Conversation(made.engine, "Be brief.")


def test_turns_follow_each_other() -> None:
    made, conversation = talk()
    assert finish(conversation.ask("one", **GREEDY)).text == "Hello there"
    assert finish(conversation.ask("two", **GREEDY)).text == "Goodbye"
    assert conversation.turns == (Turn("one", "Hello there"), Turn("two", "Goodbye"))
    assert made.prompt() == "<s>Be brief.<e><u>one<e><a>Hello there<e><u>two<e><a>Goodbye"
    assert [message["role"] for message in conversation.messages] == ["system", *["user", "assistant"] * 2]


def test_history_keeps_thoughts_with_their_tags_for_the_template() -> None:
    conversation = Conversation(thinking(THOUGHTS, template=Thinking()).engine)
    done = finish(conversation.ask("one", **GREEDY))
    assert done.text == "Goodbye" and conversation.turns == (Turn("one", b"".join(THOUGHTS).decode()),)


def test_regenerate_takes_the_answer_s_place() -> None:
    _, conversation = talk()
    with pytest.raises(UsageError, match="no answer"):
        conversation.regenerate()
    finish(conversation.ask("one", **GREEDY))
    again = finish(conversation.regenerate(**GREEDY, max_tokens=1))
    assert conversation.turns == (Turn("one", "Hello"),) and again.cached_prompt_tokens == again.prompt_tokens - 1


def test_reset_and_system() -> None:
    made, conversation = talk()
    finish(conversation.ask("one", **GREEDY))
    conversation.reset()
    conversation.system = None
    finish(conversation.ask("two", **GREEDY))
    assert made.prompt() == "<u>two<e><a>Hello there"


def test_a_cancelled_answer_is_kept_as_far_as_it_came() -> None:
    made, conversation = talk()
    for event in conversation.ask("one", **GREEDY):
        if isinstance(event, Text):
            made.engine.cancel()
    assert conversation.turns == (Turn("one", "Hello"),)


@pytest.mark.parametrize("how", ["error", "cancelled before anything came", "not read to the end", "too long"])
@pytest.mark.parametrize("verb", ["ask", "regenerate"])
def test_an_answer_that_fails_leaves_the_conversation_as_it_was(how: str, verb: str) -> None:
    made, conversation = talk(n_ctx=256)
    finish(conversation.ask("one", **GREEDY))
    before = conversation.turns

    def fail() -> None:
        if how == "error":
            raise RuntimeError("out of luck")
        made.engine.cancel()

    if how == "too long":
        with pytest.raises(PromptTooLong):
            conversation.ask("x" * 300)
    else:
        events = conversation.ask("two", **GREEDY) if verb == "ask" else conversation.regenerate(**GREEDY)
        next(events)
        made.model.before_decode = fail
        if how == "error":
            with pytest.raises(RuntimeError, match="out of luck"):
                list(events)
        elif how == "not read to the end":
            del events
        else:
            assert told(events)[0].finish_reason == "cancelled"
        made.model.before_decode = lambda: None
    assert conversation.turns == before
    assert finish(conversation.ask("two", **GREEDY)).text == "Goodbye"


def test_an_empty_answer_is_an_answer() -> None:
    conversation = Conversation(Talk([]).engine)
    finish(conversation.ask("one", **GREEDY))
    assert conversation.turns == (Turn("one", ""),)


def test_the_oldest_turns_are_left_out_several_at_once_and_it_is_said_once() -> None:
    made, conversation = talk(n_ctx=256)
    notices, trims, prompts = [], 0, []
    for n in range(24):
        before, decoded = conversation.left_out, made.model.decoded
        done, said = told(conversation.ask(f"question {n:02}", **GREEDY))
        notices += said
        prompts.append(made.prompt())
        assert done.prompt_tokens <= 256 - 64
        if conversation.left_out > before:
            trims += 1
            assert conversation.left_out - before >= 2 and done.prompt_tokens <= 128
        elif n:
            assert made.model.decoded - decoded <= 40, "most of the prompt is cached"
    assert 2 <= trims <= 5 and len(notices) == 1 and "left out" in notices[0]
    assert len(conversation.turns) == 24 and len(conversation.messages) == 49
    last = prompts[-1]
    assert last.startswith("<s>Be brief.<e><u>question ") and last.count("<u>") == 24 - conversation.left_out
    assert last.count("<a>") == last.count("<u>"), "a turn is left out whole"


def test_few_tokens_for_the_answer_need_little_room() -> None:
    def left_out_after(**options) -> int:
        _, conversation = talk(n_ctx=256)
        for n in range(12):
            finish(conversation.ask(f"question {n:02}", **GREEDY, **options))
        return conversation.left_out

    assert left_out_after(max_tokens=2) == 0 < left_out_after()


def test_a_long_message_leaves_out_all_before_it_and_a_longer_one_is_an_error() -> None:
    made, conversation = talk(n_ctx=256)
    for n in range(3):
        finish(conversation.ask(f"question {n}", **GREEDY))
    with pytest.raises(PromptTooLong, match="256"):
        conversation.ask("x" * 256)
    assert conversation.left_out == 0, "what failed leaves out nothing"
    done, notices = told(conversation.ask("x" * 230, **GREEDY))
    assert done.text and len(notices) == 1 and conversation.left_out == 3
    assert made.prompt().startswith("<s>Be brief.<e><u>xxx")


def test_the_engine_itself_leaves_nothing_out() -> None:
    made, _ = talk(n_ctx=64)
    messages = [{"role": "user", "content": "x" * 30}, {"role": "assistant", "content": "y"}] * 2
    with pytest.raises(PromptTooLong):
        made.engine.chat([*messages, messages[0]])


def test_what_is_left_out_is_saved_and_can_be_asked_again(tmp_path: Path) -> None:
    made, conversation = talk(n_ctx=256)
    for n in range(12):
        finish(conversation.ask(f"question {n:02}", **GREEDY))
    assert conversation.left_out
    finish(conversation.regenerate(**GREEDY))
    conversation.save(tmp_path / "talk.json")
    other = Conversation(made.engine)
    other.load(tmp_path / "talk.json")
    assert other.turns == conversation.turns and len(other.turns) == 12 and other.system == "Be brief."


def test_a_saved_conversation_is_plain_messages_and_comes_back(tmp_path: Path) -> None:
    _, conversation = talk()
    finish(conversation.ask("grüße 👋 \ud800", **GREEDY))
    file = tmp_path / "talk.json"
    conversation.save(file)
    conversation.save(file)  # its own kind is overwritten
    document = json.loads(file.read_text(encoding="utf-8"))
    assert document == {
        "kind": "edgespec conversation",
        "version": 1,
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "grüße 👋 ?"},
            {"role": "assistant", "content": "Hello there"},
        ],
    }
    assert os.listdir(tmp_path) == ["talk.json"]


def test_a_save_that_fails_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, conversation = talk()
    file = tmp_path / "talk.json"
    conversation.save(file)
    before = file.read_bytes()
    finish(conversation.ask("one", **GREEDY))

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UsageError, match="No space left"):
        conversation.save(file)
    assert file.read_bytes() == before and os.listdir(tmp_path) == ["talk.json"]


def test_another_file_is_not_overwritten(tmp_path: Path) -> None:
    _, conversation = talk()
    for content in (b"", b"precious", b"[]", b'{"messages": []}', b"\xff"):
        file = tmp_path / "notes.txt"
        file.write_bytes(content)
        with pytest.raises(UsageError, match="choose another name"):
            conversation.save(file)
        assert file.read_bytes() == content
    for place in (tmp_path, tmp_path / "no" / "folder.json"):
        with pytest.raises(UsageError):
            conversation.save(place)


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    _, conversation = talk()
    conversation.save(tmp_path / "real.json")
    (tmp_path / "link.json").symlink_to("real.json")
    conversation.system = "Other."
    conversation.save(tmp_path / "link.json")
    assert (tmp_path / "link.json").is_symlink() and "Other." in (tmp_path / "real.json").read_text()


HEAD = '{"kind": "edgespec conversation", "version": 1, "messages": '


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("hello", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", 'no "kind"'),
        ('{"kind": "other"}', 'no "kind"'),
        ('{"kind": "edgespec conversation", "version": 2}', "version is 2"),
        ('{"kind": "edgespec conversation", "version": 1}', "messages are not a list"),
        (HEAD + "[3]}", "message 1 has no text"),
        (HEAD + '[{"role": "user", "content": ["a"]}]}', "message 1 has no text"),
        (HEAD + '[{"content": "a"}]}', "message 1 has the role None where 'user' is due"),
        (HEAD + '[{"role": "user", "content": "a"}]}', "last message has no answer"),
        (
            HEAD + '[{"role": "system", "content": "s"}, {"role": "user", "content": "a"}, '
            '{"role": "user", "content": "b"}]}',
            "message 3 has the role 'user' where 'assistant' is due",
        ),
    ],
)
def test_a_bad_file_is_a_sentence_and_the_conversation_stays(tmp_path: Path, content: str, reason: str) -> None:
    _, conversation = talk()
    finish(conversation.ask("one", **GREEDY))
    file = tmp_path / "bad.json"
    file.write_text(content)
    with pytest.raises(UsageError, match=reason) as caught:
        conversation.load(file)
    assert str(caught.value).endswith(".") and "\n" not in str(caught.value)
    assert conversation.turns == (Turn("one", "Hello there"),)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    _, conversation = talk()
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(UsageError):
            conversation.load(path)
