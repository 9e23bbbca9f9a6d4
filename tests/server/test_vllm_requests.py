"""Chat in front of vLLM: what its token-in endpoint is asked, and what is refused by name."""

from __future__ import annotations

from typing import Any, Final

import pytest

from sample_wire.adapters.server import ServerSettings, create_app

from ._errors import error_of, refusal
from ._serving import Handle
from ._sglang import answer
from ._stub import StubEngine
from ._vllm import CALL_TEXT, CHATML, END, PATH, PROMPT, TOOLS, USER, says
from .conftest import INCREMENTAL, SPEC, StartServer


def asked(session: Handle, engine: StubEngine, **body: Any) -> dict[str, Any]:
    """What reached the engine of a first turn with this body."""
    engine.will(says(f"ok{END}"))
    response = session.chat([USER], **body)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = engine.seen[-1].json
    return found


def sampled(session: Handle, engine: StubEngine, **body: Any) -> dict[str, Any]:
    """The sampling parameters of a first turn with this body."""
    found: dict[str, Any] = asked(session, engine, **body)["sampling_params"]
    return found


def test_a_turn_is_posted_to_the_token_in_endpoint(
    vllm_session: Handle, engine: StubEngine
) -> None:
    asked(vllm_session, engine)
    (seen,) = engine.seen
    assert (seen.method, seen.target) == ("POST", PATH)
    assert seen.values("content-type") == ["application/json"]


def test_a_bare_request_is_the_prompts_ids_and_what_must_be_said(
    vllm_session: Handle, engine: StubEngine
) -> None:
    assert asked(vllm_session, engine) == {
        "token_ids": PROMPT,
        # Left out, vLLM would stop after 16 tokens.
        "sampling_params": {"max_tokens": None, "logprobs": 0},
    }


SAME: Final = {
    "temperature": 0.5,
    "top_p": 0.9,
    "top_k": 20,
    "min_p": 0.1,
    "seed": 2**60,
    "stop": ["a", "b"],
    "stop_token_ids": [7],
    "ignore_eos": True,
    "min_tokens": 3,
    "presence_penalty": 0.1,
    "frequency_penalty": 0.2,
    "repetition_penalty": 1.1,
    "logit_bias": {"5": -100.0},
    "allowed_token_ids": [1, 2],
    "bad_words": ["x"],
    "skip_special_tokens": False,
    "spaces_between_special_tokens": False,
    "include_stop_str_in_output": True,
    "structured_outputs": {"regex": "a+"},
    "thinking_token_budget": 9,
}


@pytest.mark.parametrize(("name", "value"), SAME.items(), ids=SAME)
def test_a_sampling_parameter_of_the_same_name_is_passed_on(
    vllm_session: Handle, engine: StubEngine, name: str, value: Any
) -> None:
    expected = {"max_tokens": None, "logprobs": 0, name: value}
    assert sampled(vllm_session, engine, **{name: value}) == expected


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"max_tokens": 5}, 5),
        ({"max_completion_tokens": 6}, 6),
        ({"max_tokens": 5, "max_completion_tokens": 6}, 6),
        ({"max_tokens": 5, "max_completion_tokens": None}, 5),
        ({"max_tokens": None}, None),
    ],
    ids=["old", "new", "both", "old and null", "null"],
)
def test_the_limit_of_tokens_has_two_names_and_the_newer_wins(
    vllm_session: Handle, engine: StubEngine, limits: dict[str, Any], expected: int | None
) -> None:
    assert sampled(vllm_session, engine, **limits)["max_tokens"] == expected


@pytest.mark.parametrize(
    ("wish", "expected"),
    [
        ({"logprobs": False}, 0),
        ({"logprobs": True}, 0),
        ({"logprobs": True, "top_logprobs": 4}, 4),
        ({"logprobs": True, "top_logprobs": 0}, 0),
        ({"top_logprobs": 0}, 0),
    ],
    ids=str,
)
def test_log_probs_of_the_sampled_tokens_are_always_asked_for(
    vllm_session: Handle, engine: StubEngine, wish: dict[str, Any], expected: int
) -> None:
    sampling = sampled(vllm_session, engine, **wish)
    assert sampling == {"max_tokens": None, "logprobs": expected}


def test_the_model_and_what_stands_beside_the_sampling_parameters_is_passed_on(
    vllm_session: Handle, engine: StubEngine
) -> None:
    beside = {"model": "m", "cache_salt": "s", "priority": 3, "kv_transfer_params": {"a": 1}}
    found = asked(vllm_session, engine, **beside)
    assert {name: found[name] for name in beside} == beside


def test_what_has_no_effect_on_a_reply_is_dropped(vllm_session: Handle, engine: StubEngine) -> None:
    told = {"user": "u", "metadata": {"a": "b"}, "store": False, "service_tier": "auto"}
    told |= {"safety_identifier": "s", "prompt_cache_key": "k"}
    bare = asked(vllm_session.site.create(), engine)
    assert asked(vllm_session, engine, **told) == bare


def test_nulls_and_what_is_said_anyway_count_as_absent(
    vllm_session: Handle, engine: StubEngine
) -> None:
    same: dict[str, Any] = {"n": 1, "tools": None, "tool_choice": "auto", "stream": None}
    same |= {"parallel_tool_calls": True, "temperature": None, "response_format": {"type": "text"}}
    bare = asked(vllm_session.site.create(), engine)
    assert asked(vllm_session, engine, **same) == bare


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({"type": "json_object"}, {"json_object": True}),
        (
            {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}},
            {"json": {"type": "object"}},
        ),
    ],
    ids=["object", "schema"],
)
def test_a_response_format_becomes_a_structured_output(
    vllm_session: Handle, engine: StubEngine, wanted: Any, expected: Any
) -> None:
    sampling = sampled(vllm_session, engine, response_format=wanted)
    assert sampling["structured_outputs"] == expected


def test_the_tools_are_in_the_prompt(vllm_session: Handle, engine: StubEngine) -> None:
    found = asked(vllm_session, engine, tools=TOOLS)
    assert found["token_ids"] == CHATML.render([USER], TOOLS, {})
    assert found.keys() == {"token_ids", "sampling_params"}


REFUSED: Final = {
    "an unknown parameter": ({"reasoning_effort": "low"}, "'reasoning_effort'"),
    "a parameter of SGLang's": ({"regex": "a"}, "'regex'"),
    "token ids of the client's": ({"input_ids": [1]}, "'input_ids'"),
    "the start row": ({"routed_experts_prompt_start": 1}, "'routed_experts_prompt_start'"),
    "two answers": ({"n": 2}, "n is 1"),
    "no answer": ({"n": 0}, "n is 1"),
    "a call that must be": ({"tools": TOOLS, "tool_choice": "required"}, "tool_choice"),
    "a call of one function": (
        {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "f"}}},
        "tool_choice",
    ),
    "one call at most": ({"tools": TOOLS, "parallel_tool_calls": False}, "parallel_tool_calls"),
}


@pytest.mark.parametrize(("body", "named"), REFUSED.values(), ids=REFUSED)
def test_what_the_endpoint_cannot_do_is_400_and_named(
    vllm_session: Handle, engine: StubEngine, body: dict[str, Any], named: str
) -> None:
    status, code, text = error_of(vllm_session.chat([USER], **body))
    assert (status, code) == (400, "not_supported")
    assert named in text
    assert engine.seen == []
    assert vllm_session.num_records() == 0


WRONG: Final = {
    "log-probs a number": {"logprobs": 1},
    "top log-probs alone": {"top_logprobs": 2},
    "top log-probs negative": {"logprobs": True, "top_logprobs": -1},
    "n a text": {"n": "1"},
    "stop a number": {"stop": 5},
    "stop a list of numbers": {"stop": [5]},
    "stop empty": {"stop": ""},
    "stop a list with an empty text": {"stop": ["a", ""]},
    "stop ids texts": {"stop_token_ids": ["5"]},
    "min_tokens negative": {"min_tokens": -1},
    "skip_special_tokens a text": {"skip_special_tokens": "no"},
    "include_stop a number": {"include_stop_str_in_output": 1},
    "tools an object": {"tools": {}},
    "response format a text": {"response_format": "json"},
    "response format unknown": {"response_format": {"type": "xml"}},
    "no schema": {"response_format": {"type": "json_schema"}},
    "an empty schema object": {"response_format": {"type": "json_schema", "json_schema": {}}},
    "two constraints": {
        "response_format": {"type": "json_object"},
        "structured_outputs": {"regex": "a"},
    },
}


@pytest.mark.parametrize("body", WRONG.values(), ids=WRONG)
def test_a_parameter_of_a_wrong_type_is_400(
    vllm_session: Handle, engine: StubEngine, body: dict[str, Any]
) -> None:
    assert refusal(vllm_session.chat([USER], **body)) == (400, "bad_request")
    assert engine.seen == []


def test_what_the_engine_must_judge_is_left_to_it(vllm_session: Handle, engine: StubEngine) -> None:
    assert sampled(vllm_session, engine, temperature="hot")["temperature"] == "hot"


@pytest.mark.parametrize("body", [b"{", b"[]", b"{}", b'{"messages": []}'])
def test_a_malformed_request_is_400_as_in_front_of_sglang(
    vllm_session: Handle, engine: StubEngine, body: bytes
) -> None:
    status, code = refusal(vllm_session.chat_bytes(body))
    assert (status, code in ("invalid_json", "bad_request")) == (400, True)
    assert engine.seen == []


def test_a_stream_is_not_asked_of_the_engine(vllm_session: Handle, engine: StubEngine) -> None:
    engine.will(says(f"ok{END}"))
    vllm_session.chat([USER], stream=True, stream_options={"include_usage": True})
    assert engine.seen[0].json.keys() == {"token_ids", "sampling_params"}


def test_template_options_reach_the_template_and_not_the_engine(
    vllm_session: Handle, engine: StubEngine
) -> None:
    found = asked(vllm_session, engine, chat_template_kwargs={"thinking": True})
    assert found.keys() == {"token_ids", "sampling_params"}
    response = vllm_session.chat([USER], chat_template_kwargs=[])
    assert refusal(response) == (400, "template_kwargs")


def test_the_second_prompt_goes_on_behind_the_first_turns_ids(
    vllm_session: Handle, engine: StubEngine
) -> None:
    engine.will(says(f"{CALL_TEXT}{END}"), says(f"done{END}"))
    said = vllm_session.chat([USER], tools=TOOLS).json()["choices"][0]["message"]
    result = {"role": "tool", "tool_call_id": said["tool_calls"][0]["id"], "content": "5"}
    assert vllm_session.chat([USER, said, result], tools=TOOLS).status_code == 200
    first, second = (seen.json["token_ids"] for seen in engine.seen)
    tail = "\n<|im_start|>tool\n<tool_response>\n5\n</tool_response><|im_end|>\n"
    tail += "<|im_start|>assistant\n"
    assert second == first + CHATML.encode(f"{CALL_TEXT}{END}{tail}")


def test_incremental_routing_starts_at_the_first_row_that_is_not_held(
    start_vllm: StartServer, engine: StubEngine
) -> None:
    session = start_vllm(routing=INCREMENTAL).create()
    engine.will(*[says(f"ok{END}", routing=True)] * 3)
    said = session.chat([USER]).json()["choices"][0]["message"]
    for _ in range(2):  # a retry of turn 2 asks from the same row
        assert session.chat([USER, said, USER]).status_code == 200
    starts = [seen.json["sampling_params"]["routed_experts_prompt_start"] for seen in engine.seen]
    assert starts == [0, len(PROMPT) + 2, len(PROMPT) + 2]
    (sample,) = session.collect().samples
    assert sample.rollout_routed_experts is not None
    assert sample.rollout_routed_experts[:, 0, 0].tolist() == [
        100 * token for token in range(len(sample.tokens) - 1)
    ]


@pytest.mark.parametrize("settings", [{}, {"routing": SPEC}], ids=["none", "full"])
def test_otherwise_no_start_row_is_sent(
    start_vllm: StartServer, engine: StubEngine, settings: Any
) -> None:
    sampling = sampled(start_vllm(**settings).create(), engine)
    assert sampling == {"max_tokens": None, "logprobs": 0}


@pytest.mark.parametrize("asking", [{"indexer": True}, {"speculative": True}], ids=str)
def test_what_vllm_does_not_tell_is_refused_when_the_server_starts(asking: Any) -> None:
    settings = ServerSettings(
        engine_url="http://127.0.0.1:1", tokenizer="chatml", engine_kind="vllm", **asking
    )
    with pytest.raises(ValueError, match=next(iter(asking))):
        create_app(settings)


def test_an_unknown_kind_of_engine_is_refused_when_the_server_starts() -> None:
    settings = ServerSettings(
        engine_url="http://127.0.0.1:1", tokenizer="chatml", engine_kind="tgi"
    )
    with pytest.raises(ValueError, match=r"'tgi' is none of sglang, vllm"):
        create_app(settings)


def test_models_are_listed_and_other_routes_are_not_there(
    vllm_session: Handle, engine: StubEngine
) -> None:
    engine.will(answer({"object": "list", "data": []}))
    http, path = vllm_session.site.http, vllm_session.path
    assert http.get(f"{path}/v1/models").json() == {"object": "list", "data": []}
    assert refusal(http.post(f"{path}{PATH}", json={})) == (404, "not_found")
    assert [seen.target for seen in engine.seen] == ["/v1/models"]
