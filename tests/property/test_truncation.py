"""No part of a payload is a payload: every prefix is refused, and so is one byte more."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import json_objects, layouts, samples

from sample_wire import (
    DecodeError,
    Payload,
    Sample,
    decode_samples,
    encode_samples,
    read_container,
    read_fields,
)
from sample_wire.codec import Layout


def encoded(given_samples: list[Sample], metadata: dict[str, Any], layout: Layout) -> bytes:
    return bytes(encode_samples(given_samples, metadata, layout=layout))


# Every prefix of a payload is an example of its own, so few payloads are many examples.
few = settings(max_examples=max(settings().max_examples // 5, 1))
small_payloads = st.builds(
    encoded, st.lists(samples(), max_size=1), json_objects(max_levels=8), layouts
).filter(lambda payload: len(payload) < 8192)


@few
@given(payload=small_payloads)
def test_every_prefix_is_refused_by_decode_samples(payload: bytes) -> None:
    template = Sample()
    for length in range(len(payload)):
        with pytest.raises(DecodeError):
            decode_samples(payload[:length], template)


@few
@given(payload=small_payloads)
def test_every_prefix_is_refused_by_read_fields_and_read_container(payload: bytes) -> None:
    view = memoryview(payload)
    for length in range(0, len(payload), 7):
        with pytest.raises(DecodeError):
            read_fields(view[:length], ["tokens"])
        with pytest.raises(DecodeError):
            read_container(view[:length])


@given(payload=small_payloads, extra=st.binary(min_size=1, max_size=9))
def test_bytes_after_the_payload_are_refused(payload: bytes, extra: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_samples(payload + extra, Sample())


@given(sample=samples(), layout=layouts, data=st.data())
def test_an_unjoined_payload_that_lacks_a_buffer_is_refused(
    sample: Sample, layout: Layout, data: st.DataObject
) -> None:
    buffers = [view for view in encode_samples([sample], layout=layout) if len(view)]
    del buffers[data.draw(st.integers(0, len(buffers) - 1))]
    with pytest.raises(DecodeError):
        decode_samples(Payload(buffers), Sample())
