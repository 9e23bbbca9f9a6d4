"""The arguments of the chat template: the launch ones, overlaid by a request's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sample_wire.adapters.tokenizer import ByteChatML, HFTokenizer
from sample_wire.errors import SessionError

HI = [{"role": "user", "content": "hi"}]


def refused(tokenizer: ByteChatML | HFTokenizer, kwargs: Any) -> str:
    """The text of the 400 for arguments of a request."""
    with pytest.raises(SessionError) as caught:
        tokenizer.template_kwargs(kwargs)
    assert (caught.value.code, caught.value.http_status_hint) == ("template_kwargs", 400)
    return str(caught.value)


@pytest.mark.parametrize("asked", [None, {}], ids=["null", "empty"])
def test_a_request_that_asks_for_nothing_gets_the_launch_arguments(asked: Any) -> None:
    assert ByteChatML(template_kwargs={"a": 1}).template_kwargs(asked) == {"a": 1}


def test_there_are_no_arguments_where_nobody_gave_any() -> None:
    assert ByteChatML().template_kwargs(None) == {}


def test_a_requests_arguments_win_over_those_of_the_launch() -> None:
    tokenizer = ByteChatML(template_kwargs={"a": 1, "b": 2})
    assert tokenizer.template_kwargs({"b": 3, "c": 4}) == {"a": 1, "b": 3, "c": 4}


def test_an_alias_in_a_request_replaces_all_names_of_the_argument() -> None:
    tokenizer = ByteChatML(template_kwargs={"enable_thinking": True, "a": 1})
    assert tokenizer.template_kwargs({"thinking": False}) == {"a": 1, "thinking": False}


def test_resolved_arguments_resolve_to_themselves() -> None:
    tokenizer = ByteChatML(template_kwargs={"enable_thinking": True, "a": 1})
    resolved = tokenizer.template_kwargs({"thinking": False, "b": 2})
    assert tokenizer.template_kwargs(resolved) == resolved


def test_the_answer_is_the_callers_own() -> None:
    tokenizer = ByteChatML(template_kwargs={"a": 1})
    tokenizer.template_kwargs(None)["a"] = 2
    assert tokenizer.template_kwargs(None) == {"a": 1}


@pytest.mark.parametrize("asked", [[], "text", 0, False, [1]], ids=repr)
def test_what_is_no_object_is_refused(asked: Any) -> None:
    assert "must be an object" in refused(ByteChatML(), asked)


@pytest.mark.parametrize("kind", ["qwen3", "glm"])
def test_the_families_keep_the_reasoning_of_earlier_turns(
    qwen3: HFTokenizer, glm: HFTokenizer, kind: str
) -> None:
    tokenizer = {"qwen3": qwen3, "glm": glm}[kind]
    assert tokenizer.template_kwargs(None) == {"clear_thinking": False}
    assert tokenizer.template_kwargs({"clear_thinking": False}) == {"clear_thinking": False}


@pytest.mark.parametrize("value", [True, None, 0, "false"], ids=repr)
def test_a_request_cannot_change_what_its_family_fixes(glm: HFTokenizer, value: Any) -> None:
    text = refused(glm, {"clear_thinking": value})
    assert text == "chat_template_kwargs: clear_thinking is fixed to False by the family glm"


def test_a_launch_cannot_change_what_its_family_fixes(glm_folder: Path) -> None:
    with pytest.raises(ValueError, match="clear_thinking is fixed to False"):
        HFTokenizer(glm_folder, family="glm", template_kwargs={"clear_thinking": True})


@pytest.mark.parametrize(
    "name", ["messages", "tools", "chat_template", "tokenize", "add_generation_prompt", "padding"]
)
def test_a_request_cannot_name_what_is_not_the_templates(glm: HFTokenizer, name: str) -> None:
    assert name in refused(glm, {name: "{{ 1 }}"})


def test_a_launch_cannot_name_what_is_not_the_templates(glm_folder: Path) -> None:
    with pytest.raises(ValueError, match="chat_template is not"):
        HFTokenizer(glm_folder, template_kwargs={"chat_template": "{{ 1 }}"})


def test_the_template_reads_the_arguments(qwen3: HFTokenizer) -> None:
    kwargs = qwen3.template_kwargs({"enable_thinking": False})
    assert qwen3.decode(qwen3.render(HI, None, kwargs)).endswith("<think>\n\n</think>\n\n")
    tail = qwen3.append([5], HI, [], None, kwargs)[1]
    assert qwen3.decode(tail).endswith("<think>\n\n</think>\n\n")


def test_documents_reach_the_template(glm_folder: Path) -> None:
    template = "{{ documents[0].title }}"
    tokenizer = HFTokenizer(glm_folder, chat_template=template)
    kwargs = tokenizer.template_kwargs({"documents": [{"title": "hello", "text": ""}]})
    assert tokenizer.decode(tokenizer.render(HI, None, kwargs)) == "hello"
