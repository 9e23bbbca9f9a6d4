"""Sessions: that the replies are an engine's, and what assembles them.  Plain tests unless run
with --benchmark-enable; all at M, as P takes minutes (report.py)."""

from __future__ import annotations

import base64
import json
import os
import sys
import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks import _session_targets
from benchmarks._assembly import Session, base64_encoder, encode_base64, session_of
from benchmarks._figures import MEASURED, TARGETS
from benchmarks._memory import has_resident_peak
from benchmarks._session_targets import (
    Built,
    affordable_turns,
    assembly,
    build,
    collect,
    incremental_replies,
    session_memory,
)
from benchmarks._timing import Effort
from sample_wire import encode_samples
from sample_wire.adapters.engines import turn_reader
from sample_wire.assembly import Turn, TurnReader, assemble_turns
from sample_wire.bench_server.straightforward import assemble_records

NUM_TURNS = 8
# What a session may hold beside its rows and ids: a buffer that is not full, and small objects.
MAX_OVERHEAD_BYTES = 3 * 2**19
SHORTEST = Effort("test", rounds=1, long_rounds=1, round_s=0.0, gap_rounds=1, session="M")


@pytest.fixture(scope="module")
def session() -> Session:
    return session_of("M")


@pytest.fixture(scope="module")
def built(session: Session) -> Built:
    return build(session, NUM_TURNS)


def meta_of(record: Any) -> Any:
    return json.loads(record["response"])["choices"][0]["meta_info"]


@pytest.mark.parametrize("turn", [0, 1, 7])
def test_each_prompt_is_the_turn_before_and_something_new(session: Session, turn: int) -> None:
    record = session.record(turn, incremental=False)
    prompt, meta = record["request"]["input_ids"], meta_of(record)
    output = [entry[1] for entry in meta["output_token_logprobs"]]
    assert turn * session.turn_size < len(prompt) == meta["prompt_tokens"]
    assert len(output) == meta["completion_tokens"]
    assert [*prompt.tolist(), *output] == session.ids(turn + 1).tolist()


@pytest.mark.parametrize("turn", [0, 1, 7])
def test_a_full_prefix_is_base64_of_every_row_so_far(session: Session, turn: int) -> None:
    text = meta_of(session.record(turn, incremental=False))["routed_experts"]
    assert base64.b64decode(text, validate=True) == session.rows(turn + 1).tobytes()


@pytest.mark.parametrize("turn", [0, 1, 7, 8, 20])
def test_an_incremental_reply_has_the_rows_that_are_new(session: Session, turn: int) -> None:
    record = session.record(turn, incremental=True)
    start = record["request"]["routed_experts_start_len"]
    data = base64.b64decode(meta_of(record)["routed_experts"], validate=True)
    assert data == session.rows(turn + 1)[start:].tobytes()
    assert start == max(len(session.ids(turn)) - 1, 0)


def test_a_reply_is_the_same_each_time_it_is_made(session: Session) -> None:
    first, second = (session.record(3, incremental=False)["response"] for _ in range(2))
    assert first == second


def test_a_full_prefix_beyond_the_shape_is_refused(session: Session) -> None:
    with pytest.raises(ValueError, match="beyond"):
        session.record(NUM_TURNS, incremental=False)


def test_a_shape_without_routing_is_refused() -> None:
    with pytest.raises(ValueError, match="no R3"):
        Session("S")


@pytest.fixture
def without_pybase64(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "pybase64", None)
    base64_encoder.cache_clear()
    yield
    base64_encoder.cache_clear()


@pytest.mark.usefixtures("without_pybase64")
def test_replies_are_encoded_without_pybase64_too() -> None:
    assert encode_base64(b"rows") == b"cm93cw=="


@pytest.mark.usefixtures("without_pybase64")
def test_reading_is_held_to_its_bound_only_with_pybase64() -> None:
    found = assembly(SHORTEST)
    assert "read last" not in found
    assert "read last stdlib" in found


def test_collecting_gives_the_payload_of_the_straightforward_way(
    benchmark: BenchmarkFixture, session: Session, built: Built
) -> None:
    benchmark.group = "assemble M"
    payload = benchmark(collect, session, built.turns)
    expected = assemble_records(built.records, session.ids(NUM_TURNS).tolist(), 25)
    assert bytes(payload) == bytes(encode_samples([expected]))


def test_the_straightforward_way_decodes_and_copies(
    benchmark: BenchmarkFixture, session: Session, built: Built
) -> None:
    benchmark.group = "assemble M"
    ids = session.ids(NUM_TURNS).tolist()
    sample = benchmark(assemble_records, built.records, ids, 25)
    assert np.array_equal(sample.rollout_routed_experts, session.rows(NUM_TURNS))


@pytest.mark.parametrize(
    ("ids", "error"),
    [
        pytest.param(slice(None, -1), "part from an output", id="short"),
        pytest.param(slice(1, None), "part from an output", id="shifted"),
    ],
)
def test_the_straightforward_way_checks_the_ids(
    ids: slice, error: str, session: Session, built: Built
) -> None:
    with pytest.raises(ValueError, match=error):
        assemble_records(built.records, session.ids(NUM_TURNS).tolist()[ids], 25)


def test_the_straightforward_way_refuses_turns_that_do_not_follow(
    session: Session, built: Built
) -> None:
    records = [built.records[1], built.records[1]]
    with pytest.raises(ValueError, match="does not go on"):
        assemble_records(records, session.ids(2).tolist(), 25)


def test_the_ids_of_the_session_go_into_its_metadata_on_demand(
    session: Session, built: Built
) -> None:
    plain, with_ids = (collect(session, built.turns, with_ids=choice) for choice in (False, True))
    assert with_ids.nbytes - plain.nbytes > 2 * len(session.ids(NUM_TURNS))


@pytest.mark.parametrize("decoder", ["fast", "standard"])
def test_reading_the_last_reply_gives_every_row(
    benchmark: BenchmarkFixture, session: Session, decoder: str
) -> None:
    benchmark.group = "read the last full-prefix reply of M"
    spec = session.spec(incremental=False)
    make = turn_reader if decoder == "fast" else TurnReader
    reader = make(routing=spec, decode_text=None)
    parent = reader.read(session.record(NUM_TURNS - 2, incremental=False), None)
    turn: Turn = benchmark(reader.read, session.record(NUM_TURNS - 1, incremental=False), parent)
    assert turn.routing is not None
    assert np.array_equal(np.asarray(turn.routing), session.rows(NUM_TURNS))


def test_json_loads_of_the_last_reply_is_the_baseline(
    benchmark: BenchmarkFixture, session: Session
) -> None:
    benchmark.group = "read the last full-prefix reply of M"
    record = session.record(NUM_TURNS - 1, incremental=False)
    assert benchmark(json.loads, record["response"])["object"] == "chat.completion"


def test_incremental_replies_make_the_sample_of_full_ones(session: Session, built: Built) -> None:
    spec = session.spec(incremental=True)
    reader = turn_reader(routing=spec, decode_text=None)
    turns: list[Turn] = []
    for turn in range(NUM_TURNS):
        record = session.record(turn, incremental=True)
        turns.append(reader.read(record, turns[-1] if turns else None))
    result = assemble_turns(
        turns, accumulated_token_ids=None, max_trim_tokens=0, decode_text=None, routing=spec
    )
    assert bytes(encode_samples(result.samples)) == bytes(collect(session, built.turns))


def test_a_session_holds_its_rows_once_and_narrow(session: Session) -> None:
    records = [session.record(turn, incremental=False) for turn in range(NUM_TURNS)]
    reader = turn_reader(routing=session.spec(incremental=False), decode_text=None)
    turns: list[Turn] = []
    tracemalloc.start()
    try:
        for record in records:
            turns.append(reader.read(record, turns[-1] if turns else None))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held <= session.narrow_bytes(NUM_TURNS) + MAX_OVERHEAD_BYTES


@pytest.mark.skipif(not has_resident_peak(), reason="only Linux tells the resident set")
def test_processes_of_their_own_tell_what_a_session_keeps() -> None:
    found = session_memory(SHORTEST)
    assert {"session memory", "session memory chunks"} <= set(found) <= {*TARGETS, *MEASURED}
    assert all(found[name].value > 0 for name in ("session memory", "session memory chunks"))


def test_the_straightforward_way_gets_the_turns_that_fit_into_memory(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = affordable_turns(session)
    monkeypatch.setattr(os, "sysconf", lambda _name: 2**13)
    assert 1 <= affordable_turns(session) < everything == NUM_TURNS


def test_fewer_turns_than_the_session_has_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_session_targets, "affordable_turns", lambda _session: 3)
    assert assembly(SHORTEST)["assemble ratio"].measured_at == "3 turns of shape M"


def test_results_of_another_shape_say_so() -> None:
    found = incremental_replies(SHORTEST)
    assert set(found) <= {*TARGETS, *MEASURED}
    assert {result.measured_at for result in found.values()} == {"shape M"}
