"""Records give routing back byte for byte, though only rows are held."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import numpy as np
import pytest

from sample_wire.assembly import RoutingSpec
from sample_wire.errors import SessionError
from sample_wire.session import LinearTrajectory

from ._words import (
    FULL,
    NUM_LAYERS,
    TOP_K,
    answer,
    chat,
    raw_base64,
    routed,
    say,
    sent,
    take_turn,
    trajectory,
)

USER = say("user", "hi")
# Of a first turn with two output tokens.
NUM_ROWS = 6


def npy_base64(rows: Any, dtype: str) -> str:
    """vLLM's form: base64 of a .npy file."""
    file = io.BytesIO()
    np.save(file, rows.astype(dtype), allow_pickle=False)
    return base64.b64encode(file.getvalue()).decode()


def routing_object(rows: Any, dtype: str, **keys: Any) -> dict[str, Any]:
    """The self-describing form."""
    data = base64.b64encode(rows.astype(dtype).tobytes()).decode()
    return {"shape": list(rows.shape), "data": data, "dtype": dtype, **keys}


FORMS = {
    "raw": raw_base64,
    "npy_u1": lambda rows: npy_base64(rows % 250, "|u1"),
    "npy_u2": lambda rows: npy_base64(rows, "<u2"),
    "npy_i4": lambda rows: npy_base64(rows, "<i4"),
    "object_uint8": lambda rows: routing_object(rows % 250, "uint8"),
    "object_int16": lambda rows: routing_object(rows, "int16", start=0),
    "object_int32": lambda rows: routing_object(rows, "<i4", extra={"data": "x"}),
    "object_int8": lambda rows: routing_object(rows * 0 - 1, "int8"),
}
RAW_SPEC = RoutingSpec(num_layers=NUM_LAYERS, top_k=TOP_K)


def session_of(replies: list[Any], routing: RoutingSpec | None = FULL) -> LinearTrajectory:
    """A session that was answered so."""
    session = trajectory(routing=routing)
    for reply in replies:
        take_turn(session, chat(*session.messages, USER), reply)
    return session


def num_rows(session: LinearTrajectory, num_output: int) -> int:
    """The rows of the next turn's reply."""
    return len(session.plan(chat(*session.messages, USER)).prompt_ids) + num_output - 1


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_routing_in_any_form_comes_back_byte_for_byte(form: Any) -> None:
    session = trajectory(routing=RAW_SPEC)
    replies = []
    for output in ([50], [60, 61], [], [70, 71, 72]):
        reply = answer(output, routed_experts=form(routed(num_rows(session, len(output)))))
        replies.append(reply)
        take_turn(session, chat(*session.messages, USER), reply)
    assert [record["response"] for record in session.records()] == replies
    assert session.turns[3].routing is not None


def test_rows_that_differ_from_the_turn_before_come_back_as_each_turn_had_them() -> None:
    session = trajectory(routing=RAW_SPEC)
    replies = []
    for turn in range(4):
        rows = routed(num_rows(session, 1))
        rows[turn] = 7 + turn * 1000
        replies.append(answer([50 + turn], routed_experts=raw_base64(rows)))
        take_turn(session, chat(*session.messages, USER), replies[-1])
    assert [record["response"] for record in session.records()] == replies


@pytest.mark.parametrize("value", ["", {"data": "", "shape": [0, 2, 3], "dtype": "int32"}])
def test_routing_with_no_rows_comes_back_as_it_was(value: Any) -> None:
    reply = answer([], routed_experts=value)
    session = trajectory(_OneToken(), routing=FULL)
    take_turn(session, chat(USER), reply)
    assert session.records()[0]["response"] == reply
    assert session.turns[0].routing is not None


def test_an_npy_file_with_no_rows_comes_back_as_it_was() -> None:
    reply = answer([], routed_experts=npy_base64(routed(0), "<u2"))
    session = trajectory(_OneToken(), routing=FULL)
    take_turn(session, chat(USER), reply)
    assert session.records()[0]["response"] == reply


def test_unused_bits_at_the_end_of_a_base64_text_come_back() -> None:
    spec = RoutingSpec(num_layers=1, top_k=1)
    rows = np.arange(NUM_ROWS - 1, dtype=np.int32)
    text = base64.b64encode(rows.tobytes()).decode()
    assert text.endswith("AAA=")
    odd = text[:-2] + "B="
    assert base64.b64decode(odd) == rows.tobytes()
    session = trajectory(routing=spec)
    reply = answer([50], routed_experts=odd)
    take_turn(session, chat(USER), reply)
    assert session.records()[0]["response"] == reply


@pytest.mark.parametrize("buffer", [bytes, bytearray])
@pytest.mark.parametrize("indent", [None, 2], ids=["compact", "spaced"])
@pytest.mark.parametrize("sort", [False, True], ids=["as_sent", "sorted"])
def test_a_replys_layout_does_not_matter(buffer: Any, indent: int | None, sort: bool) -> None:
    reply = answer(
        [50, 51],
        message=say("assistant", 'says "routed_experts":"AAAA" \u00e9'),
        routed_experts=raw_base64(routed(NUM_ROWS)),
        indexer_topk=raw_base64(routed(NUM_ROWS)[:, :1]),
        indexer_topk_num_layers=1,
    )
    session = trajectory(routing=FULL)
    text = json.dumps(reply, indent=indent, sort_keys=sort, ensure_ascii=sort).encode()
    received = buffer(text)
    session.commit(session.plan(chat(USER)), chat(USER), received, None, None)
    if buffer is bytearray:
        received[:] = b"x" * len(received)
    assert session.records()[0]["response"] == reply


def test_the_indexers_array_comes_back_too_and_the_client_does_not_get_it() -> None:
    values = routed(NUM_ROWS) * 70000
    reply = answer([50, 51], indexer_topk=raw_base64(values), indexer_topk_num_layers=NUM_LAYERS)
    session = session_of([reply])
    assert session.records()[0]["response"] == reply
    client = session.client_reply(session.turns[0])
    assert client == answer([50, 51], indexer_topk_num_layers=NUM_LAYERS)


def test_an_array_that_is_sent_twice_is_held_once() -> None:
    text = raw_base64(routed(NUM_ROWS))
    reply = answer([50, 51], routed_experts=text, sglext={"routed_experts": text})
    session = session_of([reply])
    assert session.records()[0]["response"] == reply


def test_two_arrays_of_one_name_that_differ_both_come_back() -> None:
    first, second = raw_base64(routed(NUM_ROWS)), raw_base64(routed(NUM_ROWS, 9))
    reply = answer([50, 51], routed_experts=first, sglext={"routed_experts": second})
    session = session_of([reply])
    assert session.records()[0]["response"] == reply
    (sample,) = session.collect(routing=FULL).samples
    assert np.array_equal(np.asarray(sample.rollout_routed_experts), routed(NUM_ROWS))


@pytest.mark.parametrize(
    "place", ["meta_info", "choice", "sglext"], ids=["meta_info", "choice", "sglext"]
)
def test_routing_is_found_in_every_place_and_null_is_none(place: str) -> None:
    text = raw_base64(routed(NUM_ROWS))
    reply = answer([50, 51], sglext={"routed_experts": text if place == "sglext" else None})
    reply["choices"][0]["routed_experts"] = text if place == "choice" else None
    reply["choices"][0]["meta_info"]["routed_experts"] = text if place == "meta_info" else None
    session = session_of([reply])
    assert session.records()[0]["response"] == reply
    assert session.turns[0].has_routing


def test_a_repeated_key_counts_by_its_last_value() -> None:
    text = sent(answer([50, 51], routed_experts=raw_base64(routed(NUM_ROWS))))
    doubled = text.replace(b'"routed_experts":', b'"routed_experts": "AAAA", "routed_experts":')
    session = trajectory(routing=FULL)
    session.commit(session.plan(chat(USER)), chat(USER), doubled, None, None)
    assert session.records()[0]["response"] == json.loads(doubled)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_reply_that_is_no_strict_json_comes_back_too(form: Any) -> None:
    rows = form(routed(NUM_ROWS))
    reply = answer(
        [50, 51],
        log_probs=[-float("inf"), -1e-300],
        routed_experts=rows,
        big=10**30,
        nothing=[None],
    )
    session = session_of([reply])
    assert session.records()[0]["response"] == reply
    assert session.turns[0].routing is not None


@pytest.mark.parametrize("finite", [True, False], ids=["strict_json", "lenient_json"])
@pytest.mark.parametrize("change", [0, 1], ids=["echo", "other_ids"])
def test_prompt_ids_in_a_reply_come_back_and_the_client_gets_them(
    change: int, finite: bool
) -> None:
    session = trajectory(routing=FULL)
    ids = session.plan(chat(USER)).prompt_ids + change
    reply = answer(
        [50, 51],
        log_probs=[-0.5, -0.5 if finite else -float("inf")],
        routed_experts=raw_base64(routed(NUM_ROWS)),
    )
    reply["choices"][0]["prompt_token_ids"] = ids.tolist()
    take_turn(session, chat(USER), reply)
    assert session.records()[0]["response"] == reply
    client = session.client_reply(session.turns[0])
    assert client["choices"][0]["prompt_token_ids"] == ids.tolist()


@pytest.mark.parametrize(
    "value", [None, [], [102.0, 103, 1, 2, 104]], ids=["null", "empty", "float"]
)
def test_prompt_ids_that_are_no_echo_stay_as_they_are(value: Any) -> None:
    session = trajectory()
    reply = answer([50, 51])
    reply["choices"][0]["prompt_token_ids"] = value
    if value and isinstance(value[0], float):
        with pytest.raises(SessionError, match="malformed"):
            take_turn(session, chat(USER), reply)
    else:
        take_turn(session, chat(USER), reply)
        assert session.records()[0]["response"] == reply


def test_numbers_of_a_reply_come_back_as_they_were() -> None:
    reply = answer([50], log_probs=[-12.924283981323242], a=1.0, b=1, c=10**25, d=-0.0, e=5e-324)
    session = session_of([reply])
    assert repr(session.records()[0]["response"]) == repr(reply)


def test_rows_shared_with_a_turn_that_was_rolled_back_are_still_there() -> None:
    session = trajectory(routing=RAW_SPEC)
    for _ in range(2):
        reply = answer([50], routed_experts=raw_base64(routed(num_rows(session, 1))))
        take_turn(session, chat(*session.messages, USER), reply)
    retry = chat(*session.messages[:3])
    rows = routed(len(session.plan(retry).prompt_ids) + 1)
    reply = answer([60, 61], routed_experts=raw_base64(rows))
    take_turn(session, retry, reply)
    assert session.records()[1]["response"] == reply


class _OneToken:
    """A tokenizer whose every prompt is one token."""

    max_trim_tokens = 0
    allowed_append_roles = frozenset[str]()

    def template_kwargs(self, _request_kwargs: Any) -> dict[str, Any]:
        return {}

    def render(self, *_: Any) -> list[int]:
        return [3]

    def append(self, *_: Any) -> tuple[int, list[int]]:
        return 0, []

    def decode(self, ids: Any) -> str:
        return str(list(ids))

    decode_message = decode

    def mismatch(self, *_: Any) -> list[dict[str, Any]]:
        return []
