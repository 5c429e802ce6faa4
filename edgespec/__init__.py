"""edgespec: local language models answer faster, and say the same.

with edgespec.load("qwen2.5-coder-1.5b") as engine:
    for event in engine.chat([{"role": "user", "content": "Hello!"}], temperature=0.7):
        if isinstance(event, edgespec.events.Text):
            print(event.text, end="")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgespec import errors, events

if TYPE_CHECKING:
    from edgespec.chat import Conversation
    from edgespec.engine import Engine
    from edgespec.loading import load

__version__ = "0.1.0"

__all__ = ["Conversation", "Engine", "errors", "events", "load"]

_HOMES = {"Conversation": "edgespec.chat", "Engine": "edgespec.engine", "load": "edgespec.loading"}


def __getattr__(name: str) -> Any:
    """The heavier names are imported when first used, so that `import edgespec` costs nothing."""
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
