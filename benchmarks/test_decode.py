"""Decoding, ours and the peers'.  Plain tests unless run with --benchmark-enable."""

from __future__ import annotations

import pytest
import safetensors.numpy
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks._data import ShapeName, accumulated_ids, plain_text, sample_of, template
from benchmarks._peers import (
    FORMATS,
    OURS,
    REQUIRES,
    Array,
    arrays_of,
    format_of,
    is_same,
    received,
)
from sample_wire import Sample, SamplesReply, decode_samples, encode_samples

SHAPES = ["S", "M", pytest.param("P", marks=pytest.mark.heavy)]


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("shape", SHAPES)
def test_decoded_sample_is_equal(benchmark: BenchmarkFixture, shape: ShapeName, name: str) -> None:
    pytest.importorskip(REQUIRES.get(name, "msgspec"))
    sample, one = sample_of(shape, "arrays"), format_of(name)
    wire = received(one.encode(sample, {}))
    benchmark.group = f"decode {shape}"
    decoded = benchmark(one.decode, wire)
    assert is_same(one.record(decoded), sample, {})


@pytest.mark.heavy
@pytest.mark.parametrize("name", [OURS[0], "safetensors.numpy"])
def test_decoded_accumulated_ids_are_equal(benchmark: BenchmarkFixture, name: str) -> None:
    sample, ids, one = sample_of("P", "arrays"), accumulated_ids("P"), format_of(name)
    wire = received(one.encode(sample, ids))
    benchmark.group = "decode P, 103,000 accumulated ids"
    decoded = benchmark(one.decode, wire)
    assert is_same(one.record(decoded), sample, ids)


@pytest.mark.heavy
def test_decoding_plain_text_gives_views(benchmark: BenchmarkFixture) -> None:
    sample = plain_text(sample_of("P", "arrays"))
    wire = bytes(encode_samples([sample]))
    benchmark.group = "decode P, the same bytes"
    reply: SamplesReply[Sample] = benchmark(decode_samples, wire, template())
    assert not any(array.flags.owndata for array in arrays_of(reply.samples[0]).values())


@pytest.mark.heavy
def test_safetensors_load_gives_the_same_arrays(benchmark: BenchmarkFixture) -> None:
    sample = plain_text(sample_of("P", "arrays"))
    wire = bytes(encode_samples([sample]))
    benchmark.group = "decode P, the same bytes"
    tensors: dict[str, Array] = benchmark(safetensors.numpy.load, wire)
    assert all((tensors[f"{name}.0"] == array).all() for name, array in arrays_of(sample).items())
