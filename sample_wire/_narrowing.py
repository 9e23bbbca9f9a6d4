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
from ._dtypes import NARROWER, WireDtype
from ._spans import over_spans

# Items of a chunk: small enough for the cache, large enough that the calls cost nothing.
_CHUNK: Final = 1 << 18
_LIMITS: Final = {
    name: (int(np.iinfo(name).min), int(np.iinfo(name).max))
    for name in ("uint8", "int8", "uint16", "int16", "uint32", "int32")
}


class Narrowing(Protocol):
    """The one dtype of several arrays of a logical dtype; it grows as they are added."""

    @property
    def wire(self) -> WireDtype:
        """The narrowest dtype of the table that holds all items so far."""

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
                if (part.astype(chunk.dtype).view(np.uint64) != chunk.view(np.uint64)).any():
                    self.wire = self._wide
                    return (flat,)
        return (narrow,)


class NarrowIntegers:
    """Integers by their range, from low to high; 0 always lies in it.

    Attributes:
        low, high: the range so far.
    """

    def __init__(self, wide: WireDtype, high: int) -> None:
        self._wide = wide
        self.low = 0
        self.high = high

    @property
    def wire(self) -> WireDtype:
        """As for every Narrowing."""
        return _holding(self.low, self.high, self._wide)

    def add(self, flat: Array) -> Sequence[Array]:
        """The items in pieces, in spans of one thread each where there are many."""
        low, high = self.low, self.high
        runs = over_spans(
            flat.size,
            flat.nbytes,
            lambda start, stop: _narrowed(flat[start:stop], low, high, self._wide),
        )
        self.low = min(run[1] for run in runs)
        self.high = max(run[2] for run in runs)
        return [piece for run in runs for piece in run[0]]


def _narrowed(flat: Array, low: int, high: int, wide: WireDtype) -> tuple[list[Array], int, int]:
    """The items in pieces, and the range widened by them."""
    pieces: list[Array] = []
    begin, wire = 0, _holding(low, high, wide)
    narrow: Array | None = None
    for start in range(0, flat.size, _CHUNK):
        chunk = flat[start : start + _CHUNK]
        least, largest = _range_of(chunk)
        if least < low or largest > high:
            low, high = min(low, least), max(high, largest)
            grown = _holding(low, high, wide)
            if grown is not wire:
                pieces += [] if narrow is None else [narrow[: start - begin]]
                begin, wire, narrow = start if narrow is not None else begin, grown, None
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
        least, largest = _LIMITS[row.dtype.name]
        if least <= low and high <= largest:
            return row
    return wide
