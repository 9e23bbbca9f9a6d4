"""A small fuzzer: of mutated records only AssemblyError comes, and the reader reads on."""

from __future__ import annotations

import copy
import json
import random
from typing import Any, Final

import numpy as np
import pytest
from strategies import same_sample

from sample_wire import AssemblyError, EncodeError, Schema, encode_samples
from sample_wire.assembly import Turn, TurnReader, assemble_turns

from ._records import (
    Record,
    assembled,
    npy_base64,
    raw_base64,
    routed,
    routing_object,
    sglang,
    sglang_generate,
    spec,
    spelled,
    vllm,
    vllm_chat,
)
from ._sample_classes import RICH_SCHEMA, THEIR_SCHEMA

WEIRD: Final[tuple[Any, ...]] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    7,
    2**31,
    2**63,
    10**400,
    0.5,
    -0.0,
    1e308,
    float("nan"),
    float("inf"),
    -float("inf"),
    "",
    "x",
    "stop",
    "abort",
    "AAAA",
    "AAAA====",
    "k05VTVBZ",
    "\ud800",
    "\u00e9",
    [],
    [[]],
    [1],
    [[-0.5, 1, None]],
    {},
    {"data": "", "shape": [0, 2, 3], "dtype": "int32"},
    {"logprob": -1},
    {"type": "stop"},
)
CHUNK: Final = {"index": 0, "token_ids": [4], "logprobs": {"content": [{"logprob": -1}]}}


def seeds(start: int | None) -> dict[str, Record]:
    """A good second turn of each kind, with its rows from a start on or all of them."""
    ids, rows = ([1, 2, 3], [4]), routed(3 - (start or 0), start=start or 0)
    body = sglang(*ids, start=start, routed_experts=routing_object(rows, "uint16", start))
    return {
        "sglang": sglang(*ids, start=start, routed_experts=raw_base64(rows), e2e_latency=1.0),
        "generate": sglang_generate(*ids, routed_experts=routing_object(rows, start=start)),
        "vllm": vllm(*ids, start=start, routed_experts=npy_base64(rows)),
        "vllm_chat": vllm_chat(*ids, start=start, routed_experts=npy_base64(rows, "<u2")),
        "indexer": sglang(
            *ids,
            start=start,
            routed_experts=raw_base64(rows),
            indexer_topk=raw_base64(routed(3, 1, 2)),
            indexer_topk_num_layers=1,
            spec_verify_ct=1,
            weight_version="7",
        ),
        "wrapped": {
            "request": {"body": body["request"]},
            "response": {"status": 200, "body": body["response"]},
            "timestamp": 5.0,
            "request_timestamp": 4.0,
        },
        "stream": {
            "request": {"token_ids": [1, 2, 3], "routed_experts_start_len": start},
            "response": {
                "sse": [
                    {"choices": [CHUNK | {"routed_experts": npy_base64(rows)}]},
                    {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 1}},
                ]
            },
        },
    }


NUM_INPUTS: Final = 500


def places_of(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of everything inside a JSON value."""
    items: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        items = [*value.items()]
    elif isinstance(value, list):
        items = [*enumerate(value)]
    return [
        found for key, item in items for found in [(*path, key), *places_of(item, (*path, key))]
    ]


def mutated(record: Record, rng: random.Random) -> Record:
    """The record with one to three places changed, removed, doubled, renamed or wrapped."""
    made = copy.deepcopy(record)
    for _ in range(rng.choice([1, 1, 2, 3])):
        places = places_of(made)
        if not places:
            break
        *path, key = rng.choice(places)
        holder: Any = made
        for step in path:
            holder = holder[step]
        change(holder, key, rng)
    return made


def change(holder: Any, key: Any, rng: random.Random) -> None:
    """Changes what a container has at a key."""
    kind = rng.choice(["weird", "weird", "weird", "remove", "double", "rename", "wrap", "text"])
    value = holder[key]
    if kind == "remove":
        del holder[key]
    elif kind == "double" and isinstance(holder, list):
        holder.insert(key, copy.deepcopy(value))
    elif kind == "rename" and isinstance(holder, dict):
        holder[rng.choice(["body", "sse", "token_ids", "meta_info", "odd"])] = holder.pop(key)
    elif kind == "wrap":
        holder[key] = rng.choice([[value], {"body": value}, {"sse": [value]}])
    elif kind == "text" and isinstance(value, str) and value:
        at = rng.randrange(len(value))
        holder[key] = value[:at] + rng.choice(["", "=", "A", "/", "\n"]) + value[at + 1 :]
    else:
        holder[key] = copy.deepcopy(rng.choice(WEIRD))


def as_sent(record: Record, rng: random.Random) -> Record:
    """The record, or with its reply as bytes, some of them damaged."""
    if rng.random() < 0.5 or "response" not in record:
        return record
    text = json.dumps(record["response"]).encode()
    if rng.random() < 0.3:
        at = rng.randrange(len(text) + 1)
        text = text[:at] + rng.choice([b"", b'"', b"}", b"\xff", b"[[[["]) + text[at + 1 :]
    return record | {"response": text}


def sample_of(turns: list[Turn], routing: Any) -> Any:
    """The last sample of turns that were read; all of them can be sent.

    But for text that no JSON can carry, which is sent on as it came.
    """
    result = assemble_turns(
        turns,
        accumulated_token_ids=None,
        max_trim_tokens=1,
        decode_text=spelled,
        routing=routing,
        speculative=True,
        keep_messages=True,
        on_discontinuity="split",
    )
    try:
        encode_samples(result.samples)
    except EncodeError as error:
        if error.field not in ("metadata", "weight_versions"):
            raise
    return result.samples[-1]


@pytest.mark.parametrize("start", [None, 1], ids=["full", "incremental"])
@pytest.mark.parametrize("name", seeds(None))
def test_only_assembly_errors_come_of_mutated_records(name: str, start: int | None) -> None:
    rng = random.Random(f"{name} {start}")
    routing = spec(incremental=start is not None, num_experts=10_000)
    reader = TurnReader(routing=routing, decode_text=spelled)
    first = reader.read(sglang([1], [2], routed_experts=raw_base64(routed(1)), start=0), None)
    good = seeds(start)[name]
    expected = sample_of([first, reader.read(good, first)], routing)
    num_refused = 0
    for _ in range(NUM_INPUTS):
        record = as_sent(mutated(good, rng), rng)
        try:
            sample_of([first, reader.read(record, first)], routing)
        except AssemblyError as error:
            assert error.turn == 2  # noqa: PT017  # most records are refused, some are not
            num_refused += 1
        check_same(sample_of([first, reader.read(good, first)], routing), expected)
    assert NUM_INPUTS // 4 < num_refused < NUM_INPUTS


EXTRAS: Final[dict[str, Any]] = {
    "entropy": [0.5],
    "pairs": [[1, 2]],
    "top_ids": [[1, 2]],
    "segments": [1, 2, 3, 4],
    "tools": ["search"],
    "motto": "more",
    "usage": {"calls": 1, "seconds": 0.5},
    "facts": {"a": 1},
    "histogram": [1],
    "calls": {"cached_tokens": 1},
}


@pytest.mark.parametrize("schema", [RICH_SCHEMA, THEIR_SCHEMA], ids=["subclass", "foreign"])
def test_only_assembly_errors_come_of_mutated_values_of_further_fields(schema: Schema) -> None:
    rng = random.Random(7)
    first, good = sglang([1], [2], histogram=[1]), sglang([1, 2, 3], [4], **EXTRAS)
    num_refused = 0
    for _ in range(NUM_INPUTS):
        record = as_sent(mutated(good, rng), rng)
        try:
            result = assembled([first, record], schema=schema, on_discontinuity="split")
        except AssemblyError:
            num_refused += 1
        else:
            assert len(result.samples) in (1, 2)
    assert NUM_INPUTS // 4 < num_refused < NUM_INPUTS


def check_same(found: Any, expected: Any) -> None:
    """Fails where a sample is not the one that it was before."""
    for name in ("rollout_routed_experts", "rollout_indexer_topk"):
        for sample in (found, expected):
            rows = getattr(sample, name)
            setattr(sample, name, None if rows is None else np.asarray(rows))
    assert same_sample(found, expected)
