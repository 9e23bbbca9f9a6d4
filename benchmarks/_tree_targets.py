"""What the branches of a tree cost: leaves that share all of a session but its last turn.

The leaves are tries of that turn.  Their prompts are equal, and so are the rows of those; the
rows of what each try sampled are its own.
"""

from __future__ import annotations

import gc
import json
import tracemalloc
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from benchmarks._assembly import Record, Session, encode_base64, session_of
from benchmarks._data import NUM_EXPERTS
from benchmarks._figures import Result, Results
from benchmarks._timing import Effort, compare
from sample_wire import Payload, encode_samples
from sample_wire.adapters.engines import turn_reader
from sample_wire.assembly import Turn, assemble_turns

NUM_LEAVES: Final = 16


def trees(effort: Effort) -> Results:
    """Memory of the leaves, and making their samples."""
    session = session_of(effort.session)
    line = read_line(session)
    leaves = [line] * NUM_LEAVES
    times = compare({"collect": lambda: collect(session, leaves)}, effort)["collect"]
    results = {
        "tree memory": Result(leaf_bytes(session) / own_bytes(session)),
        "tree assemble": Result(times.median_s, times.min_s),
    }
    if effort.session == "P":
        return results
    where = f"shape {effort.session}"
    return {name: replace(result, measured_at=where) for name, result in results.items()}


def read_line(session: Session) -> list[Turn]:
    """The turns of a session, whose engine sends new rows only."""
    reader = turn_reader(routing=session.spec(incremental=True), decode_text=None)
    turns: list[Turn] = []
    for turn in range(session.num_turns):
        record = session.record(turn, incremental=True)
        turns.append(reader.read(record, turns[-1] if turns else None))
    return turns


def collect(session: Session, paths: Sequence[Sequence[Turn]]) -> Payload:
    """The samples of these paths, as one payload that is not joined."""
    samples = []
    for path in paths:
        result = assemble_turns(
            path,
            accumulated_token_ids=None,
            max_trim_tokens=0,
            decode_text=None,
            routing=session.spec(incremental=True),
        )
        samples += result.samples
    return encode_samples(samples, {})


def own_bytes(session: Session) -> int:
    """Bytes of what a leaf sampled: its rows as uint8 and its ids as int32."""
    row_bytes: int = session.rows(1)[0].size
    return num_sampled(session) * (row_bytes + 4)


def num_sampled(session: Session) -> int:
    """Tokens that the engine samples in the last turn."""
    record = session.record(session.num_turns - 1, incremental=True)
    num_prompt = len(record["request"]["input_ids"])
    return session.num_turns * session.turn_size - num_prompt


def leaf_bytes(session: Session) -> float:
    """What each leaf adds to a session whose engine re-sends every row, by tracemalloc."""
    reader = turn_reader(routing=session.spec(incremental=False), decode_text=None)
    base = reader.read(session.record(session.num_turns - 2, incremental=False), None)
    leaves: list[Turn] = []
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for record in _tries(session):
            leaves.append(reader.read(record, base, leaves[-1] if leaves else None))
        del record
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return (after - before) / len(leaves)


def _tries(session: Session) -> Iterator[Record]:
    """The last turn again and again, what was sampled routed otherwise in each."""
    record = session.record(session.num_turns - 1, incremental=False)
    reply: Any = json.loads(record["response"])
    rows = session.rows(session.num_turns).copy()
    sampled = rows[-num_sampled(session) :]
    for _ in range(NUM_LEAVES):
        np.remainder(sampled + 1, NUM_EXPERTS, out=sampled)
        text = encode_base64(rows.tobytes()).decode()
        reply["choices"][0]["meta_info"]["routed_experts"] = text
        yield record | {"response": reply}
