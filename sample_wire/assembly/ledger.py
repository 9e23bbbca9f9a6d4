"""The row ledger: per-token rows of a session, kept once.

An engine that re-sends the rows of the whole prefix with every turn would cost memory that
grows with the square of the turns.  Here a turn's rows are an immutable RowBlocks over shared
buffers: extending it stores only the rows that are new or differ, so that turns and branches
share what they have in common, and dropping a turn frees what only it held.

What must never happen: a row that was handed out changes.  Buffers are only appended to; a
dropped turn's space in a shared buffer is not used again.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from .._arrays import Array
from ..blocks import RowBlocks, Segment

# New buffers hold this much, or one turn if that is more.
_BUFFER_BYTES: Final = 1 << 20
# A stretch of differing rows is kept as one run where it would fall into more runs than this.
_MAX_RUNS: Final = 16
ROW_DTYPES: Final = tuple(map(np.dtype, (np.uint8, np.int8, np.uint16, np.int16, np.int32)))
TOKEN_DTYPES: Final = tuple(map(np.dtype, (np.int32, np.int64)))


class RowLedger:
    """Stores rows of one shape in narrow, append-only buffers.

    Args:
        row_shape: the shape of one row.
        dtypes: the dtypes that rows may be kept in, narrowest first; the last holds any.

    Attributes:
        row_shape: as given.
        stored_bytes: of all rows that were ever stored, those of dropped turns included.
    """

    __slots__ = ("_buffer", "_dtypes", "_filled", "row_shape", "stored_bytes")

    def __init__(
        self, row_shape: tuple[int, ...], dtypes: tuple[np.dtype[Any], ...] = ROW_DTYPES
    ) -> None:
        self.row_shape = row_shape
        self._dtypes = dtypes
        # Weak: a buffer lives as long as some turn's rows lie in it.
        self._buffer: weakref.ref[Array] | None = None
        self._filled = 0
        self.stored_bytes = 0

    def empty(self) -> RowBlocks:
        """No rows, of this ledger's shape."""
        return RowBlocks((), self.row_shape)

    def extend(self, held: RowBlocks, start: int, chunks: Iterable[Array]) -> RowBlocks:
        """The first `start` rows of `held`, followed by the rows of all chunks.

        Rows that `held` has at the same place are shared with it where they are equal.

        Args:
            held: rows that this ledger stored; start <= len(held).
            start: where the first chunk's first row belongs.
            chunks: integer arrays [n, *row_shape], in order.

        Cost: one compare or copy of the chunks' rows; nothing that grows with `held`, but for
            a step for each of its blocks.
        """
        segments = list(held[:start].segments)
        old = _Cursor(held[start:].segments)
        for chunk in chunks:
            narrow = chunk.astype(self._fitting(chunk), copy=False)
            shared = old.take(len(narrow))
            self._share(segments, shared, narrow)
            self._store(segments, narrow[sum(stop - start for _, start, stop in shared) :])
        return RowBlocks(tuple(segments), self.row_shape)

    def _share(self, segments: list[Segment], held: list[Segment], rows: Array) -> None:
        """Takes equal rows from held, block by block, and stores those that differ."""
        position = 0
        for segment in held:
            buffer, start, stop = segment
            fresh = rows[position : position + stop - start]
            position += stop - start
            kept = buffer[start:stop]
            if kept.dtype == fresh.dtype and np.array_equal(kept, fresh):
                _append(segments, segment)
                continue
            differs = (kept != fresh).reshape(len(fresh), -1).any(axis=1)
            for low, high, is_new in _runs(differs):
                if is_new:
                    self._store(segments, fresh[low:high])
                else:
                    _append(segments, Segment(buffer, start + low, start + high))

    def _store(self, segments: list[Segment], rows: Array) -> None:
        """Copies rows into the current buffer, and what does not fit into a new one."""
        done = 0
        while done < len(rows):
            buffer = self._current(rows.dtype, len(rows) - done)
            taken = min(len(rows) - done, len(buffer) - self._filled)
            stop = self._filled + taken
            buffer[self._filled : stop] = rows[done : done + taken]
            _append(segments, Segment(buffer, self._filled, stop))
            self.stored_bytes += buffer[self._filled : stop].nbytes
            self._filled = stop
            done += taken

    def _current(self, dtype: np.dtype[Any], num_rows: int) -> Array:
        """A buffer with room that holds dtype: the current one, or a new one."""
        buffer = self._buffer() if self._buffer is not None else None
        if (
            buffer is not None
            and self._filled < len(buffer)
            and np.can_cast(dtype, buffer.dtype, "safe")
        ):
            return buffer
        row_bytes = max(dtype.itemsize * int(np.prod(self.row_shape)), 1)
        buffer = np.empty((max(num_rows, _BUFFER_BYTES // row_bytes, 1), *self.row_shape), dtype)
        self._buffer = weakref.ref(buffer)
        self._filled = 0
        return buffer

    def _fitting(self, rows: Array) -> np.dtype[Any]:
        """The narrowest of the dtypes that holds every value."""
        if rows.size == 0:
            return self._dtypes[0]
        low, high = _value_range(rows)
        for dtype in self._dtypes:
            info = np.iinfo(dtype)
            if info.min <= low and high <= info.max:
                return dtype
        raise ValueError(f"rows hold {low}..{high}, which {self._dtypes[-1]} cannot carry")


class _Cursor:
    """Goes through segments once, a number of rows at a time."""

    __slots__ = ("_left",)

    def __init__(self, segments: tuple[Segment, ...]) -> None:
        self._left = list(reversed(segments))

    def take(self, num_rows: int) -> list[Segment]:
        """The next num_rows rows, or as many as are left, as segments."""
        taken = []
        while num_rows and self._left:
            buffer, start, stop = self._left.pop()
            if stop - start > num_rows:
                self._left.append(Segment(buffer, start + num_rows, stop))
                stop = start + num_rows
            taken.append(Segment(buffer, start, stop))
            num_rows -= stop - start
        return taken


def _value_range(rows: Array) -> tuple[int, int]:
    """A range that holds every value; exact where some are negative."""
    if rows.dtype.kind == "u":
        return 0, int(rows.max())
    # One pass of OR costs half of two for min and max; a negative value sets the top bit.
    bits = int(np.bitwise_or.reduce(rows, axis=None))
    if bits >= 0:
        return 0, bits
    return int(rows.min()), int(rows.max())


def _append(segments: list[Segment], segment: Segment) -> None:
    """Adds a segment, joined with the last one where it goes on in the same buffer."""
    if segments:
        last = segments[-1]
        if last.buffer is segment.buffer and last.stop == segment.start:
            segments[-1] = Segment(last.buffer, last.start, segment.stop)
            return
    segments.append(segment)


def _runs(differs: Array) -> list[tuple[int, int, bool]]:
    """Runs of equal and of differing rows, in order: first, past the last, whether they differ."""
    edges = np.flatnonzero(differs[1:] != differs[:-1]) + 1
    if len(edges) > _MAX_RUNS:
        found = np.flatnonzero(differs)
        edges = np.array([edge for edge in (found[0], found[-1] + 1) if 0 < edge < len(differs)])
        first_differs = bool(found[0] == 0)
    else:
        first_differs = bool(differs[0])
    bounds = [0, *map(int, edges), len(differs)]
    return [
        (low, high, first_differs ^ bool(index % 2))
        for index, (low, high) in enumerate(itertools.pairwise(bounds))
    ]
