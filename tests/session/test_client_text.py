"""What a client is sent, and the text of prompts: the same by the short way as by the long one."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from sample_wire.errors import SessionError
from sample_wire.session import LinearTrajectory, SampleOptions, upstream_body

from ._words import (
    FULL,
    INCREMENTAL,
    Scripted,
    answer,
    chat,
    raw_base64,
    routed,
    say,
    sent,
    take_turn,
    trajectory,
    tree,
)

USER = say("user", "hi")
# Of a first turn with two output tokens.
NUM_ROWS = 6
ROUTING = raw_base64(routed(NUM_ROWS))
INDEXER = {"indexer_topk": raw_base64(routed(NUM_ROWS)), "indexer_topk_num_layers": 2}


def committed(text: bytes) -> LinearTrajectory:
    """A session with one turn, whose reply has this text."""
    session = trajectory(routing=FULL)
    session.commit(session.plan(chat(USER)), chat(USER), text, None, None)
    return session


def client_text(session: LinearTrajectory) -> bytes:
    """What the client of the only turn is sent."""
    [turn] = session.turns
    return session.client_text(turn)


def compact(reply: Any) -> bytes:
    """A reply without blanks, in UTF-8."""
    return json.dumps(reply, separators=(",", ":"), ensure_ascii=False).encode()


def reply_with(first: dict[str, Any], last: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A reply whose meta_info begins and ends with these members."""
    reply = answer([50, 51], **more)
    meta = reply["choices"][0]["meta_info"]
    reply["choices"][0]["meta_info"] = {**first, **meta, **last}
    return reply


@pytest.mark.parametrize("write", [compact, sent], ids=["compact", "with_blanks"])
@pytest.mark.parametrize(
    "reply",
    [
        reply_with({}, {"routed_experts": ROUTING}),
        reply_with({"routed_experts": ROUTING}, {}),
        reply_with({}, {"routed_experts": ROUTING}, **INDEXER),
        answer([50, 51], sglext={"routed_experts": ROUTING}),
        answer([50, 51], message=say("assistant", 'a "routed_experts":"b" \u00e9')),
        answer([50, 51], message=say("assistant", "\x1b[0m"), routed_experts=ROUTING),
        answer([50, 51], log_probs=[-0.5, -float("inf")], routed_experts=ROUTING),
        answer([50, 51], routed_experts=None),
    ],
    ids=["last", "first", "indexer", "alone", "none", "control", "infinite", "null"],
)
def test_a_clients_text_is_that_of_its_reply(reply: Any, write: Any) -> None:
    session = committed(write(reply))
    expected = session.client_reply(session.turns[0])
    text = client_text(session)
    finite = json.loads(json.dumps(expected).replace("-Infinity", "null"))
    assert text == compact(finite)
    assert b"AAAA" not in text
    assert session.records()[0]["response"] == reply


def test_a_key_that_is_spelled_with_escapes_is_one_too() -> None:
    text = compact(answer([50, 51], routed_experts=ROUTING))
    session = committed(text.replace(b'"routed_experts"', b'"routed\\u005fexperts"'))
    assert session.turns[0].has_routing
    assert b"experts" not in client_text(session)


@pytest.mark.parametrize("echoes", [False, True], ids=["short_way", "parsed"])
@pytest.mark.parametrize(
    ("told", "expected"),
    [({"id": 'a "\u00e9'}, 'a "\u00e9'), ({"id": 7}, ""), ({"id": None}, ""), ({}, "")],
    ids=["text", "number", "null", "none"],
)
def test_a_reply_has_the_name_that_its_engine_gave_it(
    told: dict[str, Any], expected: str, echoes: bool
) -> None:
    session = tree(routing=FULL)
    plan = session.plan(chat(USER))
    reply = answer([50, 51], routed_experts=ROUTING)
    del reply["id"]
    if echoes:
        told = told | {"prompt_token_ids": plan.prompt_ids.tolist()}
    session.commit(plan, chat(USER), compact(told | reply), None, None)
    (node,) = session.metadata(None)["tree"]["nodes"]
    assert node["response_id"] == expected


def test_a_key_of_the_same_name_elsewhere_stays() -> None:
    reply = answer([50, 51], routed_experts=None) | {"odd": {"routed_experts": ROUTING}}
    session = committed(compact(reply))
    assert not session.turns[0].has_routing
    assert session.records()[0]["response"] == reply
    assert json.loads(client_text(session)) == reply


def test_a_key_that_only_ends_like_one_stays() -> None:
    reply = answer([50, 51], routed_experts=ROUTING)
    reply['my "routed_experts'] = "AAAA"
    session = committed(compact(reply))
    assert session.records()[0]["response"] == reply
    assert session.client_reply(session.turns[0])['my "routed_experts'] == "AAAA"


@pytest.mark.parametrize(
    "odd",
    [b'"\xff"', b'"\\ud800"', b'"\\q"', b"1 2", b'"'],
    ids=["no_utf8", "surrogate", "escape", "grammar", "open"],
)
def test_what_no_client_could_read_is_refused(odd: bytes) -> None:
    reply = answer([50, 51], routed_experts=ROUTING) | {"odd": 7}
    with pytest.raises(SessionError, match="bad engine reply: it") as error:
        committed(compact(reply).replace(b'"odd":7', b'"odd":' + odd))
    assert error.value.code == "bad_engine_reply"


@pytest.mark.parametrize("odd", [b"\\/", b"\\q", b"\x01", b"\\"], ids=repr)
def test_routing_with_an_escape_is_no_base64(odd: bytes) -> None:
    text = compact(answer([50, 51], routed_experts=ROUTING))
    with pytest.raises(SessionError, match="bad engine reply"):
        committed(text.replace(b'"routed_experts":"', b'"routed_experts":"' + odd))


def test_rows_that_cannot_be_placed_come_back_as_json_reads_them() -> None:
    session = trajectory(Scripted([[1, 2], [1, 2, 50, 3]]), routing=INCREMENTAL)
    take_turn(session, chat(USER), answer([50]))  # without rows, so that none follow
    body = chat(*session.messages, USER)
    plan = session.plan(body)
    upstream = upstream_body(plan, body | {"return_routed_experts": True}, incremental=True)
    rows = raw_base64(routed(2))
    text = compact(answer([51], routed_experts="escape" + rows[6:]))
    session.commit(plan, upstream, text.replace(b"escape", b"\\u0041"), None, None)
    assert session.records()[1]["response"] == answer([51], routed_experts="A" + rows[6:])


def test_rows_that_cannot_be_placed_and_are_no_json_are_refused() -> None:
    session = trajectory(Scripted([[1, 2], [1, 2, 50, 3]]), routing=INCREMENTAL)
    take_turn(session, chat(USER), answer([50]))
    body = chat(*session.messages, USER)
    plan = session.plan(body)
    upstream = upstream_body(plan, body | {"return_routed_experts": True}, incremental=True)
    text = compact(answer([51], routed_experts=raw_base64(routed(2))))
    broken = text.replace(b'"routed_experts":"A', b'"routed_experts":"\x01')
    with pytest.raises(SessionError, match="it is not JSON"):
        session.commit(plan, upstream, broken, None, None)
    assert len(session.turns) == 1


PROMPTS = {
    "longer": [[1, 2], [1, 2, 50, 3], [1, 2, 50, 3, 51, 4], [1, 2, 50, 3, 51, 4, 52, 5]],
    "trimmed": [[1, 2], [1, 2, 3], [1, 2, 3, 51, 4], [1, 2, 3, 51, 4, 5]],
    "trimmed_twice": [[1, 2], [1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 4, 5]],
    "empty_at_first": [[], [50, 3], [50, 3, 51, 4], [50, 3, 51, 4, 52, 5]],
}


@pytest.mark.parametrize("retried", [False, True], ids=["once", "each_retried"])
@pytest.mark.parametrize("prompts", PROMPTS.values(), ids=PROMPTS)
def test_the_text_of_a_prompt_is_that_of_its_ids(prompts: list[list[int]], retried: bool) -> None:
    scripted = [prompt for prompt in prompts for _ in range(1 + retried)]
    session = trajectory(Scripted(scripted, max_trim_tokens=1))
    history: list[Any] = []
    for turn, prompt in enumerate(prompts):
        for _ in range(1 + retried):
            body = chat(*history, say("user", f"q{turn}"))
            plan = session.plan(body)
            text = msgspec.json.encode(
                upstream_body(plan, body, incremental=False, is_written=True)
            )
            assert json.loads(text) == body | {"input_ids": prompt}
            assert plan.prompt_ids.tolist() == prompt
            reply = answer([50 + turn], message=say("assistant", f"a{turn}"))
            session.commit(plan, body, sent(reply), None, None)
        history = list(session.messages)
        found = session.collecting(None, None, {}, SampleOptions())()
        written = found.session_metadata["accumulated_token_ids"]
        assert json.loads(written) == [*prompt, 50 + turn]


def test_a_packed_reply_is_smaller_and_tells_the_same() -> None:
    reply = answer([50, 51], message=say("assistant", "words " * 999), routed_experts=ROUTING)
    session = committed(compact(reply))
    before = client_text(session)
    for _ in range(2):
        session.packing(session.turns[0])()
        assert client_text(session) == before
        assert session.records()[0]["response"] == reply
