"""Encoding, ours and the peers'.  Plain tests unless run with --benchmark-enable."""

from __future__ import annotations

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks._data import FORMS, Form, ShapeName, accumulated_ids, sample_of
from benchmarks._peers import FORMATS, OURS, REQUIRES, format_of, is_same, num_bytes, received

SHAPES = ["S", "M", pytest.param("P", marks=pytest.mark.heavy)]


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", SHAPES)
def test_encoded_sample_comes_back_equal(
    benchmark: BenchmarkFixture, shape: ShapeName, form: Form, name: str
) -> None:
    pytest.importorskip(REQUIRES.get(name, "msgspec"))
    sample, one = sample_of(shape, form), format_of(name)
    benchmark.group = f"encode {shape}, {form}"
    wire = benchmark(one.encode, sample, {})
    wire = received(wire)
    benchmark.extra_info["wire_bytes"] = num_bytes(wire)
    assert is_same(one.record(one.decode(wire)), sample, {})


@pytest.mark.heavy
@pytest.mark.parametrize("name", [OURS[0], "safetensors.numpy"])
def test_encoded_accumulated_ids_come_back_equal(benchmark: BenchmarkFixture, name: str) -> None:
    sample, ids, one = sample_of("P", "arrays"), accumulated_ids("P"), format_of(name)
    benchmark.group = "encode P, arrays, 103,000 accumulated ids"
    wire = received(benchmark(one.encode, sample, ids))
    assert is_same(one.record(one.decode(wire)), sample, ids)
