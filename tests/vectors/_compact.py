"""Payloads of format 2 put together by hand, without the package: SPEC section 5.4."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ._kit import Meaning, document_of, wire_tensors
from ._wire import ITEM_BYTES, LETTERS, WireTensor, container, laid_out, meta_tensor
from .independent_decoder import DTYPES, NARROWER

Document = dict[str, Any]
_NUMPY_NAMES: Final = {wire: numpy for wire, (_, _, numpy) in DTYPES.items()}
_NAN: Final = 0x7FF
_LONG_FRACTION: Final = 2**29 - 1
_LEAST_NORMAL: Final = 2.0**-126
_QUIET: Final = 1 << 51


def compact_payload(
    meaning: Meaning,
    *,
    stored: Mapping[str, str] | None = None,
    shared: Mapping[str, Sequence[int]] | None = None,
    num_experts: int | None = None,
    document: Callable[[Document], Any] = lambda found: found,
    tensors: Callable[[list[WireTensor]], list[WireTensor]] = lambda found: found,
) -> bytes:
    """The format-2 payload that a writer makes of a reply, or one with its parts edited.

    Args:
        meaning: the reply.
        stored: wire dtypes by field or by tensor, where they are not the ones of a writer.
        shared: as in the document: which first rows lie in another sample.
        num_experts: the number of experts that the writer was told.
        document: maps the JSON document to another, or to its text.
        tensors: maps the stored tensors to others; `dtypes` still names those that were there.
    """
    logical = wire_tensors(meaning["samples"])
    shared = shared or {}
    chosen = _chosen(logical, num_experts) | dict(stored or {})
    parts = [narrowed(item, chosen.get(item.name, chosen[field_of(item.name)])) for item in logical]
    parts = [_without_rows(item, shared.get(item.name, (0, 0))[1]) for item in parts]
    order = [item.name for item in laid_out(parts)]
    numpy_names = {item.name: _NUMPY_NAMES[item.dtype] for item in logical}
    whole: Document = {"format": 2, **document_of(meaning)}
    if shared:
        whole["shared"] = {name: list(shared[name]) for name in order if name in shared}
    whole["dtypes"] = {name: numpy_names[name] for name in order}
    return container([*tensors(parts), meta_tensor(document(whole))])


def field_of(tensor_name: str) -> str:
    """The field of a tensor `<field>.<i>`."""
    return tensor_name.rpartition(".")[0]


def _chosen(logical: Sequence[WireTensor], num_experts: int | None) -> dict[str, str]:
    """The stored dtype of each field."""
    fields: dict[str, list[WireTensor]] = {}
    for item in logical:
        fields.setdefault(field_of(item.name), []).append(item)
    return {
        field: stored_dtype(
            items[0].dtype,
            [number for item in items for number in numbers_of(item)],
            num_experts if field == "rollout_routed_experts" else None,
        )
        for field, items in fields.items()
    }


def stored_dtype(logical: str, numbers: Sequence[int], num_experts: int | None = None) -> str:
    """The dtype that a writer stores numbers in; of float64 their bits are given."""
    if logical == "F64":
        return "F32" if all(map(is_float32, numbers)) else "F64"
    if logical not in NARROWER:
        return logical
    low = min(0, 0, *numbers)
    high = max(0, 0, *numbers) if num_experts is None else num_experts - 1
    for dtype in NARROWER[logical]:
        bits = 8 * ITEM_BYTES[dtype]
        least, most = (
            (0, 2**bits - 1) if dtype[0] == "U" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        )
        if least <= low and high <= most:
            return dtype
    return logical


def is_float32(bits: int) -> bool:
    """Whether the float64 of these bits is stored as a float32: no signalling NaN is, and none
    that would be subnormal."""
    if bits >> 52 & _NAN == _NAN:
        is_infinite = bits & (2**52 - 1) == 0
        return is_infinite or bool(bits & _QUIET and not bits & _LONG_FRACTION)
    (value,) = struct.unpack("<d", bits.to_bytes(8, "little"))
    try:
        (again,) = struct.unpack("<f", struct.pack("<f", value))
    except OverflowError:
        return False
    is_subnormal = 0 < abs(again) < _LEAST_NORMAL
    return not is_subnormal and struct.pack("<d", again) == bits.to_bytes(8, "little")


def numbers_of(item: WireTensor) -> list[int]:
    """The items of an integer tensor, or the bits of those of a float64 one."""
    letter = {"F64": "Q"}.get(item.dtype, LETTERS[item.dtype])
    return list(struct.unpack(f"<{len(item.data) // ITEM_BYTES[item.dtype]}{letter}", item.data))


def narrowed(item: WireTensor, dtype: str) -> WireTensor:
    """The same items in another dtype, which must hold them."""
    if dtype == item.dtype:
        return item
    if dtype == "F32":
        data = b"".join(float32_bits(bits).to_bytes(4, "little") for bits in numbers_of(item))
    else:
        numbers = numbers_of(item)
        data = struct.pack(f"<{len(numbers)}{LETTERS[dtype]}", *numbers)
    return item._replace(dtype=dtype, data=data)


def float32_bits(bits: int) -> int:
    """The bits of a float32 that the float64 of these bits is, a NaN's by hand."""
    if bits >> 52 & _NAN == _NAN:
        return bits >> 63 << 31 | 0xFF << 23 | bits >> 29 & 0x7FFFFF
    (value,) = struct.unpack("<d", bits.to_bytes(8, "little"))
    return int.from_bytes(struct.pack("<f", value), "little")


def _without_rows(item: WireTensor, num_rows: int) -> WireTensor:
    """A tensor without its first rows."""
    if not num_rows:
        return item
    row_bytes = math.prod(item.shape[1:]) * ITEM_BYTES[item.dtype]
    shape = (item.shape[0] - num_rows, *item.shape[1:])
    return item._replace(shape=shape, data=item.data[num_rows * row_bytes :])
