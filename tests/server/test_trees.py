"""Trees over HTTP: what agents may do, what trainers get.  Sections 13 and 14."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

import httpx2
import numpy as np
import pytest

from sample_wire import Sample, SamplesReply
from sample_wire.adapters.server import ServerSettings
from sample_wire.adapters.server.chat import chat
from sample_wire.adapters.server.state import ServerState
from sample_wire.assembly import RoutingSpec
from sample_wire.errors import SessionError
from sample_wire.session.tree import MAX_NODES

from ._errors import error_of, refusal
from ._numbers import NumberTokenizer
from ._serving import Handle, running
from ._sglang import (
    NUM_LAYERS,
    TOOL,
    TOP_K,
    USER,
    completion,
    first_turn,
    routed,
    second_turn,
    speaks,
)
from ._stub import PATIENCE_S, Answer, Gate, StubEngine
from ._trees import A1, OTHER_TOOL, collect, grow, say
from .conftest import INCREMENTAL, SPEC, StartServer
from .test_concurrency import request_of

RETRY: Final = [1, 2, 3, 10, 11, 20, 21, 40]
FORK: Final = [1, 2, 3, 10, 11, 22, 50, 51]


@pytest.fixture
def session(start: StartServer) -> Handle:
    """A new session of a server whose sessions are trees."""
    return start(trajectory="tree").create()


def masks(reply: SamplesReply[Sample]) -> list[list[int]]:
    """The loss mask of each sample."""
    return [sample.loss_mask.tolist() for sample in reply.samples if sample.loss_mask is not None]


def test_a_retry_and_a_fork_give_a_sample_for_each_kept_branch(
    session: Handle, engine: StubEngine
) -> None:
    grow(session, engine)
    reply = collect(session)
    whole = [*RETRY, 1, 2, 3, 41]
    # The parent of 3 has no newer child; the parent of 4 is 0, whose newest child is 4.
    assert [sample.tokens.tolist() for sample in reply.samples] == [whole, FORK]
    assert masks(reply) == [[1, 1, 0, 0, 1, 0, 0, 0, 1], [0, 0, 0, 1, 1]]
    assert [sample.metadata["leaf"] for sample in reply.samples] == [
        {"node_id": 3, "parent": 2, "path_node_ids": [0, 2, 3], "response_id": "chatcmpl-1"},
        {"node_id": 4, "parent": 0, "path_node_ids": [0, 4], "response_id": "chatcmpl-1"},
    ]
    assert [sample.metadata["accumulated_token_ids"] for sample in reply.samples] == [whole, FORK]
    assert [sample.reward for sample in reply.samples] == [9.0, 9.0]
    assert reply.empty_reason is None
    assert list(reply.session_metadata) == [
        "tito_session_mismatch",
        "accumulated_token_ids",
        "max_trim_tokens",
        "tree",
    ]
    nodes = reply.session_metadata["tree"]["nodes"]
    assert [node["parent"] for node in nodes] == [None, 0, 0, 2, 0]
    assert reply.session_metadata["tree"]["leaves"] == [
        {"node_id": 1, "path_node_ids": [0, 1]},
        {"node_id": 3, "path_node_ids": [0, 2, 3]},
        {"node_id": 4, "path_node_ids": [0, 4]},
    ]


def test_the_agents_object_is_in_every_samples_metadata(
    session: Handle, engine: StubEngine
) -> None:
    grow(session, engine)
    agent = {"reward": 0.0, "note": "x", "leaf": "planted"}
    reply = collect(session, metadata=agent)
    assert [sample.reward for sample in reply.samples] == [0.0, 0.0]
    assert [sample.metadata["note"] for sample in reply.samples] == ["x", "x"]
    assert [sample.metadata["leaf"]["node_id"] for sample in reply.samples] == [3, 4]
    assert reply.session_metadata["agent"] == agent


@pytest.mark.parametrize("metadata", [[], ["x"], "x", 0, False], ids=repr)
def test_an_agents_object_that_is_none_is_a_422(
    session: Handle, engine: StubEngine, metadata: Any
) -> None:
    grow(session, engine)
    response = session.samples({"metadata": metadata})
    assert refusal(response) == (422, "invalid_metadata")
    assert len(collect(session, metadata=None).samples) == 2


def test_a_linear_session_leaves_the_agents_object_to_its_client(
    start: StartServer, engine: StubEngine
) -> None:
    session = start().create()
    say(session, engine, first_turn(), USER)
    reply = session.samples({"metadata": ["whatever"]})
    assert reply.content == session.samples({"max_seq_len": None}).content


def test_an_empty_tree_has_no_sample_and_says_why(session: Handle) -> None:
    reply = collect(session, metadata={})
    assert (reply.samples, reply.empty_reason) == ([], "no_records")
    assert reply.session_metadata == {
        "accumulated_token_ids": [],
        "max_trim_tokens": 0,
        "tree": {"nodes": [], "leaves": []},
        "agent": {},
    }


def test_a_limit_cuts_every_branch(session: Handle, engine: StubEngine) -> None:
    grow(session, engine)
    reply = collect(session, max_seq_len=8)
    assert [sample.tokens.tolist() for sample in reply.samples] == [RETRY, FORK]
    none = collect(session, max_seq_len=3)
    assert (none.samples, none.empty_reason) == ([], "all_truncated")


def test_the_dump_shows_the_newest_conversation(session: Handle, engine: StubEngine) -> None:
    grow(session, engine)
    dump = session.dump()
    messages = [record["request"]["messages"] for record in dump["records"]]
    assert messages == [[USER], [USER, A1, OTHER_TOOL]]
    assert dump["metadata"]["accumulated_token_ids"] == FORK
    assert [leaf["node_id"] for leaf in dump["metadata"]["tree"]["leaves"]] == [1, 3, 4]


FAILURES: Final = {
    "status": (Answer(503, b'{"error": "busy"}'), 503),
    "hang_up": (Answer(hang_up=True), 502),
    "bad_reply": (Answer(200, b'{"choices": []}'), 502),
}


@pytest.mark.parametrize(("answer", "status"), FAILURES.values(), ids=FAILURES)
def test_a_failed_engine_call_leaves_the_view_as_it_was(
    session: Handle, engine: StubEngine, answer: Answer, status: int
) -> None:
    grow(session, engine)
    before = session.dump()
    engine.will(answer)
    assert session.chat([USER, A1, TOOL]).status_code == status
    assert session.dump() == before


def test_a_turn_cut_at_its_length_limit_is_not_gone_on_from(
    session: Handle, engine: StubEngine
) -> None:
    say(session, engine, first_turn(finish="length"), USER)
    response = session.chat([USER, A1, TOOL])
    assert refusal(response) == (409, "truncated_turn")
    assert len(engine.seen) == 1
    say(session, engine, speaks([12]), USER)
    assert session.dump()["metadata"]["accumulated_token_ids"] == [1, 2, 3, 12]


def test_a_session_that_is_full_refuses_before_the_engine_is_asked() -> None:
    async def scenario() -> None:
        settings = ServerSettings(
            engine_url="http://127.0.0.1:1", tokenizer="of the test", trajectory="tree"
        )
        state = ServerState(settings, NumberTokenizer())
        session = state.registry.create()
        body = {"messages": [USER]}
        reply = json.dumps(completion(3, [10], [-0.5])).encode()
        for _ in range(MAX_NODES):
            plan = session.trajectory.plan(body)
            session.trajectory.commit(plan, body, reply, None, None)
        with pytest.raises(SessionError) as refused:
            await chat(state, request_of("POST", session.id, json.dumps(body).encode()))
        assert refused.value.code == "too_many_turns"
        await state.engine.aclose()

    asyncio.run(scenario())


def held(
    threads: ThreadPoolExecutor, session: Handle, engine: StubEngine, answer: Any
) -> tuple[Gate, Future[httpx2.Response]]:
    """A second turn that is at the engine."""
    gate = engine.will_hold(answer)
    future = threads.submit(session.chat, [USER, A1, TOOL])
    gate.wait_for_request()
    return gate, future


def test_calls_that_overlap_are_siblings_and_all_are_kept(
    threads: ThreadPoolExecutor, session: Handle, engine: StubEngine
) -> None:
    say(session, engine, first_turn(), USER)
    calls = [held(threads, session, engine, speaks([number])) for number in (40, 41, 42)]
    for number in (1, 2, 0):
        gate, future = calls[number]
        gate.open()
        assert future.result(PATIENCE_S).status_code == 200
    metadata = session.dump()["metadata"]
    assert [node["parent"] for node in metadata["tree"]["nodes"]] == [None, 0, 0, 0]
    assert metadata["accumulated_token_ids"] == [1, 2, 3, 10, 11, 20, 21, 40]
    (sample,) = collect(session).samples
    assert sample.tokens.tolist()[-1] == 40


@pytest.mark.parametrize("spec", [SPEC, INCREMENTAL], ids=["full", "incremental"])
def test_every_branch_has_the_routing_of_its_tokens(
    start: StartServer, engine: StubEngine, spec: Any
) -> None:
    session = start(trajectory="tree", routing=spec).create()
    grow(session, engine)
    starts = [seen.json.get("routed_experts_start_len") for seen in engine.seen]
    assert starts == ([0, 4, 4, 7, 4] if spec.incremental else [None] * 5)
    for sample in collect(session).samples:
        rows = np.asarray(sample.rollout_routed_experts)
        assert np.array_equal(rows, routed(len(sample.tokens) - 1))


def test_the_fault_of_one_leaf_is_a_422_that_names_it(
    start: StartServer, engine: StubEngine
) -> None:
    session = start(
        trajectory="tree", routing=RoutingSpec(num_layers=NUM_LAYERS, top_k=TOP_K, required=True)
    ).create()
    say(session, engine, first_turn(), USER)
    say(session, engine, speaks([40], routed_experts=None), USER)
    status, code, text = error_of(session.samples())
    assert (status, code) == (422, "assembly_failed")
    assert text.startswith("leaf 1: turn 1: ")


def test_a_tree_speaks_field_set_2(session: Handle) -> None:
    assert session.site.http.post("/sessions").json()["field_set"] == 2
    assert refusal(session.site.http.post("/sessions", json={"field_set": 1})) == (
        409,
        "schema_mismatch",
    )


# Mismatch reports.


def test_a_report_is_made_once_for_each_leaf(engine: StubEngine) -> None:
    asked: list[list[int]] = []

    def report(ids: Sequence[int]) -> list[dict[str, Any]]:
        asked.append([*ids])
        return [{"ends_with": ids[-1]}]

    with running(NumberTokenizer(report=report), engine.url, trajectory="tree") as site:
        session = site.create()
        grow(session, engine)
        reply = collect(session)
        assert [ids[-1] for ids in asked] == [31, 41, 51]
        say(session, engine, speaks([60]), USER, A1, OTHER_TOOL)
        assert session.dump()["metadata"]["tito_session_mismatch"] == [{"ends_with": 60}]
        again = collect(session)
    assert [ids[-1] for ids in asked] == [31, 41, 51, 60]
    told = [sample.metadata["tito_session_mismatch"] for sample in reply.samples]
    assert told == [[{"ends_with": 41}], [{"ends_with": 51}]]
    assert reply.session_metadata["tito_session_mismatch"] == [{"ends_with": 51}]
    assert again.session_metadata["tito_session_mismatch"] == [{"ends_with": 60}]


def test_where_one_report_fails_its_key_alone_is_absent(
    engine: StubEngine, caplog: pytest.LogCaptureFixture
) -> None:
    def report(ids: Sequence[int]) -> list[dict[str, Any]]:
        if ids[-1] == 51:
            raise RuntimeError("a fault in the report")
        return []

    with running(NumberTokenizer(report=report), engine.url, trajectory="tree") as site:
        session = site.create()
        grow(session, engine)
        reply = collect(session)
    assert ["tito_session_mismatch" in sample.metadata for sample in reply.samples] == [True, False]
    assert "tito_session_mismatch" not in reply.session_metadata
    assert "the mismatch report failed" in caplog.text


def last_ids(session: Handle, asked: str) -> list[int]:
    """The newest conversation's ids as the samples reply or the dump tells them."""
    told = collect(session).session_metadata if asked == "samples" else session.dump()["metadata"]
    ids: list[int] = told["accumulated_token_ids"]
    assert told["tito_session_mismatch"] == []
    return ids


@pytest.mark.parametrize("asked", ["samples", "dump"])
def test_a_turn_that_comes_while_reports_are_made_is_in_the_reply(
    threads: ThreadPoolExecutor, engine: StubEngine, asked: str
) -> None:
    gate = Gate()
    reported: list[int] = []

    def report(ids: Sequence[int]) -> list[dict[str, Any]]:
        reported.append(ids[-1])
        if len(reported) == 1:
            gate.pass_through()
        return []

    with running(NumberTokenizer(report=report), engine.url, trajectory="tree") as site:
        session = site.create()
        say(session, engine, first_turn(), USER)
        future = threads.submit(last_ids, session, asked)
        gate.wait_for_request()
        say(session, engine, second_turn(), USER, A1, TOOL)
        gate.open()
        ids = future.result(PATIENCE_S)
    assert ids[-1] == 31
    assert reported == [11, 31]
