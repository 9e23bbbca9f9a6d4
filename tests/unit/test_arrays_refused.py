"""A value that the wire dtype cannot hold exactly is refused, by position; nothing is converted."""

from __future__ import annotations

import datetime
import decimal
import enum
import fractions
from typing import Any

import msgspec
import numpy as np
import pytest
from strategies import VIEWS

from ._samples import make_sample, refused
from ._typed import not_sent

NAN, INF = float("nan"), float("inf")

WRONG_INTEGERS: list[tuple[str, Any]] = [
    ("u8", 256),
    ("u8", -1),
    ("u8", 2**63),
    ("u8", -(2**63) - 1),
    ("i8", 128),
    ("i8", -129),
    ("u16", 65536),
    ("i16", -32769),
    ("i32", 2**31),
    ("u32", -1),
    ("u32", 2**32),
    ("u64", -1),
    ("u64", 2**64),
    ("i64", 2**63),
    ("i64", -(2**63) - 1),
    ("flag", 2),
    ("flag", -1),
]
WRONG_FLOATS: list[tuple[str, Any]] = [
    *[(field, 0.5) for field in ("u8", "i8", "u16", "i32", "u32", "i64", "u64", "flag")],
    *[(field, NAN) for field in ("u8", "i32", "i64", "u64", "flag")],
    *[(field, INF) for field in ("u8", "i64", "u64", "flag")],
    *[(field, -INF) for field in ("u8", "i64", "u64")],
    ("u8", 256.0),
    ("u8", -1.0),
    ("i64", 2.0**63),
    ("u64", 2.0**64),
    ("i64", 1e300),
    ("f32", 0.1),
    ("f32", 1e300),
    ("f32", 5e-324),
    ("f16", 65536.0),
    ("f16", 1e300),
]


def name_of(case: object) -> str:
    return f"{type(case).__name__}-{' '.join(repr(case).split())[:32]}"


@pytest.mark.parametrize(("field", "value"), WRONG_INTEGERS + WRONG_FLOATS, ids=name_of)
@pytest.mark.parametrize("form", ["list", "tuple", "first-of-two"])
def test_a_number_in_a_sequence_that_would_change_is_refused(
    field: str, value: Any, form: str
) -> None:
    not_sent(field, {"list": [0, value], "tuple": (0, value), "first-of-two": [value, 1]}[form])


@pytest.mark.parametrize(("field", "value"), WRONG_INTEGERS + WRONG_FLOATS, ids=name_of)
def test_a_number_in_an_array_that_would_change_is_refused(field: str, value: Any) -> None:
    not_sent(field, np.array([0, value]))
    not_sent(field, [np.array(0), np.array(value)])


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("u8", [0, 256], "256 at position 1"),
        ("u8", np.array([0, -1]), "-1 at position 1"),
        ("i32", [2**31], "2147483648 at position 0"),
        ("i64", [0, 0, NAN], "nan at position 2"),
        ("i64", np.array([0.5]), "0.5 at position 0"),
        ("i64", [2**53 + 1, 0.5], "0.5 at position 1"),
        ("f32", [0.5, 0.1], "0.1 at position 1"),
        ("f64", [2**53 + 1], "9007199254740993 at position 0"),
        ("grid", [[0, 1], [2, 2**40]], "1099511627776 at position (1, 1)"),
        ("grid", [[0, 2.0**60], [2**53 + 1, 0]], "1.152921504606847e+18 at position (0, 1)"),
        ("number", 0.1, "0.1"),
    ],
    ids=name_of,
)
def test_the_refusal_names_value_and_position(field: str, value: Any, told: str) -> None:
    assert told in str(not_sent(field, value))


LARGE = [2**53 + 1, -(2**53) - 1, 2**63 - 1, 2**62 + 1]


@pytest.mark.parametrize("value", LARGE)
@pytest.mark.parametrize("field", ["f64", "f32"])
def test_an_integer_that_a_float_would_round_is_refused(field: str, value: int) -> None:
    for form in (
        [value],
        (value,),
        np.array([value]),
        [np.int64(value)],
        [value, 1.0],
        [1.0, value],
    ):
        not_sent(field, form)


@pytest.mark.parametrize("value", [2**64 - 1, 2**63 + 1])
@pytest.mark.parametrize("field", ["f64", "f32"])
def test_an_unsigned_integer_that_a_float_would_round_is_refused(field: str, value: int) -> None:
    for form in ([value], np.array([value]), [np.uint64(value)], [value, 1.0], [value, -1]):
        not_sent(field, form)


@pytest.mark.parametrize(("dtype", "field"), [("i4", "f32"), ("u4", "f32"), ("i2", "f16")])
def test_the_largest_integer_of_a_dtype_is_refused_where_it_would_be_rounded(
    dtype: str, field: str
) -> None:
    not_sent(field, np.array([np.iinfo(dtype).max], dtype))


class Color(enum.Enum):
    """Not a number, though its value is one."""

    RED = 1


class Ratio(enum.Enum):
    """Not a number, though its value is one."""

    HALF = 0.5


NO_NUMBERS: dict[str, Any] = {
    "text": "12",
    "bytes": b"12",
    "none": None,
    "dict": {"a": 1},
    "set": {1},
    "object": object(),
    "enum": Color.RED,
    "float-enum": Ratio.HALF,
    "raw": msgspec.Raw(b"\x01"),
    "struct": msgspec.defstruct("Empty", [])(),
    "decimal": decimal.Decimal(1),
    "fraction": fractions.Fraction(1, 2),
    "date": datetime.date(2020, 1, 1),
    "delta": datetime.timedelta(1),
    "complex": 1j,
    "masked": np.ma.masked,
    "huge-int": 10**400,
    "long-int": 10**5000,
}


@pytest.mark.parametrize("field", ["i64", "i32", "u8", "f64", "f32", "flag"])
@pytest.mark.parametrize("name", NO_NUMBERS)
def test_what_is_no_number_is_refused_in_a_list(name: str, field: str) -> None:
    value = NO_NUMBERS[name]
    not_sent(field, [value])
    not_sent(field, (1, value))


@pytest.mark.parametrize("name", [name for name in NO_NUMBERS if name not in ("none", "raw")])
@pytest.mark.parametrize("field", ["i64", "u8", "f64", "strict_i32"])
def test_what_is_no_array_is_refused(name: str, field: str) -> None:
    not_sent(field, NO_NUMBERS[name])


@pytest.mark.parametrize(
    "value",
    [
        np.array([1, 2], object),
        np.array(["1", "2"]),
        np.array([b"1", b"2"]),
        np.array(["2020-01-01"], "M8[D]"),
        np.array([1], "m8[s]"),
        np.zeros(2, [("a", "i4")]),
        np.array([1 + 0j]),
        np.zeros(2, "V4"),
        np.ma.masked_array([1, 2], [False, True]),
        np.ma.masked_array([1.0, 2.0], [True, True]),
        [np.ma.masked_array([1, 2], [False, True])],
        [[1, 2], [3]],
        [1, [2]],
        5,
        np.int64(5),
    ],
    ids=name_of,
)
@pytest.mark.parametrize("field", ["i64", "u8", "f64", "strict_i32"])
def test_an_array_without_such_numbers_is_refused(field: str, value: object) -> None:
    not_sent(field, value)


@pytest.mark.parametrize(
    "value",
    [
        [1, 2],
        (1, 2),
        np.array([1, 2], np.int64),
        np.array([1, 2], np.uint32),
        np.array([1, 2], np.uint8),
        np.array([1.0, 2.0], np.float32),
        np.array([True]),
        range(2),
        memoryview(b"ab"),
    ],
    ids=lambda value: f"{type(value).__name__}-{getattr(value, 'dtype', '')}",
)
def test_a_strict_field_takes_arrays_of_its_dtype_only(value: Any) -> None:
    error = not_sent("strict_i32", value)
    assert error.expected == "int32"
    assert "takes int32 arrays only" in str(error)


@pytest.mark.parametrize("name", ["rollout_routed_experts", "rollout_indexer_topk"])
def test_routing_as_nested_lists_is_refused(name: str) -> None:
    error = refused(make_sample(2, 0, **{name: [[[1]]]}))
    assert (error.field, error.expected, error.got) == (name, "int32", "list")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("i64", [[1]]),
        ("i64", np.zeros((1, 1), np.int64)),
        ("i64", np.array(1)),
        ("grid", [1]),
        ("grid", [[[1]]]),
        ("grid", np.zeros(0, np.int32)),
        ("number", [1.0]),
    ],
    ids=name_of,
)
def test_another_rank_is_refused_with_both_ranks(field: str, value: Any) -> None:
    error = not_sent(field, value)
    assert "rank" in str(error)
    assert (error.expected, error.got) == (
        str({"i64": 1, "grid": 2, "number": 0}[field]),
        str(np.ndim(value)),
    )


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_with_a_wrong_value_is_refused(view: str) -> None:
    not_sent("u8", VIEWS[view](np.array([300, 1, 2], np.int16)))


@pytest.mark.parametrize(
    "value",
    [5, "ab", b"ab", {1: 2}, np.zeros((2, 2), int), {1}, iter([[1]]), range(2)],
    ids=lambda value: type(value).__name__,
)
def test_a_ragged_field_takes_a_list_of_rows(value: object) -> None:
    assert "list of rows" in str(not_sent("runs", value))


@pytest.mark.parametrize(
    "row",
    [5, None, "ab", [[1]], [0.5], [2**31], np.ma.masked_array([1], [True]), [None]],
    ids=name_of,
)
def test_a_row_that_is_no_run_of_its_dtype_is_refused(row: object) -> None:
    not_sent("runs", [[1], row])


@pytest.mark.parametrize("value", [[1], np.array([1.0]), np.array([1 + 1j])], ids=name_of)
def test_a_complex_field_takes_arrays_of_its_dtype_only(value: Any) -> None:
    not_sent("c64", value)
