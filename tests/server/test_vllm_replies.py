"""vLLM's replies as chat completions: text, tool calls, log-probs, counts, and their replay."""

from __future__ import annotations

import json
import math
from typing import Any, Final

import openai
import pytest

from ._serving import Handle
from ._sglang import answer
from ._stub import StubEngine
from ._vllm import (
    CALL,
    CALL_TEXT,
    CHATML,
    END,
    IDS,
    PROMPT,
    TOOLS,
    USER,
    generated,
    npy_base64,
    says,
)
from .conftest import SPEC, StartServer


def reply_to(session: Handle, engine: StubEngine, text: str, **options: Any) -> dict[str, Any]:
    """The chat completion where the engine samples this text."""
    finish = options.pop("finish", "stop")
    engine.will(says(text, finish=finish))
    response = session.chat([USER], **options)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def choice_of(session: Handle, engine: StubEngine, text: str, **options: Any) -> dict[str, Any]:
    """The choice of that chat completion."""
    (choice,) = reply_to(session, engine, text, **options)["choices"]
    found: dict[str, Any] = choice
    return found


def content_of(session: Handle, engine: StubEngine, text: str, **options: Any) -> str:
    """The content of that choice."""
    found: str = choice_of(session, engine, text, **options)["message"]["content"]
    return found


def test_a_reply_is_a_plain_chat_completion(vllm_session: Handle, engine: StubEngine) -> None:
    assert reply_to(vllm_session, engine, f"ok{END}") == {
        "id": "generate-tokens-1",
        "object": "chat.completion",
        "created": 1700000000,
        "model": "stub",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "ok"},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": len(PROMPT),
            "total_tokens": len(PROMPT) + 3,
            "completion_tokens": 3,
            "prompt_tokens_details": {"cached_tokens": 2},
        },
    }


def test_what_an_older_engine_does_not_name_is_filled_in(
    vllm_session: Handle, engine: StubEngine
) -> None:
    reply = generated(len(PROMPT), IDS)
    for key in ("request_id", "created", "model", "usage"):
        del reply[key]
    engine.will(answer(reply), answer(reply))
    found = vllm_session.chat([USER], model="asked").json()
    record = vllm_session.dump()["records"][0]
    assert (found["id"], found["model"]) == ("", "asked")
    assert found["created"] == int(record["timestamp"])
    assert found["usage"] == {
        "prompt_tokens": len(PROMPT),
        "completion_tokens": 3,
        "total_tokens": len(PROMPT) + 3,
    }
    assert vllm_session.chat([USER]).json()["model"] == ""


def test_tool_calls_are_read_from_the_text(vllm_session: Handle, engine: StubEngine) -> None:
    choice = choice_of(vllm_session, engine, f"Well. {CALL_TEXT}{END}", tools=TOOLS)
    (call,) = choice["message"].pop("tool_calls")
    assert call == {"id": call["id"], "type": "function", "function": CALL}
    assert choice["message"] == {"role": "assistant", "content": "Well."}
    assert choice["finish_reason"] == "tool_calls"


def test_content_is_never_null(vllm_session: Handle, engine: StubEngine) -> None:
    assert content_of(vllm_session, engine, f"{CALL_TEXT}{END}", tools=TOOLS) == ""


@pytest.mark.parametrize(
    "options",
    [{}, {"tools": []}, {"tools": TOOLS, "tool_choice": "none"}],
    ids=["no tools", "empty tools", "tool_choice none"],
)
def test_without_tools_to_call_the_text_stays(
    vllm_session: Handle, engine: StubEngine, options: Any
) -> None:
    choice = choice_of(vllm_session, engine, f"{CALL_TEXT}{END}", **options)
    assert choice["message"] == {"role": "assistant", "content": CALL_TEXT}
    assert choice["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("text", "num_calls"), [(CALL_TEXT, 1), (CALL_TEXT[:-3], 0)], ids=["whole", "cut off"]
)
def test_a_length_stays_a_length(
    vllm_session: Handle, engine: StubEngine, text: str, num_calls: int
) -> None:
    choice = choice_of(vllm_session, engine, text, finish="length", tools=TOOLS)
    assert choice["finish_reason"] == "length"
    assert len(choice["message"].get("tool_calls", ())) == num_calls
    (sample,) = vllm_session.collect().samples
    assert sample.status.value == "truncated"


@pytest.mark.parametrize("finish", ["abort", "repetition", None])
def test_other_finish_reasons_are_told_as_they_are(
    vllm_session: Handle, engine: StubEngine, finish: str | None
) -> None:
    assert choice_of(vllm_session, engine, "ok", finish=finish)["finish_reason"] == finish


def test_an_aborted_reply_without_tokens_has_no_text(
    vllm_session: Handle, engine: StubEngine
) -> None:
    assert content_of(vllm_session, engine, "", finish="abort") == ""
    (sample,) = vllm_session.collect().samples
    assert (sample.status.value, sample.response_length) == ("aborted", 0)


STOPPED: Final = {
    "an end mark": (f"ok{END}", {}, "ok"),
    "a stop text": ("one two", {"stop": "two"}, "one "),
    "one of two stop texts": ("one two", {"stop": ["x", "two"]}, "one "),
    "the first of two stop texts": ("one two", {"stop": ["two", "wo", " t"]}, "one"),
    "a stop text that was not reached": (f"one{END}", {"stop": "two"}, "one"),
    "a stop text within min_tokens": ("aXbX", {"stop": "X", "min_tokens": 3}, "aXb"),
    "a stop text that ends behind min_tokens": (
        "STOP STOP",
        {"stop": "STOP", "min_tokens": 6},
        "STOP ",
    ),
    "a stop text that is wanted": (
        "one two",
        {"stop": "two", "include_stop_str_in_output": True},
        "one two",
    ),
    "a stop id": ("ok!", {"stop_token_ids": [ord("!")]}, "ok"),
    "marks in the midst": (f"a<|im_start|>b{END}", {}, "ab"),
    "marks that are wanted": (
        f"a<|im_start|>b{END}",
        {"skip_special_tokens": False},
        "a<|im_start|>b",
    ),
    "nothing": ("", {}, ""),
}


@pytest.mark.parametrize(("text", "options", "expected"), STOPPED.values(), ids=STOPPED)
def test_what_ended_the_text_is_not_in_it(
    vllm_session: Handle, engine: StubEngine, text: str, options: Any, expected: str
) -> None:
    assert content_of(vllm_session, engine, text, **options) == expected
    (sample,) = vllm_session.collect().samples
    assert sample.tokens[len(PROMPT) :].tolist() == CHATML.encode(text)


def test_text_that_did_not_stop_is_not_cut(vllm_session: Handle, engine: StubEngine) -> None:
    found = content_of(vllm_session, engine, "one two", finish="length", stop="two")
    assert found == "one two"


def test_log_probs_are_told_in_openais_form_where_they_are_wished_for(
    vllm_session: Handle, engine: StubEngine
) -> None:
    reply = generated(len(PROMPT), [ord("a"), 0xC3, 257], [-0.125, -math.inf, 0])
    content = reply["choices"][0]["logprobs"]["content"]
    content[0]["top_logprobs"] += [
        {"token": "token_id:98", "logprob": -1.5},
        {"token": "token_id:99", "logprob": -2.5},
    ]
    content[1]["top_logprobs"] = None
    content[2]["token"] = "as text"
    engine.will(answer(reply))
    (choice,) = vllm_session.chat([USER], logprobs=True, top_logprobs=2).json()["choices"]
    first = {"token": "a", "logprob": -0.125, "bytes": [97]}
    assert choice["logprobs"] == {
        "content": [
            {**first, "top_logprobs": [first, {"token": "b", "logprob": -1.5, "bytes": [98]}]},
            {"token": "\ufffd", "logprob": None, "bytes": None, "top_logprobs": []},
            {
                "token": "as text",
                "logprob": 0.0,
                "bytes": [*b"as text"],
                "top_logprobs": [{"token": END, "logprob": 0.0, "bytes": [*END.encode()]}],
            },
        ],
        "refusal": None,
    }


def test_without_top_log_probs_only_the_sampled_ones_are_told(
    vllm_session: Handle, engine: StubEngine
) -> None:
    content = choice_of(vllm_session, engine, f"ok{END}", logprobs=True)["logprobs"]["content"]
    assert [entry["token"] for entry in content] == ["o", "k", END]
    assert [entry["top_logprobs"] for entry in content] == [[], [], []]


@pytest.mark.parametrize("settings", [{}, {"routing": SPEC}], ids=["none", "full"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_routing_is_recorded_and_not_shown(
    start_vllm: StartServer, engine: StubEngine, settings: Any, stream: bool
) -> None:
    session = start_vllm(**settings).create()
    engine.will(says(f"ok{END}", routing=True))
    assert b"routed_experts" not in session.chat([USER], stream=stream).content
    response = session.dump()["records"][0]["response"]
    sent = npy_base64(len(PROMPT) + 2, 0)
    assert response == generated(len(PROMPT), IDS, routed_experts=sent)
    (sample,) = session.collect().samples
    assert sample.rollout_routed_experts is not None
    assert len(sample.rollout_routed_experts) == len(sample.tokens) - 1


def test_an_echo_of_the_prompts_ids_is_recorded_and_not_shown(
    vllm_session: Handle, engine: StubEngine
) -> None:
    reply = generated(len(PROMPT), IDS) | {"prompt_token_ids": PROMPT}
    engine.will(answer(reply))
    assert "prompt_token_ids" not in vllm_session.chat([USER]).json()
    assert vllm_session.dump()["records"][0]["response"] == reply


def test_a_stream_is_one_chunk_and_the_end_mark(vllm_session: Handle, engine: StubEngine) -> None:
    engine.will(says(f"{CALL_TEXT}{END}"))
    response = vllm_session.chat([USER], tools=TOOLS, stream=True)
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    chunk, end, rest = response.text.split("\n\n")
    assert (end, rest) == ("data: [DONE]", "")
    found = json.loads(chunk.removeprefix("data: "))
    (choice,) = found.pop("choices")
    (call,) = choice["delta"]["tool_calls"]
    assert (call["index"], call["function"]) == (0, CALL)
    assert (choice["delta"]["content"], choice["finish_reason"]) == ("", "tool_calls")
    assert found["object"] == "chat.completion.chunk"
    assert found["usage"]["total_tokens"] == found["usage"]["prompt_tokens"] + len(
        CHATML.encode(f"{CALL_TEXT}{END}")
    )


def test_the_last_messages_are_kept_where_they_are_wished_for(
    start_vllm: StartServer, engine: StubEngine
) -> None:
    session = start_vllm(keep_messages=True).create()
    said = reply_to(session, engine, f"ok{END}")["choices"][0]["message"]
    (sample,) = session.collect().samples
    assert sample.metadata["messages"] == [USER, said]


MATCHERS: Final = ("strict", "loose_tool_call", "role_content_only")


@pytest.mark.parametrize("content", [None, "", []], ids=["null", "empty", "no parts"])
@pytest.mark.parametrize("matcher", MATCHERS)
def test_a_replayed_tool_call_is_the_stored_one_however_its_content_is_spelled(
    start_vllm: StartServer, engine: StubEngine, matcher: str, content: Any
) -> None:
    session = start_vllm(matcher=matcher).create()
    said = choice_of(session, engine, f"{CALL_TEXT}{END}", tools=TOOLS)["message"]
    result = {"role": "tool", "tool_call_id": said["tool_calls"][0]["id"], "content": "5"}
    engine.will(says(f"done{END}"))
    replayed = {**said, "content": content, "refusal": None}
    assert session.chat([USER, replayed, result], tools=TOOLS).status_code == 200
    assert session.num_records() == 2
    (sample,) = session.collect().samples
    assert sample.loss_mask is not None
    assert sample.loss_mask.tolist().count(1) == len(CHATML.encode(f"{CALL_TEXT}{END}done{END}"))


def test_a_replay_that_rewrites_the_arguments_is_another_conversation_unless_matched_loosely(
    start_vllm: StartServer, engine: StubEngine
) -> None:
    counts = {}
    for matcher in MATCHERS:
        session = start_vllm(matcher=matcher).create()
        said = choice_of(session, engine, f"{CALL_TEXT}{END}", tools=TOOLS)["message"]
        said["tool_calls"][0]["function"]["arguments"] = '{"a":1}'
        engine.will(says(f"done{END}"))
        assert session.chat([USER, said, USER], tools=TOOLS).status_code == 200
        counts[matcher] = session.num_records()
    assert counts == {"strict": 1, "loose_tool_call": 2, "role_content_only": 2}


def test_an_agent_calls_tools_through_the_openai_package(
    vllm_session: Handle, engine: StubEngine
) -> None:
    engine.will(says(f"{CALL_TEXT}{CALL_TEXT}{END}"), says(f"done{END}"))
    messages: list[Any] = [USER]
    with openai.OpenAI(base_url=vllm_session.chat_url, api_key="k", max_retries=0) as agent:
        asked: Any = agent.chat.completions.create(model="stub", messages=messages, tools=TOOLS)
        said = asked.choices[0].message
        messages.append(said)
        messages += [
            {"role": "tool", "tool_call_id": call.id, "content": "5"} for call in said.tool_calls
        ]
        done = agent.chat.completions.create(model="stub", messages=messages, tools=TOOLS)
    assert len({call.id for call in said.tool_calls}) == 2
    assert done.choices[0].message.content == "done"
    assert vllm_session.num_records() == 2


def test_an_agent_streams_through_the_openai_package(
    vllm_session: Handle, engine: StubEngine
) -> None:
    engine.will(says(f"ok{END}"))
    with openai.OpenAI(base_url=vllm_session.chat_url, api_key="k", max_retries=0) as agent:
        messages: list[Any] = [USER]
        (chunk,) = agent.chat.completions.create(model="stub", messages=messages, stream=True)
    assert chunk.choices[0].delta.content == "ok"
    assert chunk.choices[0].finish_reason == "stop"


def test_a_retry_is_a_branch_of_a_tree_in_front_of_vllm_too(
    start_vllm: StartServer, engine: StubEngine
) -> None:
    session = start_vllm(trajectory="tree").create()
    contents = [content_of(session, engine, f"{text}{END}") for text in ("one", "two")]
    assert contents == ["one", "two"]
    nodes = session.dump()["metadata"]["tree"]["nodes"]
    assert [(node["id"], node["parent"], node["response_id"]) for node in nodes] == [
        (0, None, "generate-tokens-1"),
        (1, None, "generate-tokens-1"),
    ]


def test_the_mismatch_report_knows_the_tools_and_messages(
    vllm_session: Handle, engine: StubEngine
) -> None:
    call = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
    reply_to(vllm_session, engine, f"{call}{END}", tools=TOOLS)
    assert vllm_session.dump()["metadata"]["tito_session_mismatch"] == []
