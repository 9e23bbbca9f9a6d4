"""Routing arrays as engines send them: base64 text to rows, in chunks, never as one string.

Four forms are public.  Raw little-endian int32 without any header (SGLang), whose shape must
be known; a .npy file (vLLM); an object {data, shape, dtype, start}; and nested lists (vLLM
0.21), which are refused by name, being 40 MB and a second of CPU at 30,000 tokens.

Shape letters: L routed layers, K experts per token.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Final, NamedTuple

import msgspec
import numpy as np

from .._arrays import Array
from .ledger import ROW_DTYPES

DecodeBase64 = Callable[[memoryview], bytes | bytearray]
# Bytes of base64 that are decoded at once: what they become still lies in the cache.
_CHUNK_CHARS: Final = 1 << 18
_NPY_MAGIC_BASE64: Final = b"k05VTVBZ"
_NPY_PREFIX_BYTES: Final = 10
_NPY_MAX_HEADER_BYTES: Final = 1024
_NPY_HEADER: Final = re.compile(
    rb"\{'descr': '([<|][iu][1248])', 'fortran_order': (True|False), "
    rb"'shape': \(([0-9]+(?:, [0-9]+)*),?\), \} *\n"
)
_INT32: Final = np.dtype(np.int32)
_DTYPES: Final = {name: dtype for dtype in ROW_DTYPES for name in (dtype.name, dtype.str)}


class RoutingError(ValueError):
    """A routing value that cannot be read; the caller adds the turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingSpec:
    """What is known of the routing arrays of a model, and how its engine sends them.

    Args:
        num_layers: L, layers that a row covers.
        top_k: K, experts per token and layer.
        num_experts: ids are below this; None where it is not known, and ids go unchecked.
        required: refuse a turn without routing instead of ending the sample before it.
        incremental: each turn brings only the rows from its start offset on.
    """

    num_layers: int
    top_k: int
    num_experts: int | None = None
    required: bool = False
    incremental: bool = False

    def __post_init__(self) -> None:
        for name in ("num_layers", "top_k"):
            if type(getattr(self, name)) is not int or getattr(self, name) < 1:
                raise ValueError(f"RoutingSpec.{name} is a positive integer")
        experts = self.num_experts
        if experts is not None and (type(experts) is not int or experts < self.top_k):
            raise ValueError("RoutingSpec.num_experts is an integer of at least top_k, or None")


class RowSource(NamedTuple):
    """Rows that are still text: the shape of one, and the rows in chunks."""

    row_shape: tuple[int, int]
    chunks: Iterator[Array]


Size = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class _StartOnly(msgspec.Struct):
    start: Size | None = None


class _RoutingObject(msgspec.Struct):
    data: str
    shape: list[Size]
    dtype: str
    start: Size | None = None


def strict_base64(text: memoryview) -> bytes:
    """The standard library's decoder, refusing what is not in the alphabet."""
    return binascii.a2b_base64(text, strict_mode=True)


def object_start(value: object) -> int | None:
    """The start row that a {data, shape, dtype, start} object states; None for other forms."""
    try:
        if isinstance(value, memoryview) and value[:1].tobytes() == b"{":
            return msgspec.json.decode(value, type=_StartOnly).start
        if isinstance(value, dict):
            return msgspec.convert(value, _StartOnly).start
    except (msgspec.MsgspecError, ValueError):
        return None  # reading the rows will say what is wrong
    return None


def read_rows(
    value: object,
    num_rows: int,
    *,
    num_layers: int | None,
    top_k: int | None,
    decode_base64: DecodeBase64,
) -> RowSource:
    """The rows of a routing value in any of the public forms.

    Args:
        value: the JSON value, as a Python object, or as a memoryview of its JSON text.
        num_rows: rows that it must have.
        num_layers, top_k: the row's shape.  The raw form needs the layers, and K where it is
            not to be derived from the length.

    Raises:
        RoutingError: an unknown form, no base64, or another number of rows or shape.
    """
    text, form = _text_of(value)
    if form is not None:
        dtype, shape, skip = _dtype_of(form.dtype), tuple(form.shape), 0
    elif bytes(text[:8]) == _NPY_MAGIC_BASE64:
        dtype, shape, skip = _read_npy_header(text, decode_base64)
    else:
        dtype, skip = _INT32, 0
        shape = _raw_shape(_decoded_bytes(text), num_rows, num_layers, top_k)
    _check_shape(shape, num_rows, num_layers, top_k)
    if num_rows == 0:
        shape = (0, num_layers or shape[1], top_k or shape[2])
    nbytes = int(np.prod(shape, dtype=object)) * dtype.itemsize
    if _decoded_bytes(text) - skip != nbytes:
        raise RoutingError(
            f"its shape needs {nbytes} bytes, there are {_decoded_bytes(text) - skip}"
        )
    row_shape = (shape[1], shape[2])
    chunks = _chunks(text, skip, dtype, row_shape, decode_base64) if nbytes else iter(())
    return RowSource(row_shape, chunks)


def check_ids(chunks: Iterator[Array], num_experts: int) -> Iterator[Array]:
    """The same chunks, each checked: ids below num_experts, -1 only in rows of nothing else.

    Raises:
        RoutingError: an id outside, or a row that mixes -1 with ids.
    """
    for chunk in chunks:
        # All bits that are set in any id: one pass that mostly answers for two.
        if 0 <= int(np.bitwise_or.reduce(chunk, axis=None)) < num_experts:
            yield chunk
            continue
        low, high = int(chunk.min()), int(chunk.max())
        if low < -1 or high >= num_experts:
            raise RoutingError(f"holds id {low if low < -1 else high}, of {num_experts} experts")
        if low < 0:
            missing = (chunk == -1).reshape(len(chunk), -1)
            if (missing.any(axis=1) != missing.all(axis=1)).any():
                raise RoutingError("mixes -1 (not captured) with ids in one row")
        yield chunk


def _text_of(value: object) -> tuple[memoryview, _RoutingObject | None]:
    """The base64 text as bytes, and the object it came in, if any."""
    if isinstance(value, memoryview):
        if value[0] == ord('"'):
            return value[1:-1], None  # base64 needs no escapes: one would be refused as no base64
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, ValueError):
            raise RoutingError("is not JSON") from None
    if isinstance(value, list):
        raise RoutingError("comes as nested lists, as vLLM 0.21 sent it; base64 is needed")
    form = None
    if isinstance(value, dict):
        try:
            form = msgspec.convert(value, _RoutingObject)
        except (msgspec.ValidationError, ValueError) as error:
            raise RoutingError(f"is no {{data, shape, dtype, start}} object: {error}") from None
        value = form.data
    if not isinstance(value, str):
        raise RoutingError(f"comes as {type(value).__name__}, a form that is not known")
    if not value.isascii():
        raise RoutingError("is no base64 text")
    return memoryview(value.encode()), form


def _decoded_bytes(text: memoryview) -> int:
    if len(text) % 4:
        raise RoutingError(f"is no base64 text: {len(text)} characters, not a multiple of 4")
    padding = bytes(text[-2:]).count(b"=")
    return len(text) // 4 * 3 - padding


def _raw_shape(
    nbytes: int, num_rows: int, num_layers: int | None, top_k: int | None
) -> tuple[int, ...]:
    """The shape of header-less int32 rows; K is derived only where it is not configured."""
    if num_layers is None:
        raise RoutingError("has no header: a RoutingSpec must say its layers and top_k")
    if top_k is None:
        if num_rows == 0:
            return (0, num_layers, 0)
        per_k = num_rows * num_layers * _INT32.itemsize
        if nbytes == 0 or nbytes % per_k:
            raise RoutingError(f"has {nbytes} bytes, not a multiple of {per_k} for its rows")
        return num_rows, num_layers, nbytes // per_k
    row_bytes = num_layers * top_k * _INT32.itemsize
    if nbytes % row_bytes:
        raise RoutingError(f"has {nbytes} bytes, a row of {num_layers} x {top_k} is {row_bytes}")
    return nbytes // row_bytes, num_layers, top_k


def _check_shape(
    shape: tuple[int, ...], num_rows: int, num_layers: int | None, top_k: int | None
) -> None:
    if len(shape) != 3:
        raise RoutingError(f"has rank {len(shape)}, not rows x layers x top_k")
    if shape[0] != num_rows:
        raise RoutingError(f"has {shape[0]} rows, its tokens need {num_rows}")
    wanted = (num_layers or shape[1], top_k or shape[2])
    if shape[1:] != wanted and (num_rows or shape[1:] != (wanted[0], 0)):
        raise RoutingError(f"has rows of {shape[1]} x {shape[2]}, not {wanted[0]} x {wanted[1]}")
    if num_rows and 0 in shape:
        raise RoutingError(f"has {num_rows} rows with nothing in them")


def _dtype_of(name: str) -> np.dtype[Any]:
    dtype = _DTYPES.get(name)
    if dtype is None:
        raise RoutingError(f"has another dtype than {', '.join(map(str, ROW_DTYPES))}")
    return dtype


def _read_npy_header(
    text: memoryview, decode_base64: DecodeBase64
) -> tuple[np.dtype[Any], tuple[int, ...], int]:
    """dtype, shape and size of a .npy header, of the one plain spelling that numpy writes."""
    head_chars = 4 * ((_NPY_PREFIX_BYTES + _NPY_MAX_HEADER_BYTES) // 3)
    head = bytes(_decoded(text[:head_chars], decode_base64))
    skip = _NPY_PREFIX_BYTES + int.from_bytes(head[8:_NPY_PREFIX_BYTES], "little")
    if head[6:8] != b"\x01\x00" or skip > len(head):
        raise RoutingError("is a .npy file of another version than 1.0")
    found = _NPY_HEADER.fullmatch(head[_NPY_PREFIX_BYTES:skip])
    if found is None:
        raise RoutingError("is a .npy file of another dtype or header than plain integers")
    if found[2] == b"True":
        raise RoutingError("is a .npy file in Fortran order")
    shape = tuple(int(dim) for dim in found[3].split(b", "))
    return _dtype_of(found[1].decode()), shape, skip


def _decoded(text: memoryview, decode_base64: DecodeBase64) -> bytes | bytearray:
    try:
        return decode_base64(text)
    except (ValueError, binascii.Error):
        raise RoutingError("is no base64 text") from None


def _chunks(
    text: memoryview,
    skip: int,
    dtype: np.dtype[Any],
    row_shape: tuple[int, int],
    decode_base64: DecodeBase64,
) -> Iterator[Array]:
    """Whole rows [n, L, K], chunk by chunk; a piece of a row is carried over to the next."""
    row_bytes = row_shape[0] * row_shape[1] * dtype.itemsize
    # Three rows are a whole number of base64 groups, so that nothing need be carried over.
    promised = len(text) // 4 * 3 - bytes(text[-2:]).count(b"=") - skip // 3 * 3
    group_chars = 4 * row_bytes
    step = max(_CHUNK_CHARS // group_chars, 1) * group_chars
    position = skip // 3 * 4
    carried: bytes | bytearray = b""
    skip %= 3
    while position < len(text):
        span = text[position : position + step]
        piece = _decoded(span, decode_base64)
        position += step
        promised -= len(piece)
        if skip or carried:
            piece = carried + piece[skip:]
        skip = 0
        num_rows = len(piece) // row_bytes
        carried = piece[num_rows * row_bytes :]
        if num_rows:
            rows = np.frombuffer(piece, dtype, num_rows * row_shape[0] * row_shape[1])
            yield rows.reshape(num_rows, *row_shape)
    if promised:
        raise RoutingError("is no base64 text: padding that is not its end")
