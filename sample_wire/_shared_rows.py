"""Finds the first rows that the arrays of several samples have in common.

Leaves of one trajectory tree begin with the same rows.  Arrays in pieces are compared piece by
piece; pieces that lie in the same memory are equal without a look.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from ._arrays import Array

# How many samples before it a sample is compared with.
_MAX_CANDIDATES: Final = 64
# Less than this part of a sample's rows is not worth that its reader has to copy the others.
_MIN_PART: Final = 8
_START_ITEMS: Final = 64
_CHUNK: Final = 1 << 18


class Rows(NamedTuple):
    """One sample's array: its number, shape, and its items in flat pieces."""

    sample: int
    shape: tuple[int, ...]
    pieces: Sequence[Array]

    @property
    def row_items(self) -> int:
        return int(np.prod(self.shape[1:], dtype=np.int64))


def shared_rows(arrays: Sequence[Rows]) -> dict[int, tuple[int, int]]:
    """For each sample that begins as an earlier one does: that sample, and how many rows.

    Args:
        arrays: in order of the samples; of one dtype, or of dtypes that compare by value.
    """
    found: dict[int, tuple[int, int]] = {}
    by_start: dict[tuple[tuple[int, ...], bytes], list[Rows]] = {}
    for mine in arrays:
        if not (mine.shape[0] and mine.row_items):
            continue
        # Who does not begin with the same ids shares no row with it.
        start = _items(mine.pieces, 0, min(mine.row_items, _START_ITEMS))
        candidates = by_start.setdefault((mine.shape[1:], start.astype(np.int64).tobytes()), [])
        best = (0, 0)
        for other in reversed(candidates[-_MAX_CANDIDATES:]):
            if _has_same_row(mine, other, best[1]):
                num_rows = _common_items(mine.pieces, other.pieces) // mine.row_items
                best = max(best, (other.sample, num_rows), key=lambda pair: pair[1])
        if best[1] and best[1] * _MIN_PART >= mine.shape[0]:
            found[mine.sample] = best
        candidates.append(mine)
    return found


def _has_same_row(mine: Rows, other: Rows, row: int) -> bool:
    """Whether both have this row, and it is the same: else nothing more is in common."""
    if row >= min(mine.shape[0], other.shape[0]):
        return False
    start, stop = row * mine.row_items, (row + 1) * mine.row_items
    return bool(np.array_equal(_items(mine.pieces, start, stop), _items(other.pieces, start, stop)))


def _items(pieces: Sequence[Array], start: int, stop: int) -> Array:
    found = []
    for piece in pieces:
        if start < piece.size and stop > 0:
            found.append(piece[max(start, 0) : stop])
        start, stop = start - piece.size, stop - piece.size
    return np.concatenate(found)


def _common_items(mine: Sequence[Array], other: Sequence[Array]) -> int:
    position = 0
    for left, right in _side_by_side(mine, other):
        if not _is_same_memory(left, right):
            for start in range(0, left.size, _CHUNK):
                differs = left[start : start + _CHUNK] != right[start : start + _CHUNK]
                if differs.any():
                    return position + start + int(np.argmax(differs))
        position += left.size
    return position


def _side_by_side(mine: Sequence[Array], other: Sequence[Array]) -> Iterator[tuple[Array, Array]]:
    """Both cut where either has a boundary, up to the end of the shorter."""
    left, right = list(reversed(mine)), list(reversed(other))
    while left and right:
        size = min(left[-1].size, right[-1].size)
        yield left[-1][:size], right[-1][:size]
        for pieces in (left, right):
            rest = pieces.pop()[size:]
            if rest.size:
                pieces.append(rest)


def _is_same_memory(left: Array, right: Array) -> bool:
    return left.dtype == right.dtype and left.ctypes.data == right.ctypes.data
