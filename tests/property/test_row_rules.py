"""The row rules: encode, decode and validate agree with one statement of them, and so with one
another."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import layouts

from sample_wire import (
    EncodeError,
    FieldError,
    Sample,
    decode_samples,
    encode_samples,
    read_container,
    validate,
    write_container,
)
from sample_wire.codec import Layout

NARROWEST = {"int64": "uint8", "uint8": "uint8", "float64": "float32", "int32": "uint8"}
lengths = st.integers(0, 5)
flat = st.none() | lengths
cubes = st.none() | st.tuples(lengths, st.integers(0, 2), st.integers(0, 2))


@st.composite
def shapes_near_the_rules(draw: st.DrawFn) -> dict[str, Any]:
    """Sizes of every per-row field, each right half of the time."""
    num_tokens, num_response = draw(lengths), draw(st.integers(-1, 5))
    rows = max(num_tokens - 1, 0)
    right_flat = st.none() | st.just(max(num_response, 0))
    right_cube = st.none() | st.tuples(st.just(rows), st.integers(1, 2), st.integers(1, 2))
    return {
        "tokens": num_tokens,
        "response_length": num_response,
        "loss_mask": draw(right_flat | flat),
        "rollout_log_probs": draw(right_flat | flat),
        "rollout_routed_experts": draw(right_cube | cubes),
        "rollout_indexer_topk": draw(right_cube | cubes),
    }


def is_consistent(sizes: dict[str, Any]) -> bool:
    """SPEC section 5.3, said once more."""
    num_tokens, num_response = sizes["tokens"], sizes["response_length"]
    rows = max(num_tokens - 1, 0)
    cubes_fit = all(
        sizes[name] is None or (sizes[name][0] == rows and (rows == 0 or 0 not in sizes[name]))
        for name in ("rollout_routed_experts", "rollout_indexer_topk")
    )
    flat_fit = all(
        sizes[name] in (None, num_response) for name in ("loss_mask", "rollout_log_probs")
    )
    return 0 <= num_response <= num_tokens and flat_fit and cubes_fit


def arrays_of(sizes: dict[str, Any]) -> dict[str, Any]:
    dtypes = {
        "tokens": np.int64,
        "loss_mask": np.uint8,
        "rollout_log_probs": np.float64,
        "rollout_routed_experts": np.int32,
        "rollout_indexer_topk": np.int32,
    }
    return {
        name: None if sizes[name] is None else np.zeros(sizes[name], dtype)
        for name, dtype in dtypes.items()
    }


@given(sizes=shapes_near_the_rules(), layout=layouts)
def test_encode_and_validate_take_exactly_the_consistent_samples(
    sizes: dict[str, Any], layout: Layout
) -> None:
    sample = Sample(response_length=sizes["response_length"], **arrays_of(sizes))
    if is_consistent(sizes):
        validate(sample)
        encode_samples([sample], layout=layout)
    else:
        for refuse in (lambda: validate(sample), lambda: encode_samples([sample], layout=layout)):
            with pytest.raises(EncodeError) as caught:
                refuse()
            assert caught.value.field in sizes


@given(sizes=shapes_near_the_rules(), layout=layouts)
def test_decode_takes_exactly_the_consistent_payloads(
    sizes: dict[str, Any], layout: Layout
) -> None:
    arrays = arrays_of(sizes)
    blank = read_container(encode_samples([Sample()]))["_samples_meta"].tobytes()
    document = json.loads(blank)
    document["samples"][0]["response_length"] = max(sizes["response_length"], 0)
    document["samples"][0]["nulls"] = [name for name in arrays if arrays[name] is None]
    tensors = {f"{name}.0": array for name, array in arrays.items() if array is not None}
    if layout == "compact":
        dtypes = {name: array.dtype.name for name, array in tensors.items()}
        document |= {"format": 2, "dtypes": dtypes}
        tensors = {
            name: array.astype(NARROWEST[array.dtype.name]) for name, array in tensors.items()
        }
    text = json.dumps(document, separators=(",", ":")).encode()
    payload = bytes(write_container(tensors | {"_samples_meta": np.frombuffer(text, np.uint8)}))
    if is_consistent(sizes | {"response_length": max(sizes["response_length"], 0)}):
        assert len(decode_samples(payload, Sample()).samples) == 1
    else:
        with pytest.raises(FieldError) as caught:
            decode_samples(payload, Sample())
        assert caught.value.field in sizes
