"""Views keep the payload alive; a detached field does not."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
from strategies import same_value

from sample_wire import Sample, decode_samples, detach, encode_samples

from ._samples import make_sample
from ._typed import Typed

ARRAYS = ("tokens", "loss_mask", "rollout_log_probs", "rollout_routed_experts")


def payload_array(sample: Sample) -> Any:
    """A payload in a buffer that a weak reference can follow."""
    return np.frombuffer(bytes(encode_samples([sample])), np.uint8).copy()


def is_alive(reference: weakref.ref[Any]) -> bool:
    gc.collect()
    return reference() is not None


@pytest.mark.parametrize("name", ARRAYS)
def test_a_view_keeps_the_payload_alive_and_its_detached_copy_does_not(name: str) -> None:
    buffer = payload_array(make_sample())
    alive = weakref.ref(buffer)
    (found,) = decode_samples(buffer, Sample()).samples
    for other in ARRAYS:
        if other != name:
            setattr(found, other, None)
    del buffer
    assert is_alive(alive)
    detach(found, name)
    assert not is_alive(alive)


@pytest.mark.parametrize("name", ARRAYS)
def test_a_detached_array_is_equal_and_writable(name: str) -> None:
    buffer = payload_array(make_sample())
    (found,) = decode_samples(buffer, Sample()).samples
    before = getattr(found, name)
    detach(found, name)
    after = getattr(found, name)
    assert same_value(after, before)
    assert after.flags.writeable
    assert not np.shares_memory(after, buffer)


def test_other_fields_stay_views() -> None:
    buffer = payload_array(make_sample())
    (found,) = decode_samples(buffer, Sample()).samples
    detach(found, "loss_mask")
    assert np.shares_memory(found.tokens, buffer)


def test_decoding_with_copy_keeps_no_part_of_the_payload() -> None:
    buffer = payload_array(make_sample())
    alive = weakref.ref(buffer)
    found = decode_samples(buffer, Sample(), copy=True).samples
    del buffer
    assert not is_alive(alive)
    assert len(found) == 1


def test_nulls_texts_and_lists_stay_as_they_are() -> None:
    sample = make_sample(loss_mask=None, weight_versions=["1"])
    detach(sample, "loss_mask", "response", "weight_versions")
    assert sample.loss_mask is None
    assert (sample.response, sample.weight_versions) == ("text", ["1"])


def test_rows_of_a_ragged_field_are_detached() -> None:
    buffer = payload_array(Typed(tokens=np.arange(2), runs=[[1, 2], []]))
    (found,) = decode_samples(buffer, Typed()).samples
    assert np.shares_memory(found.runs[0], buffer)
    detach(found, "runs")
    assert [row.tolist() for row in found.runs] == [[1, 2], []]
    assert all(row.flags.writeable and row.base is None for row in found.runs)


def test_an_unknown_field_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError):
        detach(Sample(), "nope")
