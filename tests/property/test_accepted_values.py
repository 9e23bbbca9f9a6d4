"""What encode takes comes back equal, and what could come back equal is taken: no third way.

Each test has an oracle that decides by Python's exact arithmetic whether a value can be carried.
"""

from __future__ import annotations

import enum
import math
from typing import Annotated, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import MAX_INT_CHARS, huge_ints, layouts, same_value

from sample_wire import (
    Computed,
    EncodeError,
    Sample,
    Tensor,
    decode_samples,
    encode_samples,
)
from sample_wire.codec import Layout

DTYPES = ("int64", "int32", "int8", "uint8", "uint16", "uint64", "float64", "float32", "bool")


class Rank(enum.IntEnum):
    """An integer with a name."""

    TOP = 1


class Color(enum.Enum):
    """No number, whatever its value."""

    RED = 1


def typed(dtype: str) -> Computed:
    return Computed(codec=Tensor(dtype), merge="last", null="none")


class Arrays(Sample):
    """A field for each dtype."""

    int64: Annotated[Any, typed("int64")] = None
    int32: Annotated[Any, typed("int32")] = None
    int8: Annotated[Any, typed("int8")] = None
    uint8: Annotated[Any, typed("uint8")] = None
    uint16: Annotated[Any, typed("uint16")] = None
    uint64: Annotated[Any, typed("uint64")] = None
    float64: Annotated[Any, typed("float64")] = None
    float32: Annotated[Any, typed("float32")] = None
    bool: Annotated[Any, typed("bool")] = None


edges = st.sampled_from([2**n + k for n in (7, 8, 15, 16, 24, 31, 32, 53, 63) for k in (-1, 0, 1)])
integers = st.integers(0, 3) | edges | edges.map(lambda n: -n) | st.just(2**64 - 1)
halves = st.sampled_from([0.5, -1.5, 1.0, 2.0, -0.0, 255.0, 2.0**53, 2.0**63, 1e300, 0.1])
specials = st.sampled_from([math.nan, math.inf, -math.inf])
numbers = integers | halves | specials | st.booleans()
int_scalars = st.builds(
    lambda kind, value: kind(value),
    st.sampled_from([np.int8, np.uint8, np.int64, np.uint64, np.float16, np.float32, np.bool_]),
    st.integers(0, 1),
)
no_numbers: st.SearchStrategy[Any] = st.sampled_from(
    [None, "1", b"1", Color.RED, 1j, [1], {}, {1}, (), Ellipsis, 2**70]
)
mixed_numbers = st.lists(numbers, max_size=5)
lists_of_one_kind = st.one_of(
    st.lists(integers, max_size=5), st.lists(halves | specials, max_size=5)
)
mixed_objects = st.lists(numbers | int_scalars | no_numbers | st.just(Rank.TOP), max_size=4)


def fits(number: Any, dtype: np.dtype[Any]) -> bool:
    """Whether a Python number is a value of the dtype, by exact comparison."""
    if dtype.kind == "f":
        if isinstance(number, float) and not math.isfinite(number):
            return True
        with np.errstate(all="ignore"):
            return bool(dtype.type(float(number)).item() == number)
    if not math.isfinite(number) or number != int(number):
        return False
    low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return low <= int(number) <= high


def equal(found: object, number: Any) -> bool:
    return bool(found == number or (number != number and found != found))


@pytest.mark.parametrize("dtype", DTYPES)
@given(value=mixed_numbers | lists_of_one_kind, layout=layouts)
def test_a_list_of_numbers_is_taken_exactly_if_each_fits(
    dtype: str, value: list[Any], layout: Layout
) -> None:
    sample = Arrays()
    setattr(sample, dtype, value)
    if all(fits(number, np.dtype(dtype)) for number in value):
        payload = encode_samples([sample], layout=layout)
        found = getattr(decode_samples(payload, Arrays()).samples[0], dtype)
        assert found.dtype == np.dtype(dtype)
        assert all(map(equal, found.tolist(), value))
    else:
        with pytest.raises(EncodeError):
            encode_samples([sample], layout=layout)


@pytest.mark.parametrize("dtype", DTYPES)
@given(value=mixed_objects, layout=layouts)
def test_a_list_of_anything_comes_back_equal_or_is_refused(
    dtype: str, value: list[Any], layout: Layout
) -> None:
    sample = Arrays()
    setattr(sample, dtype, value)
    try:
        payload = bytes(encode_samples([sample], layout=layout))
    except EncodeError:
        return
    found = getattr(decode_samples(payload, Arrays()).samples[0], dtype)
    assert len(found) == len(value)
    assert all(map(equal, found.tolist(), value))


@pytest.mark.parametrize("dtype", DTYPES)
@given(
    value=mixed_numbers | lists_of_one_kind,
    source=st.sampled_from(["i8", "u8", "f8", "f4"]),
    layout=layouts,
)
def test_an_array_of_numbers_is_taken_exactly_if_each_fits(
    dtype: str, value: list[Any], source: str, layout: Layout
) -> None:
    array = np.array([number for number in value if fits(number, np.dtype(source))], source)
    sample = Arrays()
    setattr(sample, dtype, array)
    if all(fits(number, np.dtype(dtype)) for number in array.tolist()):
        payload = encode_samples([sample], layout=layout)
        found = getattr(decode_samples(payload, Arrays()).samples[0], dtype)
        assert all(map(equal, found.tolist(), array.tolist()))
    else:
        with pytest.raises(EncodeError):
            encode_samples([sample], layout=layout)


texts = st.text(st.characters(), max_size=3)  # lone surrogates too
json_like_atoms = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**66), 2**66),
    huge_ints(),
    st.just(-(10 ** (MAX_INT_CHARS - 1))),  # a longer one could not be printed either
    st.floats(),
    texts,
    int_scalars,
    st.sampled_from([b"x", {1}, Color.RED, Rank.TOP, 1j, np.str_("s"), np.float64("nan"), ...]),
)
json_like_keys = texts | st.sampled_from([1, None, True, np.str_("k"), b"k", Rank.TOP])
json_like = st.recursive(
    json_like_atoms,
    lambda items: (
        st.lists(items, max_size=3)
        | st.lists(items, max_size=3).map(tuple)
        | st.dictionaries(json_like_keys, items, max_size=3)
    ),
    max_leaves=6,
)


class NotCarriedError(Exception):
    """The oracle's verdict: standard JSON has no such value."""


def carried(value: Any) -> Any:
    """The value as it must come back, or NotCarriedError."""
    if isinstance(value, np.generic):
        value = value.item()
    kind = type(value)
    if kind in (bool, type(None)):
        return value
    if kind is int and len(str(value)) <= MAX_INT_CHARS:
        return value
    if kind is float and math.isfinite(value):
        return value
    if kind is str and value.encode("utf-8", "ignore").decode() == value:
        return value
    if kind in (list, tuple):
        return [carried(item) for item in value]
    if kind is dict and all(type(key) in (str, np.str_) for key in value):
        return {carried(key): carried(item) for key, item in value.items()}
    raise NotCarriedError


@given(value=json_like)
def test_metadata_comes_back_equal_or_is_refused(value: Any) -> None:
    metadata = {"a": value}
    try:
        expected = carried(metadata)
    except NotCarriedError:
        with pytest.raises(EncodeError, match=r"metadata\.a"):
            encode_samples([Sample(metadata=metadata)])
        with pytest.raises(EncodeError, match=r"session_metadata\.a"):
            encode_samples([], metadata)
    else:
        reply = decode_samples(encode_samples([Sample(metadata=metadata)], metadata), Sample())
        assert same_value(reply.samples[0].metadata, expected)
        assert same_value(reply.session_metadata, expected)
