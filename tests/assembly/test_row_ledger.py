"""The row ledger: what it shares, what it stores, and what it frees."""

from __future__ import annotations

import gc
import itertools
import weakref
from typing import Any

import numpy as np
import pytest

from sample_wire.assembly import RowLedger, Turn, TurnReader
from sample_wire.blocks import RowBlocks

from ._records import Array, npy_base64, raw_base64, routed, sglang, spec

SHAPE = (2, 3)


def rows_of(num_rows: int, high: int = 200, seed: int = 0) -> Array:
    """int32 rows of ids below `high`; the last row has the largest."""
    found = np.random.default_rng(seed).integers(0, high, (num_rows, *SHAPE), np.int32)
    found[-1:] = high - 1
    return found


def extended(ledger: RowLedger, held: RowBlocks, rows: Array) -> RowBlocks:
    """A turn that sends all its rows."""
    return ledger.extend(held, 0, [rows])


def buffers_of(rows: RowBlocks) -> list[Array]:
    """The buffers that rows lie in, each once."""
    return [*{id(segment.buffer): segment.buffer for segment in rows.segments}.values()]


def stored_bytes(*versions: RowBlocks) -> int:
    """Bytes of the rows that the versions refer to, each counted once."""
    seen: dict[int, set[int]] = {}
    row_bytes: dict[int, int] = {}
    for segment in itertools.chain.from_iterable(version.segments for version in versions):
        key = id(segment.buffer)
        seen.setdefault(key, set()).update(range(segment.start, segment.stop))
        row_bytes[key] = segment.buffer[:1].nbytes
    return sum(len(rows) * row_bytes[key] for key, rows in seen.items())


def test_rows_come_back_as_they_were_given() -> None:
    ledger = RowLedger(SHAPE)
    held = extended(ledger, ledger.empty(), rows_of(5))
    assert np.array_equal(held.to_array(np.int32), rows_of(5))
    assert held.shape == (5, *SHAPE)
    assert len(held) == 5


def test_an_empty_ledger_has_rows_of_its_shape() -> None:
    assert RowLedger(SHAPE).empty().to_array(np.int32).shape == (0, *SHAPE)
    assert RowLedger(()).empty().to_array(np.int64).shape == (0,)


def test_rows_sent_again_share_every_buffer_and_store_nothing() -> None:
    ledger = RowLedger(SHAPE)
    first = extended(ledger, ledger.empty(), rows_of(50))
    second = extended(ledger, first, rows_of(50).copy())
    assert second.segments == first.segments
    assert all(a.buffer is b.buffer for a, b in zip(first.segments, second.segments, strict=True))


def test_a_longer_turn_stores_only_its_new_rows() -> None:
    ledger = RowLedger(SHAPE)
    first = extended(ledger, ledger.empty(), rows_of(80)[:50])
    second = extended(ledger, first, rows_of(80))
    assert np.array_equal(second.to_array(np.int32), rows_of(80))
    assert stored_bytes(first, second) == stored_bytes(second) == 80 * 6
    assert len(second.segments) == 1  # they go on where the first ones end


def test_one_differing_row_stores_one_row() -> None:
    ledger = RowLedger(SHAPE)
    first = extended(ledger, ledger.empty(), rows_of(50))
    changed = rows_of(50)
    changed[20] = 7
    second = extended(ledger, first, changed)
    assert np.array_equal(second.to_array(np.int32), changed)
    assert np.array_equal(first.to_array(np.int32), rows_of(50))
    assert stored_bytes(first, second) == 51 * 6


@pytest.mark.parametrize(
    "at", [[0], [49], [0, 49], [*range(0, 50, 2)], [*range(1, 50, 2)]], ids=str
)
def test_differing_rows_anywhere_come_back(at: list[int]) -> None:
    ledger = RowLedger(SHAPE)
    first = extended(ledger, ledger.empty(), rows_of(50))
    changed = rows_of(50)
    changed[at] = 8
    second = extended(ledger, first, changed)
    assert np.array_equal(second.to_array(np.int32), changed)
    assert np.array_equal(first.to_array(np.int32), rows_of(50))
    assert stored_bytes(first, second) <= 100 * 6


def test_many_short_runs_of_differing_rows_do_not_fall_into_many_blocks() -> None:
    ledger = RowLedger(SHAPE)
    first = extended(ledger, ledger.empty(), rows_of(1000))
    changed = rows_of(1000)
    changed[100:900:2] = 8
    second = extended(ledger, first, changed)
    assert len(second.segments) <= 3
    assert np.array_equal(second.to_array(np.int32), changed)


def test_a_shorter_turn_takes_a_prefix() -> None:
    ledger = RowLedger(SHAPE)
    first = extended(ledger, ledger.empty(), rows_of(50))
    second = extended(ledger, first, rows_of(50)[:30])
    assert np.array_equal(second.to_array(np.int32), rows_of(50)[:30])
    assert stored_bytes(first, second) == 50 * 6


def test_rows_after_a_start_are_laid_after_the_held_ones() -> None:
    ledger = RowLedger(SHAPE)
    first = extended(ledger, ledger.empty(), rows_of(10))
    second = ledger.extend(first, 7, [rows_of(4, seed=1), rows_of(2, seed=2)])
    expected = np.concatenate([rows_of(10)[:7], rows_of(4, seed=1), rows_of(2, seed=2)])
    assert np.array_equal(second.to_array(np.int32), expected)


def test_no_chunk_leaves_the_first_rows() -> None:
    ledger = RowLedger(SHAPE)
    first = extended(ledger, ledger.empty(), rows_of(10))
    assert np.array_equal(ledger.extend(first, 4, []).to_array(np.int32), rows_of(10)[:4])


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([0, 255], np.uint8),
        ([-1, 127], np.int8),
        ([-128, 0], np.int8),
        ([0, 256], np.uint16),
        ([0, 65535], np.uint16),
        ([-1, 128], np.int16),
        ([-32768, 32767], np.int16),
        ([0, 65536], np.int32),
        ([-1, 32768], np.int32),
        ([-(2**31), 2**31 - 1], np.int32),
    ],
    ids=str,
)
@pytest.mark.parametrize("sent", [np.int32, np.int64])
def test_rows_are_kept_in_the_narrowest_dtype_that_holds_them(
    values: list[int], dtype: Any, sent: Any
) -> None:
    ledger = RowLedger((2,))
    held = extended(ledger, ledger.empty(), np.array([values], sent))
    assert held.blocks[0].dtype == dtype
    assert held.to_array(np.int32).tolist() == [values]


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int16, np.int32])
def test_rows_that_come_narrow_are_kept_so(dtype: Any) -> None:
    ledger = RowLedger((2,))
    held = extended(ledger, ledger.empty(), np.array([[1, 2]], dtype))
    assert held.blocks[0].dtype.itemsize == 1
    assert held.to_array(np.int32).tolist() == [[1, 2]]


def test_a_narrow_turn_after_a_wide_one_goes_on_in_its_buffer() -> None:
    ledger = RowLedger((2,))
    wide = ledger.extend(ledger.empty(), 0, [np.array([[0, 300]])])
    both = ledger.extend(wide, 1, [np.array([[1, 2]])])
    assert len(both.segments) == 1
    assert both.to_array(np.int32).tolist() == [[0, 300], [1, 2]]


def test_a_wider_turn_after_a_narrow_one_gets_a_buffer_of_its_own() -> None:
    ledger = RowLedger((2,))
    held = ledger.extend(ledger.empty(), 0, [np.array([[1, 2]]), np.array([[-1, 3]])])
    held = ledger.extend(held, 2, [np.array([[0, 300]]), np.array([[5, 6]])])
    assert held.to_array(np.int32).tolist() == [[1, 2], [-1, 3], [0, 300], [5, 6]]
    assert [block.dtype for block in held.blocks] == [np.uint8, np.int8, np.uint16]


def test_equal_rows_of_another_dtype_are_shared() -> None:
    ledger = RowLedger((2,))
    first = ledger.extend(ledger.empty(), 0, [np.array([[1, 300], [4, 5]])])
    again = ledger.extend(first, 0, [np.array([[1, 300]]), np.array([[4, 5]], np.uint8)])
    assert again.segments == first.segments


def test_rows_beyond_the_widest_dtype_are_never_wrapped() -> None:
    ledger = RowLedger((1,))
    with pytest.raises((ValueError, AssertionError)):
        ledger.extend(ledger.empty(), 0, [np.array([[2**40]])])


def test_rows_without_numbers_are_rows_all_the_same() -> None:
    ledger = RowLedger((2, 0))
    held = ledger.extend(ledger.empty(), 0, [np.empty((3, 2, 0), np.int32)])
    assert held.to_array(np.int32).shape == (3, 2, 0)
    assert held.common_prefix(np.empty((5, 2, 0), np.int32)) == 3


def test_rows_larger_than_a_buffer_get_one_of_their_size() -> None:
    ledger = RowLedger((1024, 1024))
    rows = np.arange(2 * 1024 * 1024, dtype=np.int32).reshape(2, 1024, 1024) % 250
    held = ledger.extend(ledger.empty(), 0, [rows])
    assert np.array_equal(held.to_array(np.int32), rows)
    held = ledger.extend(held, 2, [rows[:1]])
    assert np.array_equal(held.to_array(np.int32)[2], rows[0])


def test_rows_beyond_a_buffers_end_go_on_in_the_next() -> None:
    ledger = RowLedger((64, 1024))  # 16 rows of one byte a number to a buffer
    rows = np.random.default_rng(1).integers(0, 250, (50, 64, 1024), np.int32)
    held = ledger.extend(ledger.empty(), 0, [rows[:10]])
    held = ledger.extend(held, 10, [rows[10:]])
    assert len(held.segments) > 1
    assert np.array_equal(held.to_array(np.int32), rows)
    changed = rows.copy()
    changed[[3, 16, 17, 45]] += 1
    again = ledger.extend(held, 0, [changed[:20], changed[20:]])
    assert np.array_equal(again.to_array(np.int32), changed)
    assert np.array_equal(held.to_array(np.int32), rows)


def test_rows_that_were_handed_out_never_change() -> None:
    ledger = RowLedger(SHAPE)
    first = extended(ledger, ledger.empty(), rows_of(20))
    before = first.to_array(np.int32)
    dropped = ledger.extend(first, 20, [rows_of(20, seed=1)])
    del dropped
    for seed in range(2, 8):
        ledger.extend(first, 10, [rows_of(40, seed=seed)])
    assert np.array_equal(first.to_array(np.int32), before)


def test_the_callers_array_is_not_kept() -> None:
    rows = rows_of(5)
    ledger = RowLedger(SHAPE)
    held = extended(ledger, ledger.empty(), rows)
    rows[:] = 0
    assert np.array_equal(held.to_array(np.int32), rows_of(5))


def test_branches_share_their_parents_rows() -> None:
    ledger = RowLedger(SHAPE)
    parent = extended(ledger, ledger.empty(), rows_of(40))
    left = ledger.extend(parent, 40, [rows_of(5, seed=1)])
    right = ledger.extend(parent, 40, [rows_of(6, seed=2)])
    assert stored_bytes(parent, left, right) == (40 + 5 + 6) * 6
    assert np.array_equal(left.to_array(np.int32)[40:], rows_of(5, seed=1))
    assert np.array_equal(right.to_array(np.int32)[40:], rows_of(6, seed=2))
    assert left.segments[0].buffer is right.segments[0].buffer


def test_fifty_full_turns_store_the_rows_of_the_last() -> None:
    ledger, rows = RowLedger((25, 10)), np.random.default_rng(3).integers(0, 256, (2000, 25, 10))
    turns, held = [], ledger.empty()
    for end in range(40, 2001, 40):
        held = ledger.extend(held, 0, [rows[:end]])
        turns.append(held)
    assert stored_bytes(*turns) == 2000 * 250
    allocated = sum(buffer.nbytes for buffer in buffers_of(held))
    assert allocated <= 2000 * 250 + 2 * 2**20


def test_dropping_a_turn_frees_what_only_it_held() -> None:
    ledger = RowLedger((64, 1024))
    rows = np.zeros((48, 64, 1024), np.int32)
    kept = ledger.extend(ledger.empty(), 0, [rows[:16]])
    dropped = ledger.extend(kept, 16, [rows])
    shared, *own = [weakref.ref(buffer) for buffer in buffers_of(dropped)]
    del dropped
    gc.collect()
    assert shared() is kept.segments[0].buffer
    assert own
    assert all(reference() is None for reference in own)
    assert np.array_equal(kept.to_array(np.int32), rows[:16])


def test_a_ledger_keeps_no_rows_alive_by_itself() -> None:
    ledger = RowLedger(SHAPE)
    held = extended(ledger, ledger.empty(), rows_of(5))
    reference = weakref.ref(held.segments[0].buffer)
    del held
    gc.collect()
    assert reference() is None
    again = extended(ledger, ledger.empty(), rows_of(5, seed=1))
    assert np.array_equal(again.to_array(np.int32), rows_of(5, seed=1))


def test_dropping_a_turn_of_a_session_frees_its_rows_and_ids() -> None:
    reader = TurnReader(routing=spec(), decode_text=None)
    first = reader.read(sglang([1, 2], [3], routed_experts=raw_base64(routed(2))), None)
    wide = npy_base64(np.full((4, 2, 3), 70_000))
    second: Turn | None = reader.read(sglang([1, 2, 3, 4], [5], routed_experts=wide), first)
    assert second is not None
    assert second.routing is not None
    reference = weakref.ref(second.routing.segments[-1].buffer)
    second = None
    gc.collect()
    assert reference() is None
    assert first.routing is not None
    assert np.array_equal(first.routing.to_array(np.int32), routed(2))


def test_turns_of_a_session_share_ids_and_rows() -> None:
    reader = TurnReader(routing=spec(), decode_text=None)
    first = reader.read(sglang([1, 2], [3], routed_experts=raw_base64(routed(2))), None)
    second = reader.read(sglang([1, 2, 3, 4], [5], routed_experts=raw_base64(routed(4))), first)
    assert second.routing is not None
    assert first.routing is not None
    assert stored_bytes(first.routing, second.routing) == stored_bytes(second.routing)
    assert stored_bytes(first.tokens, second.tokens) == stored_bytes(second.tokens)
