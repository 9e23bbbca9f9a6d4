"""The types that a user sees.  mypy checks every assert_type; running it checks the values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, assert_type

import msgspec
import numpy as np
import numpy.typing as npt

from sample_wire import (
    Computed,
    Json,
    Payload,
    PrefixCacheInfo,
    Sample,
    SamplesReply,
    Schema,
    SpecInfo,
    Status,
    Template,
    Tensor,
    decode_samples,
    encode_samples,
    read_container,
    read_fields,
    write_container,
)


class Sub(Sample):
    """A user's subclass."""

    values: Annotated[
        npt.NDArray[np.float32] | None,
        Computed(codec=Tensor("float32"), rows="response", merge="concat", fill=0.0, null="none"),
    ] = None
    note: Annotated[str, Template()] = ""


@dataclass
class Foreign:
    """A user's own class."""

    tokens: list[int] = field(default_factory=list)
    count: int = 0


class ForeignStruct(msgspec.Struct):
    """A user's own Struct."""

    tokens: list[int] = []


TOKENS = Computed(codec=Tensor("int64"), rows="tokens", sets="tokens", merge="last")


def test_encode_gives_a_payload() -> None:
    payload = encode_samples([Sub(), Sub()])
    assert_type(payload, Payload)
    assert_type(payload.nbytes, int)
    assert_type(payload.contiguous(), memoryview)
    assert_type(bytes(payload), bytes)
    for view in payload:
        assert_type(view, memoryview)
    assert isinstance(payload, Payload)


def test_decode_gives_samples_of_the_templates_class() -> None:
    reply = decode_samples(bytes(encode_samples([Sample()])), Sample())
    assert_type(reply, SamplesReply[Sample])
    assert_type(reply.samples, list[Sample])
    assert_type(reply.session_metadata, dict[str, Any])
    assert_type(reply.empty_reason, str | None)
    assert isinstance(reply, SamplesReply)


def test_decode_onto_a_subclass_gives_samples_of_the_subclass() -> None:
    reply = decode_samples(encode_samples([Sub(note="x")]), Sub(note="y"))
    assert_type(reply, SamplesReply[Sub])
    (found,) = reply.samples
    assert_type(found, Sub)
    assert_type(found.values, npt.NDArray[np.float32] | None)
    assert_type(found.note, str)
    assert type(found) is Sub


def test_decode_onto_a_foreign_class_gives_samples_of_it() -> None:
    schema = Schema.of(Foreign, {"tokens": TOKENS, "count": Computed(codec=Json(), merge="sum")})
    payload = encode_samples([Foreign([1])], schema=schema)
    reply = decode_samples(payload, Foreign(), schema=schema)
    assert_type(reply, SamplesReply[Foreign])
    assert_type(reply.samples[0].tokens, list[int])
    struct_schema = Schema.of(ForeignStruct, {"tokens": TOKENS})
    struct_reply = decode_samples(
        encode_samples([ForeignStruct([2])], schema=struct_schema),
        ForeignStruct(),
        schema=struct_schema,
    )
    assert_type(struct_reply, SamplesReply[ForeignStruct])
    assert (reply.samples, struct_reply.samples) == ([Foreign([1])], [ForeignStruct([2])])


def test_the_fields_of_a_sample_are_typed() -> None:
    sample = Sample(tokens=np.arange(3))
    assert_type(sample.tokens, npt.NDArray[np.int64])
    assert_type(sample.response, str)
    assert_type(sample.response_length, int)
    assert_type(sample.loss_mask, npt.NDArray[np.uint8] | None)
    assert_type(sample.rollout_log_probs, npt.NDArray[np.float64] | None)
    assert_type(sample.rollout_routed_experts, npt.NDArray[np.int32] | None)
    assert_type(sample.rollout_indexer_topk, npt.NDArray[np.int32] | None)
    assert_type(sample.status, Status)
    assert_type(sample.weight_versions, list[str])
    assert_type(sample.prefix_cache_info, PrefixCacheInfo)
    assert_type(sample.metadata, dict[str, Any])
    assert_type(sample.spec_info, SpecInfo)
    assert_type(sample.prefix_cache_info.cached_tokens, int)
    assert sample.tokens.dtype == np.int64


def test_containers_are_typed() -> None:
    payload = write_container({"a": np.zeros(2, np.float32)}, {"key": "text"})
    assert_type(payload, Payload)
    tensors = read_container(payload)
    assert_type(tensors, dict[str, np.ndarray[Any, np.dtype[Any]]])
    assert {*tensors} == {"a"}


def test_fields_and_schemas_are_typed() -> None:
    schema = Schema.of(Sub)
    assert_type(schema, Schema)
    assert_type(schema.fingerprint(), str)
    found = read_fields(encode_samples([Sub()]), ["tokens"], schema=schema)
    assert_type(found, list[dict[str, Any]])
    assert len(found) == 1
