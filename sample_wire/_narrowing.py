"""Finds the narrowest dtype that holds the values of some arrays, and narrows them on the way.

Each array is read once: a chunk that is still in the cache is looked at and then narrowed into
the dtype that all chunks so far fit into.  Where that dtype grows, what has been narrowed is
kept, and widened again when it is sent.  SPEC section 5.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np

from ._arrays import Array
from ._dtypes import BY_WIRE_NAME, NARROWER, WireDtype
from ._spans import over_spans

# Items of a chunk: small enough for the cache, large enough that the calls cost nothing.
_CHUNK: Final = 1 << 18
_LIMITS: Final = {
    name: (int(np.iinfo(BY_WIRE_NAME[name].dtype).min), int(np.iinfo(BY_WIRE_NAME[name].dtype).max))  # type: ignore[type-var]  # integers all
    for name in ("U8", "I8", "U16", "I16", "U32", "I32")
}


class Narrowing(Protocol):
    """The one dtype of several arrays of a logical dtype; it grows as they are added.

    Attributes:
        wire: the narrowest dtype of the table that holds all items so far.
    """

    wire: WireDtype

    def add(self, flat: Array) -> Sequence[Array]:
        """An array's items in pieces, each of a dtype that holds them, or the array itself.

        Args:
            flat: rank 1, native and contiguous, of the logical dtype or one that it holds.
        """


def narrowing_of(wide: WireDtype, high: int) -> Narrowing:
    """The rule for a logical dtype; integers take at least the dtype that holds 0 to high."""
    if wide.name == "F64":
        return NarrowFloats(wide)
    return NarrowIntegers(wide, high) if NARROWER[wide.name] else KeptAsIs(wide)


class KeptAsIs:
    """For dtypes that have no narrower one."""

    def __init__(self, wide: WireDtype) -> None:
        self.wire = wide

    def add(self, flat: Array) -> Sequence[Array]:
        """The array itself."""
        return (flat,)


class NarrowFloats:
    """float64 that is stored as float32 if no bit of any item is lost by that."""

    def __init__(self, wide: WireDtype) -> None:
        self.wire = NARROWER[wide.name][0]
        self._wide = wide

    def add(self, flat: Array) -> Sequence[Array]:
        """The array as float32, or itself once one item was found that would change."""
        if self.wire is self._wide:
            return (flat,)
        narrow = np.empty(flat.size, self.wire.dtype)
        with np.errstate(all="ignore"):
            for start in range(0, flat.size, _CHUNK):
                chunk, part = flat[start : start + _CHUNK], narrow[start : start + _CHUNK]
                np.copyto(part, chunk, casting="same_kind")
                if not _is_exact(part, chunk):
                    self.wire = self._wide
                    return (flat,)
        return (narrow,)


def _is_exact(narrow: Array, wide: Array) -> bool:
    """Whether every bit comes back, from a processor too that takes subnormals for zero."""
    bits = narrow.view(np.uint32) & 0x7FFFFFFF
    has_subnormals = ((bits != 0) & (bits < 0x00800000)).any()
    back = narrow.astype(wide.dtype).view(np.uint64)
    return not has_subnormals and bool((back == wide.view(np.uint64)).all())


class NarrowIntegers:
    """Integers by their range, from low to high; 0 always lies in it.

    Attributes:
        low, high: the range so far.
        wire: the narrowest dtype that holds it.
    """

    def __init__(self, wide: WireDtype, high: int) -> None:
        self._wide = wide
        self.low = 0
        self.high = high
        self.wire = _holding(0, high, wide)

    def add(self, flat: Array) -> Sequence[Array]:
        """The items, in spans of one thread each where there are many; one array of them, but
        where the dtype grows."""
        if flat.itemsize == 1:
            self._widen_to([_range_of(flat)] if flat.size else [])
            return (flat,)
        low, high, wire = self.low, self.high, self.wire
        narrow = np.empty(flat.size, wire.dtype) if wire.itemsize < flat.itemsize else None
        runs = over_spans(
            flat.size,
            flat.nbytes,
            lambda start, stop: _narrowed(
                flat[start:stop],
                None if narrow is None else narrow[start:stop],
                (low, high),
                self._wide,
            ),
        )
        self._widen_to([run[1:] for run in runs])
        if narrow is not None and self.wire is wire:
            return (narrow,)
        return [piece for run in runs for piece in run[0]]

    def _widen_to(self, ranges: Sequence[tuple[int, int]]) -> None:
        for low, high in ranges:
            self.low, self.high = min(self.low, low), max(self.high, high)
        self.wire = _holding(self.low, self.high, self._wide)


def _narrowed(
    flat: Array, narrow: Array | None, known: tuple[int, int], wide: WireDtype
) -> tuple[list[Array], int, int]:
    """The items in pieces, and the known range widened by them.

    They are written into `narrow`, of the dtype that holds the known range, as long as it
    holds them; None where that is no narrower than they are.
    """
    low, high = known
    pieces: list[Array] = []
    begin, wire = 0, _holding(low, high, wide)
    for start in range(0, flat.size, _CHUNK):
        chunk = flat[start : start + _CHUNK]
        least, largest = _range_of(chunk)
        if least < low or largest > high:
            low, high = min(low, least), max(high, largest)
            grown = _holding(low, high, wide)
            if grown is not wire:
                if narrow is not None:
                    pieces.append(narrow[: start - begin])
                    begin, narrow = start, None
                wire = grown
        if wire.itemsize < flat.itemsize:
            if narrow is None:
                narrow = np.empty(flat.size - begin, wire.dtype)
            np.copyto(narrow[start - begin : start - begin + chunk.size], chunk, casting="unsafe")
    pieces.append(flat[begin:] if narrow is None else narrow)
    return pieces, low, high


def _range_of(chunk: Array) -> tuple[int, int]:
    """The least and the largest item, the least only if it is below 0; one pass if it is not."""
    largest = int(chunk.view(f"u{chunk.itemsize}").max())
    if chunk.dtype.kind == "u" or largest <= np.iinfo(chunk.dtype).max:
        return 0, largest
    return int(chunk.min()), int(chunk.max())


def _holding(low: int, high: int, wide: WireDtype) -> WireDtype:
    for row in NARROWER[wide.name]:
        least, largest = _LIMITS[row.name]
        if least <= low and high <= largest:
            return row
    return wide
