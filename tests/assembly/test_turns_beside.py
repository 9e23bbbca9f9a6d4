"""Turns on one parent share what they have in common, and read as if each were alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from sample_wire.assembly import RoutingSpec, Turn, TurnReader
from sample_wire.blocks import RowBlocks

from ._records import Array, npy_base64, raw_base64, routed, sglang

FULL = RoutingSpec(num_layers=2, top_k=3)
INCREMENTAL = RoutingSpec(num_layers=2, top_k=3, incremental=True)
FIRST = ([1, 2, 3], [10, 11])
SECOND = [1, 2, 3, 10, 11, 20, 21]


def record(
    prompt: Sequence[int], output: Sequence[int], rows: Array, start: int | None
) -> dict[str, Any]:
    """A turn whose engine sends these rows from `start` on."""
    found = sglang(prompt, output, routed_experts=raw_base64(rows[start or 0 :]))
    if start is not None:
        found["request"]["routed_experts_start_len"] = start
    return found


def rows_of(turn: Turn) -> Array:
    assert turn.routing is not None
    return np.asarray(turn.routing)


def shared_rows(one: RowBlocks | None, other: RowBlocks | None) -> int:
    """Leading rows that lie at the same place in memory."""
    assert one is not None
    assert other is not None
    count = 0
    for a, b in zip(one.segments, other.segments, strict=False):
        if a.buffer is not b.buffer or a.start != b.start:
            break
        count += min(a.stop, b.stop) - a.start
        if a.stop != b.stop:
            break
    return count


@pytest.mark.parametrize("spec", [FULL, INCREMENTAL], ids=["full", "incremental"])
def test_a_turn_beside_another_shares_the_rows_and_ids_that_are_equal(spec: RoutingSpec) -> None:
    reader = TurnReader(routing=spec, decode_text=None)
    starts = (0, 4) if spec.incremental else (None, None)
    first = reader.read(record(*FIRST, routed(4), starts[0]), None)
    one = reader.read(record(SECOND, [30, 31], routed(8), starts[1]), first)
    rows = routed(9)
    rows[7:] += 1
    other = reader.read(record(SECOND, [30, 40, 41], rows, starts[1]), first, one)
    assert np.array_equal(rows_of(other), rows)
    assert np.array_equal(rows_of(one), routed(8))
    assert other.tokens.to_array(np.int64).tolist() == [*SECOND, 30, 40, 41]
    assert shared_rows(one.tokens, other.tokens) == 8
    assert shared_rows(one.routing, other.routing) == 7
    assert (other.num_shared, other.number) == (one.num_shared, 2)


def test_first_turns_share_the_ids_and_rows_of_a_prompt() -> None:
    reader = TurnReader(routing=FULL, decode_text=None)
    one = reader.read(record(*FIRST, routed(4), None), None)
    other = reader.read(record([1, 2, 3], [12], routed(3), None), None, one)
    assert shared_rows(one.routing, other.routing) == 3
    assert shared_rows(one.tokens, other.tokens) == 3
    assert (other.num_shared, other.number, other.gap_text) == (0, 1, "")


def test_rows_before_the_start_are_those_of_the_parent() -> None:
    """Though the other turn, which was sent whole, has others there."""
    reader = TurnReader(routing=INCREMENTAL, decode_text=None)
    first = reader.read(record(*FIRST, routed(4), 0), None)
    changed = [1, 2, 3, 10, 90, 20, 21]
    one = reader.read(record(changed, [30, 31], routed(8) + 500, 0), first)
    other = reader.read(record(SECOND, [30, 31], routed(8), 4), first, one)
    assert np.array_equal(rows_of(one), routed(8) + 500)
    assert np.array_equal(rows_of(other), routed(8))


def test_a_turn_beside_one_of_another_row_shape_shares_with_its_parent() -> None:
    reader = TurnReader(routing=None, decode_text=None)

    def turn(rows: Array, *arguments: Any) -> Turn:
        prompt, output = ([1, 2, 3], [10, 11]) if arguments[0] is None else (SECOND, [30])
        return reader.read(sglang(prompt, output, routed_experts=npy_base64(rows)), *arguments)

    first = turn(routed(4), None)
    one = turn(routed(7, num_layers=5), first)
    other = turn(routed(7), first, one)
    assert np.array_equal(rows_of(one), routed(7, num_layers=5))
    assert np.array_equal(rows_of(other), routed(7))
    assert shared_rows(first.routing, other.routing) == 4


def test_a_turn_beside_one_without_rows_shares_with_its_parent() -> None:
    reader = TurnReader(routing=FULL, decode_text=None)
    first = reader.read(record(*FIRST, routed(4), None), None)
    one = reader.read(sglang(SECOND, [30]), first)
    other = reader.read(record(SECOND, [30, 31], routed(8), None), first, one)
    assert np.array_equal(rows_of(other), routed(8))
    assert shared_rows(first.routing, other.routing) == 4
    assert shared_rows(one.tokens, other.tokens) == 8


def test_the_indexers_rows_are_shared_too() -> None:
    reader = TurnReader(routing=None, decode_text=None)

    def turn(rows: Array, *arguments: Any) -> Turn:
        meta: dict[str, Any] = {"indexer_topk": raw_base64(rows), "indexer_topk_num_layers": 2}
        return reader.read(sglang([1, 2, 3], [10, 11], **meta), *arguments)

    one = turn(routed(4), None)
    other = turn(routed(4), None, one)
    assert shared_rows(one.indexer, other.indexer) == 4
