"""RowBlocks: one logical array whose rows lie in several blocks, as the row ledger keeps them.

The codec writes the blocks one after another, each widened to the wire dtype as it is sent, so
that a 100 MB array need never be in one piece on the server.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ._arrays import Array


class Segment(NamedTuple):
    """Rows [start, stop) of a buffer that is only ever appended to."""

    buffer: Array
    start: int
    stop: int


class RowBlocks:
    """An immutable array of rows, in blocks of integer dtypes that may differ.

    Takes slices of whole rows, and becomes a numpy array by `np.asarray`.

    Args:
        segments: the blocks in order; each buffer's rows have shape `row_shape`.
        row_shape: the shape of one row; () for plain numbers.

    Attributes:
        shape: rows first, then row_shape.
        segments: the blocks.
    """

    __slots__ = ("segments", "shape")

    def __init__(self, segments: tuple[Segment, ...], row_shape: tuple[int, ...]) -> None:
        self.segments = segments
        num_rows = sum(stop - start for _, start, stop in segments)
        self.shape: tuple[int, ...] = (num_rows, *row_shape)

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def blocks(self) -> list[Array]:
        """The blocks as views."""
        return [buffer[start:stop] for buffer, start, stop in self.segments]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles and copies its own rows, not the buffers that it shares with others."""
        return _of_blocks, (self.blocks, self.shape[1:])

    def __getitem__(self, rows: slice) -> RowBlocks:
        """Rows [start, stop) as blocks; shares memory.  Cost: one step a block."""
        if not isinstance(rows, slice):
            raise TypeError("only slices of whole rows are taken; numpy.asarray makes an array")
        first, last, step = rows.indices(len(self))
        if step != 1:
            raise ValueError("rows are taken in order, one by one")
        kept: list[Segment] = []
        position = 0
        for buffer, start, stop in self.segments:
            low = max(first - position, 0) + start
            high = min(last - position + start, stop)
            if low < high:
                kept.append(Segment(buffer, low, high))
            position += stop - start
        return RowBlocks(tuple(kept), self.shape[1:])

    def to_array(self, dtype: npt.DTypeLike) -> Array:
        """All rows as one new array of dtype.  Cost: one copy."""
        whole: Array = np.empty(self.shape, dtype)
        position = 0
        for buffer, start, stop in self.segments:
            whole[position : position + stop - start] = buffer[start:stop]
            position += stop - start
        return whole

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Array:
        """For numpy: int32 rows, or of the dtype that is asked for; always a copy."""
        if copy is False:
            raise ValueError("rows in blocks become an array only by copying")
        return self.to_array(np.int32 if dtype is None else dtype)

    def common_prefix(self, rows: Any) -> int:
        """How many leading rows are equal to those of an array."""
        position = 0
        for buffer, start, stop in self.segments:
            other = rows[position : position + stop - start]
            same = buffer[start : start + len(other)] == other
            if not same.all():
                return position + int(np.argmin(same.reshape(len(other), -1).all(axis=1)))
            position += len(other)
        return position


def _of_blocks(blocks: list[Array], row_shape: tuple[int, ...]) -> RowBlocks:
    return RowBlocks(tuple(Segment(block, 0, len(block)) for block in blocks), row_shape)
