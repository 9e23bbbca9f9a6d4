"""Merge rules of fields without rows, and functions of a class's own, by what they declare."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import pytest

from sample_wire import Computed, Json, Ragged, Sample, Tensor, decode_samples, encode_samples

from ._records import Array, assembled, plain, refused, sglang


def joined(first: Array, second: Array) -> Array:
    """A merge function that leaves a row of zero for the one observed token."""
    return np.concatenate([first, np.zeros(1, first.dtype), second])


class FoldSample(Sample):
    """One field for each rule."""

    equal: Annotated[
        npt.NDArray[np.int32] | None, Computed(codec=Tensor("int32"), merge="equal", null="none")
    ] = None
    equal_floats: Annotated[
        npt.NDArray[np.float32] | None,
        Computed(codec=Tensor("float32"), merge="equal", null="none"),
    ] = None
    total: Annotated[
        npt.NDArray[np.uint8] | None, Computed(codec=Tensor("uint8"), merge="sum", null="none")
    ] = None
    float_total: Annotated[
        npt.NDArray[np.float32] | None, Computed(codec=Tensor("float32"), merge="sum", null="none")
    ] = None
    chained: Annotated[
        npt.NDArray[np.int16] | None, Computed(codec=Tensor("int16"), merge="extend", null="none")
    ] = None
    pieces: Annotated[
        npt.NDArray[np.int16] | None, Computed(codec=Tensor("int16"), merge="concat", null="none")
    ] = None
    last: Annotated[
        npt.NDArray[np.float64] | None,
        Computed(codec=Tensor("float64", rank=2), merge="last", null="none"),
    ] = None
    scalar: Annotated[Any, Computed(codec=Tensor("float32", rank=0), merge="last", null="none")] = (
        None
    )
    counts: Annotated[dict[str, int] | None, Computed(codec=Json(), merge="sum")] = None
    choice: Annotated[int | None, Computed(codec=Json(), merge=max)] = None
    first: Annotated[list[int] | None, Computed(codec=Json(), merge="equal")] = None
    own_rows: Annotated[
        npt.NDArray[np.int32] | None,
        Computed(codec=Tensor("int32"), rows="response", merge=joined, null="none"),
    ] = None
    tags: Annotated[list[Any], Computed(codec=Ragged("uint8"), rows="response", merge="concat")] = (
        dataclasses.field(default_factory=list)
    )


SCHEMA = FoldSample.__sample_schema__


def two(name: str, first: Any, second: Any) -> list[Any]:
    """Two turns that give a field these values; one token is observed between them."""
    return [sglang([1], [2], **{name: first}), sglang([1, 2, 3], [4], **{name: second})]


def merged(name: str, first: Any, second: Any) -> Any:
    """What the two turns' values become, before and after the wire."""
    (sample,) = assembled(two(name, first, second), schema=SCHEMA).samples
    (back,) = decode_samples(encode_samples([sample]), FoldSample()).samples
    found = getattr(sample, name)
    assert plain(getattr(back, name)) == plain(found)
    return plain(found)


@pytest.mark.parametrize(
    ("name", "first", "second", "expected"),
    [
        ("equal", [1, 2], [1, 2], [1, 2]),
        ("equal", [], [], []),
        ("equal_floats", [0.5], [0.5], [0.5]),
        ("total", [200, 1], [55, 2], [255, 3]),
        ("total", [7], None, [7]),
        ("total", None, [7], [7]),
        ("total", None, None, None),
        ("float_total", [0.5, 1], [0.25, 2], [0.75, 3]),
        ("chained", [1], [2, 3], [1, 2, 3]),
        ("chained", [], [2], [2]),
        ("pieces", [1], [2, 3], [1, 2, 3]),
        ("last", [[1]], [[2, 3]], [[2, 3]]),
        ("last", [[1]], None, None),
        ("scalar", 1.5, 2.5, 2.5),
        ("choice", 5, 3, 5),
        ("choice", None, 3, 3),
        ("choice", None, None, None),
        ("first", [1], [1], [1]),
        ("own_rows", [5], [6], [5, 0, 6]),
        ("own_rows", None, None, None),
    ],
    ids=str,
)
def test_values_are_merged_as_declared(name: str, first: Any, second: Any, expected: Any) -> None:
    assert merged(name, first, second) == expected


def test_narrow_floats_are_added_as_their_dtype_adds() -> None:
    values = np.array([0.1, 0.7], np.float32)
    expected = (values[:1] + values[1:]).tolist()
    assert merged("float_total", [float(values[0])], [float(values[1])]) == expected


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("equal", [1, 2], [1, 3]),
        ("equal", [1, 2], [1, 2, 3]),
        ("equal", [1], None),
        ("equal", None, [1]),
        ("total", [200], [100]),
        ("total", [1], [1, 2]),
        ("float_total", [1], [1, 2]),
        ("counts", {"a": 1}, {"a": 2}),
        ("first", [1], [2]),
        ("own_rows", [5], None),
        ("own_rows", None, [6]),
    ],
    ids=str,
)
def test_values_that_cannot_be_merged_are_refused(name: str, first: Any, second: Any) -> None:
    assert refused(two(name, first, second), schema=SCHEMA).field == name


@pytest.mark.parametrize("value", [float("nan"), -float("nan")], ids=["nan", "minus nan"])
def test_a_value_that_is_not_equal_to_itself_is_equal_all_the_same(value: float) -> None:
    (sample,) = assembled(two("equal_floats", [value], [value]), schema=SCHEMA).samples
    assert np.isnan(sample.equal_floats).all()


def test_ragged_rows_that_no_turn_gives_are_empty_rows() -> None:
    (sample,) = assembled(two("tags", None, None), schema=SCHEMA).samples
    assert [*map(plain, sample.tags)] == [[], [], []]
    (sample,) = assembled(two("tags", [[1, 2]], None), schema=SCHEMA).samples
    assert [*map(plain, sample.tags)] == [[1, 2], [], []]


class RequiredRows(Sample):
    """Rows with a function of their own that must be there."""

    own: Annotated[
        npt.NDArray[np.int32], Computed(codec=Tensor("int32"), rows="response", merge=joined)
    ] = dataclasses.field(default_factory=lambda: np.empty(0, np.int32))


def test_required_rows_that_no_turn_gives_are_refused_where_there_is_a_response() -> None:
    schema = RequiredRows.__sample_schema__
    assert refused(two("own", None, None), schema=schema).field == "own"
