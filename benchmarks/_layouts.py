"""The compact layout beside the exact one and a general compressor: bytes and times in one run.

The captures are routed experts that real engines answered (tests/data/captures); P is seeded.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks._data import NUM_EXPERTS, sample_of, template
from benchmarks._figures import Result, Results, times_of
from benchmarks._timing import Call, Effort, Timing, compare
from sample_wire import Sample, Status, decode_samples, encode_samples

_CAPTURES: Final = Path(__file__).parents[1] / "tests" / "data" / "captures"
_ZSTD: Final = "zstandard"
_LEVEL: Final = 1


@dataclass(frozen=True, slots=True)
class Source:
    """A sample to send, and how many experts its model has."""

    sample: Sample
    num_experts: int


SOURCES: Final[dict[str, Callable[[], Source]]] = {
    "P": lambda: Source(sample_of("P", "arrays"), NUM_EXPERTS),
    "SGLang, 128 experts": lambda: _captured("r3_sglang_12L_128E_top8_int32", 128),
    "vLLM, 128 experts": lambda: _captured("r3_vllm_12L_128E_top8_uint8", 128),
    "vLLM, 512 experts": lambda: _captured("r3_vllm_25L_512E_top10_uint16", 512),
}
EXACT, COMPACT = "exact", "compact"
EXACT_ZSTD, COMPACT_ZSTD = "exact, then zstd-1", "compact, then zstd-1"
WAYS: Final = (EXACT, COMPACT, EXACT_ZSTD, COMPACT_ZSTD)


@dataclass(frozen=True, slots=True)
class LayoutTable:
    """Bytes of each way for each source, and the times of each way at P.

    Attributes:
        nbytes: by way and source.
        encode, decode: to one buffer, and from it to a Sample of the declared dtypes.
    """

    nbytes: dict[str, dict[str, int]]
    encode: dict[str, Timing]
    decode: dict[str, Timing]


def layouts(effort: Effort) -> Results:
    """The rows with bounds: sizes of the captures and of P, and what narrowing takes at P."""
    ratios = {name: _ratio(source_of(name)) for name in SOURCES}
    source = source_of("P")
    wires = {way: bytes(_encode(source, way)) for way in (EXACT, COMPACT)}
    trainers = template()
    times = compare(
        {
            "exact": lambda: _encode(source, EXACT),
            "compact": lambda: _encode(source, COMPACT),
            "widen": lambda: decode_samples(wires[COMPACT], trainers),
            "narrow": lambda: decode_samples(wires[COMPACT], trainers, widen=False),
            "views": lambda: decode_samples(wires[EXACT], trainers),
        },
        effort,
    )
    added = times["compact"].median_s - times["exact"].median_s
    exact = times["views"]
    return {
        "compact P": Result(ratios["P"]),
        "compact 128": Result(max(value for name, value in ratios.items() if "128" in name)),
        "compact 512": Result(ratios["vLLM, 512 experts"]),
        "narrow P": Result(added, peer=times_of(times["compact"], "exact", times["exact"])),
        "widen P": Result(
            times["widen"].median_s, times["widen"].min_s, "exact, views", exact.median_s
        ),
        "decode P narrow": Result(
            times["narrow"].median_s, times["narrow"].min_s, "exact, views", exact.median_s
        ),
    }


def measure_layouts(effort: Effort) -> LayoutTable:
    """The table of all ways that are installed.

    Raises:
        RuntimeError: a way does not give back what it was given.
    """
    ways = WAYS if _zstd() else WAYS[:2]
    for way in ways:
        for name in SOURCES:
            _check(source_of(name), way)
    nbytes = {way: {name: len(wire_of(source_of(name), way)) for name in SOURCES} for way in ways}
    source, trainers = source_of("P"), template()
    wires = {way: wire_of(source, way) for way in ways}
    calls: dict[tuple[str, str], Call] = {}
    for way in ways:
        calls["encode", way] = lambda way=way: wire_of(source, way)  # type: ignore[misc]  # way is bound
        calls["decode", way] = lambda way=way: _decode(wires[way], way, trainers)  # type: ignore[misc]  # way is bound
    times = compare(calls, effort)
    return LayoutTable(
        nbytes,
        {way: times["encode", way] for way in ways},
        {way: times["decode", way] for way in ways},
    )


@cache
def source_of(name: str) -> Source:
    """A source, made once; change nothing of it."""
    return SOURCES[name]()


def wire_of(source: Source, way: str) -> bytes | memoryview:
    """What is sent, as one buffer."""
    whole: memoryview = _encode(source, way).contiguous()
    zstd = _zstd()
    if way in (EXACT, COMPACT) or zstd is None:
        return whole
    return bytes(zstd.ZstdCompressor(level=_LEVEL).compress(whole))


def _encode(source: Source, way: str) -> Any:
    if way in (COMPACT, COMPACT_ZSTD):
        return encode_samples([source.sample], layout="compact", num_experts=source.num_experts)
    return encode_samples([source.sample])


def _decode(wire: bytes | memoryview, way: str, trainers: Sample) -> Sample:
    zstd = _zstd()
    if way not in (EXACT, COMPACT) and zstd is not None:
        wire = zstd.ZstdDecompressor().decompress(wire)
    return decode_samples(wire, trainers).samples[0]


def _check(source: Source, way: str) -> None:
    found = _decode(wire_of(source, way), way, template())
    for name in ("tokens", "loss_mask", "rollout_log_probs", "rollout_routed_experts"):
        left, right = np.asarray(getattr(source.sample, name)), np.asarray(getattr(found, name))
        if left.dtype != right.dtype or left.shape != right.shape or (left != right).any():
            raise RuntimeError(f"{way} does not give back {name}")


def _ratio(source: Source) -> float:
    return float(_encode(source, COMPACT).nbytes / _encode(source, EXACT).nbytes)


def _captured(name: str, num_experts: int) -> Source:
    """A capture as a sample: the ids, log-probs and routing that the engine gave."""
    with np.load(_CAPTURES / f"{name}.npz") as arrays:
        found: Mapping[str, Any] = dict(arrays)
    num_response = len(found["output_logprobs"])
    sample = Sample(
        tokens=found["token_ids"].astype(np.int64),
        response="",
        response_length=num_response,
        loss_mask=np.ones(num_response, np.uint8),
        rollout_log_probs=found["output_logprobs"].astype(np.float64),
        rollout_routed_experts=found["routed_experts"].astype(np.int32),
        status=Status.COMPLETED,
    )
    return Source(sample, num_experts)


def _zstd() -> Any:
    """The compressor's package, or None where it is not installed."""
    try:
        return importlib.import_module(_ZSTD)
    except ImportError:
        return None
