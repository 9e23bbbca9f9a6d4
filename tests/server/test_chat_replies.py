"""Engine replies: what is taken, refused, passed on, and shown.  Sections 3, 5.2 to 5.4; C11."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, Final

import pytest

from ._errors import error_of, refusal
from ._numbers import NumberTokenizer
from ._serving import Handle, running
from ._sglang import FIRST_OUTPUT, TOOL, USER, answer, completion, first_turn, raw_base64, routed
from ._stub import Answer, StubEngine
from .conftest import SPEC, StartServer


def broken(change: Callable[[dict[str, Any]], object]) -> bytes:
    """A good reply after a change, which may give another reply instead."""
    reply = completion(3, *FIRST_OUTPUT)
    changed = change(reply)
    return json.dumps(changed if isinstance(changed, dict) else reply).encode()


def meta(reply: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = reply["choices"][0]["meta_info"]
    return found


MALFORMED: Final = {
    "not JSON": b"<html>",
    "no UTF-8": b'{"choices": "\xff"}',
    "half a surrogate pair": broken(lambda r: r).replace(b'"10 11"', b'"\\ud800"'),
    "nothing": b"",
    "no object": b"[]",
    "null": b"null",
    "no choices": broken(lambda r: r.pop("choices") and None),
    "empty choices": broken(lambda r: {**r, "choices": []}),
    "choices null": broken(lambda r: {**r, "choices": None}),
    "a choice that is text": broken(lambda r: {**r, "choices": ["x"]}),
    "no meta_info": broken(lambda r: r["choices"][0].pop("meta_info") and None),
    "meta_info null": broken(lambda r: r["choices"][0].update(meta_info=None)),
    "meta_info a list": broken(lambda r: r["choices"][0].update(meta_info=[])),
    "no log-probs": broken(lambda r: meta(r).pop("output_token_logprobs") and None),
    "log-probs null": broken(lambda r: meta(r).update(output_token_logprobs=None)),
    "no message": broken(lambda r: r["choices"][0].pop("message") and None),
    "message null": broken(lambda r: r["choices"][0].update(message=None)),
    "content null": broken(lambda r: r["choices"][0]["message"].update(content=None)),
    "no content": broken(lambda r: r["choices"][0]["message"].pop("content") and None),
    "no completion_tokens": broken(lambda r: meta(r).pop("completion_tokens") and None),
    "completion_tokens 3 of 2": broken(lambda r: meta(r).update(completion_tokens=3)),
    "completion_tokens text": broken(lambda r: meta(r).update(completion_tokens="2")),
    "an entry without its id": broken(lambda r: meta(r)["output_token_logprobs"][0].__delitem__(1)),
    "an id that is text": broken(lambda r: meta(r)["output_token_logprobs"][0].__setitem__(1, "a")),
    "a log-prob null": broken(lambda r: meta(r)["output_token_logprobs"][0].__setitem__(0, None)),
    "a log-prob NaN": broken(
        lambda r: meta(r)["output_token_logprobs"][0].__setitem__(0, math.nan)
    ),
    "a log-prob infinite": broken(
        lambda r: meta(r)["output_token_logprobs"][0].__setitem__(0, math.inf)
    ),
}


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_200_is_502_and_leaves_the_session_as_it_was(
    session: Handle, engine: StubEngine, body: bytes
) -> None:
    engine.will(Answer(200, body), first_turn())
    assert refusal(session.chat([USER])) == (502, "bad_engine_reply")
    assert session.dump()["records"] == []
    assert session.chat([USER]).status_code == 200
    assert session.num_records() == 1


ROUTING: Final = {
    "a list": [1, 2],
    "a number": 7,
    "no base64": "@@@@",
    "one row too few": raw_base64(routed(3)),
    "one row too many": raw_base64(routed(5)),
    "nothing for 4 rows": "",
    "no whole row": "AAAA",
}


@pytest.mark.parametrize("value", ROUTING.values(), ids=ROUTING)
def test_routing_that_cannot_be_read_is_502_and_is_not_recorded(
    routed_session: Handle, engine: StubEngine, value: Any
) -> None:
    engine.will(first_turn(routed_experts=value))
    assert refusal(routed_session.chat([USER])) == (502, "bad_engine_reply")
    assert routed_session.num_records() == 0


def test_routing_without_a_known_shape_is_refused_before_the_engine_is_called(
    session: Handle, engine: StubEngine
) -> None:
    response = session.chat([USER], return_routed_experts=True)
    assert refusal(response) == (400, "routing_off")
    assert engine.seen == []


@pytest.mark.parametrize(
    "reply",
    [Answer(999, b"{}"), Answer(500, b"{}", [("x-odd", "b\x01c")])],
    ids=["status", "control character"],
)
def test_a_head_that_cannot_be_sent_on_is_502(
    session: Handle, engine: StubEngine, reply: Answer
) -> None:
    engine.will(reply, first_turn())
    assert refusal(session.chat([USER])) == (502, "bad_engine_reply")
    assert session.chat([USER]).status_code == 200


@pytest.mark.parametrize("status", [400, 401, 404, 409, 422, 429, 500, 503, 599])
def test_an_error_of_the_engine_is_passed_on_and_not_recorded(
    session: Handle, engine: StubEngine, status: int
) -> None:
    said = b'{ "object": "error", "message": "caf\\u00e9", "code": null }'
    engine.will(Answer(status, said))
    response = session.chat([USER])
    assert response.status_code == status
    assert response.content == '{"object":"error","message":"caf\u00e9","code":null}'.encode()
    assert session.num_records() == 0


@pytest.mark.parametrize(
    ("status", "content_type", "body"),
    [
        (503, "text/html; charset=latin-1", b"<p>caf\xe9 { } </p>"),
        (500, "application/json", b"{ not json"),
        (500, "application/json", b'{ "a": NaN }'),
        (400, "application/octet-stream", bytes(range(256))),
        (418, "text/plain", b'{ "a" : 1 }'),
        (500, "application/json", b""),
    ],
)
def test_what_is_no_json_is_passed_on_byte_for_byte(
    session: Handle, engine: StubEngine, status: int, content_type: str, body: bytes
) -> None:
    engine.will(Answer(status, body, [("Content-Type", content_type)]))
    response = session.chat([USER])
    assert (response.status_code, response.content) == (status, body)
    assert response.headers["content-type"] == content_type


def test_an_error_of_megabytes_is_passed_on_byte_for_byte(
    session: Handle, engine: StubEngine
) -> None:
    said = b"[" + b"1, " * (1 << 19) + b"1]"
    engine.will(Answer(500, said))
    response = session.chat([USER])
    assert (response.status_code, response.content) == (500, said)


@pytest.mark.parametrize("status", [201, 202, 204])
def test_only_a_200_is_a_turn(session: Handle, engine: StubEngine, status: int) -> None:
    body = b"" if status == 204 else json.dumps(completion(3, *FIRST_OUTPUT)).encode()
    engine.will(Answer(status, body, [("location", "/elsewhere")]))
    assert session.chat([USER]).status_code == status
    assert session.num_records() == 0
    assert len(engine.seen) == 1


def test_an_engine_that_hangs_up_is_502(session: Handle, engine: StubEngine) -> None:
    engine.will(Answer(hang_up=True), first_turn())
    status, code, text = error_of(session.chat([USER]))
    assert (status, code) == (502, "engine_unreachable")
    assert text.startswith("backend transport error: RemoteProtocolError: ")
    assert session.num_records() == 0
    assert session.chat([USER]).status_code == 200


def test_a_reply_that_breaks_off_is_502(session: Handle, engine: StubEngine) -> None:
    engine.will(Answer(200, b'{"choices"', [("content-length", "99")], hang_up=True))
    assert refusal(session.chat([USER])) == (502, "engine_unreachable")


def test_an_engine_that_is_not_there_is_502() -> None:
    with running(NumberTokenizer(), "http://127.0.0.1:1") as site:
        status, code, text = error_of(site.create().chat([USER]))
    assert (status, code) == (502, "engine_unreachable")
    assert text.startswith("backend transport error: ConnectError: ")


def test_an_engine_that_keeps_silent_is_502_after_the_timeout(
    start: StartServer, engine: StubEngine
) -> None:
    session = start(timeout_s=0.05).create()
    engine.will_hold(first_turn())
    status, code, text = error_of(session.chat([USER]))
    assert (status, code) == (502, "engine_timeout")
    assert text == (
        "backend transport error: ReadTimeout: the engine was silent for 0.05 s (timeout_s)"
    )
    assert session.num_records() == 0


def test_replay_arrays_are_recorded_and_not_shown(start: StartServer, engine: StubEngine) -> None:
    session = start(routing=SPEC, indexer=True).create()
    arrays = {
        "routed_experts": raw_base64(routed(4)),
        "indexer_topk": raw_base64(routed(4)),
        "indexer_topk_num_layers": 2,
    }
    engine.will(first_turn(**arrays))
    shown = session.chat([USER]).json()["choices"][0]["meta_info"]
    assert shown.keys().isdisjoint({"routed_experts", "indexer_topk"})
    assert shown["output_token_logprobs"] == [[-0.125, 10, None], [-0.25, 11, None]]
    assert shown["indexer_topk_num_layers"] == 2
    recorded = session.dump()["records"][0]["response"]["choices"][0]["meta_info"]
    assert {key: recorded[key] for key in arrays} == arrays


def test_replay_arrays_are_taken_out_of_every_choice(
    routed_session: Handle, engine: StubEngine
) -> None:
    reply = completion(3, *FIRST_OUTPUT, routed_experts=raw_base64(routed(4)))
    second = completion(3, [8], [-1.0], routed_experts=raw_base64(routed(3)), indexer_topk="AAAA")
    reply["choices"].append({**second["choices"][0], "index": 1})
    engine.will(answer(reply))
    choices = routed_session.chat([USER], n=2).json()["choices"]
    assert [choice["meta_info"].get("routed_experts") for choice in choices] == [None, None]
    assert "indexer_topk" not in choices[1]["meta_info"]
    assert choices[1]["message"]["content"] == "8"
    assert routed_session.collect().samples[0].tokens.tolist() == [1, 2, 3, 10, 11]


def test_everything_else_of_a_reply_is_shown_and_recorded(
    session: Handle, engine: StubEngine
) -> None:
    reply = completion(3, *FIRST_OUTPUT, num_retractions=0, e2e_latency=2.6258107467498)
    reply["metadata"] = {"weight_versions": [{"version": "v7", "start": 0, "end": 2}]}
    engine.will(answer(reply))
    assert session.chat([USER]).json() == reply
    assert session.dump()["records"][0]["response"] == reply


def test_an_empty_content_is_fine(session: Handle, engine: StubEngine) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    said = {"role": "assistant", "content": "", "tool_calls": [call]}
    engine.will(first_turn(message=said, finish="tool_calls"))
    assert session.chat([USER]).json()["choices"][0]["message"] == said


def test_c11_a_log_prob_of_minus_infinity_is_exact_in_the_sample_and_valid_json_elsewhere(
    session: Handle, engine: StubEngine
) -> None:
    log_probs = [-0.1, -math.inf, -0.2]
    reply = completion(3, [10, 11, 12], log_probs)
    assert b"-Infinity" in answer(reply).body
    engine.will(answer(reply))
    shown = session.chat([USER])
    assert shown.status_code == 200
    entries = strict_json(shown.content)["choices"][0]["meta_info"]["output_token_logprobs"]
    assert [entry[0] for entry in entries] == [-0.1, None, -0.2]
    dumped = strict_json(session.site.http.get(session.path).content)["records"][0]["response"]
    assert dumped["choices"][0]["meta_info"]["output_token_logprobs"] == entries
    (sample,) = session.collect().samples
    assert sample.rollout_log_probs is not None
    assert sample.rollout_log_probs.tolist() == log_probs


def strict_json(text: bytes) -> Any:
    """JSON by the book: no NaN, no Infinity."""

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    return json.loads(text, parse_constant=refuse)


def test_a_failed_turn_leaves_the_turns_before_it(session: Handle, engine: StubEngine) -> None:
    engine.will(first_turn(), Answer(500, b"{}"), Answer(200, b"{}"), Answer(hang_up=True))
    said = session.chat([USER]).json()["choices"][0]["message"]
    before = session.dump()
    statuses = [session.chat([USER, said, TOOL]).status_code for _ in range(3)]
    assert statuses == [500, 502, 502]
    assert session.dump() == before
