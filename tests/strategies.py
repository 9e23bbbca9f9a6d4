"""Strategies and helpers that the tests share: samples, JSON, array views, exact comparison.

Shape letters: T tokens, R response tokens, L routed layers, K experts per token.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from sample_wire import PrefixCacheInfo, Sample, Schema, SpecInfo, Status
from sample_wire.codec import LAYOUTS, Layout

Array = npt.NDArray[Any]
SampleT = TypeVar("SampleT")

MAX_TOKENS: Final = 40
MAX_COUNTER: Final = 2**63 - 1
# A sample's metadata is the third level of a document that may have 128.
MAX_METADATA_LEVELS: Final = 126 - 1
MAX_INT_CHARS: Final = 4300
ODD_KEYS: Final = ("", ".", "a.b", "a:b", '"', "\\", "[0]", "nulls", "\x00", "\u2028", "\u00e9")

# NaNs with and without payload and sign, the infinities, both zeros, subnormals, extremes.
SPECIAL_FLOAT64_BITS: Final = (
    0x7FF8000000000000,
    0x7FF8000000000001,
    0xFFF8DEADBEEF0001,
    0x7FF0000000000001,
    0x7FF0000000000000,
    0xFFF0000000000000,
    0x0000000000000000,
    0x8000000000000000,
    0x0000000000000001,
    0x36A0000000000000,
    0x47EFFFFFE0000000,
    0x47EFFFFFF0000000,
    0x7FF8000020000000,
    0x7FEFFFFFFFFFFFFF,
    0xBFF0000000000000,
)

layouts: Final[st.SearchStrategy[Layout]] = st.sampled_from(LAYOUTS)
texts: Final = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
counters: Final = st.integers(0, MAX_COUNTER)
int64s: Final = st.integers(-(2**63), 2**63 - 1)


def int64_arrays(size: int) -> st.SearchStrategy[npt.NDArray[np.int64]]:
    """Arrays of any 64-bit integers, or of any that a narrower dtype holds."""
    items = st.sampled_from(
        [st.integers(-1, 2**bits - 1) for bits in (7, 8, 15, 16, 31, 32)]
        + [st.integers(0, 2**bits) for bits in (8, 16, 32)]
        + [int64s] * 3
    )
    lists = items.flatmap(lambda item: st.lists(item, min_size=size, max_size=size))
    return lists.map(lambda found: np.array(found, np.int64))


def uint8_arrays(size: int) -> st.SearchStrategy[npt.NDArray[np.uint8]]:
    """Arrays of any bytes."""
    return st.binary(min_size=size, max_size=size).map(lambda raw: np.frombuffer(raw, np.uint8))


def float64_arrays(size: int) -> st.SearchStrategy[npt.NDArray[np.float64]]:
    """Arrays of any 64 bits, the special ones often; or of float32 values."""
    bits = st.sampled_from(SPECIAL_FLOAT64_BITS) | st.integers(0, 2**64 - 1)
    items = st.lists(bits, min_size=size, max_size=size)
    singles = st.lists(st.floats(width=32), min_size=size, max_size=size)
    return items.map(lambda found: np.array(found, np.uint64).view(np.float64)) | singles.map(
        lambda found: np.array(found, np.float64)
    )


@st.composite
def routed_arrays(draw: st.DrawFn, rows: int) -> npt.NDArray[np.int32]:
    """routed_TLK of a number of rows; an axis may be empty only where there are no rows."""
    least = 1 if rows else 0
    num_layers, num_experts = draw(st.integers(least, 3)), draw(st.integers(least, 3))
    low, high = draw(st.sampled_from([(-1, 255), (0, 511), (-(2**31), 2**31 - 1)]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return rng.integers(low, high, (rows, num_layers, num_experts), np.int32, endpoint=True)


def huge_ints() -> st.SearchStrategy[int]:
    """Integers beyond 64 bits, up to the longest that JSON text may hold with its sign."""
    chars = st.sampled_from([20, 21, 40, 400, MAX_INT_CHARS])
    low = st.integers(0, 10**6)
    return st.builds(lambda n, k: 10**n - 1 - k, chars, low) | st.builds(
        lambda n, k: -(10 ** (n - 1)) + 1 + k, chars, low
    )


json_atoms: Final = (
    st.none()
    | st.booleans()
    | int64s
    | st.integers(2**63, 2**64 - 1)
    | huge_ints()
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
)
json_keys: Final = st.sampled_from(ODD_KEYS) | texts


def _json_containers(items: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(items, max_size=4) | st.dictionaries(json_keys, items, max_size=4)


json_values: Final[st.SearchStrategy[Any]] = st.recursive(
    json_atoms, _json_containers, max_leaves=8
)


def nested(levels: int, core: object, key: str = "k") -> Any:
    """The core within a number of lists and objects in turn."""
    value = core
    for level in range(levels):
        value = [value] if level % 2 else {key: value}
    return value


@st.composite
def json_objects(draw: st.DrawFn, max_levels: int = MAX_METADATA_LEVELS) -> dict[str, Any]:
    """JSON objects, sometimes with one value nested close to the limit or up to it."""
    found = draw(st.dictionaries(json_keys, json_values, max_size=4))
    if draw(st.booleans()):
        levels = draw(st.integers(0, 3) | st.integers(max_levels - 4, max_levels - 1))
        found[draw(json_keys)] = nested(levels, draw(json_atoms), draw(json_keys))
    return found


rewards: Final = (
    st.none() | st.just(0.0) | st.floats(allow_nan=False, allow_infinity=False) | json_objects()
)
prefix_cache_infos: Final = st.builds(PrefixCacheInfo, counters, counters)
spec_infos: Final = st.just(SpecInfo()) | st.builds(
    SpecInfo, counters, counters, counters, counters
)


@st.composite
def sample_fields(draw: st.DrawFn, field_set: int = 1) -> dict[str, Any]:
    """Values for every computed field of Sample that obey the row rules."""
    num_tokens = draw(st.integers(0, MAX_TOKENS))
    num_response = draw(st.integers(0, num_tokens))
    rows = max(num_tokens - 1, 0)
    fields = {
        "tokens": draw(int64_arrays(num_tokens)),
        "response": draw(texts),
        "response_length": num_response,
        "loss_mask": draw(st.none() | uint8_arrays(num_response)),
        "rollout_log_probs": draw(st.none() | float64_arrays(num_response)),
        "rollout_routed_experts": draw(st.none() | routed_arrays(rows)),
        "rollout_indexer_topk": draw(st.none() | routed_arrays(rows)),
        "status": draw(st.sampled_from(Status)),
        "weight_versions": draw(st.lists(texts, max_size=4)),
        "prefix_cache_info": draw(prefix_cache_infos),
        "metadata": draw(json_objects()),
        "spec_info": draw(spec_infos),
    }
    if field_set >= 2:
        fields["reward"] = draw(rewards)
    return fields


def samples(field_set: int = 1) -> st.SearchStrategy[Sample]:
    """Samples whose template fields are at their defaults."""
    return sample_fields(field_set).map(lambda fields: Sample(**fields))


def _kept_in(array: Array, make: Callable[[tuple[int, ...]], Array]) -> Array:
    """Fills the view that `make` cuts out of a base full of SENTINEL with the array's values."""
    view = make(array.shape)
    view[...] = array
    return view


SENTINEL: Final = 0xA5


def _base(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An array every byte of which is SENTINEL."""
    count = int(np.prod(shape, dtype=np.int64))
    return np.full(count * dtype.itemsize, SENTINEL, np.uint8).view(dtype).reshape(shape)


def _strided(array: Array) -> Array:
    step = (slice(None, None, 2),) * array.ndim
    return _kept_in(array, lambda shape: _base(tuple(2 * n for n in shape), array.dtype)[step])


def _reversed(array: Array) -> Array:
    flip = (slice(None, None, -1),) * array.ndim
    return _kept_in(array, lambda shape: _sliced(_base(shape, array.dtype))[flip])


def _broadcast(array: Array) -> Array:
    """The first row again and again: the one view whose values are not the array's."""
    return np.broadcast_to(_sliced(array[:1]), array.shape)


def _fortran(array: Array) -> Array:
    return np.asfortranarray(array)


def _transposed(array: Array) -> Array:
    return _kept_in(array, lambda shape: _base(shape[::-1], array.dtype).T)


def _big_endian(array: Array) -> Array:
    return array.astype(array.dtype.newbyteorder(">"))


def _big_endian_strided(array: Array) -> Array:
    return _strided(_big_endian(array))


def _misaligned(array: Array) -> Array:
    around = bytes([SENTINEL]) * 65
    whole = around + array.tobytes() + around
    return np.frombuffer(whole, array.dtype, array.size, len(around)).reshape(array.shape)


def _sliced(array: Array) -> Array:
    """Rows out of the middle of a base of 64 KiB."""
    rows = 65536 // max(array[:1].nbytes, 1)

    def middle(shape: tuple[int, ...]) -> Array:
        return _base((rows + shape[0], *shape[1:]), array.dtype)[rows // 2 : rows // 2 + shape[0]]

    return _kept_in(array, middle)


def _column_slice(array: Array) -> Array:
    """Columns out of the middle of rows of 64 KiB."""

    def middle(shape: tuple[int, ...]) -> Array:
        wide = _base((*shape[:-1], shape[-1] + 4096), array.dtype)
        return wide[..., 2048 : 2048 + shape[-1]]

    return _kept_in(array, middle)


VIEWS: Final[Mapping[str, Callable[[Array], Array]]] = {
    "strided": _strided,
    "reversed": _reversed,
    "broadcast": _broadcast,
    "fortran": _fortran,
    "transposed": _transposed,
    "big-endian": _big_endian,
    "big-endian-strided": _big_endian_strided,
    "misaligned": _misaligned,
    "sliced": _sliced,
    "column-slice": _column_slice,
}


def same_sample(left: object, right: object, schema: Schema | None = None) -> bool:
    """Whether two samples are of one class and equal bit for bit in every declared field."""
    schema = schema or type(left).__sample_schema__  # type: ignore[attr-defined]  # declared
    return type(left) is type(right) and all(
        same_value(getattr(left, field.name), getattr(right, field.name)) for field in schema.fields
    )


def same_value(left: object, right: object) -> bool:
    """Whether two values are of one type and equal: floats by bits, keys in order."""
    if type(left) is not type(right):
        return False
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return _facts_of(left) == _facts_of(right)
    if isinstance(left, float) and isinstance(right, float):
        return struct.pack("<d", left) == struct.pack("<d", right)
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(map(same_value, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return [*left] == [*right] and same_value([*left.values()], [*right.values()])
    if isinstance(left, msgspec.Struct) and isinstance(right, msgspec.Struct):
        return same_value(msgspec.structs.astuple(left), msgspec.structs.astuple(right))
    if dataclasses.is_dataclass(left) and dataclasses.is_dataclass(right):
        names = [field.name for field in dataclasses.fields(left)]
        return all(same_value(getattr(left, name), getattr(right, name)) for name in names)
    return bool(left == right)


def _facts_of(array: Array) -> tuple[Any, ...]:
    return array.dtype.str, array.shape, array.tobytes()
