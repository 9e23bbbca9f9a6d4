"""The compact layout's sizes, which are the same on every machine, and its table."""

from __future__ import annotations

import math

import pytest

from benchmarks._figures import TARGETS
from benchmarks._layouts import (
    COMPACT,
    COMPACT_ZSTD,
    EXACT,
    EXACT_ZSTD,
    SOURCES,
    WAYS,
    LayoutTable,
    source_of,
    wire_of,
)
from benchmarks._tables import layouts_table
from benchmarks._timing import Timing

CAPTURES = [name for name in SOURCES if name != "P"]


@pytest.mark.parametrize(
    ("name", "target"),
    [
        pytest.param("P", "compact P", marks=pytest.mark.heavy),
        ("SGLang, 128 experts", "compact 128"),
        ("vLLM, 128 experts", "compact 128"),
        ("vLLM, 512 experts", "compact 512"),
    ],
)
def test_compact_payload_keeps_its_bound(name: str, target: str) -> None:
    sizes = {way: len(wire_of(source_of(name), way)) for way in (EXACT, COMPACT)}
    assert TARGETS[target].is_met(sizes[COMPACT] / sizes[EXACT])


@pytest.mark.parametrize("name", CAPTURES)
def test_a_compressor_finds_no_more_in_narrow_ids_than_bits_that_are_never_set(name: str) -> None:
    pytest.importorskip("zstandard")
    source = source_of(name)
    width = 8 if source.num_experts <= 256 else 16
    packed = len(wire_of(source, COMPACT_ZSTD)) / len(wire_of(source, COMPACT))
    assert packed > 0.98 * math.log2(source.num_experts) / width


def test_table_gives_each_way_with_its_share() -> None:
    timing = Timing(0.002, 0.001)
    ways = (EXACT, COMPACT, EXACT_ZSTD)
    sizes = {EXACT: 400, COMPACT: 100, EXACT_ZSTD: 90}
    table = LayoutTable(
        {way: dict.fromkeys(SOURCES, sizes[way]) for way in ways},
        dict.fromkeys(ways, timing),
        dict.fromkeys(ways, timing),
    )
    lines = layouts_table(table).splitlines()
    assert len(lines) == 2 + len(WAYS)
    assert "| compact | 100 (0.2500) |" in lines[3]
    assert lines[3].endswith("| 2.00 ms | 2.00 ms |")
    assert lines[5].startswith("| compact, then zstd-1 | not installed |")
