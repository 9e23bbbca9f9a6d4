"""inspect_payload on classes that are not Sample, which declare the same names otherwise."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import numpy.typing as npt

import sample_wire as sw
from sample_wire.inspection import SampleSummary, inspect_payload


@dataclasses.dataclass
class Foreign:
    """A sample class with fields of the same names, declared otherwise, and few of them."""

    ids: npt.NDArray[np.int64]
    loss_mask: npt.NDArray[np.uint8] | None = None
    rollout_log_probs: Any = None
    rollout_routed_experts: Any = None


IDS = sw.Computed(codec=sw.Tensor("int64"), rows="tokens", sets="tokens", merge="last")
FREE_MASK = sw.Computed(codec=sw.Tensor("uint8"), merge="last", null="none")
FREE_FLOATS = sw.Computed(codec=sw.Tensor("float32"), merge="last", null="none")
RAGGED = sw.Computed(codec=sw.Ragged("float32"), rows="tokens", merge="last", null="none")


def inspect_foreign(sample: Foreign, log_probs: sw.Computed = FREE_FLOATS) -> SampleSummary:
    schema = sw.Schema.of(
        Foreign,
        {
            "ids": IDS,
            "loss_mask": FREE_MASK,
            "rollout_log_probs": log_probs,
            "rollout_routed_experts": FREE_FLOATS,
        },
    )
    payload = sw.encode_samples([sample], schema=schema)
    return inspect_payload(payload, schema=schema).samples[0]


def test_a_foreign_class_is_counted_by_its_own_declarations() -> None:
    summary = inspect_foreign(Foreign(np.arange(4), np.array([1, 1, 0], np.uint8)))
    assert (summary.num_tokens, summary.num_trained) == (4, 2)
    assert (summary.response_length, summary.status, summary.weight_versions) == (None, None, [])
    assert summary.field_bytes == {"ids": 32, "loss_mask": 3}


def test_narrower_log_probs_of_a_foreign_class_are_summed_up() -> None:
    mask, log_probs = np.ones(2, np.uint8), np.array([-0.5, -1.5], np.float32)
    summary = inspect_foreign(Foreign(np.arange(2), mask, log_probs)).log_probs
    assert summary is not None
    assert (summary.mean, summary.min) == (-1.0, -1.5)


def test_log_probs_that_do_not_go_with_the_mask_are_left_alone() -> None:
    mask, log_probs = np.ones(3, np.uint8), np.zeros(2, np.float32)
    assert inspect_foreign(Foreign(np.arange(2), mask, log_probs)).log_probs is None


def test_ragged_log_probs_are_left_alone() -> None:
    sample = Foreign(np.arange(2), np.ones(2, np.uint8), [[1.0], [2.0, 3.0]])
    summary = inspect_foreign(sample, RAGGED)
    assert summary.log_probs is None
    assert summary.field_bytes["rollout_log_probs"] == 3 * 4 + 3 * 8


def test_routing_that_holds_no_integers_has_no_max_id() -> None:
    sample = Foreign(np.arange(2), rollout_routed_experts=np.array([1.0, math.nan], np.float32))
    r3 = inspect_foreign(sample).r3
    assert r3 is not None
    assert (r3.dtype, r3.max_id) == ("float32", None)


def test_samples_without_a_token_axis_have_no_total_of_tokens() -> None:
    @dataclasses.dataclass
    class Bare:
        score: float

    schema = sw.Schema.of(Bare, {"score": sw.Computed(codec=sw.Json(), merge="last")})
    summary = inspect_payload(sw.encode_samples([Bare(0.5)], schema=schema), schema=schema)
    assert (summary.num_samples, summary.num_tokens) == (1, None)
