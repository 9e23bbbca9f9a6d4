"""One sample is written and read by code made for its schema, to the same results as in general.

The general ways are taken by a subclass's instance under its base's schema, and by a Payload.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import pytest
from strategies import same_value

from sample_wire import (
    Computed,
    FieldError,
    Json,
    Payload,
    Ragged,
    Sample,
    SampleBase,
    Schema,
    SpecInfo,
    Status,
    Tensor,
    decode_samples,
    encode_samples,
    read_container,
    write_container,
)
from sample_wire._container import MAX_HEADER_BYTES
from sample_wire._json import MAX_JSON_DEPTH
from sample_wire._json_fields import are_flat
from sample_wire._plan import plan_of
from sample_wire.blocks import RowBlocks, Segment
from sample_wire.rows import EXPECTED_ROWS_CODE, RESPONSE_FITS_CODE, expected_rows

from ._samples import META, make_sample, routed

SCHEMA = Schema.of(Sample)
NULLABLE = ("loss_mask", "rollout_log_probs", "rollout_routed_experts", "rollout_indexer_topk")


class Subclass(Sample):
    pass


def null_fields(*names: str) -> dict[str, None]:
    return dict.fromkeys(names)


SAMPLES: dict[str, Callable[[], Sample]] = {
    "every_array": lambda: make_sample(rollout_indexer_topk=routed(5)),
    "lists": lambda: make_sample(
        tokens=[3, 4, 5, 6, 7], loss_mask=[1, 0], rollout_log_probs=[-0.5, 0.0]
    ),
    "no_response": lambda: make_sample(5, 0),
    "no_tokens": lambda: make_sample(0, 0),
    "one_token": lambda: make_sample(1, 1),
    "rows_in_blocks": lambda: make_sample(
        rollout_routed_experts=RowBlocks((Segment(routed(5), 0, 4),), (2, 3))
    ),
    "view": lambda: make_sample(tokens=np.arange(10)[::2]),
    "big_endian": lambda: make_sample(tokens=np.arange(5, dtype=">i8")),
    "counters": lambda: make_sample(spec_info=SpecInfo(1, 2, 3, 4), status=Status.ABORTED),
    "nested_metadata": lambda: make_sample(metadata={"a": [{"b": (1, 2.5)}], "c": {}}),
    "text": lambda: make_sample(response='quotes "and"\nlines \u00e9'),
    **{
        "null_" + "_".join(names): lambda names=names: make_sample(**null_fields(*names))  # type: ignore[misc]  # bound early
        for count in range(1, 5)
        for names in itertools.combinations(NULLABLE, count)
    },
}


def direct(payload: bytes, *, max_header_bytes: int = MAX_HEADER_BYTES) -> object:
    read = plan_of(SCHEMA, 1).direct_read
    assert read is not None
    return read(memoryview(payload), MAX_JSON_DEPTH, max_header_bytes)


@pytest.mark.parametrize("make", SAMPLES.values(), ids=SAMPLES.keys())
@pytest.mark.parametrize("field_set", [1, 2])
def test_both_ways_write_the_same_bytes(make: Callable[[], Sample], field_set: int) -> None:
    ours = encode_samples([make()], {"k": [1]}, empty_reason="none", field_set=field_set)
    general = encode_samples(
        [Subclass(**vars(make()))],
        {"k": [1]},
        empty_reason="none",
        field_set=field_set,
        schema=SCHEMA,
    )
    assert bytes(ours) == bytes(general)


@pytest.mark.parametrize("make", SAMPLES.values(), ids=SAMPLES.keys())
@pytest.mark.parametrize("field_set", [1, 2])
def test_both_ways_read_the_same_sample(make: Callable[[], Sample], field_set: int) -> None:
    payload = bytes(encode_samples([make()], {"k": [1]}, field_set=field_set))
    ours = decode_samples(payload, Sample(label="kept"), field_set=field_set)
    general = decode_samples(Payload([payload]), Sample(label="kept"), field_set=field_set)
    assert same_value(vars(ours.samples[0]), vars(general.samples[0]))
    assert ours.session_metadata == general.session_metadata


@pytest.mark.parametrize("name", ["every_array", "lists", "nested_metadata", "null_loss_mask"])
def test_a_usual_payload_takes_the_short_way(name: str) -> None:
    assert direct(bytes(encode_samples([SAMPLES[name]()]))) is not None


def repacked(**changes: Any) -> bytes:
    """A usual payload with some tensors replaced, or without those that are None."""
    tensors: dict[str, Any] = dict(read_container(bytes(encode_samples([make_sample()]))))
    tensors |= {f"{name}.0": value for name, value in changes.items()}
    return bytes(write_container({n: value for n, value in tensors.items() if value is not None}))


def with_json(old: bytes, new: bytes) -> bytes:
    """A usual payload with something else in its JSON."""
    tensors = read_container(bytes(encode_samples([make_sample(rollout_log_probs=None)])))
    text = tensors[META].tobytes()
    assert old in text
    return bytes(
        write_container({**tensors, META: np.frombuffer(text.replace(old, new), np.uint8)})
    )


USUAL = bytes(encode_samples([make_sample()]))
HEADER_BYTES = int.from_bytes(USUAL[:8], "little")
NULLS = b'"nulls":["rollout_log_probs","rollout_indexer_topk"]'
DECLINED: dict[str, bytes] = {
    "shorter_than_a_length": USUAL[:7],
    "header_beyond_the_end": USUAL[: HEADER_BYTES + 7],
    "header_is_no_json": USUAL[:8] + b"!" * HEADER_BYTES + USUAL[8 + HEADER_BYTES :],
    "header_with_a_blank": USUAL[:8]
    + (b"{ " + USUAL[9 : 8 + HEADER_BYTES].rstrip()).ljust(HEADER_BYTES)
    + USUAL[8 + HEADER_BYTES :],
    "tail": USUAL + b"\0",
    "cut": USUAL[:-1],
    "offsets_not_of_the_shape": USUAL.replace(b'"shape":[5]', b'"shape":[4]'),
    "empty_tensor": repacked(loss_mask=np.empty(0, np.uint8)),
    "no_tensor_that_must_be": repacked(tokens=None),
    "null_not_listed": repacked(loss_mask=None),
    "another_tensor": repacked(more=np.zeros(1, np.uint8)),
    "another_dtype": repacked(tokens=np.arange(5, dtype=np.int32)),
    "another_rank": repacked(tokens=np.zeros((5, 1), np.int64)),
    "too_few_response_rows": repacked(loss_mask=np.ones(1, np.uint8)),
    "too_few_transitions": repacked(rollout_routed_experts=routed(4)),
    "response_longer_than_tokens": with_json(b'"response_length":2', b'"response_length":6'),
    "nulls_in_another_order": with_json(
        NULLS, b'"nulls":["rollout_indexer_topk","rollout_log_probs"]'
    ),
    "two_samples": bytes(encode_samples([make_sample(), make_sample()])),
    "no_samples": bytes(encode_samples([])),
}


@pytest.mark.parametrize("payload", DECLINED.values(), ids=DECLINED.keys())
def test_what_is_not_usual_is_left_to_the_general_reader(payload: bytes) -> None:
    assert direct(payload) is None


def test_a_header_over_the_limit_is_left_to_the_general_reader() -> None:
    assert direct(USUAL, max_header_bytes=HEADER_BYTES) is not None
    assert direct(USUAL, max_header_bytes=HEADER_BYTES - 1) is None


def test_a_misaligned_payload_is_left_to_the_general_reader() -> None:
    shifted = memoryview(b"\0" + USUAL)[1:]
    read = plan_of(SCHEMA, 1).direct_read
    assert read is not None
    assert read(shifted, MAX_JSON_DEPTH, MAX_HEADER_BYTES) is None
    assert decode_samples(shifted, Sample()).samples[0].tokens.flags.aligned


def test_nulls_in_another_order_are_read_all_the_same() -> None:
    (sample,) = decode_samples(DECLINED["nulls_in_another_order"], Sample()).samples
    assert sample.rollout_log_probs is None
    assert same_value(sample.tokens, np.arange(5))


def test_a_broken_row_rule_is_named_by_the_general_reader() -> None:
    with pytest.raises(FieldError, match="field loss_mask has 1 rows, 2 response tokens need 2"):
        decode_samples(DECLINED["too_few_response_rows"], Sample())


class RaggedClass(Sample):
    choices: Annotated[
        Any, Computed(codec=Ragged("int64"), rows="tokens", merge="last", null="none")
    ] = None


class BoolClass(SampleBase):
    flags: Annotated[npt.NDArray[np.bool_], Computed(codec=Tensor("bool"), merge="last")]


@pytest.mark.parametrize("sample_type", [RaggedClass, BoolClass])
def test_ragged_and_bool_fields_have_no_short_way(sample_type: type) -> None:
    plan = plan_of(Schema.of(sample_type), 1)
    assert plan.direct_read is None
    assert plan.direct_write is None


class JsonClass(SampleBase):
    note: Annotated[str, Computed(codec=Json(), merge="last")] = ""


class ArrayClass(SampleBase):
    """No JSON field, an axis set by an array, ranks 0 and 2, no rows, small dtypes."""

    tokens: Annotated[
        npt.NDArray[np.int32],
        Computed(codec=Tensor("int32"), rows="tokens", sets="tokens", merge="last"),
    ]
    number: Annotated[
        npt.NDArray[np.float32], Computed(codec=Tensor("float32", rank=0), merge="last")
    ]
    grid: Annotated[
        npt.NDArray[np.float32], Computed(codec=Tensor("float32", rank=2), merge="last")
    ]
    loose: Annotated[
        npt.NDArray[np.int16] | None, Computed(codec=Tensor("int16"), merge="last", null="none")
    ] = None


OTHERS: dict[str, SampleBase] = {
    "json_only": JsonClass(note="n"),
    "arrays_only": ArrayClass(
        tokens=np.arange(3, dtype=np.int32),
        number=np.array(0.5, np.float32),
        grid=np.ones((2, 2), np.float32),
    ),
    "arrays_from_lists": ArrayClass(
        tokens=[1, 2],  # type: ignore[arg-type]  # any array-like is taken
        number=0.5,  # type: ignore[arg-type]  # any array-like is taken
        grid=[[1.0, 2.0]],  # type: ignore[arg-type]  # any array-like is taken
        loose=np.zeros(1, np.int16),
    ),
}


@pytest.mark.parametrize("sample", OTHERS.values(), ids=OTHERS.keys())
def test_other_classes_come_back_by_both_ways(sample: SampleBase) -> None:
    payload = bytes(encode_samples([sample]))
    read = plan_of(Schema.of(type(sample)), 1).direct_read
    assert read is not None
    assert read(memoryview(payload), MAX_JSON_DEPTH, MAX_HEADER_BYTES) is not None
    ours = decode_samples(payload, sample).samples[0]
    general = decode_samples(Payload([payload]), sample).samples[0]
    assert same_value(vars(ours), vars(general))


def test_row_rule_code_says_what_the_rules_say() -> None:
    for tokens, response in itertools.product(range(1, 4), range(4)):
        names = {"tokens": tokens, "response": response}
        for rows, code in EXPECTED_ROWS_CODE.items():
            assert eval(code, {}, names) == expected_rows(
                rows, {"tokens": tokens, "response": response}
            )
        assert eval(RESPONSE_FITS_CODE, {}, names) == (response <= tokens)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([None, "a", 1, 2.5, True], True),
        ([{"a": 1}, {}], True),
        ([[1]], False),
        ([{"a": [1]}], False),
        ([{"a": {}}], False),
    ],
    ids=["scalars", "objects", "array", "array inside", "object inside"],
)
def test_what_is_flat_has_no_arrays_or_objects_inside(values: list[Any], expected: bool) -> None:
    assert are_flat(values) is expected
