"""Small samples and payloads for the stub to send.

Shape letters: T tokens, R response tokens, L routed layers, K experts per token.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from sample_wire import Sample, Status, encode_samples

NUM_EXPERTS: Final = 256


def make_sample(num_tokens: int = 12, num_layers: int = 2, top_k: int = 2) -> Sample:
    """A completed sample of T tokens, half of them response, with R3 of (T-1, L, K)."""
    rng = np.random.default_rng(num_tokens)
    R = num_tokens // 2
    return Sample(
        tokens=rng.integers(0, 1000, num_tokens),
        response="a reply",
        response_length=R,
        loss_mask=np.ones(R, np.uint8),
        rollout_log_probs=-rng.random(R),
        rollout_routed_experts=rng.integers(
            0, NUM_EXPERTS, (num_tokens - 1, num_layers, top_k), dtype=np.int32
        ),
        status=Status.COMPLETED,
        metadata={"turns": 1},
    )


def make_payload(*samples: Sample) -> bytes:
    """The payload of these samples, or of one small one."""
    return bytes(encode_samples(samples or [make_sample()], {"server": "stub"}))
