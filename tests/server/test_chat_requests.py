"""Chat requests: what is refused, and what reaches the engine.  BEHAVIOUR of sections 3 and 5.1."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from ._errors import error_of, refusal
from ._numbers import NumberTokenizer
from ._serving import Handle, running
from ._sglang import TOOL, USER, first_turn, second_turn
from ._stub import StubEngine
from .conftest import INCREMENTAL, SPEC, StartServer

FORCED: Final = {"logprobs": True, "return_meta_info": True, "no_stop_trim": False}


def sent_by(session: Handle, engine: StubEngine, **body: Any) -> dict[str, Any]:
    """What reached the engine of a first turn with this body."""
    engine.will(first_turn())
    response = session.chat([USER], **body)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = engine.seen[-1].json
    return found


MALFORMED: Final = {
    "no JSON": (b"{", "invalid_json"),
    "no UTF-8": (b'{"messages": "\xff"}', "invalid_json"),
    "half a surrogate pair": (b'{"messages": [{"content": "\\ud800"}]}', "invalid_json"),
    "NaN": (b'{"messages": [], "temperature": NaN}', "invalid_json"),
    "too deep": (b"[" * 100_000, "invalid_json"),
    "no object": (b"[1]", "bad_request"),
    "null": (b"null", "bad_request"),
    "nothing": (b"", "bad_request"),
    "an empty object": (b"{}", "bad_request"),
    "messages null": (b'{"messages": null}', "bad_request"),
    "messages empty": (b'{"messages": []}', "bad_request"),
    "messages text": (b'{"messages": "hi"}', "bad_request"),
    "a message that is text": (b'{"messages": ["hi"]}', "bad_request"),
    "a message that is null": (b'{"messages": [null]}', "bad_request"),
    "tools an object": (b'{"messages": [{"role": "user"}], "tools": {}}', "bad_request"),
    "kwargs a list": (b'{"messages": [{}], "chat_template_kwargs": []}', "template_kwargs"),
    "kwargs text": (b'{"messages": [{}], "chat_template_kwargs": "x"}', "template_kwargs"),
    "kwargs false": (b'{"messages": [{}], "chat_template_kwargs": false}', "template_kwargs"),
    "kwargs that contradict": (
        b'{"messages": [{}], "chat_template_kwargs": {"clear_thinking": true}}',
        "template_kwargs",
    ),
    "messages that the template refuses": (
        b'{"messages": [{"role": "user", "content": "words"}]}',
        "render_failed",
    ),
}


@pytest.mark.parametrize(("body", "code"), MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_request_is_400_and_never_reaches_the_engine(
    session: Handle, engine: StubEngine, body: bytes, code: str
) -> None:
    assert refusal(session.chat_bytes(body)) == (400, code)
    assert engine.seen == []
    assert session.dump()["records"] == []


def test_the_text_of_a_body_that_is_no_json_says_so(session: Handle) -> None:
    assert error_of(session.chat_bytes(b"{"))[2].startswith("invalid JSON body: ")


def test_what_a_sample_needs_is_asked_for_whatever_the_client_says(
    session: Handle, engine: StubEngine
) -> None:
    contrary = {"logprobs": False, "return_meta_info": None, "no_stop_trim": True}
    sent = sent_by(session, engine, **contrary)
    assert {key: sent[key] for key in FORCED} == FORCED


def test_a_stream_is_not_asked_of_the_engine(session: Handle, engine: StubEngine) -> None:
    sent = sent_by(session, engine, stream=True, stream_options={"include_usage": True})
    assert "stream" not in sent
    assert "stream_options" not in sent


def test_everything_else_is_passed_on_unchanged(session: Handle, engine: StubEngine) -> None:
    others = {
        "model": "any",
        "n": 2,
        "temperature": 0.1,
        "seed": 2**60,
        "tools": [{"type": "function", "function": {"name": "f"}}],
        "reasoning_effort": "low",
        "unknown": {"a": [None, True, 1.5, "\u00e9\u4e16"]},
    }
    sent = sent_by(session, engine, **others)
    assert sent == {"messages": [USER], **others, **FORCED, "input_ids": [1, 2, 3]}


def test_the_body_is_sent_compact_and_in_utf_8(session: Handle, engine: StubEngine) -> None:
    sent_by(session, engine, user="\u00e9\u4e16")
    body = engine.seen[0].body
    assert body == json.dumps(
        engine.seen[0].json, separators=(",", ":"), ensure_ascii=False
    ).encode("utf-8")


def test_the_clients_own_token_ids_are_overwritten(session: Handle, engine: StubEngine) -> None:
    assert sent_by(session, engine, input_ids=[7, 7])["input_ids"] == [1, 2, 3]


def test_the_second_prompt_is_the_first_turns_ids_and_the_new_messages(
    session: Handle, engine: StubEngine
) -> None:
    engine.will(first_turn(), second_turn())
    said = session.chat([USER]).json()["choices"][0]["message"]
    assert session.chat([USER, said, TOOL]).status_code == 200
    assert engine.seen[1].json["input_ids"] == [1, 2, 3, 10, 11, 20, 21]


def test_routing_is_asked_for_where_the_server_knows_its_shape(
    routed_session: Handle, engine: StubEngine
) -> None:
    sent = sent_by(routed_session, engine, return_routed_experts=False)
    assert sent["return_routed_experts"] is True
    assert "return_indexer_topk" not in sent
    assert "routed_experts_start_len" not in sent


def test_indexer_arrays_are_asked_for_where_the_server_is_told_to(
    start: StartServer, engine: StubEngine
) -> None:
    sent = sent_by(start(indexer=True).create(), engine)
    assert sent["return_indexer_topk"] is True
    assert "return_routed_experts" not in sent


@pytest.mark.parametrize("own", [False, None])
def test_without_routing_a_clients_own_wish_is_left_as_it_is(
    session: Handle, engine: StubEngine, own: bool | None
) -> None:
    assert sent_by(session, engine, return_routed_experts=own)["return_routed_experts"] is own


@pytest.mark.parametrize("kind", ["none", "full"])
def test_a_clients_own_start_row_is_not_sent(
    start: StartServer, engine: StubEngine, kind: str
) -> None:
    session = start(**{} if kind == "none" else {"routing": SPEC}).create()
    assert "routed_experts_start_len" not in sent_by(session, engine, routed_experts_start_len=2)
    assert len(session.collect().samples) == 1


def test_incremental_routing_starts_at_the_first_row_that_is_not_held(
    incremental_session: Handle, engine: StubEngine
) -> None:
    session = incremental_session
    engine.will(first_turn(prompt_tokens=9), second_turn(), second_turn())
    first = {"role": "user", "content": "1 2 3 4 5 6 7 8 9"}
    said = session.chat([first], routed_experts_start_len=5).json()["choices"][0]["message"]
    for _ in range(2):  # a retry of turn 2 asks from the same row
        assert session.chat([first, said, TOOL]).status_code == 200
    assert [seen.json["routed_experts_start_len"] for seen in engine.seen] == [0, 10, 10]


def test_the_start_row_is_sent_only_where_the_body_asks_for_routing(
    start: StartServer, engine: StubEngine
) -> None:
    for settings in ({}, {"routing": SPEC}):
        sent = sent_by(start(**settings).create(), engine)
        assert "routed_experts_start_len" not in sent
    assert sent_by(start(routing=INCREMENTAL).create(), engine)["routed_experts_start_len"] == 0


@pytest.mark.parametrize("given", [None, {}], ids=["null", "empty"])
def test_absent_template_kwargs_are_not_sent(
    session: Handle, engine: StubEngine, given: dict[str, Any] | None
) -> None:
    assert "chat_template_kwargs" not in sent_by(session, engine, chat_template_kwargs=given)


def test_effective_template_kwargs_are_sent_and_recorded(engine: StubEngine) -> None:
    tokenizer = NumberTokenizer(launch_kwargs={"thinking": True, "depth": 1})
    effective = {"thinking": True, "depth": 2}
    with running(tokenizer, engine.url) as site:
        session = site.create()
        sent = sent_by(session, engine, chat_template_kwargs={"depth": 2})
        assert sent["chat_template_kwargs"] == effective
        assert session.dump()["records"][0]["request"]["chat_template_kwargs"] == effective


def test_the_launch_kwargs_are_sent_where_a_request_has_none(engine: StubEngine) -> None:
    with running(NumberTokenizer(launch_kwargs={"depth": 1}), engine.url) as site:
        assert sent_by(site.create(), engine)["chat_template_kwargs"] == {"depth": 1}


def test_a_role_that_may_not_be_appended_is_400_and_changes_nothing(
    session: Handle, engine: StubEngine
) -> None:
    engine.will(first_turn())
    said = session.chat([USER]).json()["choices"][0]["message"]
    before = session.dump()
    response = session.chat([USER, said, {"role": "developer", "content": "5"}])
    status, code, text = error_of(response)
    assert (status, code) == (400, "append_role")
    assert text.endswith("the selected TITO fixed template does not support appending this role")
    assert session.dump() == before


class FaultyTokenizer(NumberTokenizer):
    """Fails as nobody foresaw."""

    def render(self, *_arguments: Any) -> list[int]:
        raise RuntimeError("a secret of the conversation")


def test_what_nobody_foresaw_is_500_in_our_shape_and_the_server_lives_on(
    engine: StubEngine,
) -> None:
    with running(FaultyTokenizer(), engine.url) as site:
        session = site.create()
        expected = (500, "internal_error", "internal error: RuntimeError")
        assert error_of(session.chat([USER])) == expected
        assert session.num_records() == 0
        assert session.delete().status_code == 204
    assert engine.seen == []


def test_what_is_sent_is_what_is_recorded(session: Handle, engine: StubEngine) -> None:
    sent = sent_by(session, engine, temperature=0.5, stream=True)
    assert session.dump()["records"][0]["request"] == sent


@pytest.mark.heavy
def test_a_request_of_26_mib_is_taken_where_bodies_may_be_as_large(
    start: StartServer, engine: StubEngine
) -> None:
    session = start(max_body_bytes=1 << 25).create()
    filler = "x" * (26 * 2**20)
    assert sent_by(session, engine, filler=filler)["filler"] == filler


def test_a_request_of_9_mib_is_refused_with_the_limit(session: Handle) -> None:
    response = session.chat_bytes(b"x" * (9 * 2**20))
    assert refusal(response) == (413, "body_too_large")
    assert response.json()["error"] == "a body has at most 8388608 bytes"
