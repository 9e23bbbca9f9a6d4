"""A second decoder of the format, written from SPEC.md alone: the standard library, no package.

It shows that SPEC.md is complete, and is an oracle for the fuzzer.  It makes no arrays: it
gives the meaning of a payload as the JSON beside the conformance vectors does.  Comments name
sections and rules of SPEC.md.
"""

from __future__ import annotations

import json
import math
import re
import struct
from typing import Any, Final, NamedTuple

_MAX_HEADER_BYTES: Final = 100_000_000
_MAX_RANK: Final = 32
_MAX_DEPTH: Final = 128
_MAX_SAMPLES: Final = 4096
_MAX: Final = 2**63 - 1
_WHITE: Final = b" \t\n\r"
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*"?', re.DOTALL)
# Section 4.2: item bytes and struct letter; complex64 is given as bytes only.
_DTYPES: Final = {
    "U64": (8, "Q"),
    "I64": (8, "q"),
    "F64": (8, "Q"),  # its bits
    "C64": (8, ""),
    "F32": (4, "f"),
    "U32": (4, "I"),
    "I32": (4, "i"),
    "F16": (2, "e"),
    "U16": (2, "H"),
    "I16": (2, "h"),
    "I8": (1, "b"),
    "U8": (1, "B"),
    "BOOL": (1, "B"),
}
# Section 5.2: name, wire dtype, name of the dtype, rank, rows, what null means.
_TENSORS: Final = (
    ("tokens", "I64", "int64", 1, "tokens", "empty"),
    ("loss_mask", "U8", "uint8", 1, "response", "none"),
    ("rollout_log_probs", "F64", "float64", 1, "response", "none"),
    ("rollout_routed_experts", "I32", "int32", 3, "transitions", "none"),
    ("rollout_indexer_topk", "I32", "int32", 3, "transitions", "none"),
)
_STATUSES: Final = ("pending", "completed", "truncated", "aborted", "failed")
_RECORDS: Final = {
    "prefix_cache_info": ("cached_tokens", "total_prompt_tokens"),
    "spec_info": (
        "spec_accept_token_num",
        "spec_draft_token_num",
        "spec_verify_ct",
        "completion_token_num",
    ),
}
# The order of the fields of a sample, as in section 5.2.
_ORDER: Final = (
    "tokens",
    "response",
    "response_length",
    "loss_mask",
    "rollout_log_probs",
    "rollout_routed_experts",
    "rollout_indexer_topk",
    "status",
    "weight_versions",
    "prefix_cache_info",
    "metadata",
    "spec_info",
    "reward",
)


class RefusedError(Exception):
    """The payload breaks a rule of section 4.3 or 9.2."""

    def __init__(self, rule: str) -> None:
        super().__init__(rule)
        self.rule = rule


class RawTensor(NamedTuple):
    """A tensor as it lies in the container."""

    dtype: str
    shape: list[int]
    data: bytes


def _require(condition: object, rule: str) -> None:
    if not condition:
        raise RefusedError(rule)


def decode_container(data: bytes) -> dict[str, RawTensor]:
    """The tensors of a container, by section 4."""
    _require(len(data) >= 8, "C1")
    (header_bytes,) = struct.unpack_from("<Q", data)
    _require(header_bytes <= _MAX_HEADER_BYTES, "C2")
    _require(header_bytes <= len(data) - 8, "C3")
    header, body = data[8 : 8 + header_bytes], data[8 + header_bytes :]
    _require(header.startswith(b"{"), "C4")
    _require(not _is_deeper(header, _MAX_DEPTH), "C6")
    fields = _strict_json(header, {"text": "C5", "twice": "C7", "number": "C9"})
    metadata = fields.pop("__metadata__", {})
    _require(type(metadata) is dict, "C8")
    _require(all(type(value) is str for value in metadata.values()), "C8")
    for entry in fields.values():
        _check_entry(entry)
    _check_cover([entry["data_offsets"] for entry in fields.values()], len(body))
    return {name: _tensor(entry, body) for name, entry in fields.items()}


def _check_entry(entry: Any) -> None:
    _require(type(entry) is dict and entry.keys() == {"dtype", "shape", "data_offsets"}, "C9")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    _require(type(dtype) is str and type(shape) is list and type(offsets) is list, "C9")
    _require(len(offsets) == 2, "C9")
    _require(len(shape) <= _MAX_RANK, "C11")
    _require(all(_is_size(number) for number in [*shape, *offsets]), "C9")
    _require(dtype in _DTYPES, "C10")
    item_bytes = _DTYPES[dtype][0]
    _require(math.prod(axis or 1 for axis in shape) * item_bytes <= _MAX, "C12")
    _require(math.prod(shape) * item_bytes == offsets[1] - offsets[0], "C13")


def _is_size(number: Any) -> bool:
    return type(number) is int and 0 <= number <= _MAX


def _check_cover(ranges: list[list[int]], data_bytes: int) -> None:
    position = 0
    for start, stop in sorted(ranges):
        _require(start == position, "C14")
        position = stop
    _require(position == data_bytes, "C15")


def _tensor(entry: dict[str, Any], body: bytes) -> RawTensor:
    start, stop = entry["data_offsets"]
    data = body[start:stop]
    _require(entry["dtype"] != "BOOL" or max(data, default=0) <= 1, "C16")
    return RawTensor(entry["dtype"], entry["shape"], data)


def decode_reply(data: bytes, field_set: int = 1) -> dict[str, Any]:
    """The meaning of a payload, by sections 5, 6 and 9."""
    tensors = decode_container(data)
    meta = tensors.pop("_samples_meta", None)
    if meta is None or meta.dtype != "U8" or len(meta.shape) != 1:
        raise RefusedError("M1")
    _require(not _is_deeper(meta.data, _MAX_DEPTH), "M2")
    document = _strict_json(meta.data, {"text": "M3", "twice": "M4", "number": "M7"})
    _require(type(document) is dict, "M6")
    version = document.get("format", 1)
    _require(type(version) is int and version == 1, "M5")
    _require(type(document.get("samples")) is list, "M6")
    _require(type(document.get("session_metadata")) is dict, "M6")
    _require("empty_reason" in document, "M6")
    _require(type(document["empty_reason"]) in (str, type(None)), "M6")
    _require(len(document["samples"]) <= _MAX_SAMPLES, "L1")
    samples = [
        _sample(sample, index, tensors, field_set)
        for index, sample in enumerate(document["samples"])
    ]
    _require(not tensors, "F10")
    return {
        "samples": samples,
        "session_metadata": document["session_metadata"],
        "empty_reason": document["empty_reason"],
    }


def _sample(
    document: Any, index: int, tensors: dict[str, RawTensor], field_set: int
) -> dict[str, Any]:
    """One sample; takes its tensors out of the dict."""
    _require(type(document) is dict, "F1")
    meaning = _json_fields(document, field_set)
    nulls = _nulls(document)
    found: dict[str, RawTensor] = {}
    for name, wire, dtype, rank, _, _ in _TENSORS:
        if name in nulls:
            empty = {"dtype": dtype, "shape": [0], "values": []}
            meaning[name] = empty if name == "tokens" else None
            continue
        tensor = tensors.pop(f"{name}.{index}", None)
        if tensor is None:
            raise RefusedError("F4")
        _require(tensor.dtype == wire, "F5")
        _require(len(tensor.shape) == rank, "F6")
        found[name] = tensor
        meaning[name] = _meaning(tensor, dtype)
    _check_rows(found, meaning["response_length"])
    return {name: meaning[name] for name in _ORDER if name in meaning}


def _json_fields(document: dict[str, Any], field_set: int) -> dict[str, Any]:
    """Sections 5.2 and 6.2."""
    found: dict[str, Any] = {name: document[name] for name in _ORDER if name in document}
    required = {"response", "status", "weight_versions", "prefix_cache_info", "metadata"}
    _require(found.keys() >= required | {"response_length"}, "F1")
    _require(type(found["response"]) is str, "F1")
    _require(_is_size(found["response_length"]), "F1")
    _require(type(found["status"]) is str and found["status"] in _STATUSES, "F1")
    versions = found["weight_versions"]
    _require(type(versions) is list and all(type(item) is str for item in versions), "F1")
    _require(type(found["metadata"]) is dict, "F1")
    found.setdefault("spec_info", dict.fromkeys(_RECORDS["spec_info"], 0))
    for name, counters in _RECORDS.items():
        found[name] = _record(found[name], counters)
    if field_set >= 2:
        _require("reward" in found, "F1")
        _require(type(found["reward"]) in (int, float, dict, type(None)), "F1")
    else:
        found.pop("reward", None)
    return found


def _record(value: Any, counters: tuple[str, ...]) -> dict[str, int]:
    _require(type(value) is dict, "F1")
    _require(all(_is_size(value.get(key)) for key in counters), "F2")
    return {key: value[key] for key in counters}


def _nulls(document: dict[str, Any]) -> set[str]:
    nulls = document.get("nulls")
    if type(nulls) is not list or not all(type(name) is str for name in nulls):
        raise RefusedError("F3")
    _require(len(set(nulls)) == len(nulls), "F3")
    _require({row[0] for row in _TENSORS}.issuperset(nulls), "F3")
    return set(nulls)


def _check_rows(found: dict[str, RawTensor], num_response: int) -> None:
    """Section 5.3."""
    num_tokens = found["tokens"].shape[0] if "tokens" in found else 0
    _require(num_response <= num_tokens, "F7")
    needed = {
        "tokens": num_tokens,
        "response": num_response,
        "transitions": max(num_tokens - 1, 0),
    }
    for name, _, _, _, rows, _ in _TENSORS:
        if name in found:
            shape = found[name].shape
            _require(shape[0] == needed[rows], "F8")
            _require(shape[0] == 0 or 0 not in shape, "F9")


def _meaning(tensor: RawTensor, dtype: str) -> dict[str, Any]:
    item_bytes, letter = _DTYPES[tensor.dtype]
    items = struct.unpack(f"<{len(tensor.data) // item_bytes}{letter}", tensor.data)
    about: dict[str, Any] = {"dtype": dtype, "shape": tensor.shape}
    if tensor.dtype == "F64":
        return {**about, "bits": [f"{bits:016x}" for bits in items]}
    return {**about, "values": list(items)}


def _is_deeper(text: bytes, limit: int) -> bool:
    depth = 0
    for byte in _STRING.sub(b"", text):
        if byte in b"[{":
            depth += 1
            if depth > limit:
                return True
        elif byte in b"]}":
            depth -= 1
    return False


def _strict_json(text: bytes, rules: dict[str, str]) -> Any:
    """Section 6.3.  `rules` names the rule for what is no text, a key twice, or a number."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        _require(len(dict(pairs)) == len(pairs), rules["twice"])
        return dict(pairs)

    def constant(_: str) -> Any:
        raise RefusedError(rules["text"])

    def integer(digits: str) -> int | float:
        _require(len(digits) <= 4300, rules["number"])
        if digits == "-0" and rules["number"] == "C9":
            return -0.0  # section 4.1: no sign
        return int(digits)

    def double(digits: str) -> float:
        _require(math.isfinite(float(digits)), rules["number"])
        return float(digits)

    try:
        value = json.loads(
            text.decode("utf-8"),
            object_pairs_hook=unique,
            parse_constant=constant,
            parse_int=integer,
            parse_float=double,
        )
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except ValueError:
        raise RefusedError(rules["text"]) from None
    return value
