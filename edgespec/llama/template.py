"""The model's own chat template, rendered with Jinja."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from edgespec.errors import EdgespecError, ModelError, NoChatTemplate
from edgespec.llama.library import library
from edgespec.llama.model import Model
from edgespec.protocols import THOUGHT_ENDS, THOUGHT_OPENS, Message

THINK_SWITCHES = frozenset({"enable_thinking", "thinking"})
"""What templates call the variable that turns thinking on or off (Qwen3 and most others; DeepSeek-V3.1, Granite)."""

T = TypeVar("T")


class JinjaTemplate:
    """A `ChatTemplate` from the text of a template and the texts of the begin and end tokens.

    Raises NoChatTemplate for no template, ModelError for one that is not valid Jinja.
    """

    def __init__(self, source: str | None, *, begin: str = "", end: str = "", model: str = "The model") -> None:
        # llama.cpp names a built-in template ("mistral-v7-tekken") for a few files that have none.
        if not source or "{" not in source:
            raise NoChatTemplate(f"{model} has no chat template: use `edgespec run --raw`, or an instruct model.")
        self._model = model
        self._begin = begin
        self.has_thoughts = THOUGHT_OPENS in source or THOUGHT_ENDS in source
        self._render = self._refusing(lambda: _formatter(source, begin, end))
        self.has_think_switch = bool(THINK_SWITCHES & self._refusing(lambda: _variables(self._render)))

    @classmethod
    def of(cls, model: Model) -> JinjaTemplate:
        """The template of a loaded model (`vocab_only` suffices)."""
        words = model.vocabulary
        begin, end = ("" if token is None else words.text(token).decode("utf-8", "replace")
                      for token in (words.begin, words.end))  # fmt: skip
        return cls(model.chat_template, begin=begin, end=end, model=model.path.name)

    def render(self, messages: Sequence[Message], think: bool | None = None) -> str:
        """The conversation as a prompt that asks for the assistant's next message.

        `think` reaches the template only where it is not None, so that the template's own default holds.
        Raises ModelError where the template refuses the conversation (a system message, two user messages in a row).
        """
        wishes = {} if think is None else dict.fromkeys(THINK_SWITCHES, think)
        return self._refusing(lambda: str(self._render(messages=list(messages), **wishes).prompt))

    def begins_itself(self, prompt: str) -> bool:
        """Whether the rendered prompt has the begin token already, so that tokenizing must not add another."""
        return bool(self._begin) and prompt.startswith(self._begin)

    def _refusing(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except EdgespecError:
            raise
        except Exception as error:  # a template is a program; it can fail in any way
            reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
            raise ModelError(
                f"The chat template of {self._model} refuses this conversation ({reason}): change the messages, or use "
                "`edgespec run --raw`."
            ) from error


def _formatter(source: str, begin: str, end: str) -> Any:
    library()  # llama_cpp must not be imported before its log is in our hands
    from llama_cpp.llama_chat_format import Jinja2ChatFormatter

    return Jinja2ChatFormatter(template=source, eos_token=end, bos_token=begin)


def _variables(formatter: Any) -> set[str]:
    """The names that a template looks up in what it is given."""
    from jinja2.meta import find_undeclared_variables

    return find_undeclared_variables(formatter._environment.environment.parse(formatter.template))
