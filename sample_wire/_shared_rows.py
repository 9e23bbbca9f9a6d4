"""Finds the first rows that the arrays of several samples have in common.

Leaves of one trajectory tree begin with the same rows.  Arrays in pieces are compared piece by
piece; pieces that lie in the same memory are equal without a look.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from math import prod
from typing import Final

import numpy as np

from ._arrays import Array

# How many samples before it a sample is compared with: siblings lie side by side.
_MAX_CANDIDATES: Final = 8
# Less than this part of a sample's rows is not worth that its reader has to copy the others.
_MIN_PART: Final = 8
_START_ITEMS: Final = 64
_CHUNK: Final = 1 << 18


class Rows:
    """One sample's array in flat pieces, none of them empty.

    Attributes:
        sample: its number.
        shape: rows first.
        row_items: items of a row.
        pieces: as given, without those of no items.
        memory: where each piece lies, its dtype and size.
        starts: the first item of each piece.
    """

    __slots__ = ("memory", "pieces", "row_items", "sample", "shape", "starts")

    def __init__(self, sample: int, shape: tuple[int, ...], pieces: Iterable[Array]) -> None:
        self.sample = sample
        self.shape = shape
        self.row_items = prod(shape[1:])
        self.pieces = [piece for piece in pieces if piece.size]
        self.memory = [(_address(piece), piece.dtype.char, piece.size) for piece in self.pieces]
        self.starts = [0, *itertools.accumulate(piece.size for piece in self.pieces)]

    def items(self, start: int, stop: int) -> Array:
        """Items [start, stop), which are there."""
        at = bisect_right(self.starts, start) - 1
        if stop <= self.starts[at + 1]:
            return self.pieces[at][start - self.starts[at] : stop - self.starts[at]]
        last = bisect_right(self.starts, stop - 1)
        joined = np.concatenate(self.pieces[at:last])
        return joined[start - self.starts[at] : stop - self.starts[at]]


def shared_rows(arrays: Sequence[Rows]) -> dict[int, tuple[int, int]]:
    """For each sample that begins as an earlier one does: that sample, and how many rows.

    Args:
        arrays: in order of the samples; of one dtype, or of dtypes that compare by value.
    """
    found: dict[int, tuple[int, int]] = {}
    by_start: dict[tuple[tuple[int, ...], bytes], list[Rows]] = {}
    for mine in arrays:
        if not mine.pieces:
            continue
        # Who does not begin with the same ids shares no row with it.
        start = mine.items(0, min(mine.row_items, _START_ITEMS)).astype(np.int64).tobytes()
        candidates = by_start.setdefault((mine.shape[1:], start), [])
        other, num_rows = _best(mine, candidates[-_MAX_CANDIDATES:])
        if num_rows and num_rows * _MIN_PART >= mine.shape[0]:
            found[mine.sample] = other, num_rows
        candidates.append(mine)
    return found


def _best(mine: Rows, candidates: Sequence[Rows]) -> tuple[int, int]:
    """The sample that has the most rows in common with mine, the latest of several; how many."""
    sample, best = 0, 0
    for other in reversed(candidates):
        if best < min(mine.shape[0], other.shape[0]) and _has_same_row(mine, other, best):
            num_rows = _common_items(mine, other) // mine.row_items
            sample, best = max((sample, best), (other.sample, num_rows), key=lambda pair: pair[1])
    return sample, best


def _has_same_row(mine: Rows, other: Rows, row: int) -> bool:
    """Whether both have the same row there: else nothing more is in common."""
    start, stop = row * mine.row_items, (row + 1) * mine.row_items
    return bool((mine.items(start, stop) == other.items(start, stop)).all())


def _common_items(mine: Rows, other: Rows) -> int:
    pairs = zip(mine.memory, other.memory, strict=False)
    at = next((at for at, (left, right) in enumerate(pairs) if left != right), None)
    if at is None:
        at = min(len(mine.pieces), len(other.pieces))
    position = mine.starts[at]
    for left, right in _side_by_side(mine.pieces[at:], other.pieces[at:]):
        if left.dtype != right.dtype or _address(left) != _address(right):
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


def _address(piece: Array) -> int:
    return int(piece.__array_interface__["data"][0])
