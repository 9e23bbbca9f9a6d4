"""Payload sizes: the same on every machine, so these are asserted."""

from __future__ import annotations

from functools import cache

import pytest

from benchmarks._data import ShapeName, sample_of
from benchmarks._peers import FORMATS, OURS, REQUIRES, arrays_of, format_of, num_bytes, received
from sample_wire import encode_samples

# Header, and the JSON but for the response: keys, 50 weight versions, counters, metadata.
MAX_OVERHEAD_BYTES = 2048
SHAPES = ["S", "M", pytest.param("P", marks=pytest.mark.heavy)]


@cache
def wire_bytes(name: str, shape: ShapeName) -> int:
    return num_bytes(received(format_of(name).encode(sample_of(shape, "arrays"), {})))


@pytest.mark.parametrize("shape", SHAPES)
def test_payload_is_tensors_and_text_and_at_most_two_kib(shape: ShapeName) -> None:
    sample = sample_of(shape, "arrays")
    content = sum(array.nbytes for array in arrays_of(sample).values())
    escapes = sum(map(sample.response.count, '"\n'))
    content += len(sample.response) + escapes
    assert content < encode_samples([sample]).nbytes <= content + MAX_OVERHEAD_BYTES


@pytest.mark.parametrize("shape", SHAPES)
def test_lists_make_the_same_payload_as_arrays(shape: ShapeName) -> None:
    arrays, lists = sample_of(shape, "arrays"), sample_of(shape, "lists")
    assert bytes(encode_samples([lists])) == bytes(encode_samples([arrays]))


@pytest.mark.parametrize("name", [name for name in FORMATS if name not in OURS])
@pytest.mark.parametrize("shape", SHAPES)
def test_payload_is_at_most_a_twentieth_larger_than_a_peers(shape: ShapeName, name: str) -> None:
    pytest.importorskip(REQUIRES.get(name, "msgspec"))
    assert wire_bytes(OURS[0], shape) <= 1.05 * wire_bytes(name, shape)


@pytest.mark.parametrize("shape", SHAPES)
def test_base64_is_a_fifth_larger_or_more(shape: ShapeName) -> None:
    pytest.importorskip("orjson")
    assert wire_bytes("orjson + base64", shape) >= 1.2 * wire_bytes(OURS[0], shape)
