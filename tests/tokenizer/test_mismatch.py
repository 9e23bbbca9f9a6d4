"""The report on where the ids of a session differ from its messages rendered anew."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from sample_wire.adapters.tokenizer import ByteChatML, HFTokenizer

from ._talk import TALKS, Talk, glm_reply, played, qwen3_reply

CHATML = ByteChatML()
HI = {"role": "user", "content": "hi"}
HELLO = {"role": "assistant", "content": "Hello"}
CALL = {"function": {"name": "f", "arguments": '{"a": 1}'}}
CALLED = {"role": "assistant", "content": "", "tool_calls": [CALL]}


def found(text: str, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The report of the byte-level tokenizer for what a text says instead of messages."""
    return CHATML.mismatch(messages, None, {}, CHATML.encode(text))


def written(user: str, reply: str) -> str:
    return f"<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n{reply}<|im_end|>"


def test_equal_sides_differ_nowhere() -> None:
    assert found(written("hi", "Hello"), [HI, HELLO]) == []


@pytest.mark.parametrize("end", ["", "\n", "\n\n"], ids=repr)
def test_separators_at_the_end_are_no_difference(end: str) -> None:
    assert found(written("hi", "Hello") + end, [HI, HELLO]) == []


def test_what_the_assistant_wrote_otherwise_is_told_apart_from_what_others_did() -> None:
    assert found(written("ho", "Hallo"), [HI, HELLO]) == [
        {
            "type": "non_assistant_text",
            "segment_index": 1,
            "expected_text": "user\nhi",
            "actual_text": "user\nho",
            "detail": "",
        },
        {
            "type": "assistant_text",
            "segment_index": 5,
            "expected_text": "assistant\nHello",
            "actual_text": "assistant\nHallo",
            "detail": "",
        },
    ]


def test_text_inside_a_tool_call_is_the_assistants() -> None:
    reply = '<tool_call>\n{"name":"f", "arguments": {"a":1}}\n</tool_call>'
    (entry,) = found(written("hi", reply), [HI, CALLED])
    assert (entry["type"], entry["segment_index"]) == ("assistant_text", 7)


def test_another_special_token_in_the_same_place_is_named() -> None:
    ids = CHATML.encode(written("hi", "Hello"))
    ids[ids.index(257)] = 258
    (entry,) = CHATML.mismatch([HI, HELLO], None, {}, ids)
    assert entry == {
        "type": "special_token_type",
        "segment_index": 2,
        "expected_text": "<|im_end|>",
        "actual_text": "<tool_call>",
        "detail": "",
    }


def test_another_structure_is_one_entry_that_shows_where_it_begins() -> None:
    (entry,) = found(written("hi", "<tool_call>Hello"), [HI, HELLO])
    assert entry == {
        "type": "special_token_count",
        "segment_index": -1,
        "expected_text": "<|im_end|>",
        "actual_text": "<tool_call> (5 tokens) <|im_end|>",
        "detail": "7 segments expected, 9 found; they part at segment 6, from where they are shown",
    }


@pytest.mark.parametrize("num_turns", [0, 1])
def test_one_side_that_ends_early_is_a_difference_in_structure(num_turns: int) -> None:
    (entry,) = found(written("hi", "Hello") * num_turns, [HI, HELLO, HI, HELLO])
    assert entry["type"] == "special_token_count"
    assert f"they part at segment {7 * num_turns}," in entry["detail"]


def test_a_long_structure_is_not_shown_whole() -> None:
    (entry,) = found("", [HI, HELLO] * 50)
    assert entry["expected_text"].count(" ") < 40


def test_no_messages_and_no_ids_differ_nowhere() -> None:
    assert CHATML.mismatch([], None, {}, []) == []


def test_ids_may_be_an_array() -> None:
    ids: Any = np.array(CHATML.encode(written("hi", "Hallo")), dtype=np.int64)
    assert [entry["type"] for entry in CHATML.mismatch([HI, HELLO], None, {}, ids)] == [
        "assistant_text"
    ]


def test_other_ids_of_the_same_text_are_no_difference(
    qwen3: HFTokenizer, qwen3_ids: Callable[[str], list[int]]
) -> None:
    ids = [*qwen3.render([HI], None, {}), *qwen3_ids("Hel"), *qwen3_ids("lo<|im_end|>")]
    assert len(ids) > len(qwen3.render([HI], None, {})) + 2
    assert qwen3.mismatch([HI, HELLO], None, {}, ids) == []


@pytest.mark.parametrize("end", ["<|user|>", "<|observation|>", ""])
def test_the_token_that_ends_a_glm_turn_is_no_difference(
    glm: HFTokenizer, glm_ids: Callable[[str], list[int]], end: str
) -> None:
    ids = glm_ids("[gMASK]<sop><|user|>hi<|assistant|></think>Hello" + end)
    assert glm.mismatch([HI, HELLO], None, {}, ids) == []


@pytest.mark.parametrize("content", ["hi", "assistant"])
def test_the_roles_of_glm_tell_whose_text_differs(
    glm: HFTokenizer, glm_ids: Callable[[str], list[int]], content: str
) -> None:
    text = "[gMASK]<sop><|user|>ho<|assistant|></think>Hallo<|observation|>"
    found = glm.mismatch([HI | {"content": content}, HELLO], None, {}, glm_ids(text))
    assert [entry["type"] for entry in found] == ["non_assistant_text", "assistant_text"]


@given(talk=TALKS)
def test_a_session_whose_model_wrote_what_the_template_writes_differs_nowhere(
    talk: Talk, qwen3: HFTokenizer, qwen3_ids: Callable[[str], list[int]]
) -> None:
    steps = played(talk, qwen3, lambda reply: qwen3_ids(qwen3_reply(reply)))
    for step, (_, following) in zip(steps, talk.turns, strict=True):
        stored = step.messages[: len(step.messages) - len(following)]
        kwargs = qwen3.template_kwargs(None)
        assert qwen3.mismatch(stored, talk.tools, kwargs, step.checkpoint) == []


def test_a_report_in_a_thread_does_not_disturb_prompts_made_meanwhile(qwen3: HFTokenizer) -> None:
    messages = [HI, {"role": "assistant", "content": "hello the " * 3000}] * 4
    ids = [*qwen3.render(messages, None, {})]
    reports: list[list[dict[str, Any]]] = []
    report = threading.Thread(
        target=lambda: reports.append(qwen3.mismatch(messages, None, {}, ids))
    )
    before = qwen3.append([5], [HI, HELLO], [HI], None, {})
    report.start()
    prompts = [qwen3.append([5], [HI, HELLO], [HI], None, {}) for _ in range(50)]
    report.join()
    assert prompts == [before] * 50
    (entries,) = reports
    assert [entry["type"] for entry in entries] == ["special_token_count"]


def test_text_that_no_message_opens_is_not_the_assistants(
    glm_folder: Path, glm_ids: Callable[[str], list[int]]
) -> None:
    tokenizer = HFTokenizer(glm_folder, chat_template="<sop>hello")
    (entry,) = tokenizer.mismatch([HELLO], None, {}, glm_ids("<sop>hallo"))
    assert (entry["type"], entry["segment_index"]) == ("non_assistant_text", 1)


def test_a_conversation_that_the_template_refuses_has_no_report(glm: HFTokenizer) -> None:
    broken = CALLED | {"tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}
    with pytest.raises(Exception, match="the chat template refuses"):
        glm.mismatch([HI, broken], None, {}, [5])


def test_glm_reply_is_what_the_template_writes(
    glm: HFTokenizer, glm_ids: Callable[[str], list[int]]
) -> None:
    ids = glm_ids(f"[gMASK]<sop><|user|>hi<|assistant|>{glm_reply(CALLED)}<|observation|>")
    assert glm.mismatch([HI, CALLED], None, {}, ids) == []
