"""Samples in the dtypes that the compact layout sends become the same tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sample_wire import Sample, decode_samples, encode_samples

pytest.importorskip("torch")
import torch

from sample_wire.adapters.torch import packed_batch, to_torch

pytestmark = pytest.mark.torch


def _samples(num_experts: int, marked: bool, vocabulary: int) -> tuple[list[Sample], list[Sample]]:
    """Decoded from the exact layout, and from the compact one as sent."""
    rng = np.random.default_rng(0)
    samples = []
    for num_tokens in (7, 12):
        routed = rng.integers(0, num_experts, (num_tokens - 1, 2, 3), dtype=np.int32)
        routed[0] = -1 if marked else num_experts - 1
        samples.append(
            Sample(
                tokens=np.append(rng.integers(0, vocabulary, num_tokens - 1), vocabulary - 1),
                response="r",
                response_length=4,
                loss_mask=np.array([1, 0, 1, 1], np.uint8),
                rollout_log_probs=-rng.random(4).astype(np.float32).astype(np.float64),
                rollout_routed_experts=routed,
            )
        )
    exact = decode_samples(bytes(encode_samples(samples)), Sample()).samples
    payload = bytes(encode_samples(samples, layout="compact", num_experts=num_experts))
    return exact, decode_samples(payload, Sample(), widen=False).samples


@pytest.mark.parametrize(
    ("num_experts", "marked", "vocabulary", "dtypes"),
    [
        (256, False, 151_936, ["uint8", "uint32"]),
        (128, True, 250, ["int8", "uint8"]),
        (256, True, 60_000, ["int16", "uint16"]),
        (512, False, 2**33, ["uint16", "int64"]),
    ],
)
def test_narrow_samples_give_the_tensors_of_wide_ones(
    num_experts: int, marked: bool, vocabulary: int, dtypes: list[str]
) -> None:
    exact, narrow = _samples(num_experts, marked, vocabulary)
    sent = [np.asarray(narrow[0].rollout_routed_experts).dtype, np.asarray(narrow[0].tokens).dtype]
    assert [dtype.name for dtype in sent] == dtypes
    for left, right in zip(exact, narrow, strict=True):
        _assert_same(to_torch(left), to_torch(right))
    batches = packed_batch(exact), packed_batch(narrow)
    assert torch.equal(batches[0].cu_seqlens, batches[1].cu_seqlens)
    _assert_same(batches[0].tensors, batches[1].tensors)


def _assert_same(left: Any, right: Any) -> None:
    assert left.keys() == right.keys()
    for name, tensor in left.items():
        if tensor is None:
            assert right[name] is None
        else:
            assert tensor.dtype == right[name].dtype
            assert torch.equal(tensor, right[name])
