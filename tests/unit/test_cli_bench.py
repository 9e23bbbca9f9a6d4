"""`sample-wire bench`: that the ways it compares do the work, and that it reports each."""

from __future__ import annotations

import numpy as np
import pytest

import sample_wire as sw
from sample_wire import bench, cli

TINY = bench.Shape(num_tokens=9, response_length=4, num_layers=2, top_k=3, num_experts=8)


def test_a_shape_makes_a_sample_that_keeps_every_rule() -> None:
    sample = bench.make_sample(TINY)
    sw.validate(sample)
    assert sample.rollout_routed_experts is not None
    assert sample.rollout_routed_experts.shape == (8, 2, 3)
    assert sample.rollout_routed_experts.max() < 8


def test_a_shape_makes_the_same_sample_every_time() -> None:
    first, second = (sw.encode_samples([bench.make_sample(TINY)]) for _ in range(2))
    assert bytes(first) == bytes(second)


@pytest.mark.parametrize("name", ["S", "M", "P"])
def test_the_shapes_are_those_of_the_names(name: str) -> None:
    shape = bench.SHAPES[name]
    expected = {"S": (512, 0), "M": (8192, 25), "P": (103_000, 25)}[name]
    assert (shape.num_tokens, shape.num_layers) == expected
    assert shape.response_length == round(0.6 * shape.num_tokens)


@pytest.mark.parametrize(
    "position", range(5), ids=["buffer", "unjoined", "compact", "peer", "json"]
)
def test_every_way_brings_all_arrays_back(position: int) -> None:
    sample = bench.make_sample(TINY)
    way = bench.ways(sample)[position]
    got = way.decode(way.encode())
    arrays = got if isinstance(got, dict) else vars(got.samples[0])
    for name in ("tokens", "loss_mask", "rollout_log_probs", "rollout_routed_experts"):
        found = arrays[name if name in arrays else f"{name}.0"]
        assert found.dtype == getattr(sample, name).dtype
        assert np.array_equal(found, getattr(sample, name))


def test_a_median_is_of_calls_that_were_made() -> None:
    calls: list[int] = []
    assert bench.median_s(lambda: calls.append(1)) > 0
    assert len(calls) >= 5


def test_the_report_has_a_row_for_each_way(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "--shape", "S"]) == 0
    lines = capsys.readouterr().out.splitlines()
    table = lines[lines.index("shape S: 512 tokens, 307 of them response, no R3") + 1 :]
    assert [line[:23].strip() for line in table] == [
        "",
        "sample_wire, one buffer",
        "sample_wire, unjoined",
        "sample_wire, compact",
        "safetensors.numpy",
        "JSON + base64",
    ]
    first = table[1].split()
    assert (first[-5], first[-2]) == ("1.00", "1.00")


def test_r3_is_named_where_a_shape_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(bench.SHAPES, "tiny", TINY)
    assert "shape tiny: 9 tokens, 4 of them response, R3 2 x 3 of 8 experts" in [
        *bench.bench_lines(["tiny"])
    ]
