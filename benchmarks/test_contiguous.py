"""One buffer of P, in time and memory.  Plain tests unless run with --benchmark-enable."""

from __future__ import annotations

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks._data import sample_of
from benchmarks._memory import has_resident_peak, resident_peak, traced_peak
from benchmarks._peers import OURS
from sample_wire import encode_samples

pytestmark = pytest.mark.heavy
GROUP = "encode P to one buffer"
MAX_PEAK = 1.05


def test_contiguous_joins_the_buffers(benchmark: BenchmarkFixture) -> None:
    sample = sample_of("P", "arrays")
    benchmark.group = GROUP
    whole = benchmark(lambda: encode_samples([sample]).contiguous())
    assert whole == b"".join(encode_samples([sample]))


def test_bytes_of_a_memoryview_is_the_baseline(benchmark: BenchmarkFixture) -> None:
    whole = encode_samples([sample_of("P", "arrays")]).contiguous()
    benchmark.group = GROUP
    assert benchmark(bytes, whole) == whole


def test_joining_allocates_one_payload() -> None:
    assert traced_peak(sample_of("P", "arrays")) <= MAX_PEAK


@pytest.mark.skipif(not has_resident_peak(), reason="only Linux can reset the peak resident set")
def test_joining_grows_the_resident_set_by_one_payload() -> None:
    assert resident_peak(OURS[1]) <= MAX_PEAK
