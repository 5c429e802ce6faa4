"""A thinking model's thoughts, told apart from its answer."""

from __future__ import annotations

from enum import Enum, auto

from edgespec.protocols import THOUGHT_ENDS, THOUGHT_OPENS


class ThoughtText:
    """Parts an answer into thoughts and what is said, as it grows.

    Thoughts stand between tags at the very start, or up to the closing tag where the prompt `opened` them. White space
    next to the tags belongs to neither. What could still become a tag is withheld; `finish` returns it.
    """

    def __init__(self, opened: bool = False) -> None:
        self._place = _Place.OPENED if opened else _Place.START
        self._held = ""

    @property
    def open(self) -> bool:
        """Whether a thought has begun that has not ended."""
        return self._place in (_Place.OPENED, _Place.THINKING)

    def push(self, text: str) -> tuple[str, str]:
        """Take the next text of the answer; return what is certain of it: (thought, said)."""
        self._held += text
        if self._place is _Place.START:
            self._open()
        thought = self._think() if self.open else ""
        return thought, self._say()

    def finish(self) -> tuple[str, str]:
        """What was withheld, at the end of the answer."""
        rest, self._held = self._held, ""
        return ("", rest) if self._place in (_Place.START, _Place.SAYING) else (rest.rstrip(), "")

    def _open(self) -> None:
        start = self._held.lstrip()
        if start.startswith(THOUGHT_OPENS):
            self._place, self._held = _Place.OPENED, start.removeprefix(THOUGHT_OPENS)
        elif not THOUGHT_OPENS.startswith(start):
            self._place = _Place.SAYING

    def _think(self) -> str:
        if self._place is _Place.OPENED:
            self._held = self._held.lstrip()
        thought, closed, rest = self._held.partition(THOUGHT_ENDS)
        if closed:
            self._place, self._held = _Place.CLOSED, rest
            return thought.rstrip()
        thought = thought[: len(thought) - unfinished(thought, THOUGHT_ENDS)].rstrip()
        self._held = self._held[len(thought) :]
        if thought:
            self._place = _Place.THINKING
        return thought

    def _say(self) -> str:
        if self._place is _Place.CLOSED and (start := self._held.lstrip()):
            self._place, self._held = _Place.SAYING, start
        if self._place is not _Place.SAYING:
            return ""
        said, self._held = self._held, ""
        return said


class _Place(Enum):
    """Where in an answer we are; OPENED and CLOSED last until something other than white space comes."""

    START = auto()
    OPENED = auto()
    THINKING = auto()
    CLOSED = auto()
    SAYING = auto()


def unfinished(text: str, stop: str) -> int:
    """The length of the longest end of `text` that is a beginning of `stop`, and could become it."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if stop.startswith(text[-n:])), 0)
