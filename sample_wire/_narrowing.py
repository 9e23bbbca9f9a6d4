"""Finds the narrowest dtype that holds the values of some arrays, and narrows them on the way.

Each array is read once: a chunk that is still in the cache is looked at and then narrowed into
the dtype that everything before fits into.  An array that does not fit in there is narrowed anew
once its range is known.  SPEC section 5.4.
"""

from __future__ import annotations

from collections.abc import Iterable
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

    def add(self, flat: Array) -> Array:
        """An array's items in the dtype that holds all so far, or the array itself.

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

    def add(self, flat: Array) -> Array:
        """The array itself."""
        return flat


class NarrowFloats:
    """float64 that is stored as float32 if no bit of any item is lost by that."""

    def __init__(self, wide: WireDtype) -> None:
        self.wire = NARROWER[wide.name][0]
        self._wide = wide

    def add(self, flat: Array) -> Array:
        """The array as float32, or itself once one item was found that would change."""
        if self.wire is self._wide:
            return flat
        narrow = np.empty(flat.size, self.wire.dtype)
        with np.errstate(all="ignore"):
            for start in range(0, flat.size, _CHUNK):
                chunk, part = flat[start : start + _CHUNK], narrow[start : start + _CHUNK]
                np.copyto(part, chunk, casting="same_kind")
                if not _is_exact(part, chunk):
                    self.wire = self._wide
                    return flat
        return narrow


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

    def add(self, flat: Array) -> Array:
        """The items in the dtype that holds all so far, or the array itself."""
        if flat.itemsize == 1:
            self._widen_to([_range_of(flat)] if flat.size else [])
            return flat
        wire = self.wire
        narrow = self._narrowed_if_it_fits(flat)
        if narrow is not None and self.wire is wire:
            return narrow
        # What has been narrowed is let go first.  Few arrays have a value that needs this pass.
        narrow = None
        return narrowed(flat, self.wire) if self.wire.itemsize < flat.itemsize else flat

    def _narrowed_if_it_fits(self, flat: Array) -> Array | None:
        """The items in the dtype so far, some of them undefined where it has grown by them; None
        where that is no narrower."""
        wire = self.wire
        narrow = np.empty(flat.size, wire.dtype) if wire.itemsize < flat.itemsize else None

        def narrow_span(start: int, stop: int) -> tuple[int, int]:
            part = None if narrow is None else narrow[start:stop]
            return _narrow_what_fits(flat[start:stop], part, wire)

        self._widen_to(over_spans(flat.size, flat.nbytes, narrow_span))
        return narrow

    def _widen_to(self, ranges: Iterable[tuple[int, int]]) -> None:
        for low, high in ranges:
            self.low, self.high = min(self.low, low), max(self.high, high)
        self.wire = _holding(self.low, self.high, self._wide)


def narrowed(flat: Array, wire: WireDtype) -> Array:
    """The items in a dtype that holds them."""
    narrow = np.empty(flat.size, wire.dtype)

    def narrow_span(start: int, stop: int) -> None:
        np.copyto(narrow[start:stop], flat[start:stop], casting="unsafe")

    over_spans(flat.size, flat.nbytes, narrow_span)
    return narrow


def _narrow_what_fits(flat: Array, narrow: Array | None, wire: WireDtype) -> tuple[int, int]:
    """The range of the items, 0 included; they are narrowed up to the first that does not fit."""
    low, high = 0, 0
    for start in range(0, flat.size, _CHUNK):
        chunk = flat[start : start + _CHUNK]
        least, largest = _range_of(chunk)
        low, high = min(low, least), max(high, largest)
        if narrow is not None and _is_in(low, high, wire):
            np.copyto(narrow[start : start + chunk.size], chunk, casting="unsafe")
    return low, high


def _range_of(chunk: Array) -> tuple[int, int]:
    """The least and the largest item, the least only if it is below 0; one pass if it is not."""
    largest = int(chunk.view(f"u{chunk.itemsize}").max())
    if chunk.dtype.kind == "u" or largest <= np.iinfo(chunk.dtype).max:
        return 0, largest
    return int(chunk.min()), int(chunk.max())


def _holding(low: int, high: int, wide: WireDtype) -> WireDtype:
    return next((row for row in NARROWER[wide.name] if _is_in(low, high, row)), wide)


def _is_in(low: int, high: int, wire: WireDtype) -> bool:
    least, largest = _LIMITS[wire.name]
    return least <= low and high <= largest
