"""A sample that is worth sharing, and a digest to compare it by; imported by other processes."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from sample_wire import Sample

ARRAYS = ("tokens", "loss_mask", "rollout_log_probs", "rollout_routed_experts")


def large_sample(num_tokens: int = 2000, seed: int = 7) -> Sample:
    """A sample whose R3 is most of it: 1000 bytes a token."""
    random = np.random.default_rng(seed)
    R = num_tokens // 2
    return Sample(
        tokens=random.integers(0, 150_000, num_tokens),
        response="text",
        response_length=R,
        loss_mask=random.integers(0, 2, R, dtype=np.uint8),
        rollout_log_probs=-random.random(R),
        rollout_routed_experts=random.integers(0, 256, (num_tokens - 1, 25, 10), dtype=np.int32),
    )


def arrays_of(sample: Sample) -> dict[str, np.ndarray[Any, Any]]:
    """The sample's arrays, by field."""
    return {name: getattr(sample, name) for name in ARRAYS}


def digest(sample: Sample) -> str:
    """Of every array's dtype, shape and bytes."""
    whole = hashlib.sha256()
    for array in arrays_of(sample).values():
        whole.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
    return whole.hexdigest()
