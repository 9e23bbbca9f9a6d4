"""What is encoded comes back equal bit for bit, and our own payloads are written again equal."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import json_objects, layouts, same_sample, same_value, samples, texts

from sample_wire import Sample, decode_samples, encode_samples
from sample_wire.codec import Layout

from ._classes import (
    FOREIGN,
    ForeignSample,
    ForeignStruct,
    FrozenSample,
    WiderSample,
    blank,
    foreign_samples,
    wider_samples,
)

# The first test searches; the others see to it that nothing depends on the class.
fewer = settings(max_examples=max(settings().max_examples // 2, 1))
# The session's metadata is the second level of a document that may have 128.
session_metadata = json_objects(max_levels=127)
foreign_kinds = pytest.mark.parametrize(
    "kind", [ForeignSample, ForeignStruct, FrozenSample], ids=lambda kind: str(kind.__name__)
)


def assert_same(found: list[Any], given_samples: list[Any]) -> None:
    assert len(found) == len(given_samples)
    assert all(map(same_sample, given_samples, found))


@pytest.mark.parametrize("field_set", [1, 2])
@given(data=st.data())
def test_a_decoded_sample_equals_the_encoded_one(field_set: int, data: st.DataObject) -> None:
    given_samples, layout = data.draw(st.lists(samples(field_set), max_size=5)), data.draw(layouts)
    payload = bytes(encode_samples(given_samples, field_set=field_set, layout=layout))
    reply = decode_samples(payload, Sample(), field_set=field_set)
    assert_same(reply.samples, given_samples)


@fewer
@given(given_samples=st.lists(wider_samples(), max_size=5), layout=layouts)
def test_a_decoded_sample_of_a_subclass_equals_the_encoded_one(
    given_samples: list[WiderSample], layout: Layout
) -> None:
    payload = bytes(encode_samples(given_samples, layout=layout))
    assert_same(decode_samples(payload, WiderSample()).samples, given_samples)


@foreign_kinds
@fewer
@given(data=st.data())
def test_a_decoded_sample_of_a_foreign_class_equals_the_encoded_one(
    kind: type, data: st.DataObject
) -> None:
    given_samples, layout = (
        data.draw(st.lists(foreign_samples(kind), max_size=5)),
        data.draw(layouts),
    )
    payload = bytes(encode_samples(given_samples, schema=FOREIGN[kind], layout=layout))
    found = decode_samples(payload, blank(kind), schema=FOREIGN[kind]).samples
    assert len(found) == len(given_samples)
    for left, right in zip(found, given_samples, strict=True):
        assert same_sample(left, right, FOREIGN[kind])


@given(metadata=session_metadata, reason=st.none() | texts, layout=layouts)
def test_session_metadata_and_empty_reason_come_back_equal(
    metadata: dict[str, Any], reason: str | None, layout: Layout
) -> None:
    payload = bytes(encode_samples([], metadata, empty_reason=reason, layout=layout))
    reply = decode_samples(payload, Sample())
    assert same_value(reply.session_metadata, metadata)
    assert (reply.samples, reply.empty_reason) == ([], reason)


@pytest.mark.parametrize("field_set", [1, 2])
@fewer
@given(data=st.data())
def test_a_decoded_payload_is_encoded_again_byte_for_byte(
    field_set: int, data: st.DataObject
) -> None:
    given_samples = data.draw(st.lists(samples(field_set), max_size=5))
    metadata, reason = data.draw(session_metadata), data.draw(st.none() | texts)
    how: dict[str, Any] = {"field_set": field_set, "layout": data.draw(layouts)}
    payload = bytes(encode_samples(given_samples, metadata, empty_reason=reason, **how))
    reply = decode_samples(payload, Sample(), field_set=field_set)
    again = encode_samples(
        reply.samples, reply.session_metadata, empty_reason=reply.empty_reason, **how
    )
    assert bytes(again) == payload


@fewer
@given(given_samples=st.lists(wider_samples(), min_size=1, max_size=3), layout=layouts)
def test_a_payload_of_a_subclass_is_encoded_again_byte_for_byte(
    given_samples: list[WiderSample], layout: Layout
) -> None:
    payload = bytes(encode_samples(given_samples, layout=layout))
    again = encode_samples(decode_samples(payload, WiderSample()).samples, layout=layout)
    assert bytes(again) == payload


@foreign_kinds
@fewer
@given(data=st.data())
def test_a_payload_of_a_foreign_class_is_encoded_again_byte_for_byte(
    kind: type, data: st.DataObject
) -> None:
    schema, layout = FOREIGN[kind], data.draw(layouts)
    payload = bytes(
        encode_samples([data.draw(foreign_samples(kind))], schema=schema, layout=layout)
    )
    reply = decode_samples(payload, blank(kind), schema=schema)
    assert bytes(encode_samples(reply.samples, schema=schema, layout=layout)) == payload


@fewer
@given(given_samples=st.lists(samples(), max_size=2), layout=layouts)
def test_copies_equal_the_views(given_samples: list[Sample], layout: Layout) -> None:
    payload = bytes(encode_samples(given_samples, layout=layout))
    copies = decode_samples(payload, Sample(), copy=True).samples
    assert_same(copies, decode_samples(payload, Sample()).samples)


@fewer
@given(sample=samples(), layout=layouts)
def test_array_inputs_and_list_inputs_are_encoded_alike(sample: Sample, layout: Layout) -> None:
    as_lists = Sample(**vars(sample))
    for name in ("tokens", "loss_mask", "rollout_log_probs"):
        value = getattr(sample, name)
        setattr(as_lists, name, None if value is None else value.tolist())
    written = [bytes(encode_samples([one], layout=layout)) for one in (as_lists, sample)]
    assert written[0] == written[1]
