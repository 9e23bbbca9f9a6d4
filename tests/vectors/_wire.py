"""Containers put together by hand, right or wrong, without the package: for vectors and fuzzers.

The order of the layout is written here a second time on purpose: bytes that are to judge the
package must not come from it.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

# Wire name and struct letter of each dtype, in layout order; C64 is two floats.
LETTERS: Final = {
    "U64": "Q",
    "I64": "q",
    "F64": "d",
    "C64": "ff",
    "F32": "f",
    "U32": "I",
    "I32": "i",
    "F16": "e",
    "U16": "H",
    "I16": "h",
    "I8": "b",
    "U8": "B",
    "BOOL": "?",
}
ITEM_BYTES: Final = {name: struct.calcsize(f"<{letter}") for name, letter in LETTERS.items()}
_ORDER: Final = list(LETTERS)
META: Final = "_samples_meta"


class WireTensor(NamedTuple):
    """A tensor as it lies on the wire: name, wire dtype, shape, little-endian bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: bytes


def tensor(name: str, dtype: str, shape: Sequence[int], values: Iterable[Any] = ()) -> WireTensor:
    """A tensor of numbers, given flat in C order; none given means all zero."""
    numbers = list(values) or [0] * math.prod(shape)
    letter = LETTERS[dtype]
    data = b"".join(struct.pack(f"<{letter}", number) for number in numbers)
    return WireTensor(name, dtype, tuple(shape), data)


def float_bits(name: str, bits: Sequence[str]) -> WireTensor:
    """A rank-1 F64 tensor, each item given by the 16 hex digits of its bits."""
    data = b"".join(int(digits, 16).to_bytes(8, "little") for digits in bits)
    return WireTensor(name, "F64", (len(bits),), data)


def compact(value: Any) -> str:
    """JSON text as the format's writers spell it: no white space, non-ASCII as it is."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def framed(header: bytes | str, data: bytes = b"") -> bytes:
    """A container of this header, whatever it says, and this data."""
    text = header.encode() if isinstance(header, str) else header
    return struct.pack("<Q", len(text)) + text + data


def laid_out(tensors: Iterable[WireTensor]) -> list[WireTensor]:
    """The tensors in the order in which writers lay them out: SPEC section 4.2."""
    return sorted(tensors, key=lambda item: (_ORDER.index(item.dtype), item.name.encode()))


def entry(item: WireTensor, start: int) -> dict[str, Any]:
    """The header's entry of a tensor whose bytes begin at start."""
    return {
        "dtype": item.dtype,
        "shape": list(item.shape),
        "data_offsets": [start, start + len(item.data)],
    }


def entries(tensors: Sequence[WireTensor]) -> dict[str, dict[str, Any]]:
    """The header's entries of tensors that lie one after another in this order."""
    found: dict[str, dict[str, Any]] = {}
    position = 0
    for item in tensors:
        found[item.name] = entry(item, position)
        position += len(item.data)
    return found


def padded(header: str) -> bytes:
    """The header's bytes, with spaces up to a multiple of 8."""
    text = header.encode()
    return text + b" " * (-len(text) % 8)


def container(tensors: Iterable[WireTensor]) -> bytes:
    """The container that a writer makes of these tensors."""
    ordered = laid_out(tensors)
    header = padded(compact(entries(ordered)))
    return framed(header, b"".join(item.data for item in ordered))


def meta_tensor(document: Any) -> WireTensor:
    """`_samples_meta` with a document: bytes as they are, text in UTF-8, else as compact JSON."""
    if not isinstance(document, bytes | str):
        document = compact(document)
    data = document.encode() if isinstance(document, str) else document
    return WireTensor(META, "U8", (len(data),), data)


def split(data: bytes) -> tuple[bytes, bytes]:
    """Header and data of a container whose length prefix is right."""
    (header_bytes,) = struct.unpack_from("<Q", data)
    return data[8 : 8 + header_bytes], data[8 + header_bytes :]


def tensors_of(data: bytes) -> list[WireTensor]:
    """The tensors of a valid container, in the order of the header; its metadata is left out."""
    header, body = split(data)
    found = json.loads(header)
    found.pop("__metadata__", None)
    return [
        WireTensor(name, item["dtype"], tuple(item["shape"]), body[slice(*item["data_offsets"])])
        for name, item in found.items()
    ]
