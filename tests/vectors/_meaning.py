"""What a reply of the package means, in the form of the vectors' JSON."""

from __future__ import annotations

import enum
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from sample_wire import Computed, Sample, SamplesReply, Schema


def tensor_meaning(array: npt.NDArray[Any]) -> dict[str, Any]:
    """An array as {"dtype", "shape", "values"}, or {"bits"} for float64."""
    about: dict[str, Any] = {"dtype": str(array.dtype), "shape": list(array.shape)}
    if array.dtype == np.float64:
        about["bits"] = [f"{bits:016x}" for bits in array.view(np.uint64).ravel().tolist()]
    else:
        about["values"] = array.ravel().tolist()
    return about


def value_meaning(value: Any) -> Any:
    """A field's value as JSON."""
    if isinstance(value, np.ndarray):
        return tensor_meaning(value)
    if isinstance(value, enum.Enum):
        return value.value
    return msgspec.to_builtins(value) if isinstance(value, msgspec.Struct) else value


def reply_meaning(reply: SamplesReply[Sample], field_set: int) -> dict[str, Any]:
    """Every computed field of the field set, of every sample, and the reply's own keys."""
    names = [
        field.name
        for field in Schema.of(Sample).fields
        if isinstance(field.owner, Computed) and field.owner.since <= field_set
    ]
    return {
        "samples": [
            {name: value_meaning(getattr(sample, name)) for name in names}
            for sample in reply.samples
        ],
        "session_metadata": reply.session_metadata,
        "empty_reason": reply.empty_reason,
    }


def with_empty_tokens(meaning: dict[str, Any]) -> dict[str, Any]:
    """The meaning as it is read: a null tokens reads as an empty array (SPEC section 5.2)."""
    empty = {"dtype": "int64", "shape": [0], "values": []}
    samples = [
        {**sample, "tokens": empty} if sample["tokens"] is None else sample
        for sample in meaning["samples"]
    ]
    return {**meaning, "samples": samples}


def container_meaning(tensors: dict[str, npt.NDArray[Any]]) -> dict[str, Any]:
    """The tensors of a container as dtype, shape and little-endian bytes in hex."""
    return {
        name: {
            "dtype": array.dtype.name,
            "shape": list(array.shape),
            "hex": array.astype(array.dtype.newbyteorder("<"), order="C").tobytes().hex(),
        }
        for name, array in tensors.items()
    }
