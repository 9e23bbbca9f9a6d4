"""What runs in trainer processes; nothing of pytest is imported there."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from sample_wire import Payload, Sample, decode_samples

from ._memory import address, lies_in_the_store, private_bytes

ARRAYS = ("tokens", "loss_mask", "rollout_log_probs", "rollout_routed_experts")


def arrays_of(sample: Sample) -> dict[str, np.ndarray[Any, Any]]:
    """The sample's arrays, by field."""
    return {name: getattr(sample, name) for name in ARRAYS}


def digests(sample: Sample) -> dict[str, str]:
    """A digest of every array's dtype, shape and bytes, by field."""
    return {
        name: hashlib.sha256(f"{array.dtype}{array.shape}".encode() + array.tobytes()).hexdigest()
        for name, array in arrays_of(sample).items()
    }


def seen_of(sample: Sample) -> dict[str, Any]:
    """What a trainer sees of a sample that it was handed."""
    arrays = arrays_of(sample)
    return {
        "digests": digests(sample),
        "in_store": all(map(lies_in_the_store, arrays.values())),
        "writable": any(array.flags.writeable for array in arrays.values()),
        "label": sample.label,
    }


def given_samples(samples: list[Sample]) -> list[dict[str, Any]]:
    """Of decoded samples."""
    return [seen_of(sample) for sample in samples]


def given_payload(payload: Payload, template: Sample) -> list[dict[str, Any]]:
    """Of a payload that is decoded here."""
    return given_samples(decode_samples(payload, template).samples)


def growth_of_reading(payload: Payload) -> tuple[int, int, int]:
    """Private memory that decoding and reading every array adds, the payload's size, a checksum."""
    before = private_bytes()
    (sample,) = decode_samples(payload, Sample()).samples
    total = sum(int(array.sum()) for array in arrays_of(sample).values())
    return private_bytes() - before, payload.nbytes, total


def to_tensors(samples: list[Sample]) -> list[dict[str, Any]]:
    """Of samples that go on to torch: which tensors are the store's own memory, and are all of
    the declared dtype?"""
    from sample_wire.adapters.torch import packed_batch, to_torch

    found = []
    for sample in samples:
        tensors: Any = to_torch(sample)
        arrays = arrays_of(sample)
        same = [name for name in ARRAYS if tensors[name].data_ptr() == address(arrays[name])]
        told = [str(tensors[name].dtype).removeprefix("torch.") for name in ARRAYS]
        about = {"same": same, "declared": told == ["int64", "uint8", "float64", "int32"]}
        found.append(seen_of(sample) | about | {"sum": int(tensors["tokens"].sum())})
    last = packed_batch(samples).tensors["rollout_routed_experts"][-1]
    return [one | {"last_row": sorted({*last.flatten().tolist()})} for one in found]
