"""Rows in blocks: slices, arrays, common prefixes, copies and pickles of them."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

from sample_wire.assembly import RowLedger
from sample_wire.blocks import RowBlocks, Segment

from ._records import plain


def two_blocks() -> RowBlocks:
    """Rows 0 to 9, the first four in one buffer, the rest in the middle of another."""
    rows = np.arange(20, dtype=np.int32).reshape(10, 2)
    other = np.concatenate([rows[:1] - 9, rows[4:], rows[:2]])
    segments = (Segment(rows[:4].astype(np.uint8), 0, 4), Segment(other, 1, 7))
    return RowBlocks(segments, (2,))


@pytest.mark.parametrize("start", [None, *range(-12, 13)])
def test_slices_of_blocks_are_those_of_the_array(start: int | None) -> None:
    for stop in (None, 0, 1, 3, 4, 5, 10, 11, -1, -6, -20):
        expected = np.arange(20).reshape(10, 2)[start:stop]
        found = two_blocks()[start:stop]
        assert (plain(found), len(found)) == (expected.tolist(), len(expected))


def test_a_slice_shares_memory() -> None:
    rows = two_blocks()
    assert rows[2:6].segments[0].buffer is rows.segments[0].buffer


@pytest.mark.parametrize("step", [2, -1])
def test_rows_are_taken_in_order_only(step: int) -> None:
    with pytest.raises(ValueError, match="in order"):
        two_blocks()[::step]


def test_blocks_become_an_array_of_any_dtype_by_copying() -> None:
    rows = two_blocks()
    assert np.asarray(rows).dtype == np.int32
    assert np.asarray(rows, dtype=np.int64).dtype == np.int64
    assert np.array(rows).tolist() == np.arange(20).reshape(10, 2).tolist()
    made = np.asarray(rows)
    made[:] = 0
    assert plain(rows) == np.arange(20).reshape(10, 2).tolist()


def test_blocks_refuse_to_be_an_array_without_a_copy() -> None:
    with pytest.raises(ValueError, match="by copying"):
        two_blocks().__array__(copy=False)


@pytest.mark.parametrize("at", [*range(10)])
def test_the_common_prefix_ends_at_the_first_differing_row(at: int) -> None:
    other = np.arange(20).reshape(10, 2)
    other[at, 1] += 1
    other[9:] += 1
    assert two_blocks().common_prefix(other) == at


@pytest.mark.parametrize("num_rows", [0, 1, 3, 4, 5, 10, 12])
def test_the_common_prefix_ends_with_the_shorter_side(num_rows: int) -> None:
    other = np.arange(24).reshape(12, 2)[:num_rows]
    assert two_blocks().common_prefix(other) == min(num_rows, 10)


def test_the_common_prefix_of_plain_numbers_is_counted_in_numbers() -> None:
    ledger = RowLedger(())
    held = ledger.extend(ledger.empty(), 0, [np.array([1, 2, 3])])
    assert held.common_prefix(np.array([1, 2, 4])) == 2
    assert ledger.empty().common_prefix(np.array([1])) == 0


@pytest.mark.parametrize("key", [0, -1, (0, 1), [0, 1], None], ids=str)
def test_only_slices_are_taken(key: Any) -> None:
    with pytest.raises(TypeError, match="only slices"):
        two_blocks()[key]


COPIES = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda rows: pickle.loads(pickle.dumps(rows)),
}


@pytest.mark.parametrize("make", COPIES.values(), ids=COPIES)
def test_a_copy_holds_its_own_rows_only(make: Any) -> None:
    large = np.zeros((100_000, 2), np.uint8)
    large[10:13] = [[1, 2], [3, 4], [5, 6]]
    rows = RowBlocks((Segment(large, 10, 13),), (2,))
    found = make(rows)
    assert isinstance(found, RowBlocks)
    assert (found.shape, plain(found)) == (rows.shape, plain(rows))
    assert found.blocks[0].dtype == np.uint8
    assert len(pickle.dumps(rows)) < 1000
