"""Replies of vLLM that cannot be read, and its errors: the agent is told, nothing is recorded."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, Final

import pytest

from ._errors import refusal
from ._serving import Handle
from ._stub import Answer, StubEngine
from ._vllm import END, IDS, PROMPT, USER, generated, npy_base64, says
from .conftest import SPEC, StartServer


def broken(change: Callable[[dict[str, Any]], object]) -> bytes:
    """A good reply after a change, which may give another reply instead."""
    reply = generated(len(PROMPT), IDS)
    changed = change(reply)
    return json.dumps(changed if isinstance(changed, dict) else reply).encode()


def first(reply: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = reply["choices"][0]
    return found


def entries(reply: dict[str, Any]) -> list[Any]:
    found: list[Any] = first(reply)["logprobs"]["content"]
    return found


MALFORMED: Final = {
    "not JSON": b"<html>",
    "no object": b"[]",
    "no choices": broken(lambda r: r.pop("choices") and None),
    "empty choices": broken(lambda r: {**r, "choices": []}),
    "a choice that is text": broken(lambda r: {**r, "choices": ["x"]}),
    "no ids": broken(lambda r: first(r).pop("token_ids") and None),
    "ids null": broken(lambda r: first(r).update(token_ids=None)),
    "an id that is text": broken(lambda r: first(r)["token_ids"].__setitem__(0, "a")),
    "an id too few": broken(lambda r: first(r)["token_ids"].pop() and None),
    "no log-probs": broken(lambda r: first(r).pop("logprobs") and None),
    "log-probs null": broken(lambda r: first(r).update(logprobs=None)),
    "no content of log-probs": broken(lambda r: first(r)["logprobs"].pop("content") and None),
    "a log-prob null": broken(lambda r: entries(r)[0].update(logprob=None)),
    "a log-prob NaN": broken(lambda r: entries(r)[0].update(logprob=math.nan)),
    "top log-probs a text": broken(lambda r: entries(r)[0].update(top_logprobs="x")),
    "a log-prob of another id": broken(lambda r: entries(r)[0].update(token="token_id:1")),
    "SGLang's meta_info": broken(lambda r: first(r).update(meta_info={})),
    "a token that is a number": broken(lambda r: entries(r)[0].update(token=5)),
    "completion_tokens 4 of 3": broken(lambda r: r["usage"].update(completion_tokens=4)),
    "usage a text": broken(lambda r: r.update(usage="x")),
    "a finish reason that is a number": broken(lambda r: first(r).update(finish_reason=1)),
    "created a text": broken(lambda r: r.update(created="now")),
    "half a surrogate pair": broken(lambda r: r).replace(b'"stub"', b'"\\ud800"'),
}


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_200_is_502_and_leaves_the_session_as_it_was(
    vllm_session: Handle, engine: StubEngine, body: bytes
) -> None:
    engine.will(Answer(200, body), says(f"ok{END}"))
    assert refusal(vllm_session.chat([USER])) == (502, "bad_engine_reply")
    assert vllm_session.dump()["records"] == []
    assert vllm_session.chat([USER]).status_code == 200
    assert vllm_session.num_records() == 1


@pytest.mark.parametrize(
    "value", ["@@@@", npy_base64(3, 0), "AAAA"], ids=["no base64", "too few rows", "no file"]
)
def test_routing_that_cannot_be_read_is_502_and_is_not_recorded(
    start_vllm: StartServer, engine: StubEngine, value: str
) -> None:
    session = start_vllm(routing=SPEC).create()
    engine.will(says(f"ok{END}", routed_experts=value))
    assert refusal(session.chat([USER])) == (502, "bad_engine_reply")
    assert session.num_records() == 0


@pytest.mark.parametrize("status", [400, 404, 429, 500, 503])
def test_an_error_of_the_engine_is_passed_on_and_not_recorded(
    vllm_session: Handle, engine: StubEngine, status: int
) -> None:
    said = {"error": {"message": "no", "type": "BadRequestError", "code": status}}
    engine.will(Answer(status, json.dumps(said).encode()), Answer(hang_up=True))
    response = vllm_session.chat([USER])
    assert (response.status_code, response.json()) == (status, said)
    assert refusal(vllm_session.chat([USER])) == (502, "engine_unreachable")
    assert vllm_session.num_records() == 0
