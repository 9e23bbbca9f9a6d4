"""Array-likes to wire arrays, by value; and the one guard of what may be read from memory.

A wire array is a C-contiguous, native little-endian numpy array of the declared dtype.  The
caller's array is used as it is where it is one already; anything else is copied once.  A
value that the dtype cannot hold exactly is refused, never changed.

safetensors 0.8.0's numpy writer takes the address of an array and reads from there as if it
were contiguous, so views give wrong or foreign bytes; test_array_views holds the cases.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_encode_msgpack: Final = msgspec.msgpack.Encoder().encode
_MSGPACK_FLOAT64: Final = 0xCB
_MSGPACK_FLOAT64_ITEM: Final = np.dtype([("tag", "u1"), ("value", ">f8")])
_UINT8: Final = np.dtype(np.uint8)
_FLOAT64: Final = np.dtype(np.float64)
_INT64: Final = np.dtype(np.int64)
_IS_NUMPY_1: Final = np.__version__.startswith("1.")
# Below this every integer is a float64 of its own.
_EXACT_IN_FLOAT64: Final = 2**53


class ValueRefusedError(ValueError):
    """A value that the wire dtype cannot carry; `rule` is a sentence without a subject."""

    def __init__(self, rule: str, *, expected: str | None = None, got: str | None = None) -> None:
        super().__init__(rule)
        self.rule = rule
        self.expected = expected
        self.got = got


def wire_array(value: object, dtype: np.dtype[Any], *, strict: bool) -> Array:
    """The value as a C-contiguous native array of dtype, equal to it element by element.

    Args:
        value: any array-like.  With strict, an array of this dtype in either byte order.

    Returns:
        The value itself where it is such an array already, else one copy.

    Raises:
        ValueRefusedError: an element would change, or there is no such array.
    """
    if type(value) is np.ndarray and value.dtype == dtype:
        return native_contiguous(value)
    if isinstance(value, (list, tuple)) and not strict:
        return _from_sequence(value, dtype)
    found = _as_array(value)
    if found.dtype.newbyteorder("=") == dtype:
        return native_contiguous(found)
    if strict:
        raise ValueRefusedError(
            f"takes {dtype} arrays only, not {_describe(value, found)}",
            expected=str(dtype),
            got=_describe(value, found),
        )
    return _exact_cast(found, dtype)


def native_contiguous(value: Array) -> Array:
    """The array itself if it is native and C-contiguous, else a copy that is; by value."""
    if value.flags.c_contiguous and value.dtype.isnative:
        return value
    return np.array(value, dtype=value.dtype.newbyteorder("="), order="C", copy=True)


def bytes_of(value: Array) -> memoryview:
    """A read-only view of format 'B' of a C-contiguous array's memory; no copy."""
    if value.size == 0:
        return memoryview(b"")
    return value.reshape(-1).view(np.uint8).data.toreadonly()


def owned(value: Array) -> Array:
    """A writable array of its own: the array itself where nobody else has its memory.

    Only for arrays that were made here: another's may have views.
    """
    if not value.flags.owndata:
        return value.copy()
    value.flags.writeable = True
    return value


def holds_odd_bools(value: Array) -> bool:
    """Whether a bool array has a byte that is neither 0 nor 1, which numpy has no value for."""
    return value.size > 0 and bool((value.reshape(-1).view(np.uint8) > 1).any())


def _as_array(value: object) -> Array:
    if isinstance(value, np.ma.MaskedArray) and np.ma.getmaskarray(value).any():
        raise ValueRefusedError("holds masked elements, which have no value")
    if isinstance(value, (list, tuple)) and _holds_masked(value):
        raise ValueRefusedError("holds masked elements, which have no value")
    try:
        found = np.asarray(value)
    except Exception as error:  # noqa: BLE001  # an object's __array__ may raise what it likes
        raise ValueRefusedError(f"is no array: {type(value).__name__}: {error}") from None
    if found.dtype.kind not in "biufc":
        raise ValueRefusedError(
            f"is no numeric array: {_describe(value, found)}", got=_describe(value, found)
        )
    return found


def _holds_masked(value: Sequence[object]) -> bool:
    """Whether a masked element is somewhere in a list; numpy would only warn and make it NaN."""
    return any(
        (isinstance(item, np.ma.MaskedArray) and bool(np.ma.getmaskarray(item).any()))
        or (isinstance(item, (list, tuple)) and _holds_masked(item))
        for item in value
    )


def _describe(value: object, found: Array) -> str:
    if isinstance(value, np.ndarray):
        return f"{found.dtype} array"
    return type(value).__name__


def _from_sequence(value: Sequence[object], dtype: np.dtype[Any]) -> Array:
    """A list or tuple, nested or not.  The flat fast paths refuse what they cannot prove."""
    fast = flat_packer(dtype)(value)
    if fast is not None:
        return fast
    found = _as_array(value)
    if found.size == 0:
        return np.empty(found.shape, dtype)
    if found.dtype.kind == "f" and (np.abs(_widened(found)) >= _EXACT_IN_FLOAT64).any():
        # A large integer between floats has been rounded by now: go element by element.
        return _slow_cast(value, found.shape, dtype)
    return _exact_cast(found, dtype)


def flat_packer(dtype: np.dtype[Any]) -> Callable[[Sequence[object]], Array | None]:
    """Packs flat lists of floats, small non-negative ints, or ints; None where it is anything else.

    struct and msgspec pack Python numbers two to eight times faster than numpy reads them, and
    neither takes a float for an int or the other way round without telling.
    """
    if dtype == _FLOAT64:
        return _packed_floats
    if dtype == _UINT8:
        return _packed_small_ints
    if dtype == _INT64:
        return _packed_ints
    if dtype.kind == "i":
        return lambda value: _narrow(_packed_ints(value), dtype)
    return lambda _value: None


def _packed_ints(value: Sequence[object]) -> Array | None:
    if _IS_NUMPY_1 and np.bool_ in map(type, value):
        return None  # numpy 1 warns where such a scalar is taken for an integer
    try:
        return np.frombuffer(struct.pack(f"{len(value)}q", *value), _INT64)
    except (struct.error, TypeError, OverflowError):
        return None


def _narrow(integers: Array | None, dtype: np.dtype[Any]) -> Array | None:
    return None if integers is None else _exact_cast(integers, dtype)


def _packed_floats(value: Sequence[object]) -> Array | None:
    packed, start = _packed(value, 9 * len(value))
    # The first item starts with a tag; if that says float64 the next starts 9 bytes on.
    if packed is None or packed[start::9].count(_MSGPACK_FLOAT64) != len(value):
        return None
    return np.frombuffer(packed, _MSGPACK_FLOAT64_ITEM, offset=start)["value"].astype(np.float64)


def _packed_small_ints(value: Sequence[object]) -> Array | None:
    packed, start = _packed(value, len(value))
    # An integer below 128 is its own byte; all other types have bytes from 128 on.
    if packed is None or not packed[start:].isascii():
        return None
    return np.frombuffer(packed, np.uint8, offset=start)


def _packed(value: Sequence[object], body_bytes: int) -> tuple[bytes | None, int]:
    """The list as msgpack, if its items take that many bytes; and where they start.

    msgspec also packs an Enum member as its value, and Raw as it is; neither can be summed.
    """
    try:
        packed = _encode_msgpack(value)
        sum(value)  # type: ignore[arg-type]  # tried: what is no number is a TypeError
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None, 0
    head_bytes = 1 if len(value) < 16 else 3 if len(value) < 2**16 else 5
    return (packed if len(packed) == head_bytes + body_bytes else None), head_bytes


def _exact_cast(found: Array, dtype: np.dtype[Any]) -> Array:
    """One copy of another dtype, refused where an element would not come back equal."""
    if "c" in (found.dtype.kind, dtype.kind):
        raise ValueRefusedError(
            f"holds {found.dtype}, it takes {dtype}", expected=str(dtype), got=str(found.dtype)
        )
    bad = _inexact(found, dtype)
    if bad is not None and bad.any():
        at = tuple(map(int, np.unravel_index(int(np.argmax(bad)), bad.shape)))
        raise _inexact_error(found[at].item(), at, dtype)
    return found.astype(dtype, order="C")


def _inexact(found: Array, dtype: np.dtype[Any]) -> npt.NDArray[np.bool_] | None:
    """Which elements the dtype cannot hold exactly; None where it holds every value."""
    if dtype.kind == "f":
        return _inexact_as_float(found, dtype)
    if np.can_cast(found.dtype, dtype, "safe"):
        return None
    low, high = (0, 1) if dtype.kind == "b" else _int_range(dtype)
    if found.dtype.kind == "f":
        wide = _widened(found)
        fits = (wide >= low) & (wide < float(high) + 1) & (np.trunc(wide) == wide)
        return np.asarray(~fits)
    own_low, own_high = _int_range(found.dtype)
    too_low = found < low if own_low < low else np.zeros(found.shape, np.bool_)
    too_high = found > high if own_high > high else np.zeros(found.shape, np.bool_)
    return np.asarray(too_low | too_high)


def _inexact_as_float(found: Array, dtype: np.dtype[Any]) -> npt.NDArray[np.bool_] | None:
    if found.dtype.kind == "b":
        return None
    with np.errstate(all="ignore"):
        cast = found.astype(dtype)
        changed = np.asarray(cast.astype(found.dtype) != found)
    if found.dtype.kind == "f":
        return np.asarray(changed & ~np.isnan(found))
    if found.dtype.itemsize == 8:
        # The largest integer rounds up to 2**63 or 2**64, where no integer of the dtype lies;
        # whether that wraps or saturates on the way back differs by processor.
        changed |= cast.astype(np.float64) >= float(_int_range(found.dtype)[1])
    return changed


def _widened(found: Array) -> Array:
    """Floats in a dtype that the bounds of every integer dtype can be compared in."""
    return found.astype(np.float64) if found.dtype.itemsize < 8 else found


def _int_range(dtype: np.dtype[Any]) -> tuple[int, int]:
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def _slow_cast(value: Sequence[object], shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Element by element through Python numbers, whose comparisons are exact."""
    flat = np.array(value, dtype=object).ravel()
    out = np.empty(flat.size, dtype)
    for index, element in enumerate(flat):
        number = element.item() if isinstance(element, np.generic) else element
        if not _stored(out, index, number):
            at = tuple(int(axis) for axis in np.unravel_index(index, shape))
            raise _inexact_error(number, at, dtype)
    return out.reshape(shape)


def _stored(out: Array, index: int, number: Any) -> bool:
    """Writes a number into an array, if the array holds it exactly; NaN counts as held."""
    if out.dtype.kind in "iu" and not isinstance(number, float):
        low, high = _int_range(out.dtype)
        if not low <= number <= high:
            return False
    try:
        with np.errstate(all="ignore"):
            out[index] = number
    except (OverflowError, ValueError):
        return False
    return bool(out[index].item() == number or number != number)


def _inexact_error(number: object, at: tuple[int, ...], dtype: np.dtype[Any]) -> ValueRefusedError:
    position = at[0] if len(at) == 1 else at
    return ValueRefusedError(
        f"holds {number!r} at position {position}, which {dtype} cannot carry unchanged",
        expected=str(dtype),
        got=repr(number),
    )
