"""Every array-like whose values the wire dtype holds exactly is taken, by value."""

from __future__ import annotations

import array
import enum
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from strategies import same_value

from ._typed import sent


class Three(NamedTuple):
    """A tuple with names."""

    a: int
    b: int
    c: int


FORMS: dict[str, Callable[[list[int]], Any]] = {
    "list": list,
    "tuple": tuple,
    "namedtuple": lambda items: Three(*items),
    "list-subclass": lambda items: type("Items", (list,), {})(items),
    "array.array": lambda items: array.array("q", items),
    "memoryview": lambda items: memoryview(array.array("i", items)),
    "numpy-int64": lambda items: np.array(items, np.int64),
    "numpy-uint8": lambda items: np.array(items, np.uint8),
    "numpy-float32": lambda items: np.array(items, np.float32),
    "numpy-float16": lambda items: np.array(items, np.float16),
    "numpy-big-endian": lambda items: np.array(items, ">i4"),
    "unmasked": lambda items: np.ma.masked_array(items, [False] * len(items)),
    "list-of-numpy-ints": lambda items: [np.int32(item) for item in items],
    "list-of-numpy-uint64s": lambda items: [np.uint64(item) for item in items],
    "list-of-numpy-floats": lambda items: [np.float16(item) for item in items],
    "list-of-0-d-arrays": lambda items: [np.array(item) for item in items],
    "list-of-floats": lambda items: [float(item) for item in items],
    "mixed-list": lambda items: [items[0], float(items[1]), np.uint8(items[2])],
    "deque": deque,
}
INTEGER_FIELDS = ("u64", "i64", "u32", "i32", "u16", "i16", "i8", "u8")
DTYPES = {
    "u64": "u8",
    "i64": "i8",
    "f64": "f8",
    "f32": "f4",
    "u32": "u4",
    "i32": "i4",
    "f16": "f2",
    "u16": "u2",
    "i16": "i2",
    "i8": "i1",
    "u8": "u1",
    "flag": "?",
}


@pytest.mark.parametrize("field", DTYPES)
@pytest.mark.parametrize("form", FORMS)
def test_every_array_like_is_written_by_value(form: str, field: str) -> None:
    found = sent(field, FORMS[form]([1, 0, 1]))
    assert same_value(found, np.array([1, 0, 1], DTYPES[field]))


@pytest.mark.parametrize("field", INTEGER_FIELDS)
def test_an_integer_field_takes_the_whole_range_of_its_dtype(field: str) -> None:
    info = np.iinfo(DTYPES[field])
    limits = [int(info.min), int(info.max)]
    expected = np.array(limits, DTYPES[field])
    assert same_value(sent(field, limits), expected)
    assert same_value(sent(field, expected), expected)


def test_a_range_is_written_by_value() -> None:
    assert sent("i64", range(3, 9, 2)).tolist() == [3, 5, 7]


@pytest.mark.parametrize("field", ["i64", "u8", "f64", "f32", "flag"])
def test_bools_are_zeros_and_ones(field: str) -> None:
    for value in ([True, False], np.array([True, False]), [np.True_, np.False_]):
        assert same_value(sent(field, value), np.array([1, 0], DTYPES[field]))


@pytest.mark.parametrize("field", ["i64", "i32", "u8"])
@pytest.mark.parametrize("zero", [-0.0, 0.0])
def test_integral_floats_are_integers(field: str, zero: float) -> None:
    for value in ([1.0, zero], np.array([1.0, zero]), np.array([1.0, zero], np.float16)):
        assert same_value(sent(field, value), np.array([1, 0], DTYPES[field]))


class Level(enum.IntEnum):
    """Integers with names."""

    LOW = 0
    HIGH = 1


def test_members_of_an_int_enum_are_integers() -> None:
    assert sent("i64", [Level.HIGH, Level.LOW]).tolist() == [1, 0]
    assert sent("u8", [Level.HIGH, Level.LOW]).tolist() == [1, 0]


@pytest.mark.parametrize("size", [1, 15, 16, 17, 65535, 65536, 65537])
@pytest.mark.parametrize("field", ["i64", "u8", "f64"])
def test_flat_lists_of_every_size_class_are_written_by_value(field: str, size: int) -> None:
    # msgpack spells lists below 16 and below 65,536 items with shorter heads.
    numbers = np.arange(size) % 100
    expected = numbers.astype(DTYPES[field])
    assert same_value(sent(field, expected.tolist()), expected)


def test_lists_of_bytes_above_127_are_written_by_value() -> None:
    assert sent("u8", [*range(256)]).tolist() == [*range(256)]


SPECIALS = [float("nan"), float("inf"), float("-inf"), -0.0, 5e-324, -1.5]


@pytest.mark.parametrize("field", ["f64", "f32", "f16"])
@pytest.mark.parametrize("form", ["list", "array", "float32-items"])
def test_special_floats_are_taken_by_every_float_field(field: str, form: str) -> None:
    items: Any = [value for value in SPECIALS if value != 5e-324]
    value = {
        "list": items,
        "array": np.array(items, np.float64),
        "float32-items": [np.float32(item) for item in items],
    }[form]
    found = sent(field, value)
    assert np.array_equal(found, np.array(items), equal_nan=True)
    assert np.signbit(found[3])


def test_a_list_of_floats_keeps_every_bit() -> None:
    assert same_value(sent("f64", SPECIALS), np.array(SPECIALS))
    bits = np.array([0x7FF8000000000001, 0xFFF8DEADBEEF0001], np.uint64).view(np.float64)
    assert same_value(sent("f64", bits.tolist()), bits)


@pytest.mark.parametrize(
    ("dtype", "field"),
    [
        ("i1", "f64"),
        ("u1", "f64"),
        ("i2", "f64"),
        ("u2", "f64"),
        ("i4", "f64"),
        ("u4", "f64"),
        ("i1", "f32"),
        ("u1", "f32"),
        ("i2", "f32"),
        ("u2", "f32"),
        ("i1", "f16"),
        ("u1", "f16"),
    ],
)
def test_a_float_field_takes_every_value_of_a_narrow_integer_dtype(dtype: str, field: str) -> None:
    info = np.iinfo(dtype)
    limits: npt.NDArray[Any] = np.array([info.min, info.max], dtype)
    assert sent(field, limits).tolist() == limits.tolist()


@pytest.mark.parametrize("value", [2**53, -(2**53), 2**62, -(2**63), 2**60 + 2**10, 2**63])
@pytest.mark.parametrize("field", ["f64", "u64", "i64"])
def test_a_large_integer_is_taken_where_it_is_exact(field: str, value: int) -> None:
    if field != "f64" and not np.iinfo(DTYPES[field]).min <= value <= np.iinfo(DTYPES[field]).max:
        field = "f64"
    assert sent(field, [value]).tolist() == [value]
    assert sent(field, np.array([value])).tolist() == [value]


@pytest.mark.parametrize(
    "items",
    [[2**60, 0.5], [0.5, -(2**63)], [2**53, 1.5, True], [np.uint64(2**63), 0.25], [2**63, -1]],
    ids=repr,
)
def test_large_integers_between_floats_are_taken_where_they_are_exact(items: list[Any]) -> None:
    assert sent("f64", items).tolist() == [float(item) for item in items]


def test_large_integers_between_integral_floats_are_integers() -> None:
    assert sent("i64", [2**53 + 1, 2.0]).tolist() == [2**53 + 1, 2]
    assert sent("u64", [2**64 - 1, 0.0]).tolist() == [2**64 - 1, 0]


def test_floats_that_a_narrow_field_holds_exactly_are_taken() -> None:
    narrow = np.array([0.5, -1.25, 65504.0], np.float64)
    assert same_value(sent("f16", narrow), narrow.astype(np.float16))
    assert same_value(sent("f32", narrow.tolist()), narrow.astype(np.float32))


def test_a_strict_field_takes_its_dtype_in_either_byte_order() -> None:
    expected = np.array([1, -1], np.int32)
    assert same_value(sent("strict_i32", expected), expected)
    assert same_value(sent("strict_i32", expected.astype(">i4")), expected)
    assert same_value(sent("strict_i32", expected.data), expected)


@pytest.mark.parametrize(
    "value",
    [
        [[1, 2], [3, 4]],
        ((1, 2), (3, 4)),
        [(1, 2), np.array([3, 4])],
        [[1.0, 2], [True, 4]],
        np.array([[1, 2], [3, 4]]),
        [range(1, 3), array.array("b", [3, 4])],
    ],
    ids=["lists", "tuples", "mixed", "numbers", "array", "sequences"],
)
def test_nested_sequences_are_arrays(value: object) -> None:
    found = sent("grid", value)
    assert found.dtype == np.int32
    assert found.ravel()[1:].tolist() in ([2, 3, 4], [2, 1, 4])


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0)], ids=str)
def test_an_empty_array_keeps_its_shape(shape: tuple[int, int]) -> None:
    assert sent("grid", np.empty(shape)).shape == shape
    assert sent("grid", np.empty(shape, np.int32)).shape == shape


def test_a_list_of_empty_lists_is_an_empty_array() -> None:
    assert same_value(sent("grid", [[], [], []]), np.empty((3, 0), np.int32))


@pytest.mark.parametrize(
    "value",
    [1.5, np.float32(1.5), np.array(1.5), np.float64(1.5)],
    ids=lambda value: type(value).__name__,
)
def test_a_field_of_rank_0_takes_scalars(value: object) -> None:
    assert same_value(sent("number", value), np.array(1.5, np.float32))


def test_a_complex_array_is_taken_by_a_complex_field() -> None:
    value = np.array([1 + 2j, complex("nan")], np.complex64)
    assert same_value(sent("c64", value), value)
    assert same_value(sent("c64", value.astype(">c8")), value)
