"""What standard JSON does not carry unchanged is refused, and its place is named."""

from __future__ import annotations

import collections
import datetime
import decimal
import enum
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pytest
from strategies import MAX_INT_CHARS, MAX_METADATA_LEVELS, nested, same_value

from sample_wire import (
    EncodeError,
    Sample,
    SpecInfo,
    Status,
    decode_samples,
    encode_samples,
)

from ._samples import refused, round_trip, template_of


class Level(enum.IntEnum):
    """Equal to an integer, and yet none in JSON."""

    HIGH = 1


class Kind(enum.StrEnum):
    """Equal to a text, and yet none in JSON."""

    A = "a"


class Text(str):
    """A text of another type."""

    __slots__ = ()


class Record(msgspec.Struct):
    """An object that msgspec would write without a word."""

    x: int = 1


@dataclass
class Plain:
    """Another one."""

    x: int = 1


UNCARRIED: dict[str, tuple[Any, str]] = {
    "nan": (float("nan"), "is nan"),
    "inf": (float("inf"), "is inf"),
    "minus-inf": (float("-inf"), "is -inf"),
    "numpy-nan": (np.float32("nan"), "is nan"),
    "bytes": (b"x", "of type bytes"),
    "bytearray": (bytearray(b"x"), "of type bytearray"),
    "memoryview": (memoryview(b"x"), "of type memoryview"),
    "set": ({1}, "of type set"),
    "frozenset": (frozenset({1}), "of type frozenset"),
    "date": (datetime.date(2020, 1, 1), "of type date"),
    "datetime": (datetime.datetime(2020, 1, 1), "of type datetime"),
    "time": (datetime.time(1), "of type time"),
    "delta": (datetime.timedelta(1), "of type timedelta"),
    "decimal": (decimal.Decimal("1.5"), "of type Decimal"),
    "uuid": (uuid.UUID(int=1), "of type UUID"),
    "complex": (1j, "of type complex"),
    "enum": (Status.FAILED, "of type Status"),
    "int-enum": (Level.HIGH, "of type Level"),
    "str-enum": (Kind.A, "of type Kind"),
    "str-subclass": (Text("x"), "of type Text"),
    "struct": (Record(), "of type Record"),
    "own-struct": (SpecInfo(), "of type SpecInfo"),
    "dataclass": (Plain(), "of type Plain"),
    "sample": (Sample(), "of type Sample"),
    "ordered-dict": (collections.OrderedDict(a=1), "of type OrderedDict"),
    "default-dict": (collections.defaultdict(int, a=1), "of type defaultdict"),
    "list-subclass": (type("Items", (list,), {})([1]), "of type Items"),
    "deque": (collections.deque([1]), "of type deque"),
    "raw": (msgspec.Raw(b"1"), "of type Raw"),
    "unset": (msgspec.UNSET, "of type UnsetType"),
    "array": (np.arange(2), "of type ndarray"),
    "0-d-array": (np.array(1), "of type ndarray"),
    "datetime64": (np.datetime64("2020-01-01"), "of type datetime64"),
    "numpy-bytes": (np.bytes_(b"x"), "of type bytes_"),
    "numpy-complex": (np.complex64(1), "of type complex64"),
    "function": (len, "of type builtin_function_or_method"),
    "iterator": (iter([1]), "of type list_iterator"),
    "surrogate": ("\ud800", "lone surrogate"),
    "long-int": (10 ** (MAX_INT_CHARS), "thousands of digits"),
    "long-negative-int": (-(10 ** (MAX_INT_CHARS - 1)), "thousands of digits"),
    "int-key": ({1: 2}, "key of type int"),
    "none-key": ({None: 2}, "key of type NoneType"),
    "bool-key": ({True: 2}, "key of type bool"),
    "float-key": ({1.5: 2}, "key of type float"),
    "bytes-key": ({b"a": 2}, "key of type bytes"),
    "tuple-key": ({("a",): 2}, "key of type tuple"),
    "enum-key": ({Kind.A: 2}, "key of type Kind"),
    "str-subclass-key": ({Text("x"): 2}, "key of type Text"),
    "colliding-keys": ({1: "a", "1": "b"}, "key of type int"),
}
# The place of a value within metadata, and how a refusal spells it.
PLACES: dict[str, tuple[Callable[[Any], dict[str, Any]], str]] = {
    "key": (lambda value: {"a": value}, ".a"),
    "deep": (lambda value: {"x": 1, "a": [0, 1, 2, {"c": None, "b": value}]}, ".a[3].b"),
    "after-tuple": (lambda value: {"t": (1,), "a": [(value,)]}, ".a[0][0]"),
    "odd-keys": (lambda value: {"": {"p.q": [value]}}, "..p.q[0]"),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("case", UNCARRIED)
def test_metadata_that_json_does_not_carry_is_refused_with_its_place(case: str, place: str) -> None:
    (value, rule), (within, path) = UNCARRIED[case], PLACES[place]
    error = refused(Sample(metadata=within(value)))
    assert (error.field, error.sample_index) == ("metadata", 0)
    assert str(error).startswith(f"sample 0, field metadata{path} ")
    assert rule in str(error)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("case", UNCARRIED)
def test_session_metadata_that_json_does_not_carry_is_refused_with_its_place(
    case: str, place: str
) -> None:
    (value, rule), (within, path) = UNCARRIED[case], PLACES[place]
    with pytest.raises(EncodeError) as caught:
        encode_samples([], within(value))
    assert str(caught.value).startswith(f"session_metadata{path} ")
    assert rule in str(caught.value)


@pytest.mark.parametrize("case", [name for name in UNCARRIED if "key" not in name])
def test_a_reward_that_json_does_not_carry_is_refused_by_name(case: str) -> None:
    value, _ = UNCARRIED[case]
    for reward in (value, {"parts": [value]}):
        assert refused(template_of(reward=reward), field_set=2).field == "reward"


def test_a_key_with_a_lone_surrogate_is_refused() -> None:
    error = refused(Sample(metadata={"a": {"\ud800": 1}}))
    assert "metadata.a" in str(error)
    assert "lone surrogate" in str(error)
    str(error).encode()


@pytest.mark.parametrize("levels", [MAX_METADATA_LEVELS + 1, 200, 5000])
@pytest.mark.parametrize("core", [1, (1,)], ids=["plain", "tuple"])
def test_metadata_that_nests_too_deep_is_refused(levels: int, core: object) -> None:
    error = refused(Sample(metadata={"a": nested(levels - 1, core)}))
    assert error.field == "metadata"
    assert "field metadata.a" in str(error)
    assert "nests too deep" in str(error)


@pytest.mark.parametrize("levels", [128, 200, 5000])
def test_session_metadata_that_nests_too_deep_is_refused(levels: int) -> None:
    with pytest.raises(EncodeError, match=r"session_metadata\.a") as caught:
        encode_samples([], {"a": nested(levels - 1, 1)})
    assert "nests too deep" in str(caught.value)


def test_metadata_as_deep_as_the_limit_comes_back() -> None:
    metadata = {"a": nested(MAX_METADATA_LEVELS - 1, "core")}
    assert same_value(round_trip(Sample(metadata=metadata)).metadata, metadata)
    session = {"a": nested(126, "core")}
    reply = decode_samples(bytes(encode_samples([], session)), Sample())
    assert same_value(reply.session_metadata, session)


def test_metadata_that_contains_itself_is_refused() -> None:
    cycle: dict[str, Any] = {}
    cycle["a"] = [cycle]
    error = refused(Sample(metadata=cycle))
    assert "metadata.a[0].a[0]" in str(error)
    assert "contains itself" in str(error)
    with pytest.raises(EncodeError, match="contains itself"):
        encode_samples([], cycle)


@pytest.mark.parametrize(
    "value",
    [None, [1], "text", 5, True, (), [("a", 1)], collections.OrderedDict(a=1), Record()],
    ids=repr,
)
def test_metadata_that_is_no_dict_is_refused(value: Any) -> None:
    assert refused(template_of(metadata=value)).field == "metadata"


@pytest.mark.parametrize("value", [[], [1], "", "text", 0, False, (), Record()], ids=repr)
def test_session_metadata_that_is_no_dict_is_refused(value: Any) -> None:
    with pytest.raises(EncodeError, match="session_metadata"):
        encode_samples([], value)


@pytest.mark.parametrize("reason", [5, b"x", ["x"], True, {"a": 1}], ids=repr)
def test_an_empty_reason_that_is_no_text_is_refused(reason: Any) -> None:
    with pytest.raises(EncodeError, match="empty_reason"):
        encode_samples([], empty_reason=reason)


def test_an_empty_reason_with_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(EncodeError, match="empty_reason holds a lone surrogate"):
        encode_samples([], empty_reason="\udfff")


@pytest.mark.parametrize(
    ("value", "back"),
    [
        ((1, 2), [1, 2]),
        ([(), ((),)], [[], [[]]]),
        (np.int64(3), 3),
        (np.uint64(2**64 - 1), 2**64 - 1),
        (np.bool_(True), True),
        (np.float32(0.5), 0.5),
        (np.float64(0.1), 0.1),
        (np.float16(-0.0), -0.0),
        (np.str_("x"), "x"),
        ({np.str_("x"): 1}, {"x": 1}),
        ([1, True, None, "a", 0.5, 10**30, -(10**30)], None),
        ([2**63 - 1, -(2**63), 2**64, 2**70, 10 ** (MAX_INT_CHARS - 1)], None),
        ([0.1, 1e308, 5e-324, -0.0, 1e22, 1e16, 123456789012345680.0, 1.0], None),
        ({"b": 1, "a": 2, "": 3}, None),
        ('\x00\x1f\u2028\U0001f600"\\/', None),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_what_json_carries_comes_back(value: Any, back: Any) -> None:
    expected = {"a": value if back is None else back}
    assert same_value(round_trip(Sample(metadata={"a": value})).metadata, expected)
    reply = decode_samples(bytes(encode_samples([], {"a": value})), Sample())
    assert same_value(reply.session_metadata, expected)


def test_encoding_does_not_change_the_callers_metadata() -> None:
    metadata = {"a": (np.int64(1),), "b": [np.float32(0.5)]}
    encode_samples([Sample(metadata=metadata)], metadata)
    assert same_value(metadata, {"a": (np.int64(1),), "b": [np.float32(0.5)]})
