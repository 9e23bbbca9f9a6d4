"""Samples with many or few experts, and what a compact payload holds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sample_wire import Sample, decode_samples, encode_samples, read_container

Array = npt.NDArray[Any]
META = "_samples_meta"
R3 = "rollout_routed_experts"


def routed_sample(routed: Array, **fields: Any) -> Sample:
    """A sample whose R3 is routed_TLK, with token ids of 0 on."""
    num_tokens = len(routed) + 1
    values: dict[str, Any] = {
        "tokens": np.arange(num_tokens),
        "response": "r",
        "response_length": 1,
        "rollout_routed_experts": routed,
    }
    return Sample(**(values | fields))


def rows(num_rows: int, num_experts: int = 256, seed: int = 0) -> Array:
    """int32 rows of 2 layers and 3 experts; the largest id is among them."""
    rng = np.random.default_rng(seed)
    found = rng.integers(0, num_experts, (num_rows, 2, 3), dtype=np.int32)
    found[-1, -1, -1] = num_experts - 1
    return found


def compact_bytes(samples: Sequence[object], **options: Any) -> bytes:
    """The samples' payload in the compact layout."""
    return bytes(encode_samples(samples, layout="compact", **options))


def stored(payload: bytes) -> dict[str, Array]:
    """The tensors as they are sent, without the document."""
    return {name: array for name, array in read_container(payload).items() if name != META}


def document(payload: bytes) -> Any:
    """The parsed document."""
    return json.loads(read_container(payload)[META].tobytes())


def decoded_routing(payload: object, **options: Any) -> list[Array]:
    """R3 of every decoded sample."""
    samples = decode_samples(payload, Sample(), **options).samples
    found = [sample.rollout_routed_experts for sample in samples]
    assert all(array is not None for array in found)
    return [np.asarray(array) for array in found]
