"""How the rows of sessions are measured: reading replies, assembling, and the memory of it.

A full run measures them at P.  A quick one takes M, whose last reply is 10 MiB instead of 131,
and its rows say so.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate
from time import perf_counter
from typing import Any, Final, NamedTuple

import numpy as np

from benchmarks._assembly import Record, Session, has_pybase64, session_of
from benchmarks._figures import Result, Results, times_of
from benchmarks._memory import has_resident_peak, status_bytes
from benchmarks._session_memory import session_growth
from benchmarks._timing import Effort, compare
from sample_wire import Payload, encode_samples
from sample_wire.adapters.engines import turn_reader
from sample_wire.assembly import Turn, TurnReader, assemble_turns
from sample_wire.bench_server.straightforward import assemble_records

# The straightforward way takes seconds a call at P.
_STRAIGHTFORWARD_ROUNDS: Final = 3
# It holds the replies' text, the rows of each decoded, and copies of the last ones.
_STRAIGHTFORWARD_COPIES: Final = 2.5
_INCREMENTAL_TURNS: Final = (10, 50, 100)


class Built(NamedTuple):
    """A session whose replies were read, in our way and as JSON.

    Attributes:
        reader, turns: ours.
        records: of the first turns, as the straightforward way keeps them.
        read_s, parse_s: seconds of reading all replies, and of json.loads of them.
        records_bytes: growth of the resident set by the records; None where it is not told.
    """

    reader: TurnReader
    turns: list[Turn]
    records: list[Record]
    read_s: float
    parse_s: float
    records_bytes: int | None


def assembly(effort: Effort) -> Results:
    """Reading full-prefix replies, and assembling the turns; beside the straightforward way."""
    session = session_of(effort.session)
    built = build(session, affordable_turns(session))
    results = {**_assembled(session, built, effort), **_faster(session, built, effort)}
    if built.records_bytes is not None:
        size = session.narrow_bytes(len(built.records))
        results["records memory"] = Result(built.records_bytes / size)
    results["read all"] = Result(
        built.read_s, peer="json.loads of each, kept", peer_value=built.parse_s
    )
    built.records.clear()
    results |= _read_last(session, built, effort)
    return at_shape(results, effort)


def incremental_replies(effort: Effort) -> Results:
    """Reading a reply that brings only new rows, with more and more turns before it."""
    session = session_of(effort.session)
    calls = {}
    for count in _INCREMENTAL_TURNS:
        reader = turn_reader(routing=session.spec(incremental=True), decode_text=None)
        last: Turn | None = None
        for turn in range(count - 1):
            last = reader.read(session.record(turn, incremental=True), last)
        record = session.record(count - 1, incremental=True)
        calls[count] = _reading(reader, record, last)
    times = compare(calls, effort)
    first, middle, last_ = (times[count] for count in _INCREMENTAL_TURNS)
    results = {
        "read 10th": Result(first.median_s, first.min_s),
        "read incremental": Result(middle.median_s, middle.min_s),
        "read 100th": Result(last_.median_s, last_.min_s),
        "read flat": Result(last_.median_s / first.median_s),
    }
    return at_shape(results, effort)


def session_memory(effort: Effort) -> Results:
    """What a session keeps of the replies that were read."""
    if not has_resident_peak():
        return {}
    session = session_of(effort.session)
    size = session.narrow_bytes(session.num_turns)
    growth = session_growth(session)
    results: Results = {}
    for name, found in (
        ("session memory", growth["whole"]),
        ("session memory chunks", growth["chunks"]),
    ):
        results[name] = Result(found.held / size)
        if found.trimmed is not None:
            results[f"{name} trimmed"] = Result(found.trimmed / size)
    return at_shape(results, effort)


def build(session: Session, num_records: int) -> Built:
    """Reads every turn of a session; keeps the first num_records as parsed JSON too."""
    reader = turn_reader(routing=session.spec(incremental=False), decode_text=None)
    turns: list[Turn] = []
    records: list[Record] = []
    read_s = parse_s = 0.0
    records_bytes = 0
    for turn in range(session.num_turns):
        record = session.record(turn, incremental=False)
        started = perf_counter()
        turns.append(reader.read(record, turns[-1] if turns else None))
        read_s += perf_counter() - started
        before = _resident_bytes()
        started = perf_counter()
        reply = json.loads(record["response"])
        parse_s += perf_counter() - started
        if turn < num_records:
            records.append(kept_record(record, reply))
            records_bytes += _resident_bytes() - before
    return Built(reader, turns, records, read_s, parse_s, records_bytes or None)


def kept_record(record: Record, reply: Any) -> Record:
    """A record as a server keeps it that parses every reply.

    Args:
        record: a session's, its ids as an array.
        reply: what json.loads made of its reply.
    """
    return {"request": {"input_ids": record["request"]["input_ids"].tolist()}, "response": reply}


def affordable_turns(session: Session) -> int:
    """Turns whose records fit into half of the free memory."""
    free_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    needed = accumulate(
        _STRAIGHTFORWARD_COPIES * 4 / 3 * session.rows(turn + 1).nbytes
        for turn in range(session.num_turns)
    )
    return max(sum(one <= free_bytes / 2 for one in needed), 1)


def collect(session: Session, turns: Sequence[Turn], *, with_ids: bool = False) -> Payload:
    """What a server does when a session of P is collected: assemble, and encode."""
    result = assemble_turns(
        turns,
        accumulated_token_ids=session.ids(len(turns)),
        max_trim_tokens=0,
        decode_text=None,
        routing=session.spec(incremental=False),
    )
    metadata: dict[str, Any] = {}
    if with_ids:
        ids = turns[-1].tokens.to_array(np.int64).tolist()
        metadata = {"accumulated_token_ids": ids, "max_trim_tokens": 0}
    return encode_samples(result.samples, metadata, empty_reason=result.empty_reason)


def _assembled(session: Session, built: Built, effort: Effort) -> Results:
    turns = built.turns
    payload = collect(session, turns)
    times = compare(
        {
            "assemble": lambda: collect(session, turns),
            "assemble ids": lambda: collect(session, turns, with_ids=True),
            "iterate": lambda: sum(map(len, payload)),
            "join": payload.contiguous,
        },
        effort,
    )
    return {name: Result(timing.median_s, timing.min_s) for name, timing in times.items()}


def _faster(session: Session, built: Built, effort: Effort) -> Results:
    """Our time beside the straightforward way's, of the same turns, to the same bytes.

    Raises:
        RuntimeError: the two payloads differ.
    """
    count = len(built.records)
    num_layers = session.spec(incremental=False).num_layers
    ids = session.ids(count).tolist()

    def straightforward() -> Payload:
        return encode_samples([assemble_records(built.records, ids, num_layers)], {})

    def ours() -> Payload:
        return collect(session, built.turns[:count])

    if ours().contiguous() != straightforward().contiguous():
        raise RuntimeError("the straightforward way makes another payload")
    few = replace(effort, long_rounds=min(effort.long_rounds, _STRAIGHTFORWARD_ROUNDS))
    times = compare({"ours": ours, "theirs": straightforward}, few)
    ratio = times["theirs"].median_s / times["ours"].median_s
    peer = times_of(times["ours"], f"straightforward, {count} turns", times["theirs"])
    all_turns = count == session.num_turns
    where = None if all_turns else f"{count} turns of shape {effort.session}"
    return {"assemble ratio": Result(ratio, peer=peer, measured_at=where)}


def _read_last(session: Session, built: Built, effort: Effort) -> Results:
    """Reading the last reply, by both decoders; their parents hold the same rows."""
    spec, last = session.spec(incremental=False), session.num_turns - 1
    record = session.record(last, incremental=False)
    standard = TurnReader(routing=spec, decode_text=None)
    parent = standard.read(session.record(last - 1, incremental=False), None)
    times = compare(
        {
            "fast": _reading(built.reader, record, built.turns[last - 1]),
            "standard": _reading(standard, record, parent),
            "parse": lambda: json.loads(record["response"]),
        },
        effort,
    )
    results = {}
    for name, key in (("fast", "read last"), ("standard", "read last stdlib")):
        peer = times_of(times[name], "json.loads", times["parse"])
        results[key] = Result(times[name].median_s / times["parse"].median_s, peer=peer)
    if not has_pybase64():
        del results["read last"]
    return results


def _reading(reader: TurnReader, record: Record, parent: Turn | None) -> Callable[[], Turn]:
    return lambda: reader.read(record, parent)


def at_shape(results: Results, effort: Effort) -> Results:
    """The results, marked where they are not of the shape that their rows name."""
    if effort.session == "P":
        return results
    where = f"shape {effort.session}"
    return {
        name: replace(result, measured_at=result.measured_at or where)
        for name, result in results.items()
    }


def _resident_bytes() -> int:
    return status_bytes("VmRSS") if has_resident_peak() else 0
