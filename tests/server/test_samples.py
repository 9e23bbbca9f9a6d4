"""POST /sessions/{id}/samples: goldens of the two-turn conversation, refusals, and the cases."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pytest

from sample_wire import Sample, Status, decode_samples
from sample_wire.assembly import RoutingSpec

from ._errors import error_of, refusal
from ._numbers import NumberTokenizer
from ._serving import Handle, Message, running
from ._sglang import TOOL, USER, first_turn, raw_base64, routed, second_turn, speaks
from ._stub import StubEngine
from .conftest import INCREMENTAL, SPEC, StartServer

T1: Final = [1, 2, 3, 10, 11]
T2: Final = [1, 2, 3, 10, 11, 20, 21, 30, 31]


def play(session: Handle, engine: StubEngine, *turns: Any) -> list[Message]:
    """Plays turns, each after a tool result; gives the messages."""
    messages: list[Message] = [USER]
    for number, turn in enumerate(turns):
        messages += [TOOL] if number else []
        engine.will(turn)
        response = session.chat(messages)
        assert response.status_code == 200, response.text
        messages.append(response.json()["choices"][0]["message"])
    return messages


def rows_of(sample: Sample, name: str = "rollout_routed_experts") -> npt.NDArray[np.int32]:
    """The rows of a sample, which must be there."""
    rows = getattr(sample, name)
    assert rows is not None
    assert rows.dtype == np.int32
    return np.asarray(rows)


@pytest.fixture(params=["full", "incremental"])
def played(request: pytest.FixtureRequest, start: StartServer, engine: StubEngine) -> Handle:
    """A session in which both turns were played, in both forms of routing."""
    spec = SPEC if request.param == "full" else INCREMENTAL
    session = start(routing=spec).create()
    play(session, engine, first_turn(), second_turn())
    return session


def test_two_turns_merge_to_the_golden_sample(played: Handle) -> None:
    reply = played.collect()
    (sample,) = reply.samples
    assert sample.tokens.tolist() == T2
    assert sample.response == "<10><11><20><21><30><31>"
    assert sample.response_length == 6
    assert sample.loss_mask is not None
    assert sample.loss_mask.tolist() == [1, 1, 0, 0, 1, 1]
    assert sample.rollout_log_probs is not None
    assert sample.rollout_log_probs.tolist() == [-0.125, -0.25, 0.0, 0.0, -0.5, -1.0]
    assert np.array_equal(rows_of(sample), routed(8))
    assert sample.status is Status.COMPLETED
    assert sample.weight_versions == ["w1", "w2"]
    cache = sample.prefix_cache_info
    assert (cache.cached_tokens, cache.total_prompt_tokens) == (5, 10)
    assert reply.empty_reason is None
    assert reply.session_metadata == {
        "tito_session_mismatch": [],
        "accumulated_token_ids": T2,
        "max_trim_tokens": 0,
    }


CUT: Final = {
    10: (T2, [1, 1, 0, 0, 1, 1], Status.COMPLETED, None),
    9: (T2, [1, 1, 0, 0, 1, 1], Status.COMPLETED, None),
    8: (T2[:8], [1, 1, 0, 0, 1], Status.TRUNCATED, None),
    7: (T1, [1, 1], Status.COMPLETED, 1),
    6: (T1, [1, 1], Status.COMPLETED, 1),
    5: (T1, [1, 1], Status.COMPLETED, 1),
    4: (T1[:4], [1], Status.TRUNCATED, 1),
}


@pytest.mark.parametrize("limit", CUT)
def test_two_turns_cut_at_every_limit_give_the_golden_samples(played: Handle, limit: int) -> None:
    tokens, mask, status, dropped = CUT[limit]
    (sample,) = played.collect(limit).samples
    assert sample.tokens.tolist() == tokens
    assert sample.loss_mask is not None
    assert sample.loss_mask.tolist() == mask
    assert sample.response_length == len(mask)
    assert sample.response == "".join(f"<{number}>" for number in tokens[3:])
    log_probs = [-0.125, -0.25, 0.0, 0.0, -0.5, -1.0]
    assert sample.rollout_log_probs is not None
    assert sample.rollout_log_probs.tolist() == log_probs[: len(mask)]
    assert np.array_equal(rows_of(sample), routed(len(tokens) - 1))
    assert sample.status is status
    told = sample.metadata.get("dropped_turns")
    assert told == (dropped and {"count": dropped, "reason": "max_seq_len"})


@pytest.mark.parametrize("limit", [3, 2, 1, 0, -1, -(2**63)])
def test_a_limit_that_leaves_no_output_gives_no_sample_and_says_why(
    played: Handle, limit: int
) -> None:
    reply = played.collect(limit)
    assert (reply.samples, reply.empty_reason) == ([], "all_truncated")
    assert reply.session_metadata["accumulated_token_ids"] == T2


def test_a_session_without_turns_gives_no_sample_and_says_why(session: Handle) -> None:
    reply = session.collect()
    assert (reply.samples, reply.empty_reason) == ([], "no_records")
    assert reply.session_metadata == {"accumulated_token_ids": [], "max_trim_tokens": 0}


def test_samples_may_be_asked_any_number_of_times(played: Handle) -> None:
    before = played.dump()
    first, cut, second = played.samples(), played.samples({"max_seq_len": 4}), played.samples()
    assert first.content == second.content != cut.content
    assert played.dump() == before


def test_the_reply_is_an_octet_stream_of_known_length(played: Handle) -> None:
    response = played.samples()
    assert response.headers["content-type"] == "application/octet-stream"
    assert response.headers["content-length"] == str(len(response.content))
    assert "transfer-encoding" not in response.headers


@pytest.mark.parametrize("body", [b"", b"{}", b'{"max_seq_len": null}', b'{"other": 1}'])
def test_a_body_without_a_limit_asks_for_everything(played: Handle, body: bytes) -> None:
    response = played.site.http.post(f"{played.path}/samples", content=body)
    assert decode_samples(response.content, Sample()).samples[0].tokens.tolist() == T2


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", "invalid_json"),
        (b'{"max_seq_len": "\xff"}', "invalid_json"),
        (b"[]", "bad_request"),
        (b"null", "bad_request"),
        (b'{"max_seq_len": "8"}', "invalid_max_seq_len"),
        (b'{"max_seq_len": 8.0}', "invalid_max_seq_len"),
        (b'{"max_seq_len": false}', "invalid_max_seq_len"),
        (b'{"max_seq_len": [8]}', "invalid_max_seq_len"),
    ],
)
def test_a_malformed_body_is_400_with_or_without_turns(
    session: Handle, engine: StubEngine, body: bytes, code: str
) -> None:
    for _ in range(2):
        response = session.site.http.post(f"{session.path}/samples", content=body)
        assert refusal(response) == (400, code)
        engine.will(first_turn())
        session.chat([USER])


def test_an_assembly_failure_is_422_and_says_what_assembly_says(
    start: StartServer, engine: StubEngine
) -> None:
    session = start(routing=RoutingSpec(num_layers=2, top_k=3, required=True)).create()
    play(session, engine, first_turn(), second_turn(routed_experts=None))
    response = session.samples()
    text = "turn 2: the reply has no routed_experts"
    assert error_of(response) == (422, "assembly_failed", text)
    assert session.num_records() == 2  # and the server lives on


def test_an_encoding_failure_is_422_and_says_what_encoding_says(
    start: StartServer, engine: StubEngine
) -> None:
    session = start(keep_messages=True).create()
    deep: Any = []
    for _ in range(123):  # as deep as a body may nest, and too deep where samples lie in a payload
        deep = [deep]
    engine.will(first_turn())
    assert session.chat([{**USER, "deep": deep}]).status_code == 200
    status, code, text = error_of(session.samples())
    assert (status, code) == (422, "encode_failed")
    assert "metadata" in text


def test_field_set_2_carries_a_null_reward(start: StartServer, engine: StubEngine) -> None:
    session = start(field_set=2).create()
    play(session, engine, first_turn())
    reply = decode_samples(session.samples().content, Sample(reward=1.5), field_set=2)
    assert reply.samples[0].reward == 1.5


def test_the_last_messages_are_in_the_metadata_where_they_are_asked_for(
    start: StartServer, engine: StubEngine
) -> None:
    session = start(keep_messages=True).create()
    messages = play(session, engine, first_turn(), second_turn())
    assert session.collect().samples[0].metadata["messages"] == messages


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "dropped"])
def test_speculative_counters_are_kept_where_they_are_asked_for(
    start: StartServer, engine: StubEngine, kept: bool
) -> None:
    session = start(speculative=kept).create()
    counts = {"spec_accept_token_num": 3, "spec_draft_token_num": 5, "spec_verify_ct": 2}
    play(session, engine, first_turn(**counts), second_turn(**counts))
    spec = session.collect().samples[0].spec_info
    found = (spec.spec_accept_token_num, spec.spec_draft_token_num, spec.spec_verify_ct)
    assert found == ((6, 10, 4) if kept else (0, 0, 0))
    assert spec.completion_token_num == (4 if kept else 0)


def test_a_lifecycle_tells_when_each_turn_ran(session: Handle, engine: StubEngine) -> None:
    play(session, engine, first_turn(e2e_latency=10.0), second_turn())
    records = session.dump()["records"]
    first, second = (record["timestamp"] for record in records)
    arrivals = [record["request_timestamp"] for record in records]
    assert arrivals[0] <= first <= arrivals[1] <= second
    assert session.collect().samples[0].metadata["lifecycle"] == [
        {"t0": first - 10.0, "t1": first, "turn": 1, "req_ts": arrivals[0]},
        {"t0": None, "t1": second, "turn": 2, "req_ts": arrivals[1], "prev_t1": first},
    ]


@pytest.mark.parametrize("spec", [None, SPEC, INCREMENTAL], ids=["none", "full", "incremental"])
def test_a_trimmed_turn_merges_without_the_token_that_was_dropped(
    engine: StubEngine, spec: RoutingSpec | None
) -> None:
    with running(NumberTokenizer(max_trim_tokens=1), engine.url, routing=spec) as site:
        session = site.create()
        user = {"role": "user", "content": "1 2"}
        engine.will(speaks([10, 99]), speaks([20, 99]))
        said = session.chat([user]).json()["choices"][0]["message"]
        session.chat([user, said, {"role": "tool", "content": "3"}])
        assert engine.seen[1].json["input_ids"] == [1, 2, 10, 3]
        reply = session.collect()
    (sample,) = reply.samples
    assert sample.tokens.tolist() == [1, 2, 10, 3, 20, 99]
    assert sample.loss_mask is not None
    assert sample.loss_mask.tolist() == [1, 0, 1, 1]
    assert spec is None or np.array_equal(rows_of(sample), routed(5))
    assert reply.session_metadata["max_trim_tokens"] == 1


def test_a_turn_without_routing_ends_the_sample_and_is_told(
    routed_session: Handle, engine: StubEngine
) -> None:
    play(routed_session, engine, first_turn(), second_turn(routed_experts=None))
    (sample,) = routed_session.collect().samples
    assert sample.tokens.tolist() == T1
    assert sample.metadata["dropped_turns"] == {"count": 1, "reason": "routing_gap"}


def test_indexer_arrays_are_in_the_sample(start: StartServer, engine: StubEngine) -> None:
    session = start(indexer=True).create()
    topk = {"indexer_topk": raw_base64(routed(4)), "indexer_topk_num_layers": 2}
    play(session, engine, first_turn(**topk))
    assert np.array_equal(rows_of(session.collect().samples[0], "rollout_indexer_topk"), routed(4))


class OneWordTokenizer(NumberTokenizer):
    """Both [5, 6] and [7] are the text "hello", which encodes to [7]."""

    def decode(self, ids: Any) -> str:
        return {(5, 6): "hello", (7,): "hello"}.get(tuple(ids), super().decode(ids))


def test_c21_the_ids_that_the_engine_sampled_are_kept(engine: StubEngine) -> None:
    with running(OneWordTokenizer(), engine.url) as site:
        session = site.create()
        said = {"role": "assistant", "content": "hello"}
        engine.will(speaks([5, 6], message=said), speaks([8]))
        session.chat([USER])
        session.chat([USER, said, TOOL])
        (sample,) = session.collect().samples
    assert sample.tokens.tolist() == [1, 2, 3, 5, 6, 20, 21, 8]
    assert sample.response == "hello<20><21><8>"
    assert sample.loss_mask is not None
    assert sample.loss_mask.tolist() == [1, 1, 0, 0, 1]
    assert sample.rollout_log_probs is not None
    assert len(sample.rollout_log_probs) == 5


def test_c24_an_aborted_reply_without_tokens_or_version_is_no_crash(
    session: Handle, engine: StubEngine
) -> None:
    nothing = {"role": "assistant", "content": ""}
    aborted = speaks([], [], message=nothing, finish="abort", weight_version=None)
    play(session, engine, first_turn(), aborted)
    (sample,) = session.collect().samples
    assert sample.status is Status.ABORTED
    assert sample.weight_versions == ["w1"]
    assert sample.tokens.tolist() == [*T1, 20, 21]


@pytest.mark.parametrize(
    ("finish", "status"),
    [
        ("stop", Status.COMPLETED),
        ("tool_calls", Status.COMPLETED),
        ("length", Status.TRUNCATED),
        ("abort", Status.ABORTED),
        ("content_filter", Status.PENDING),
        ("new_reason", Status.PENDING),
        (None, Status.PENDING),
    ],
)
def test_c25_how_a_turn_ended_survives_the_wire(
    session: Handle, engine: StubEngine, finish: str | None, status: Status
) -> None:
    play(session, engine, speaks([5, 6, 7], finish=finish))
    assert session.collect().samples[0].status is status


@pytest.mark.parametrize("finish", ["length", "abort", "content_filter"])
def test_a_turn_that_did_not_complete_ends_the_sample_and_later_ones_are_told(
    session: Handle, engine: StubEngine, finish: str
) -> None:
    play(session, engine, first_turn(finish=finish), second_turn())
    (sample,) = session.collect().samples
    assert sample.tokens.tolist() == T1
    assert sample.metadata["dropped_turns"] == {"count": 1, "reason": "status"}


@pytest.mark.heavy
@pytest.mark.parametrize("mib", [26, 98])
def test_c29_payloads_of_any_size_pass(start: StartServer, engine: StubEngine, mib: int) -> None:
    spec = RoutingSpec(num_layers=25, top_k=10)
    session = start(routing=spec).create()
    num_rows = math.ceil(mib * 2**20 / (25 * 10 * 4))
    rows = np.arange(num_rows * 250, dtype=np.int32).reshape(num_rows, 25, 10) % 256
    user = {"role": "user", "content": " ".join(["1"] * num_rows)}
    engine.will(speaks([2], routed_experts=raw_base64(rows)))
    assert session.chat([user]).status_code == 200
    response = session.samples()
    assert len(response.content) > mib * 2**20
    (sample,) = decode_samples(response.content, Sample()).samples
    assert np.array_equal(rows_of(sample), rows)
    session.delete()
