"""The error tree: whose fault, the five facts of every error, and how errors travel."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import safetensors

import sample_wire
from sample_wire import (
    ContainerError,
    DecodeError,
    EncodeError,
    FieldError,
    LimitError,
    MetaError,
    Sample,
    SampleWireError,
    SchemaError,
    ServerError,
    SessionError,
    TemplateError,
    VersionError,
    decode_samples,
    encode_samples,
    read_container,
    write_container,
)

from ._samples import decode_refused, document_of, make_sample, refused, with_document

# The two that carry an HTTP status are made otherwise; they have tests of their own below.
OVER_HTTP = (ServerError, SessionError)
ERRORS = [
    error
    for name in sample_wire.__all__
    if name.endswith("Error") and (error := getattr(sample_wire, name)) not in OVER_HTTP
]
each_error = pytest.mark.parametrize("error", ERRORS, ids=lambda error: str(error.__name__))
MAX_TEXT_CHARS = 2000


@each_error
def test_every_error_is_a_sample_wire_error(error: type[SampleWireError]) -> None:
    assert issubclass(error, SampleWireError)


@pytest.mark.parametrize(
    ("error", "base"),
    [
        (SchemaError, TypeError),
        (EncodeError, ValueError),
        (DecodeError, ValueError),
        (TemplateError, ValueError),
        (ContainerError, DecodeError),
        (ContainerError, safetensors.SafetensorError),
        (MetaError, DecodeError),
        (FieldError, DecodeError),
        (VersionError, DecodeError),
        (LimitError, DecodeError),
    ],
)
def test_an_error_has_its_place_in_the_tree(error: type, base: type) -> None:
    assert issubclass(error, base)


def test_an_encode_error_is_no_decode_error() -> None:
    assert not issubclass(EncodeError, DecodeError)
    assert not issubclass(TemplateError, (DecodeError, EncodeError))


@each_error
def test_every_error_carries_its_facts(error: Any) -> None:
    facts = {"field": "f", "expected": "4", "got": "5"}
    made = error("text", **facts)
    assert {name: getattr(made, name) for name in facts} == facts
    assert str(made) == "text"
    assert made.sample_index is None


@each_error
def test_facts_that_are_not_given_are_none(error: type[SampleWireError]) -> None:
    made = error("text")
    assert (made.field, made.sample_index, made.expected, made.got) == (None, None, None, None)


@each_error
def test_every_error_hints_at_an_http_status(error: type[SampleWireError]) -> None:
    assert 400 <= error.http_status_hint <= 599


@pytest.mark.parametrize(
    ("error", "status"),
    [(EncodeError, 422), (FieldError, 422), (TemplateError, 422), (LimitError, 413)],
)
def test_a_status_hint_tells_the_kind_of_fault(error: type[SampleWireError], status: int) -> None:
    assert error("text").http_status_hint == status


@each_error
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_every_error_pickles_with_its_facts(error: Any, protocol: int) -> None:
    made = error("text", field="f", expected="4", got="5")
    for again in (pickle.loads(pickle.dumps(made, protocol)), copy.deepcopy(made)):
        assert type(again) is error
        assert str(again) == str(made)
        assert vars(again) == vars(made)


@each_error
def test_a_long_message_is_cut(error: type[SampleWireError]) -> None:
    assert len(str(error("x" * 10_000))) == MAX_TEXT_CHARS


def test_an_encode_error_names_sample_field_position_and_value() -> None:
    with pytest.raises(EncodeError) as caught:
        encode_samples([make_sample(), make_sample(loss_mask=[0, 256])])
    error = caught.value
    assert (error.sample_index, error.field) == (1, "loss_mask")
    assert (error.expected, error.got) == ("uint8", "256")
    assert str(error) == (
        "sample 1, field loss_mask holds 256 at position 1, which uint8 cannot carry unchanged"
    )


def test_a_decode_error_names_sample_field_and_both_numbers() -> None:
    payload = encode_samples([make_sample(), make_sample()])
    tensors = read_container(payload) | {"loss_mask.1": np.zeros(3, np.uint8)}
    error = decode_refused(bytes(write_container(tensors)), FieldError)
    assert (error.sample_index, error.field) == (1, "loss_mask")
    assert (error.expected, error.got) == ("2", "3")


def test_a_wrong_dtype_in_a_payload_is_named() -> None:
    tensors = read_container(encode_samples([make_sample()]))
    payload = bytes(write_container(tensors | {"loss_mask.0": np.zeros(2, np.int8)}))
    error = decode_refused(payload, FieldError)
    assert (error.field, error.expected, error.got) == ("loss_mask", "U8 of rank 1", "I8 of rank 1")


def test_a_wrong_rank_in_a_payload_is_named() -> None:
    tensors = read_container(encode_samples([make_sample()]))
    payload = bytes(write_container(tensors | {"loss_mask.0": np.zeros((2, 1), np.uint8)}))
    error = decode_refused(payload, FieldError)
    assert (error.field, error.expected, error.got) == ("loss_mask", "U8 of rank 1", "U8 of rank 2")


def test_a_missing_tensor_is_named() -> None:
    tensors = read_container(encode_samples([make_sample()]))
    del tensors["loss_mask.0"]
    error = decode_refused(bytes(write_container(tensors)), FieldError)
    assert (error.sample_index, error.field) == (0, "loss_mask")


def test_a_superfluous_tensor_is_refused_with_both_counts() -> None:
    tensors = read_container(encode_samples([make_sample()]))
    payload = bytes(write_container(tensors | {"loss_mask.1": np.zeros(2, np.uint8)}))
    error = decode_refused(payload, FieldError)
    assert (error.expected, error.got) == ("5 tensors", "6 tensors")


def test_a_missing_json_field_is_named() -> None:
    payload = encode_samples([make_sample(), make_sample()])
    head, _, tail = document_of(payload).rpartition('"status":"pending",')
    error = decode_refused(with_document(payload, head + tail), FieldError)
    assert (error.sample_index, error.field) == (1, "status")


SECRET = "SECRET"
CONTENT: list[tuple[str, str]] = [
    ('"status":"pending"', f'"status":"{SECRET}"'),
    ('"status":"pending"', f'"status":{{"{SECRET}":1}}'),
    ('"response_length":2', f'"response_length":"{SECRET}"'),
    ('"weight_versions":[]', f'"weight_versions":{{"{SECRET}":["{SECRET}"]}}'),
    ('"cached_tokens":0', f'"cached_tokens":"{SECRET}"'),
    ('"cached_tokens":0', f'"cached_tokens":0,"{SECRET}":0,"{SECRET}":0'),
    ('"metadata":{}', f'"metadata":"{SECRET}"'),
    ('"metadata":{}', f'"metadata":{{"{SECRET}":1,"{SECRET}":2}}'),
    ('"metadata":{}', f'"metadata":{{"{SECRET}":1e400}}'),
    ('"metadata":{}', f'"metadata":{{"{SECRET}":NaN}}'),
    ('"session_metadata":{}', f'"session_metadata":["{SECRET}"]'),
    ('"empty_reason":null', f'"empty_reason":["{SECRET}"]'),
    ('"nulls":[', f'"nulls":["{SECRET}",'),
    ('"samples":[', f'"samples":["{SECRET}",'),
    ('{"samples"', f'{{"format":"{SECRET}","samples"'),
]


@pytest.mark.parametrize(("old", "new"), CONTENT, ids=[new for _, new in CONTENT])
def test_a_decode_error_never_carries_payload_content(old: str, new: str) -> None:
    payload = encode_samples([make_sample()])
    document = document_of(payload)
    assert old in document
    error = decode_refused(with_document(payload, document.replace(old, new)))
    assert SECRET not in f"{error} {vars(error)}"


def test_a_container_error_never_carries_payload_content() -> None:
    payload = bytes(write_container({SECRET: np.zeros(4, np.uint8)}))
    with pytest.raises(ContainerError) as caught:
        read_container(payload.replace(b"[4]", b"[5]"))
    assert SECRET not in f"{caught.value} {vars(caught.value)}"


def test_a_message_about_a_long_key_is_cut() -> None:
    error = refused(Sample(metadata={"k" * 5000: {1}}))
    assert len(str(error)) == MAX_TEXT_CHARS
    assert str(error).startswith("sample 0, field metadata.kkk")


@pytest.mark.parametrize(
    "buffer",
    [None, 5, "text", ["b"], object(), np.zeros((4, 4))[:, 1]],
    ids=lambda b: type(b).__name__,
)
def test_what_is_no_contiguous_buffer_is_a_type_error(buffer: object) -> None:
    with pytest.raises(TypeError):
        decode_samples(buffer, Sample())
    with pytest.raises(TypeError):
        read_container(buffer)


def test_a_sample_of_another_class_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="sample 1 is a int, not a Sample"):
        encode_samples([Sample(), 5])
    with pytest.raises(TypeError, match="int declares no schema"):
        encode_samples([5])


def test_a_template_of_another_class_is_a_type_error() -> None:
    payload = bytes(encode_samples([]))
    with pytest.raises(TypeError, match="int declares no schema"):
        decode_samples(payload, 5)
    with pytest.raises(TypeError, match="the template is a int, not a Sample"):
        decode_samples(payload, 5, schema=Sample.__sample_schema__)


def test_a_session_error_keeps_status_and_code_when_pickled() -> None:
    error = SessionError("too deep", code="rollback_too_deep", http_status=400)
    copied = pickle.loads(pickle.dumps(error))
    assert isinstance(copied, SessionError)
    assert (str(copied), copied.code, copied.http_status_hint) == (
        "too deep",
        "rollback_too_deep",
        400,
    )


def test_an_assembly_error_keeps_its_turn_when_pickled() -> None:
    error = sample_wire.AssemblyError("no ids", turn=3, field="input_ids")
    copied = pickle.loads(pickle.dumps(error))
    assert (str(copied), copied.turn, copied.field) == ("turn 3: no ids", 3, "input_ids")
