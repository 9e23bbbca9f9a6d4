"""Small samples and helpers that the unit tests share."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pytest

from sample_wire import (
    DecodeError,
    EncodeError,
    Sample,
    Schema,
    decode_samples,
    encode_samples,
    read_container,
    write_container,
)
from sample_wire.codec import LAYOUTS, Layout

SampleT = TypeVar("SampleT")
both_layouts = pytest.mark.parametrize("layout", LAYOUTS)
META = "_samples_meta"


def routed(num_tokens: int, num_layers: int = 2, num_experts: int = 3) -> npt.NDArray[np.int32]:
    """routed_TLK of T-1 rows with value 100 * token + 10 * layer + expert."""
    token, layer, expert = np.indices((max(num_tokens - 1, 0), num_layers, num_experts))
    return np.asarray(100 * token + 10 * layer + expert, np.int32)


def make_sample(num_tokens: int = 5, num_response: int = 2, /, **fields: Any) -> Sample:
    """A sample with every array, consistent; named fields win."""
    values: dict[str, Any] = {
        "tokens": np.arange(num_tokens),
        "response": "text",
        "response_length": num_response,
        "loss_mask": np.ones(num_response, np.uint8),
        "rollout_log_probs": np.full(num_response, -0.5),
        "rollout_routed_experts": routed(num_tokens),
    }
    return Sample(**(values | fields))


def template_of(**fields: Any) -> Sample:
    """A template with some fields set, to values of whatever type."""
    return Sample(**fields)


def round_trip(
    sample: SampleT,
    template: SampleT | None = None,
    *,
    field_set: int = 1,
    schema: Schema | None = None,
    copy: bool = False,
    layout: Layout = "exact",
) -> SampleT:
    """The sample encoded, and decoded onto a template (a blank one of its class if None)."""
    payload = bytes(encode_samples([sample], field_set=field_set, schema=schema, layout=layout))
    blank = type(sample)() if template is None else template
    reply = decode_samples(payload, blank, field_set=field_set, schema=schema, copy=copy)
    (found,) = reply.samples
    return found


def refused(sample: object, **options: Any) -> EncodeError:
    """The error that encoding the sample raises."""
    with pytest.raises(EncodeError) as caught:
        encode_samples([sample], **options)
    return caught.value


def decode_refused(
    payload: object, error: type[DecodeError] = DecodeError, **options: Any
) -> DecodeError:
    """The error that decoding the payload onto a blank sample raises."""
    with pytest.raises(error) as caught:
        decode_samples(payload, Sample(), **options)
    return caught.value


def document_of(payload: object) -> str:
    """The JSON of a payload as text."""
    return read_container(payload)[META].tobytes().decode()


def with_document(payload: object, document: str | bytes) -> bytes:
    """The payload with other JSON in place of its own, all tensors kept."""
    text = document if isinstance(document, bytes) else document.encode()
    tensors = read_container(payload) | {META: np.frombuffer(text, np.uint8)}
    return bytes(write_container(tensors))
