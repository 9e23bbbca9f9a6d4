"""SPEC.md says what the code does: its tables, its limits and its worked example."""

from __future__ import annotations

import hashlib
import inspect
import json
import re
import time
from typing import Annotated, Any, Final

import numpy as np
import numpy.typing as npt
import pytest

import sample_wire
from sample_wire import (
    Computed,
    ContainerError,
    DecodeError,
    FieldError,
    Json,
    LimitError,
    PrefixCacheInfo,
    Ragged,
    Sample,
    Schema,
    SpecInfo,
    Status,
    Tensor,
    decode_samples,
    encode_samples,
    read_container,
    read_fields,
    write_container,
)

from ._kit import empty_sample, payload, reply, sample
from ._spec import SPEC_PATH, section, table
from ._wire import compact, container, framed, meta_tensor, split, tensor

_SAMPLE: Final = Schema.of(Sample)
_FIELD_TABLE: Final = {row["field"]: row for row in table("5.2", "field")}


def test_the_sections_are_numbered_in_order() -> None:
    numbers = re.findall(r"^## (\d+)\. ", SPEC_PATH.read_text(), re.MULTILINE)
    assert numbers == [str(number) for number in range(1, 16)]


@pytest.mark.parametrize("row", table("4.2", "order"), ids=lambda row: row["wire name"])
def test_section_4_2_each_numpy_dtype_is_written_under_its_wire_name(row: dict[str, str]) -> None:
    header, data = split(bytes(write_container({"x": np.zeros(3, row["numpy dtype"])})))
    assert json.loads(header)["x"]["dtype"] == row["wire name"]
    assert len(data) == 3 * int(row["item bytes"])


def test_section_4_2_tensors_are_laid_out_in_the_order_of_the_table() -> None:
    rows = table("4.2", "order")
    tensors = {row["wire name"]: np.zeros(1, row["numpy dtype"]) for row in reversed(rows)}
    header, _ = split(bytes(write_container(tensors)))
    assert list(json.loads(header)) == [row["wire name"] for row in rows]
    assert [row["order"] for row in rows] == [str(index) for index in range(len(rows))]


def test_section_4_2_metadata_comes_first_and_sorted() -> None:
    written = write_container({"a": np.zeros(1, np.uint8)}, {"z": "1", "b": "2"})
    header, _ = split(bytes(written))
    assert header.startswith(b'{"__metadata__":{"b":"2","z":"1"},"a":')
    assert len(header) % 8 == 0


def test_section_5_2_lists_the_fields_in_order() -> None:
    assert list(_FIELD_TABLE) == [field.name for field in _SAMPLE.fields]


@pytest.mark.parametrize("field", _SAMPLE.fields, ids=lambda field: field.name)
def test_section_5_2_says_what_a_field_declares(field: Any) -> None:
    row, owner = _FIELD_TABLE[field.name], field.owner
    declared = {"class": "template", "codec": "-", "dtype": "-", "rank": "-", "null": "-"}
    declared |= {"since": "-", "rows": owner.rows or "-"}
    if isinstance(owner, Computed):
        declared |= {"class": "computed", "codec": type(owner.codec).__name__}
        declared |= {"null": owner.null, "since": str(owner.since)}
        if isinstance(owner.codec, Tensor):
            declared |= {"dtype": owner.codec.dtype, "rank": str(owner.codec.rank)}
    assert {key: row[key] for key in declared} == declared


def test_section_5_2_marks_the_fields_that_set_an_axis() -> None:
    setting = {
        field.name: field.owner.sets
        for field in _SAMPLE.fields
        if isinstance(field.owner, Computed) and field.owner.sets
    }
    assert setting == {"tokens": "tokens", "response_length": "response"}
    assert "sets T" in _FIELD_TABLE["tokens"]["meaning"]
    assert (
        "sets R"
        in _FIELD_TABLE["response_length"]["shape or JSON type"]
        + (_FIELD_TABLE["response_length"]["meaning"])
    )


def test_section_5_2_lists_the_statuses() -> None:
    (listed,) = re.findall(r"A status is one of the strings ([^.]*)\.", section("5.2"))
    assert re.findall(r"`(\w+)`", listed) == [status.value for status in Status]


@pytest.mark.parametrize("record", [PrefixCacheInfo, SpecInfo], ids=lambda kind: kind.__name__)
def test_section_5_2_lists_the_counters_of_a_record(record: Any) -> None:
    rows = [row["key"] for row in table("5.2", "record") if row["record"] == record.__name__]
    assert rows == list(record.__struct_fields__)


@pytest.mark.parametrize("row", table("9.2", "rule"), ids=lambda row: row["rule"])
def test_section_9_2_names_subclasses_of_decode_error(row: dict[str, str]) -> None:
    for name in row["error"].split(" or "):
        assert issubclass(getattr(sample_wire, name), DecodeError)


@pytest.mark.parametrize(
    ("limit", "parameter"),
    [
        ("header bytes", "max_header_bytes"),
        ("samples", "max_samples"),
        ("JSON depth", "max_depth"),
        ("bytes of the arrays that shared names", "max_shared_bytes"),
    ],
)
def test_section_9_4_states_the_default_of_a_settable_limit(limit: str, parameter: str) -> None:
    stated = {row["limit"]: row["value"] for row in table("9.4", "limit")}
    default = inspect.signature(decode_samples).parameters[parameter].default
    assert stated[limit] == str(default)


def test_section_9_4_states_the_number_of_axes() -> None:
    stated = int({row["limit"]: row["value"] for row in table("9.4", "limit")}["axes of a tensor"])
    assert read_container(container([tensor("x", "U8", [1] * stated, [5])]))["x"].ndim == stated
    with pytest.raises(ContainerError):
        read_container(container([tensor("x", "U8", [1] * (stated + 1), [5])]))


def test_section_9_2_l1_takes_4096_samples_and_no_more() -> None:
    most = payload(reply(*[empty_sample()] * 4096))
    assert len(decode_samples(most, Sample()).samples) == 4096
    with pytest.raises(LimitError):
        decode_samples(payload(reply(*[empty_sample()] * 4097)), Sample())


def test_section_9_2_l1_is_settable() -> None:
    two = payload(reply(sample(), sample()))
    assert len(decode_samples(two, Sample(), max_samples=2).samples) == 2
    with pytest.raises(LimitError):
        decode_samples(two, Sample(), max_samples=1)


class RaggedSample(Sample):
    """A sample with a ragged field, which section 5.2 has none of."""

    top: Annotated[
        list[npt.NDArray[np.float32]] | None,
        Computed(codec=Ragged("float32"), merge="concat", rows="response", null="none"),
    ] = None


def _ragged(offsets: list[int], num_values: int, num_rows: int) -> bytes:
    meaning = reply(sample(response_length=num_rows, loss_mask=None, rollout_log_probs=None))
    ragged = [
        tensor("top.values.0", "F32", [num_values], range(num_values)),
        tensor("top.offsets.0", "I64", [len(offsets)], offsets),
    ]
    return payload(meaning, tensors=lambda found: [*found, *ragged])


def test_section_5_1_a_ragged_field_is_values_and_offsets() -> None:
    (read,) = decode_samples(_ragged([0, 2, 2, 3], 3, 3), RaggedSample()).samples
    assert read.top is not None
    assert [row.tolist() for row in read.top] == [[0.0, 1.0], [], [2.0]]


def test_section_5_1_a_ragged_field_is_written_as_values_and_offsets() -> None:
    rows = [np.array([0.5, 1.5], np.float32), np.array([], np.float32)]
    tokens = np.arange(2)
    written = encode_samples([RaggedSample(tokens=tokens, response_length=2, top=rows)])
    found = read_container(bytes(written))
    assert found["top.values.0"].tolist() == [0.5, 1.5]
    assert found["top.offsets.0"].tolist() == [0, 2, 2]


@pytest.mark.parametrize(
    ("offsets", "num_values", "num_rows"),
    [
        ([1, 2, 3], 3, 2),
        ([0, 2], 3, 1),
        ([0, 4], 3, 1),
        ([0, 3, 2, 3], 3, 3),
        ([0, -1, 3], 3, 2),
        ([0, 2**63 - 1, -(2**63), -1, 0, 3], 3, 5),
        ([], 0, 0),
        ([0, 3], 3, 2),
    ],
    ids=["start", "short", "long", "descend", "negative", "wrap", "none", "rows"],
)
def test_section_9_2_f11_refuses_offsets(
    offsets: list[int], num_values: int, num_rows: int
) -> None:
    with pytest.raises(FieldError, match="top"):
        decode_samples(_ragged(offsets, num_values, num_rows), RaggedSample())


def test_section_9_3_a_partial_read_leaves_other_tensors_alone() -> None:
    bad = _ragged([0, 3, 2, 3], 3, 3)
    (found,) = read_fields(bad, ["response"], schema=Schema.of(RaggedSample))
    assert found == {"response": "hi!"}


@pytest.mark.parametrize("depth", [500, 3000, 200_000])
def test_section_9_2_a_raised_depth_limit_lets_no_other_error_out(depth: int) -> None:
    text = '{"samples":[],"session_metadata":{"a":%s},"empty_reason":null}'
    deep = container([meta_tensor(text % ("[" * depth + "]" * depth))])
    try:
        assert decode_samples(deep, Sample(), max_depth=10**6).samples == []
    except DecodeError as error:
        assert isinstance(error, LimitError)  # noqa: PT017  # either verdict is right


def test_section_9_2_a_header_of_long_numbers_takes_no_quadratic_time() -> None:
    giant = ",".join(["9" * 4299] * 400)
    header = f'{{"a":{{"dtype":"U8","shape":[{giant}],"data_offsets":[0,0]}}}}'
    before = time.process_time()
    with pytest.raises(ContainerError):
        read_container(framed(header))
    assert time.process_time() - before < 2


def _fingerprint_by_the_spec(field_set: int) -> str:
    rows = [
        [
            name,
            row["codec"],
            None if row["dtype"] == "-" else row["dtype"],
            None if row["rank"] == "-" else int(row["rank"]),
            None if row["rows"] == "-" else row["rows"],
            row["null"],
        ]
        for name, row in _FIELD_TABLE.items()
        if row["class"] == "computed" and int(row["since"]) <= field_set
    ]
    text = compact([field_set, sorted(rows, key=lambda row: row[0])])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@pytest.mark.parametrize("row", table("10", "field set"), ids=lambda row: row["field set"])
def test_section_10_tells_how_a_fingerprint_is_made(row: dict[str, str]) -> None:
    field_set = int(row["field set"])
    stated = row["fingerprint of the table in section 5.2"]
    assert _SAMPLE.fingerprint(field_set) == stated
    assert _fingerprint_by_the_spec(field_set) == stated


def test_section_10_a_fingerprint_goes_by_the_dtype_not_by_its_spelling() -> None:
    class Spelled(Sample):
        more: Annotated[
            npt.NDArray[np.int64] | None,
            Computed(codec=Tensor("int64"), merge="last", null="none"),
        ] = None

    class SpelledOtherwise(Sample):
        more: Annotated[
            npt.NDArray[np.int64] | None, Computed(codec=Tensor("<i8"), merge="last", null="none")
        ] = None

    assert Schema.of(Spelled).fingerprint() == Schema.of(SpelledOtherwise).fingerprint()


def test_no_computed_field_of_sample_is_ragged() -> None:
    codecs = {type(f.owner.codec) for f in _SAMPLE.fields if isinstance(f.owner, Computed)}
    assert codecs == {Tensor, Json}
