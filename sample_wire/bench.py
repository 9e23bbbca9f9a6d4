"""A quick benchmark of this machine: encode and decode beside two other ways, in one run.

It is for a first look.  The suite that the project's figures come from is in benchmarks/.

Shape letters: T tokens, R response tokens, L routed layers, K experts per token.
"""

from __future__ import annotations

import base64
import json
import platform
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import safetensors
import safetensors.numpy

import sample_wire

from ._report import text_table
from .codec import decode_samples, encode_samples
from .sample import Sample, Status

_SEED: Final = 0
_VOCABULARY: Final = 150_000
_MIN_RUNS: Final = 3
_MAX_RUNS: Final = 7
# A way's runs end after this, so that the slowest way at shape P stays a matter of seconds.
_MAX_TOTAL_S: Final = 0.5
# From here on one cold call in three runs moves no median.
_SLOW_S: Final = 0.1
# What runs faster is run in a loop that takes this long: one call would measure the clock.
_MIN_RUN_S: Final = 0.002

Tensors = dict[str, npt.NDArray[Any]]


class Shape(NamedTuple):
    """One size of sample: T, R, L and K, and how many experts a layer has."""

    num_tokens: int
    response_length: int
    num_layers: int
    top_k: int
    num_experts: int


SHAPES: Final = {
    "S": Shape(512, 307, 0, 0, 0),
    "M": Shape(8_192, 4_915, 25, 10, 256),
    "P": Shape(103_000, 61_800, 25, 10, 256),
}


class Way(NamedTuple):
    """One way to send a sample: `encode` makes what `decode` takes."""

    name: str
    encode: Callable[[], Any]
    decode: Callable[[Any], Any]


class _Figures(NamedTuple):
    nbytes: int
    encode_s: float
    encode_peak: int
    decode_s: float
    decode_peak: int


def bench_lines(names: list[str]) -> Iterator[str]:
    """The report, line by line while it is measured; names are keys of SHAPES."""
    yield (
        f"sample_wire {sample_wire.__version__}, numpy {np.__version__}, safetensors "
        f"{safetensors.__version__}, Python {platform.python_version()}, "
        f"{platform.system()} {platform.machine()}"
    )
    yield f"Seed {_SEED}, medians of {_MIN_RUNS} to {_MAX_RUNS} runs; a ratio is to the first row."
    yield "Peak is the new memory that Python and numpy ask for; that of Rust code is not seen."
    yield "safetensors moves the same tensors, without JSON, checks or a template."
    for name in names:
        shape = SHAPES[name]
        yield ""
        yield f"shape {name}: {_described(shape)}"
        yield from _table(ways(make_sample(shape)))


def make_sample(shape: Shape) -> Sample:
    """A sample of random values, the same on every call."""
    random = np.random.default_rng(_SEED)
    num_tokens, response_length, num_layers, top_k, num_experts = shape
    routed_TLK = None
    if num_layers:
        routed_TLK = random.integers(
            0, num_experts, (num_tokens - 1, num_layers, top_k), dtype=np.int32
        )
    return Sample(
        tokens=random.integers(0, _VOCABULARY, num_tokens),
        response="text" * response_length,
        response_length=response_length,
        loss_mask=random.integers(0, 2, response_length, dtype=np.uint8),
        rollout_log_probs=-random.random(response_length),
        rollout_routed_experts=routed_TLK,
        status=Status.COMPLETED,
        weight_versions=["1"],
        metadata={"turns": 1},
    )


def median_s(function: Callable[[], object]) -> float:
    """Median seconds of one call over a few runs; a first call counts only where it is slow."""
    runs = [_call_s(function, 1)]
    loops = 1
    if runs[0] < _SLOW_S:
        loops = max(1, int(_MIN_RUN_S / _call_s(function, 1)))
        runs = []
    while len(runs) < _MIN_RUNS or (len(runs) < _MAX_RUNS and sum(runs) * loops < _MAX_TOTAL_S):
        runs.append(_call_s(function, loops))
    return float(np.median(runs))


def _call_s(function: Callable[[], object], loops: int) -> float:
    started = time.perf_counter()
    for _ in range(loops):
        function()
    return (time.perf_counter() - started) / loops


def _peak_bytes(function: Callable[[], object]) -> int:
    """The most memory that one call holds at a time, beyond what was held before."""
    tracemalloc.start()
    try:
        result = function()  # alive until the peak is read
        peak = tracemalloc.get_traced_memory()[1]
        del result
    finally:
        tracemalloc.stop()
    return peak


def _described(shape: Shape) -> str:
    routed = (
        f"R3 {shape.num_layers} x {shape.top_k} of {shape.num_experts} experts"
        if shape.num_layers
        else "no R3"
    )
    return f"{shape.num_tokens:,} tokens, {shape.response_length:,} of them response, {routed}"


def ways(sample: Sample) -> list[Way]:
    """The ways that are compared; the first one is what the others' ratios are to."""
    template = Sample(prompt=[{"role": "user", "content": "question"}] * 3, index=0, label="1")
    tensors = {
        f"{name}.0": value for name, value in vars(sample).items() if isinstance(value, np.ndarray)
    }
    document = {
        "response": sample.response,
        "response_length": sample.response_length,
        "weight_versions": sample.weight_versions,
        "metadata": sample.metadata,
    }
    return [
        Way(
            "sample_wire, one buffer",
            lambda: encode_samples([sample]).contiguous(),
            lambda wire: decode_samples(wire, template),
        ),
        Way(
            "sample_wire, unjoined",
            lambda: encode_samples([sample]),
            lambda wire: decode_samples(wire, template),
        ),
        Way(
            "sample_wire, compact",
            lambda: encode_samples([sample], layout="compact"),
            lambda wire: decode_samples(wire, template),
        ),
        Way(
            "safetensors.numpy",
            lambda: _save(tensors, document),
            safetensors.numpy.load,
        ),
        Way("JSON + base64", lambda: _to_json(tensors, document), _from_json),
    ]


def _save(tensors: Tensors, document: dict[str, Any]) -> bytes:
    text = np.frombuffer(json.dumps(document).encode(), np.uint8)
    return safetensors.numpy.save({**tensors, "document": text})


def _to_json(tensors: Tensors, document: dict[str, Any]) -> bytes:
    arrays = {
        name: {
            "dtype": array.dtype.str,
            "shape": array.shape,
            "data": base64.b64encode(array.data).decode("ascii"),
        }
        for name, array in tensors.items()
    }
    return json.dumps({**document, "arrays": arrays}).encode()


def _from_json(text: bytes) -> Tensors:
    return {
        name: np.frombuffer(base64.b64decode(item["data"]), item["dtype"]).reshape(item["shape"])
        for name, item in json.loads(text)["arrays"].items()
    }


def _measure(way: Way) -> _Figures:
    wire = way.encode()
    return _Figures(
        nbytes=wire.nbytes if hasattr(wire, "nbytes") else len(wire),
        encode_s=median_s(way.encode),
        encode_peak=_peak_bytes(way.encode),
        decode_s=median_s(lambda: way.decode(wire)),
        decode_peak=_peak_bytes(lambda: way.decode(wire)),
    )


def _table(ways: list[Way]) -> list[str]:
    head = ["bytes", "encode ms", "ratio", "peak MB", "decode ms", "ratio", "peak MB"]
    rows = [["", *head]]
    base: _Figures | None = None
    for way in ways:
        figures = _measure(way)
        base = base or figures
        rows.append(
            [
                way.name,
                f"{figures.nbytes:,}",
                f"{1e3 * figures.encode_s:,.3f}",
                f"{figures.encode_s / base.encode_s:.2f}",
                f"{figures.encode_peak / 1e6:,.3f}",
                f"{1e3 * figures.decode_s:,.3f}",
                f"{figures.decode_s / base.decode_s:.2f}",
                f"{figures.decode_peak / 1e6:,.3f}",
            ]
        )
    return text_table(rows, left={0})
