from __future__ import annotations

from pathlib import Path

import pytest

from edgespec.errors import ModelError, NoChatTemplate
from edgespec.llama import JinjaTemplate, Model

HELLO = [{"role": "user", "content": "Hello"}]


@pytest.mark.parametrize("source", [None, "", "mistral-v7-tekken"])
def test_a_model_without_a_template_says_so(source: str | None) -> None:
    with pytest.raises(NoChatTemplate, match="--raw"):
        JinjaTemplate(source)


@pytest.mark.real
def test_a_conversation_is_written_with_begin_and_end_and_asks_for_an_answer() -> None:
    source = "{{bos_token}}{% for m in messages %}{{m.role}}:{{m.content}}{{eos_token}}{% endfor %}" \
        "{% if add_generation_prompt %}assistant:{% endif %}"  # fmt: skip
    template = JinjaTemplate(source, begin="<s>", end="</s>")
    prompt = template.render(HELLO)
    assert prompt == "<s>user:Hello</s>assistant:"
    assert template.begins_itself(prompt)
    assert not template.begins_itself("user:Hello")
    assert not JinjaTemplate(source, begin="", end="").begins_itself(prompt)


@pytest.mark.real
@pytest.mark.parametrize(
    ("source", "reason"),
    [("{{ raise_exception('no system\nmessages') }}", "no system messages"), ("{{ messages[9].content }}", "has no")],
)
def test_a_template_that_refuses_is_a_sentence(source: str, reason: str) -> None:
    with pytest.raises(ModelError, match=reason) as caught:
        JinjaTemplate(source).render(HELLO)
    assert "\n" not in str(caught.value)


@pytest.mark.real
def test_a_template_that_is_not_jinja_is_refused_at_once() -> None:
    with pytest.raises(ModelError, match="template"):
        JinjaTemplate("{% if %}")


@pytest.mark.real
def test_template_of_a_file(smollm2_path: Path, gemma_path: Path) -> None:
    with Model.load(smollm2_path, vocab_only=True) as model:
        prompt = JinjaTemplate.of(model).render(HELLO)
        assert prompt.endswith("<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n")
        ids = model.vocabulary.tokenize(prompt, add_special=False)
        assert ids[0] == 1 and ids.count(2) == 2, "the template's control words must become control tokens"
    with Model.load(gemma_path, vocab_only=True) as model:
        if model.chat_template is None:
            with pytest.raises(NoChatTemplate, match=gemma_path.name):
                JinjaTemplate.of(model)
        else:
            assert JinjaTemplate.of(model).begins_itself(JinjaTemplate.of(model).render(HELLO))
