"""The set-up: makes the environment on first use, then hands over to edgespec, pytest or the linters.

Standard library only, since nothing is installed yet. The way through it:
`__main__` asks `stamp` whether all is done (a few milliseconds), and if not, `prepare` does what is missing:
`probe` reads the machine, `toolchain` decides, `library` builds llama.cpp, `environment` fills the virtual environment.
"""

from __future__ import annotations

TYPE_CHECKING = False  # spares the start-up the import of typing
if TYPE_CHECKING:
    from pathlib import Path


class SetupError(Exception):
    """Set-up cannot go on. The message is one sentence that says what to do; `log` holds the whole story, if any."""

    def __init__(self, sentence: str, log: Path | None = None) -> None:
        super().__init__(sentence)
        self.log = log


class BrokenOff(Exception):
    """The set-up is being stopped; nobody need be told."""
