"""The two kinds of engines: what a session does with each, without a server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sample_wire.assembly import TurnReader
from sample_wire.errors import SessionError
from sample_wire.session import (
    EngineKind,
    LinearTrajectory,
    SGLangChat,
    TreeTrajectory,
    VLLMGenerate,
    matcher,
    upstream_body,
)
from sample_wire.session._cuts import cut_out

from ._words import END, Words, answer, chat, refusal, say, sent

KINDS: dict[str, EngineKind] = {"sglang": SGLangChat(), "vllm": VLLMGenerate()}
USER = say("user", "hi")


def generated(ids: list[int], **keys: Any) -> dict[str, Any]:
    """A reply of vLLM's."""
    content = [{"token": f"token_id:{number}", "logprob": -0.5} for number in ids]
    choice = {"token_ids": ids, "logprobs": {"content": content}, "finish_reason": "stop"}
    return {"request_id": "g1", "choices": [choice], **keys}


REPLIES = {"sglang": answer([50, END]), "vllm": generated([50, END])}


def session_of(kind: str) -> LinearTrajectory:
    """An empty session in front of an engine of this kind."""
    words = Words()
    reader = TurnReader(routing=None, decode_text=words.decode)
    return LinearTrajectory(reader, words, matcher("strict"), KINDS[kind])


def played(kind: str, **body: Any) -> LinearTrajectory:
    """The session after one turn."""
    session = session_of(kind)
    normal = KINDS[kind].normalise(
        chat(USER, **body), tokenizer=Words(), routing=False, indexer=False
    )
    plan = session.plan(normal.body)
    request = upstream_body(plan, normal.body, incremental=False)
    session.commit(plan, request, sent(REPLIES[kind]), 3.5, None)
    return session


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_is_what_was_posted_and_answered(kind: str) -> None:
    (record,) = played(kind, temperature=0.5).records()
    assert record["path"] == KINDS[kind].path
    assert record["response"] == REPLIES[kind]
    told = record["request"]
    assert told.get("input_ids", told.get("token_ids")) == Words().render([USER], None, {})
    assert told.get("sampling_params", told)["temperature"] == 0.5


@pytest.mark.parametrize("kind", KINDS)
def test_the_body_that_is_posted_is_made_again_equal_for_the_record(kind: str) -> None:
    session = session_of(kind)
    options = {"stop": ["x"], "max_tokens": 5, "tools": [{"a": [1, None]}], "logit_bias": {"5": 1}}
    normal = KINDS[kind].normalise(
        chat(USER, **options), tokenizer=Words(), routing=True, indexer=False
    )
    plan = session.plan(normal.body)
    request = upstream_body(plan, normal.body, incremental=True)
    posted = KINDS[kind].wire_body(request)
    session.commit(plan, request, sent(REPLIES[kind]), None, None)
    assert json.dumps(session.records()[0]["request"]) == json.dumps(posted)


@pytest.mark.parametrize("kind", KINDS)
def test_the_sample_is_the_same_whichever_engine_answered(kind: str) -> None:
    (sample,) = played(kind).collect().samples
    assert sample.tokens.tolist() == [*Words().render([USER], None, {}), 50, END]
    assert sample.rollout_log_probs is not None
    assert sample.rollout_log_probs.tolist() == [-0.5, -0.5]
    assert sample.status.value == "completed"


def test_a_reply_of_one_kind_is_none_of_the_other() -> None:
    for kind, other in (("sglang", "vllm"), ("vllm", "sglang")):
        session = session_of(kind)
        plan = session.plan(chat(USER))
        body = upstream_body(plan, chat(USER), incremental=False)
        with pytest.raises(SessionError) as error:
            session.commit(plan, body, sent(REPLIES[other]), None, None)
        assert refusal(error) == (502, "bad_engine_reply")
        assert session.version == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_tree_tells_and_records_what_a_linear_trajectory_does(kind: str) -> None:
    words = Words()
    reader = TurnReader(routing=None, decode_text=words.decode)
    tree = TreeTrajectory(reader, words, matcher("strict"), kind=KINDS[kind])
    plan = tree.plan(chat(USER))
    body = upstream_body(plan, chat(USER), incremental=False)
    turn = tree.commit(plan, body, sent(REPLIES[kind]), 3.5, None)
    linear = session_of(kind)
    plan = linear.plan(chat(USER))
    same = linear.commit(plan, body, sent(REPLIES[kind]), 3.5, None)
    assert tree.client_reply(turn) == linear.client_reply(same)
    assert tree.records() == linear.records()
    (node,) = tree.metadata(None)["tree"]["nodes"]
    assert node["response_id"] == {"sglang": "r1", "vllm": "g1"}[kind]


def test_vllms_message_is_made_of_the_ids_and_stored() -> None:
    session = played("vllm")
    assert session.messages == (USER, {"role": "assistant", "content": "50"})
    (turn,) = session.turns
    assert session.client_reply(turn)["choices"][0]["message"] == session.messages[1]


def test_a_time_that_nobody_told_is_the_epoch() -> None:
    session = session_of("vllm")
    plan = session.plan(chat(USER))
    body = upstream_body(plan, chat(USER), incremental=False)
    turn = session.commit(plan, body, sent(REPLIES["vllm"]), None, None)
    assert session.client_reply(turn)["created"] == 0


@pytest.mark.parametrize("kind", KINDS)
def test_prompt_ids_that_a_reply_echoes_are_held_once(kind: str) -> None:
    session = session_of(kind)
    sizes = []
    for number in range(1, 41):
        body = chat(*session.messages, say("user", f"u{number} " * 50))
        plan = session.plan(body)
        reply = REPLIES[kind] | {"prompt_token_ids": plan.prompt_ids.tolist()}
        asked = upstream_body(plan, body, incremental=False)
        session.commit(plan, asked, sent(reply), None, None)
        sizes.append(len(cut_out(sent(reply), plan.prompt_ids)[1]))
    assert max(sizes) - min(sizes) < 10
    (record,) = session.records()[-1:]
    assert record["response"]["prompt_token_ids"] == plan.prompt_ids.tolist()
