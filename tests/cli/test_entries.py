"""What lines mean, without anything that does it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgespec.cli.chat.entries import COMMANDS, HELP, Command, Composer, Say, unknown_command


def entries(*lines: str) -> list[Say | Command]:
    composer = Composer()
    found = [composer.feed(line) for line in lines]
    if composer.pending:
        found.append(composer.finish())
    return [entry for entry in found if entry is not None]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["hello", " there "], [Say("hello"), Say(" there ")]),
        (["", "  ", "\t"], []),
        (["one \\", "two\\", "three", "four"], [Say("one \ntwo\nthree"), Say("four")]),
        (["a\\\\", "b"], [Say("a\\\\"), Say("b")]),
        (["a\\\\\\", "b"], [Say("a\\\\\nb")]),
        (["last\\"], [Say("last")]),
        (['"""', "a", "", "/b", "c\\", '"""', "d"], [Say("a\n\n/b\nc\\"), Say("d")]),
        (['"""', "open"], [Say("open")]),
        (['"""', '"""'], []),
        (['say """ loud'], [Say('say """ loud')]),
        (["/help"], [Command("help", "")]),
        (["/set  top-k   7 "], [Command("set", "top-k   7")]),
        (["/system You are\\", "a cat."], [Command("system", "You are\na cat.")]),
        (["//help me"], [Say("/help me")]),
        (["/", "/ "], [Command("", ""), Command("", "")]),
        ([" /help"], [Say(" /help")]),
        (["/usr/bin is\na pasted line"], [Say("/usr/bin is\na pasted line")]),
    ],
)
def test_what_lines_mean(lines: list[str], expected: list) -> None:
    assert entries(*lines) == expected


@given(st.lists(st.text(st.characters(exclude_characters="\n")), max_size=6))
def test_a_block_is_its_lines(lines: list[str]) -> None:
    lines = [line for line in lines if line.strip() != '"""']
    text = "\n".join(lines)
    assert entries('"""', *lines, '"""') == ([Say(text)] if text.strip() else [])


def test_more_lines_are_pending_only_in_between() -> None:
    composer = Composer()
    seen = []
    for line in ("a", "b\\", "c", '"""', "d", '"""'):
        composer.feed(line)
        seen.append(composer.pending)
    assert seen == [False, True, False, True, True, False]


def test_an_unknown_command_names_the_nearest() -> None:
    assert "did you mean /regenerate?" in str(unknown_command("regenrate"))
    assert "/help lists them." in str(unknown_command("xyzzy"))


def test_help_lists_every_command() -> None:
    assert all(f"/{name}" in HELP for name in COMMANDS)
