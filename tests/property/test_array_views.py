"""Any view of an array is written by value, and nothing else of its memory is written.

safetensors 0.8.0's numpy writer reads such arrays as if they were contiguous; this is the test
of the guard against it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import SENTINEL, VIEWS, Array, layouts

from sample_wire import (
    Sample,
    decode_samples,
    encode_samples,
    read_container,
    write_container,
)
from sample_wire.codec import Layout

from ._classes import WiderSample

views = pytest.mark.parametrize("view", VIEWS)
DTYPES = ("u8", "i8", "f8", "c8", "f4", "u4", "i4", "f2", "u2", "i2", "i1", "u1", "?")
shapes = st.lists(st.integers(1, 4), min_size=1, max_size=3)


def counting(shape: tuple[int, ...], dtype: Any) -> Array:
    """Values 1, 2, 3...: none of their bytes is SENTINEL in any dtype."""
    size = int(np.prod(shape))
    numbers = np.arange(1, size + 1)
    return numbers.reshape(shape).astype(dtype)


def assert_written_by_value(payload: bytes, found: Array, view: Array) -> None:
    assert found.dtype.isnative
    assert found.dtype == view.dtype.newbyteorder("=")
    assert found.shape == view.shape
    assert (found == view).all()
    assert SENTINEL not in payload


@views
@given(dtype=st.sampled_from(DTYPES), shape=shapes)
def test_a_container_holds_the_values_of_a_view_alone(
    view: str, dtype: str, shape: list[int]
) -> None:
    array = VIEWS[view](counting(tuple(shape), np.dtype(dtype)))
    payload = bytes(write_container({"a": array, "b": np.zeros(3, np.uint8)}))
    assert_written_by_value(payload, read_container(payload)["a"], array)


@views
@given(size=st.integers(1, 40), layout=layouts)
def test_a_sample_holds_the_values_of_flat_views_alone(
    view: str, size: int, layout: Layout
) -> None:
    make = VIEWS[view]
    sample = WiderSample(
        tokens=make(counting((size,), np.int64)),
        response_length=size,
        loss_mask=make(counting((size,), np.uint8)),
        rollout_log_probs=make(counting((size,), np.float64)),
        values=make(counting((size,), np.float32)),
    )
    payload = bytes(encode_samples([sample], layout=layout))
    found = decode_samples(payload, WiderSample()).samples[0]
    for name in ("tokens", "loss_mask", "rollout_log_probs", "values"):
        assert_written_by_value(payload, getattr(found, name), getattr(sample, name))


@views
@given(shape=st.tuples(st.integers(1, 5), st.integers(1, 4), st.integers(1, 4)), layout=layouts)
def test_a_sample_holds_the_values_of_routed_views_alone(
    view: str, shape: tuple[int, int, int], layout: Layout
) -> None:
    routed_TLK = VIEWS[view](counting(shape, np.int32))
    sample = Sample(
        tokens=np.arange(shape[0] + 1),
        rollout_routed_experts=routed_TLK,
        rollout_indexer_topk=routed_TLK,
    )
    payload = bytes(encode_samples([sample], layout=layout))
    found = decode_samples(payload, Sample()).samples[0]
    for array in (found.rollout_routed_experts, found.rollout_indexer_topk):
        assert array is not None
        assert_written_by_value(payload, array, routed_TLK)


@views
@given(shape=st.tuples(st.integers(1, 4), st.integers(1, 4)), layout=layouts)
def test_a_view_of_another_dtype_is_cast_by_value(
    view: str, shape: tuple[int, int], layout: Layout
) -> None:
    flat = VIEWS[view](counting(shape, np.int16))[:, 0]
    payload = bytes(encode_samples([Sample(tokens=flat)], layout=layout))
    found = decode_samples(payload, Sample()).samples[0].tokens
    assert found.tolist() == flat.tolist()
    assert SENTINEL not in payload


@pytest.mark.parametrize("view", ["strided", "reversed", "transposed", "sliced", "misaligned"])
def test_bits_of_a_view_of_floats_are_kept(view: str) -> None:
    bits = np.array([0x7FF0000000000001, 0xFFF8DEADBEEF0001, 1 << 63], np.uint64)
    array = VIEWS[view](bits.view(np.float64))
    found = read_container(bytes(write_container({"a": array})))["a"]
    assert found.view(np.uint64).tolist() == bits.tolist()


def test_a_contiguous_array_is_aliased_and_a_view_is_copied() -> None:
    array = np.arange(6, dtype=np.int64)
    tensors = {"a": array, "b": array[::-1]}
    written = [np.frombuffer(view, np.uint8) for view in write_container(tensors)]
    assert [np.shares_memory(buffer, array) for buffer in written] == [False, True, False]
