"""Chat templates with habits of their own: what append makes of them, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sample_wire.adapters.tokenizer import HFTokenizer
from sample_wire.errors import SessionError

from ._talk import appended_to

USER = {"role": "user", "content": "hi"}
SAID = {"role": "assistant", "content": "hello"}
PLAIN = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}"
NEEDS_USER = (
    "{% if messages | selectattr('role', 'equalto', 'user') | list | length == 0 %}"
    "{{ raise_exception('no user') }}{% endif %}"
)
REFUSES_SYSTEM = "{% if messages[0].role == 'system' %}{{ raise_exception('system') }}{% endif %}"
# As Qwen3's: the reasoning of the turns before the last question is dropped.
FORGETS = (
    "{% set ns = namespace(last=messages | length - 1, found=false) %}"
    "{% for m in messages[::-1] if m.role == 'user' and not ns.found %}"
    "{% set ns.found = true %}{% set ns.last = messages.index(m) %}{% endfor %}"
    "{% for m in messages %}<|{{ m.role }}|>"
    "{% if m.role == 'assistant' and loop.index0 > ns.last and m.reasoning_content %}"
    "<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}{% endfor %}"
)


def template_tokenizer(folder: Path, template: str) -> HFTokenizer:
    return HFTokenizer(folder, chat_template=template)


def refused(tokenizer: HFTokenizer, appended: list[Any]) -> SessionError:
    with pytest.raises(SessionError) as caught:
        appended_to(tokenizer, [], [USER, SAID], appended)
    return caught.value


@pytest.mark.parametrize(
    "template",
    [PLAIN, NEEDS_USER + PLAIN, REFUSES_SYSTEM + PLAIN, FORGETS],
    ids=["plain", "needs a user", "refuses system messages", "forgets reasoning"],
)
@pytest.mark.parametrize("role", ["user", "tool"])
def test_only_the_appended_messages_follow_the_checkpoint(
    glm_folder: Path, template: str, role: str
) -> None:
    tokenizer = template_tokenizer(glm_folder, template)
    prompt = appended_to(tokenizer, [], [USER, SAID], [{"role": role, "content": "more"}])
    assert tokenizer.decode(prompt) == f"<|{role}|>more"


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages | length }}" + PLAIN,
        "{% for m in messages[::-1] %}<|{{ m.role }}|>{{ m.content }}{% endfor %}",
        NEEDS_USER + FORGETS,
    ],
    ids=["counts messages", "turns them round", "forgets reasoning after a user"],
)
def test_a_template_that_changes_earlier_turns_is_refused(glm_folder: Path, template: str) -> None:
    error = refused(template_tokenizer(glm_folder, template), [USER])
    assert (error.code, error.http_status_hint) == ("template_not_prefix", 500)


@pytest.mark.parametrize(
    "head",
    ["", NEEDS_USER, REFUSES_SYSTEM],
    ids=["nothing else", "needs a user", "refuses system first"],
)
def test_a_role_that_the_template_refuses_is_refused_in_its_words(
    glm_folder: Path, head: str
) -> None:
    template = head + (
        "{% for m in messages %}{% if not loop.first and m.role == 'system' %}"
        "{{ raise_exception('system must be first') }}{% endif %}"
        "<|{{ m.role }}|>{{ m.content }}{% endfor %}"
    )
    error = refused(template_tokenizer(glm_folder, template), [{"role": "system", "content": "x"}])
    assert (error.code, error.http_status_hint) == ("render_failed", 400)
    assert str(error) == "the chat template refuses the messages: system must be first"


@pytest.mark.parametrize(
    "expression",
    ["1 + m.content", "m.content.nothing.more", "m.content.zfill()", "1 // 0", "m.content[5:].x.y"],
)
def test_a_template_that_fails_on_a_conversation_is_refused(
    glm_folder: Path, expression: str
) -> None:
    template = "{% for m in messages %}{{ " + expression + " }}{% endfor %}"
    tokenizer = template_tokenizer(glm_folder, template)
    with pytest.raises(SessionError, match="the chat template refuses") as caught:
        tokenizer.render([USER], None, {})
    assert (caught.value.code, caught.value.http_status_hint) == ("render_failed", 400)


def test_a_template_cannot_leave_its_sandbox(glm_folder: Path) -> None:
    tokenizer = template_tokenizer(glm_folder, "{{ messages.__class__.__mro__ }}")
    with pytest.raises(SessionError, match="the chat template refuses"):
        tokenizer.render([USER], None, {})


def test_the_tools_are_rendered_into_the_first_prompt_only(qwen3: HFTokenizer) -> None:
    tools = [{"type": "function", "function": {"name": "look_up"}}]
    first = qwen3.decode(qwen3.render([USER], tools, {}))
    tail = qwen3.decode(qwen3.append([5], [USER, SAID], [USER], tools, {})[1])
    assert first.count("look_up") == 1
    assert tail == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
