"""A second decoder of both formats, written from SPEC.md alone: the standard library, no package.

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
_MAX_SHARED_BYTES: Final = 2**32
_MAX: Final = 2**63 - 1
_WHITE: Final = b" \t\n\r"
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*"?', re.DOTALL)
# Section 4.2: item bytes, struct letter, numpy's name; complex64 is given as bytes only.
DTYPES: Final = {
    "U64": (8, "Q", "uint64"),
    "I64": (8, "q", "int64"),
    "F64": (8, "Q", "float64"),  # its bits
    "C64": (8, "", "complex64"),
    "F32": (4, "f", "float32"),
    "U32": (4, "I", "uint32"),
    "I32": (4, "i", "int32"),
    "F16": (2, "e", "float16"),
    "U16": (2, "H", "uint16"),
    "I16": (2, "h", "int16"),
    "I8": (1, "b", "int8"),
    "U8": (1, "B", "uint8"),
    "BOOL": (1, "B", "bool"),
}
_WIRE_NAMES: Final = {numpy: wire for wire, (_, _, numpy) in DTYPES.items()}
# Section 5.4: logical dtype, what it may be stored as.
NARROWER: Final = {
    "U64": ("U8", "U16", "U32"),
    "I64": ("U8", "I8", "U16", "I16", "U32", "I32"),
    "U32": ("U8", "U16"),
    "I32": ("U8", "I8", "U16", "I16"),
    "U16": ("U8",),
    "I16": ("U8", "I8"),
    "F64": ("F32",),
}
_INDEXED: Final = re.compile(r"(.*)\.(0|[1-9][0-9]{0,9})", re.DOTALL)
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
    _require(dtype in DTYPES, "C10")
    item_bytes = DTYPES[dtype][0]
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


def decode_reply(
    data: bytes, field_set: int = 1, *, max_shared_bytes: int = _MAX_SHARED_BYTES
) -> dict[str, Any]:
    """The meaning of a payload of either format, by sections 5, 6 and 9."""
    tensors = decode_container(data)
    meta = tensors.pop("_samples_meta", None)
    if meta is None or meta.dtype != "U8" or len(meta.shape) != 1:
        raise RefusedError("M1")
    _require(not _is_deeper(meta.data, _MAX_DEPTH), "M2")
    document = _strict_json(meta.data, {"text": "M3", "twice": "M4", "number": "M7"})
    _require(type(document) is dict, "M6")
    version = document.get("format", 1)
    _require(type(version) is int and version in (1, 2), "M5")
    _require(type(document.get("samples")) is list, "M6")
    _require(type(document.get("session_metadata")) is dict, "M6")
    _require("empty_reason" in document, "M6")
    _require(type(document["empty_reason"]) in (str, type(None)), "M6")
    _require(len(document["samples"]) <= _MAX_SAMPLES, "L1")
    if version == 2:
        tensors = _expanded(document, tensors, max_shared_bytes)
    listed = enumerate(document["samples"])
    samples = [_sample(sample, index, tensors, field_set) for index, sample in listed]
    _require(not tensors, "F10")
    others = {key: document[key] for key in ("session_metadata", "empty_reason")}
    return {"samples": samples, **others}


def _expanded(
    document: dict[str, Any], stored: dict[str, RawTensor], max_shared_bytes: int
) -> dict[str, RawTensor]:
    """Section 5.4: the tensors in their logical dtypes and with all their rows."""
    dtypes, shared = document.get("dtypes"), document.get("shared", {})
    if type(dtypes) is not dict or type(shared) is not dict:
        raise RefusedError("M8")
    _require(all(type(dtype) is str for dtype in dtypes.values()), "M8")
    _require(all(type(pair) is list and len(pair) == 2 for pair in shared.values()), "M8")
    _require(all(_is_size(number) for pair in shared.values() for number in pair), "M8")
    _require(dtypes.keys() == stored.keys(), "F12")
    _require(_WIRE_NAMES.keys() >= set(dtypes.values()), "F12")
    found = {}
    for name, tensor in stored.items():
        logical = _WIRE_NAMES[dtypes[name]]
        _require(tensor.dtype in (logical, *NARROWER.get(logical, ())), "F13")
        found[name] = _widened(tensor, logical)
    _share(shared, stored, found, max_shared_bytes)
    return found


def _widened(tensor: RawTensor, logical: str) -> RawTensor:
    if tensor.dtype == logical:
        return tensor
    item_bytes, letter, _ = DTYPES[tensor.dtype]
    count = len(tensor.data) // item_bytes
    if tensor.dtype == "F32":
        items = [_double_bits(bits) for bits in struct.unpack(f"<{count}I", tensor.data)]
    else:
        items = list(struct.unpack(f"<{count}{letter}", tensor.data))
    data = struct.pack(f"<{count}{DTYPES[logical][1]}", *items)
    return RawTensor(logical, tensor.shape, data)


def _double_bits(bits: int) -> int:
    """The bits of the float64 of a float32's bits; it leaves no NaN signalling, as it may."""
    fraction = bits & 0x7FFFFF
    if bits >> 23 & 0xFF == 0xFF:  # NaN or infinity
        quiet = (1 << 51) * (fraction != 0)
        return bits >> 31 << 63 | 0x7FF << 52 | quiet | fraction << 29
    (value,) = struct.unpack("<f", struct.pack("<I", bits))
    (wide,) = struct.unpack("<Q", struct.pack("<d", value))
    return int(wide)


def _share(
    shared: dict[str, list[int]],
    stored: dict[str, RawTensor],
    found: dict[str, RawTensor],
    max_shared_bytes: int,
) -> None:
    """Puts the shared rows before the own ones, in the order of the samples."""
    total = 0
    for index, field, name in sorted(_place(name, stored) for name in shared):
        other, num_shared = shared[name]
        other_name = f"{field}.{other}"
        _require(other < index and other_name in found, "F14")
        own, source = found[name], found[other_name]
        _require(len(own.shape) == len(source.shape) == 3, "F6")
        _require(own.shape[1:] == source.shape[1:], "F14")
        _require(stored[name].dtype == stored[other_name].dtype, "F14")
        _require(own.dtype == source.dtype, "F5")
        _require(0 < num_shared <= source.shape[0], "F14")
        row_bytes = math.prod(own.shape[1:]) * DTYPES[own.dtype][0]
        rows = num_shared + own.shape[0]
        total += rows * row_bytes
        _require(total <= max_shared_bytes, "L2")
        data = source.data[: num_shared * row_bytes] + own.data
        found[name] = RawTensor(own.dtype, [rows, *own.shape[1:]], data)


def _place(name: str, stored: dict[str, RawTensor]) -> tuple[int, str, str]:
    """Index and field of a tensor that has shared rows, and its name."""
    place = _INDEXED.fullmatch(name)
    fields = [field for field, _, _, _, rows, _ in _TENSORS if rows == "transitions"]
    if place is None or place[1] not in fields or name not in stored:
        raise RefusedError("F14")
    return int(place[2]), place[1], name


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
    needed = {"tokens": num_tokens, "response": num_response}
    needed["transitions"] = max(num_tokens - 1, 0)
    for name, _, _, _, rows, _ in _TENSORS:
        if name in found:
            shape = found[name].shape
            _require(shape[0] == needed[rows], "F8")
            _require(shape[0] == 0 or 0 not in shape, "F9")


def _meaning(tensor: RawTensor, dtype: str) -> dict[str, Any]:
    item_bytes, letter, _ = DTYPES[tensor.dtype]
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
