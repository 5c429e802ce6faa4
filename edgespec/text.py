"""Tokens to text that may be shown: whole characters only, nothing of a stop string."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence

from edgespec.thoughts import unfinished


class StopText:
    """The text of one answer as it grows.

    Bytes of an unfinished character are kept until they are complete; text that could still become a stop string is
    withheld. Concatenating what `push` and `finish` return gives the answer's text, cut before the first stop string.
    """

    def __init__(self, piece: Callable[[int], bytes], stops: Sequence[str] = ()) -> None:
        self._piece = piece
        self._stops = tuple(stops)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self._stopped = False

    @property
    def stopped(self) -> bool:
        return self._stopped

    def push(self, token: int) -> str:
        return "" if self._stopped else self._release(self._decoder.decode(self._piece(token)))

    def finish(self) -> str:
        if self._stopped:
            return ""
        text = self._release(self._decoder.decode(b"", final=True))
        held, self._held = self._held, ""
        return text + ("" if self._stopped else held)

    def _release(self, new: str) -> str:
        text = self._held + new
        found = [at for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            self._stopped, self._held = True, ""
            return text[: min(found)]
        keep = max((unfinished(text, stop) for stop in self._stops), default=0)
        cut = len(text) - keep
        self._held = text[cut:]
        return text[:cut]
