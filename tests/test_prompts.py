"""Turns of a conversation share their tokens: only new text is decoded, and it is always the text that was written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgespec.chat import Conversation
from edgespec.events import Done, Notice, Text
from tests.support.fakes import ChatWords, WordVocabulary
from tests.support.talk import GREEDY, THOUGHTS, WORDS, Talk, Thinking, finish, thinking


def test_each_turn_decodes_only_what_is_new() -> None:
    talk = Talk([b"Hello", b" there"], [b"Good", b"bye", b"Good"], [b"bye"], k=0)
    first = talk.ask("one")
    assert (first.text, first.prompt_tokens, first.cached_prompt_tokens) == ("Hello there", 6, 0)
    for question, said in (("two words", first), ("and three", None)):
        before = talk.model.decoded
        cached = len(talk.model.tokens)
        done = talk.ask(question)
        new = len("<e><u>") // 3 + len(question) + len("<e><a>") // 3
        assert done.cached_prompt_tokens == cached and done.prompt_tokens == cached + new
        assert talk.model.decoded - before == new + done.stats.target_calls - 1, "the first round reads the prompt"
        assert said is None or done.cached_prompt_tokens == said.prompt_tokens + said.completion_tokens
    assert talk.prompt() == "<u>one<e><a>Hello there<e><u>two words<e><a>GoodbyeGood<e><u>and three<e><a>bye"


def test_an_answer_cut_by_length_is_kept_but_for_its_last_token() -> None:
    """The last token was never decoded; it rides with the new text."""
    talk = Talk([b"Hello", b" there", b"Good"], [b"bye"])
    first = talk.ask("one", max_tokens=2)
    second = talk.ask("two")
    assert second.cached_prompt_tokens == first.prompt_tokens + 1
    assert second.prompt_tokens == first.prompt_tokens + 2 + len("two") + 4


@pytest.mark.parametrize(
    ("answer", "options"),
    [
        ([b"Hello", b" there", b"Good"], {"stop": ("re",)}),  # the cut is inside a token
        ([b"Hello", b" there", b"Good"], {"stop": (" there",)}),  # the cut is between tokens, and one lies behind it
        ([b"Hello", "😀".encode()[:2]], {}),  # half a character
        ([b"Hello", 261], {}),  # a control token, which is no text
        ([], {}),  # nothing
    ],
)
def test_where_tokens_are_not_the_text_the_text_is_read_again(answer: list, options: dict) -> None:
    talk = Talk(answer, [b"bye"])
    first = talk.ask("one", **options)
    before = talk.model.decoded
    second = talk.ask("two")
    assert second.cached_prompt_tokens == first.prompt_tokens
    assert talk.model.decoded > before
    assert talk.prompt() == f"<u>one<e><a>{first.raw}<e><u>two<e><a>bye"


@pytest.mark.parametrize(
    "history",
    [
        ["one", "Hello", "two"],  # the answer shortened
        ["one", "Hello there, you", "two"],  # and lengthened
        ["one", "Goodbye", "two"],  # and replaced
        ["other", "Hello there", "two"],  # the question replaced
        ["on", "Hello there", "two"],
        ["two"],
        ["one"],
        ["one", "Hello there", "two", "Goodbye", "three"],
    ],
)
def test_a_history_that_the_caller_changes_is_read_as_it_is(history: list[str]) -> None:
    talk = Talk([b"Hello", b" there"], [b"Good"], [b"bye"])
    talk.ask("one")
    roles = ["user", "assistant"] * 3
    messages = [{"role": role, "content": text} for role, text in zip(roles, history, strict=False)]
    before = len(talk.engine.prompt(messages))
    done = finish(talk.engine.chat(messages, **GREEDY))
    assert before == done.prompt_tokens
    written = ChatWords().render(messages)
    assert talk.prompt() == written + done.text


def test_the_same_question_again_decodes_one_token() -> None:
    talk = Talk([b"Hello", b" there"])
    first = talk.ask("one")
    again = finish(talk.engine.chat(talk.messages[:1], **GREEDY))
    assert again.cached_prompt_tokens == first.prompt_tokens - 1 and again.tokens == first.tokens


def test_measuring_a_prompt_decodes_and_forgets_nothing() -> None:
    talk = Talk([b"Hello", b" there"], [b"bye"])
    first = talk.ask("one")
    before = talk.model.decoded
    assert len(talk.engine.prompt([{"role": "user", "content": "quite another"}])) == len("quite another") + 3
    assert talk.model.decoded == before
    assert talk.ask("two").cached_prompt_tokens == first.prompt_tokens + first.completion_tokens


def test_the_begin_token_stands_at_the_beginning_alone() -> None:
    vocabulary = WordVocabulary(WORDS, ChatWords.CONTROLS, begins=True)
    talk = Talk([b"Hello"], [b"Good"], [b"bye"], vocabulary=vocabulary)
    for question in ("one", "two", "three"):
        talk.ask(question)
        assert talk.model.tokens.count(vocabulary.BEGIN) == 1 and talk.model.tokens[0] == vocabulary.BEGIN


class Spacing(WordVocabulary):
    """Puts a space before a text that does not begin with a control word, as SentencePiece models do."""

    def tokenize(self, text: str, *, add_special: bool) -> list[int]:
        marked = text if text.startswith(tuple(self.controls)) else " " + text
        return super().tokenize(marked, add_special=add_special)


@pytest.mark.parametrize("answer", ["Goodbye", " Goodbye"])
def test_a_tokenizer_that_adds_a_space_does_not_change_the_conversation(answer: str) -> None:
    talk = Talk([b"Hello", b" there"], [b"bye"], vocabulary=Spacing(WORDS, ChatWords.CONTROLS))
    talk.ask("one")
    assert talk.ask("two").cached_prompt_tokens == 6 + 2, "where nothing is added the tokens are kept"
    messages = [*talk.messages[:1], {"role": "assistant", "content": answer}, {"role": "user", "content": "two"}]
    finish(talk.engine.chat(messages, **GREEDY))
    assert talk.prompt() == f"<u>one<e><a>{answer}<e><u>two<e><a>bye"


def test_after_a_cancelled_answer_what_came_is_kept() -> None:
    talk = Talk([b"Hello", b" there"] * 20, [b"bye"])
    talk.messages.append({"role": "user", "content": "one"})
    for event in talk.engine.chat(talk.messages, **GREEDY):
        if isinstance(event, Text):
            talk.engine.cancel()
    assert isinstance(event, Done) and event.finish_reason == "cancelled" and event.tokens
    talk.messages.append({"role": "assistant", "content": event.raw})
    second = talk.ask("two")
    assert second.cached_prompt_tokens >= event.prompt_tokens + event.completion_tokens - 1
    assert talk.prompt() == f"<u>one<e><a>{event.raw}<e><u>two<e><a>bye"


@pytest.mark.parametrize("how", ["error", "closed early"])
def test_after_an_answer_without_an_end_the_conversation_before_it_is_kept(how: str) -> None:
    talk = Talk([b"Hello", b" there"], [b"Good", b"bye"], [b"bye"])
    first = talk.ask("one")

    def fail() -> None:
        raise RuntimeError("out of luck")

    messages = [*talk.messages, {"role": "user", "content": "two"}]
    events = talk.engine.chat(messages, **GREEDY)
    next(events)
    if how == "error":
        talk.model.before_decode = fail
        with pytest.raises(RuntimeError):
            list(events)
        talk.model.before_decode = lambda: None
    events.close()
    done = talk.ask("other")
    assert done.cached_prompt_tokens >= first.prompt_tokens + first.completion_tokens
    assert talk.prompt() == "<u>one<e><a>Hello there<e><u>other<e><a>Goodbye"


TEXTS = st.sampled_from(["Hello there", "Hello", "Good", "Goodbye", "", "é", "<e>", "<a>", "one"])


@given(st.lists(st.tuples(st.lists(st.tuples(TEXTS, TEXTS), max_size=3), TEXTS), min_size=1, max_size=4), st.booleans())
def test_whatever_is_asked_in_whatever_order_the_prompt_is_the_written_one(
    calls: list[tuple[list[tuple[str, str]], str]], begins: bool
) -> None:
    vocabulary = WordVocabulary(WORDS, ChatWords.CONTROLS, begins=begins)
    talk = Talk([b"Hello", b" there"], [b"Good", b"bye"], ["é".encode()], [], vocabulary=vocabulary)
    for turns, question in calls:
        pairs = [m for q, a in turns for m in (("user", q), ("assistant", a))]
        messages = [{"role": role, "content": text} for role, text in [*pairs, ("user", question)]]
        done = finish(talk.engine.chat(messages, **GREEDY))
        read = talk.engine._prompts._known
        assert vocabulary.spell(read.tokens) == read.text
        assert read.text.startswith(ChatWords().render(messages))
        assert done.prompt_tokens == len(read.tokens) - (read.text != ChatWords().render(messages)) * len(done.tokens)
        assert list(read.tokens).count(vocabulary.BEGIN) == begins


def test_thoughts_come_apart_and_history_keeps_them_for_the_template() -> None:
    talk = thinking(THOUGHTS, template=Thinking())
    talk.messages.append({"role": "user", "content": "one"})
    events = list(talk.engine.chat(talk.messages, **GREEDY))
    done = events[-1]
    assert isinstance(done, Done)
    assert (done.thought, done.text) == ("Hm, well.", "Goodbye")
    assert done.raw == b"".join(THOUGHTS).decode() and done.completion_tokens == len(THOUGHTS)
    texts = [event for event in events if isinstance(event, Text)]
    assert "".join(event.thought for event in texts) == done.thought
    assert "".join(event.text for event in texts) == done.text
    assert [token for event in texts for token in event.tokens] == list(done.tokens)

    talk.messages.append({"role": "assistant", "content": done.raw})
    second = talk.ask("two")
    assert second.cached_prompt_tokens == done.prompt_tokens, "the thoughts are gone, and the answer is read again"
    assert second.prompt_tokens == done.prompt_tokens + len("Goodbye") + len("two") + 4


def test_a_prompt_that_opens_the_thoughts() -> None:
    talk = thinking([b"Good", b"\n</", b"think>", b"\n\n", b"bye"], template=Thinking(opens=True))
    done = talk.ask("one")
    assert (done.thought, done.text, done.raw) == ("Good", "bye", "Good\n</think>\n\nbye")


def test_thoughts_without_an_end_are_thoughts() -> None:
    talk = thinking(THOUGHTS, template=Thinking())
    done = talk.ask("one", max_tokens=4)
    assert (done.thought, done.text) == ("Hm, well.\n\n</", "") and done.finish_reason == "length"


@pytest.mark.parametrize("opens", [False, True])
def test_a_thought_that_was_cut_off_does_not_stay_in_the_history(opens: bool) -> None:
    talk = thinking(THOUGHTS[2:] if opens else THOUGHTS, [b"bye"], template=Thinking(opens=opens))
    conversation = Conversation(talk.engine)
    done = finish(conversation.ask("one", max_tokens=2, **GREEDY))
    assert done.thought and not done.text and done.raw.endswith("</think>")
    finish(conversation.ask("two", max_tokens=1, **GREEDY))
    assert talk.prompt().startswith("<u>one<e><a><e><u>two<e><a>")


def test_a_stop_string_works_on_the_raw_text() -> None:
    done = thinking(THOUGHTS, template=Thinking()).ask("one", stop=("</think>\n\nGood",))
    assert (done.thought, done.text, done.finish_reason) == ("Hm, well.", "", "stop")


def test_tags_mean_nothing_to_a_template_that_has_none_or_to_plain_text() -> None:
    talk = thinking(THOUGHTS, template=ChatWords())
    done = talk.ask("one")
    assert (done.thought, done.text) == ("", done.raw) and "<think>" in done.text
    talk = thinking(THOUGHTS, template=Thinking())
    assert "<think>" in finish(talk.engine.complete("<u>one<e><a>", **GREEDY)).text


@pytest.mark.parametrize(("think", "passed"), [("auto", None), ("on", True), ("off", False)])
def test_think_reaches_the_template(think: str, passed: bool | None) -> None:
    template = Thinking()
    events = list(thinking([b"Good"], template=template).engine.chat(
        [{"role": "user", "content": "one"}], think=think, **GREEDY
    ))  # fmt: skip
    assert template.asked == [passed]
    assert not any(isinstance(event, Notice) for event in events)


def test_a_template_without_the_switch_says_so_once() -> None:
    talk = Talk([b"Hello"])
    notices = []
    for think in ("auto", "off", "on"):
        events = list(talk.engine.chat([{"role": "user", "content": "one"}], think=think, **GREEDY))
        notices += [event.message for event in events if isinstance(event, Notice)]
        assert isinstance(events[-1], Done) and events[-1].text == "Hello"
    assert len(notices) == 1 and "think off" in notices[0]


def test_turns_without_thinking_keep_what_they_share() -> None:
    """Qwen3's template without thinking ends the prompt with an empty thought that history lacks."""
    talk = thinking([b"Good"], [b"bye"], [b"Good", b"bye"], template=Thinking())
    first = talk.ask("one", think="off")
    second = talk.ask("two", think="off")
    assert (first.text, second.text) == ("Good", "bye")
    marks = len("<think>\n\n</think>\n\n")
    assert second.cached_prompt_tokens == first.prompt_tokens - marks
    third = talk.ask("three", think="off")
    assert third.cached_prompt_tokens == second.prompt_tokens - marks
