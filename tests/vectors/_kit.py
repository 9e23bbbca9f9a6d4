"""What the vectors are made of: a sample's meaning in JSON, and its bytes by SPEC.md.

A meaning gives every computed field of a sample.  Tensors are {"dtype", "shape", "values"},
flat in C order; float64 ones have {"bits"} instead, 16 hex digits an item, since JSON has no
NaN.  A null tensor is null.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from ._wire import WireTensor, container, float_bits, meta_tensor, tensor

Meaning = dict[str, Any]
TENSOR_FIELDS: Final = (
    "tokens",
    "loss_mask",
    "rollout_log_probs",
    "rollout_routed_experts",
    "rollout_indexer_topk",
)
_WIRE_DTYPES: Final = {"int64": "I64", "uint8": "U8", "int32": "I32"}
NO_SPEC: Final = dict.fromkeys(
    ("spec_accept_token_num", "spec_draft_token_num", "spec_verify_ct", "completion_token_num"), 0
)


class Vector(NamedTuple):
    """One vector: file name without suffix, the bytes, and what its JSON says of them."""

    name: str
    data: bytes
    about: dict[str, Any]


def ints(dtype: str, shape: Sequence[int], values: Sequence[int]) -> Meaning:
    """The meaning of an integer tensor."""
    return {"dtype": dtype, "shape": list(shape), "values": list(values)}


def floats(*bits: str) -> Meaning:
    """The meaning of a rank-1 float64 tensor, by the bits of its items."""
    return {"dtype": "float64", "shape": [len(bits)], "bits": list(bits)}


MINUS_HALF: Final = "bfe0000000000000"
MINUS_2_25: Final = "c002000000000000"


def sample(**changes: Any) -> Meaning:
    """Five tokens, two of them response, two layers of two experts; with some fields changed."""
    return {
        "tokens": ints("int64", [5], [101, 7592, 102, 2088, 103]),
        "response": "hi!",
        "response_length": 2,
        "loss_mask": ints("uint8", [2], [1, 0]),
        "rollout_log_probs": floats(MINUS_HALF, MINUS_2_25),
        "rollout_routed_experts": ints("int32", [4, 2, 2], range(16)),
        "rollout_indexer_topk": None,
        "status": "completed",
        "weight_versions": ["7"],
        "prefix_cache_info": {"cached_tokens": 2, "total_prompt_tokens": 3},
        "metadata": {"turns": 1},
        "spec_info": NO_SPEC,
        **changes,
    }


def empty_sample(**changes: Any) -> Meaning:
    """A sample without tokens, every tensor null; with some fields changed."""
    nulls = dict.fromkeys(TENSOR_FIELDS)
    nothing = {"cached_tokens": 0, "total_prompt_tokens": 0}
    return sample(
        **{
            **nulls,
            "response": "",
            "response_length": 0,
            "weight_versions": [],
            "prefix_cache_info": nothing,
            "metadata": {},
            **changes,
        }
    )


def wire_tensors(meanings: Sequence[Meaning]) -> list[WireTensor]:
    """The tensors of samples; SPEC section 5.1."""
    found = []
    for index, meaning in enumerate(meanings):
        for field in TENSOR_FIELDS:
            value = meaning[field]
            if value is None:
                continue
            name = f"{field}.{index}"
            if "bits" in value:
                found.append(float_bits(name, value["bits"]))
            else:
                wire = _WIRE_DTYPES[value["dtype"]]
                found.append(tensor(name, wire, value["shape"], value["values"]))
    return found


def sample_document(meaning: Meaning) -> dict[str, Any]:
    """A sample's JSON object; SPEC section 6.2."""
    document = {key: value for key, value in meaning.items() if key not in TENSOR_FIELDS}
    if document["spec_info"] == NO_SPEC:
        del document["spec_info"]
    document["nulls"] = [field for field in TENSOR_FIELDS if meaning[field] is None]
    return document


def reply(
    *meanings: Meaning,
    session_metadata: dict[str, Any] | None = None,
    empty_reason: str | None = None,
) -> Meaning:
    """The meaning of a whole reply."""
    return {
        "samples": list(meanings),
        "session_metadata": session_metadata or {},
        "empty_reason": empty_reason,
    }


def document_of(meaning: Meaning) -> dict[str, Any]:
    """The document of a reply; SPEC section 6.1."""
    return {**meaning, "samples": [sample_document(item) for item in meaning["samples"]]}


def payload(
    meaning: Meaning,
    *,
    document: Callable[[dict[str, Any]], Any] = lambda found: found,
    tensors: Callable[[list[WireTensor]], list[WireTensor]] = lambda found: found,
) -> bytes:
    """The payload that a writer makes of a reply, or one with its parts edited.

    Args:
        meaning: the reply.
        document: maps the JSON document to another, or to its text.
        tensors: maps the samples' tensors to others.
    """
    parts = tensors(wire_tensors(meaning["samples"]))
    return container([*parts, meta_tensor(document(document_of(meaning)))])
