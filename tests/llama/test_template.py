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


QWEN3 = """
{%- for m in messages %}
{%- set content = m.content %}
{%- if m.role == 'assistant' and '</think>' in content %}
{%- set content = content.split('</think>')[-1].lstrip('\\n') %}
{%- endif %}
{{- '<|im_start|>' + m.role + '\\n' + content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}
"""


@pytest.mark.real
def test_a_thinking_template_is_told_whether_to_think_and_strips_thoughts() -> None:
    template = JinjaTemplate(QWEN3)
    assert template.has_thoughts and template.has_think_switch
    asked = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    assert template.render(HELLO) == asked == template.render(HELLO, True)
    assert template.render(HELLO, False) == asked + "<think>\n\n</think>\n\n"
    turns = [*HELLO, {"role": "assistant", "content": "<think>\nHm.\n</think>\n\nHi."}, *HELLO]
    assert "Hm." not in template.render(turns) and "assistant\nHi.<|im_end|>" in template.render(turns)


@pytest.mark.real
@pytest.mark.parametrize(
    ("source", "thoughts", "switch"),
    [
        ("{{ messages[0].content }}", False, False),
        ("{{ messages[0].thinking }}{# enable_thinking #}thinking", False, False),
        ("{{ messages[0].content.split('</think>')[-1] }}", True, False),
        ("{% if not thinking is defined %}{% set thinking = false %}{% endif %}{{ thinking }}", False, True),
        ("{% set enable_thinking = enable_thinking | default(true) %}{{ '<think>' if enable_thinking }}", True, True),
    ],
)
def test_what_a_template_can_do_is_read_from_its_source(source: str, thoughts: bool, switch: bool) -> None:
    template = JinjaTemplate(source)
    assert (template.has_thoughts, template.has_think_switch) == (thoughts, switch)
