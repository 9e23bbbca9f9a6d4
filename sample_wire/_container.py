"""The safetensors container: header, layout, and views into the bytes.  Knows no samples.

A container is 8 bytes of header length (little-endian u64), that many bytes of JSON header,
and the data.  The rules of reading, SPEC section 4:

- nothing is allocated or read by a claim of the payload before the claim is checked;
- the tensors' byte ranges cover the data exactly: no hole, no overlap, no tail;
- nothing is repaired: one reading of the header, or a ContainerError;
- a view is made only after its offset, size and dtype were checked.

What is left to callers: which tensors there should be, and what their values mean.
"""

from __future__ import annotations

import functools
import struct
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import prod
from typing import Annotated, Any, Final, cast

import msgspec
import numpy as np

from ._arrays import Array, ValueRefusedError, holds_odd_bools, wire_array
from ._dtypes import BY_WIRE_NAME, MAX_RANK, WireDtype, wire_dtype
from ._json import MAX_JSON_DEPTH, StrictJsonError, encode_json, strict_loads
from .errors import ContainerError, EncodeError
from .payload import Payload, Piece, as_bytes_view

MAX_HEADER_BYTES: Final = 100_000_000
_MAX_ARRAY_BYTES: Final = 2**63 - 1
PREFIX_BYTES: Final = 8
unpack_prefix: Final = struct.Struct("<Q").unpack_from
_ALIGNMENT: Final = 8
_METADATA_KEY: Final = "__metadata__"


Size = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class TensorRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One tensor's entry in the header, its keys in the order that writers use.

    Attributes:
        dtype: wire name of the dtype.
        shape: length of each axis, at most MAX_RANK of them.
        data_offsets: the tensor's bytes [start, stop) within the data.
    """

    dtype: str
    shape: Annotated[list[Size], msgspec.Meta(max_length=MAX_RANK)]
    data_offsets: tuple[Size, Size]


_decode_entries: Final = msgspec.json.Decoder(dict[str, TensorRef]).decode

# One tensor to write: layout order of its dtype, name, wire name of the dtype, shape, its
# bytes in pieces, their size together.  A plain tuple: it is made and sorted on the hot path.
TensorToWrite = tuple[int, str, str, Sequence[int], Sequence[Piece], int]


class Container:
    """A checked container over a buffer; hands out views of its tensors.

    Args:
        buffer: any contiguous bytes-like object, or a Payload, whose buffers stay unjoined.
        max_header_bytes: a header that claims more is refused.

    Attributes:
        tensors: what the header says, in header order, every range checked.

    Raises:
        ContainerError: the bytes break a rule of SPEC section 4.
        TypeError: buffer is not bytes-like.
    """

    __slots__ = ("_data_start", "_pieces", "_starts", "tensors")

    tensors: dict[str, TensorRef]

    def __init__(self, buffer: object, *, max_header_bytes: int = MAX_HEADER_BYTES) -> None:
        pieces = tuple(buffer) if isinstance(buffer, Payload) else (as_bytes_view(buffer),)
        self._pieces = pieces
        self._starts = () if len(pieces) == 1 else (*accumulate(map(len, pieces), initial=0),)
        nbytes = self._starts[-1] if self._starts else len(pieces[0])
        if nbytes < PREFIX_BYTES:
            raise ContainerError(
                "the payload is shorter than a container's 8 length bytes", got=f"{nbytes} bytes"
            )
        (header_bytes,) = unpack_prefix(self.read(0, PREFIX_BYTES))
        self._data_start = data_start = PREFIX_BYTES + header_bytes
        if header_bytes > max_header_bytes or data_start > nbytes:
            raise _header_size_error(header_bytes, nbytes - PREFIX_BYTES, max_header_bytes)
        self.tensors = _parse_header(self.read(PREFIX_BYTES, header_bytes))
        _check_cover(self.tensors, nbytes - data_start)

    def view(self, ref: TensorRef) -> Array:
        """The tensor as a read-only array: a view of the buffer.

        Copied only where the buffer is misaligned for the dtype, or where the tensor lies in
        several pieces of a Payload.
        """
        start, stop = ref.data_offsets
        wire = BY_WIRE_NAME[ref.dtype]
        if start == stop:
            array: Array = np.empty(ref.shape, wire.dtype)
            array.flags.writeable = False
            return array
        if self._starts:
            piece, offset = self._locate(start + self._data_start, stop - start)
        else:
            piece, offset = self._pieces[0], start + self._data_start
        return array_view(piece, offset, stop - start, wire, ref.shape)

    def text(self, ref: TensorRef) -> bytes:
        """The tensor's bytes, copied."""
        start, stop = ref.data_offsets
        return self.read(start + self._data_start, stop - start)

    def read(self, start: int, nbytes: int) -> bytes:
        """A range of the whole container, which must lie in it, copied."""
        if not self._starts:
            return self._pieces[0][start : start + nbytes].tobytes()
        piece, offset = self._locate(start, nbytes)
        return bytes(piece[offset : offset + nbytes])

    def _locate(self, start: int, nbytes: int) -> tuple[memoryview, int]:
        """For several pieces: a view that holds nbytes bytes at the returned offset; a copy if
        they do not lie in one."""
        if nbytes == 0:
            return memoryview(b""), 0
        index = bisect_right(self._starts, start) - 1
        offset = start - self._starts[index]
        if offset + nbytes <= len(self._pieces[index]):
            return self._pieces[index], offset
        joined = bytearray()
        while len(joined) < nbytes:
            joined += self._pieces[index][offset : offset + nbytes - len(joined)]
            index, offset = index + 1, 0
        return memoryview(joined).toreadonly(), 0


def array_view(
    piece: memoryview, offset: int, nbytes: int, wire: WireDtype, shape: Sequence[int]
) -> Array:
    """A read-only array over nbytes > 0 checked bytes; a copy where those are misaligned.

    Raises:
        ContainerError: BOOL bytes that are neither 0 nor 1.
    """
    name, dtype, itemsize, _ = wire
    # frombuffer keeps an export of the buffer, so that it cannot be closed or resized
    # under a living array; numpy.ndarray(buffer=...) would let go of it.
    array = np.frombuffer(piece, dtype, nbytes // itemsize, offset)
    if len(shape) != 1:
        array = array.reshape(shape)
    if itemsize > 1:
        if not array.flags.aligned:
            array = array.copy()
            array.flags.writeable = False
    elif name == "BOOL" and holds_odd_bools(array):
        raise ContainerError("a BOOL tensor holds a byte that is neither 0 nor 1")
    return array


def read_container(
    buffer: object, *, max_header_bytes: int = MAX_HEADER_BYTES
) -> dict[str, np.ndarray[Any, np.dtype[Any]]]:
    """Every tensor of a safetensors container, by name, in the order of the header.

    Args:
        buffer: bytes, bytearray, memoryview, mmap, SharedMemory or Payload.
        max_header_bytes: a header that claims more is refused; 100 MB is the format's cap.

    Returns:
        Read-only views of the buffer, which they keep alive; a tensor is copied only where
        the buffer is misaligned for its dtype.  The header's string metadata is checked and
        left out.

    Raises:
        ContainerError: the bytes break a rule of the format; never anything else for bytes.
        TypeError: buffer is no contiguous bytes-like object.

    Source: SPEC section 4.
    """
    container = Container(buffer, max_header_bytes=max_header_bytes)
    return {name: container.view(ref) for name, ref in container.tensors.items()}


def write_container(
    tensors: Mapping[str, np.ndarray[Any, np.dtype[Any]]],
    metadata: Mapping[str, str] | None = None,
) -> Payload:
    """A safetensors container with these tensors, byte for byte as the safetensors package
    writes it for the same contiguous arrays.

    Args:
        tensors: numpy arrays of any memory layout and byte order, by name.  C-contiguous
            native ones are aliased; every other one is copied once, by value.
        metadata: string-to-string map for the header, written in sorted order, or None.

    Returns:
        The unjoined payload; it aliases the arrays.

    Raises:
        EncodeError: a dtype that the format or numpy lacks, the name `__metadata__`, a name or
            metadata that is no text.

    Source: SPEC section 4.
    """
    return build_container([_tensor(name, array) for name, array in tensors.items()], metadata)


def tensor_of(name: str, wire: WireDtype, array: Array) -> TensorToWrite:
    """The tensor to write for a C-contiguous native array of the wire dtype; aliases it."""
    if wire.name == "BOOL" and holds_odd_bools(array):
        raise EncodeError("a bool array holds a byte that is neither 0 nor 1")
    return wire.order, name, wire.name, array.shape, (array,), array.nbytes


def build_container(
    tensors: list[TensorToWrite], metadata: Mapping[str, str] | None = None
) -> Payload:
    """Lays tensors out (sorting the list) and writes the header; the pieces are aliased."""
    entries = [] if metadata is None else [f'"{_METADATA_KEY}":{_map_json(metadata)}']
    pieces: list[Piece] = []
    position = 0
    tensors.sort()
    for _, name, wire_name, shape, tensor_pieces, nbytes in tensors:
        stop = position + nbytes
        head, middle, end = entry_text(name, wire_name)
        axes = ",".join(map(str, shape)) if len(shape) != 1 else shape[0]
        entries.append(f"{head}{axes}{middle}{position},{stop}{end}")
        pieces += tensor_pieces
        position = stop
    return payload_of(entries, pieces, position)


def payload_of(entries: Sequence[str], pieces: Sequence[Piece], data_bytes: int) -> Payload:
    """The payload of a header's entries and the data's pieces, data_bytes in total."""
    header = f"{{{','.join(entries)}}}".encode()
    header += b" " * (-len(header) % _ALIGNMENT)
    if len(header) > MAX_HEADER_BYTES:
        raise EncodeError(f"the header is {len(header)} bytes, the format's cap is 100 MB")
    head = len(header).to_bytes(PREFIX_BYTES, "little") + header
    return Payload.of_pieces([memoryview(head), *pieces], len(head) + data_bytes)


@functools.lru_cache(maxsize=4096)  # names repeat from payload to payload
def entry_text(name: str, wire_name: str) -> tuple[str, str, str]:
    """What stands before a tensor's axes, between them and its offsets, and after those."""
    return f'{_quoted(name)}:{{"dtype":"{wire_name}","shape":[', '],"data_offsets":[', "]}"


def _tensor(name: str, array: Array) -> TensorToWrite:
    if not isinstance(array, np.ndarray):
        raise EncodeError(f"a tensor must be a numpy array, not {type(array).__name__}")
    if not isinstance(name, str):
        raise EncodeError(f"a tensor's name is text, not {type(name).__name__}")
    name = str.__str__(name)
    wire = wire_dtype(array.dtype)
    if wire is None:
        raise EncodeError(f"the format has no dtype for {array.dtype}", got=str(array.dtype))
    if array.ndim > MAX_RANK:  # pragma: no cover  # numpy 1 makes no such array; numpy 2 does
        raise EncodeError(f"a tensor has at most {MAX_RANK} axes", got=str(array.ndim))
    try:
        return tensor_of(name, wire, wire_array(array, wire.dtype, strict=True))
    except ValueRefusedError as error:
        raise EncodeError(
            f"a tensor {error.rule}", expected=error.expected, got=error.got
        ) from None


def _quoted(name: str) -> str:
    if name.isascii() and name.replace(".", "").isidentifier() and name != _METADATA_KEY:
        return f'"{name}"'
    if name == _METADATA_KEY:
        raise EncodeError(f"a tensor cannot be named {_METADATA_KEY}: the format keeps that name")
    return _json_text(name)


def _json_text(text: object) -> str:
    if not isinstance(text, str):
        raise EncodeError(f"names and metadata are text, not {type(text).__name__}")
    try:
        return encode_json(str.__str__(text)).decode()
    except UnicodeEncodeError:
        raise EncodeError("a name or metadata text holds a lone surrogate") from None


def _map_json(metadata: Mapping[str, str]) -> str:
    items = [f"{_json_text(key)}:{_json_text(metadata[key])}" for key in _sorted_keys(metadata)]
    return f"{{{','.join(items)}}}"


def _sorted_keys(metadata: Mapping[str, str]) -> list[str]:
    for key in metadata:
        _json_text(key)
    return sorted(metadata)


def _header_size_error(header_bytes: int, left_bytes: int, max_header_bytes: int) -> ContainerError:
    if header_bytes > max_header_bytes:
        limit, whose = max_header_bytes, "the limit is"
    else:
        limit, whose = left_bytes, "the bytes after its length are"
    return ContainerError(
        f"the header claims {header_bytes} bytes, {whose} {limit}",
        expected=f"at most {limit}",
        got=str(header_bytes),
    )


def _parse_header(header: bytes) -> dict[str, TensorRef]:
    """The header's entries; the fast way where it reads as writers write it."""
    if not header.startswith(b"{"):
        raise ContainerError("the header must begin with '{'")
    try:
        entries = _decode_entries(header)
        if encode_json(entries) == header.rstrip(b" ") and _METADATA_KEY not in entries:
            return entries
    except (ValueError, RecursionError, msgspec.MsgspecError):
        pass
    return _parse_unusual_header(header)


def _parse_unusual_header(header: bytes) -> dict[str, TensorRef]:
    """Any other header: string metadata, white space, escapes, or a fault to name."""
    try:
        fields = cast(dict[str, Any], strict_loads(header, MAX_JSON_DEPTH))  # it begins with "{"
    except StrictJsonError as error:
        raise ContainerError(f"the header {error}") from None
    try:
        msgspec.convert(fields.pop(_METADATA_KEY, {}), dict[str, str])
    except msgspec.ValidationError:
        raise ContainerError("the header's __metadata__ must map text to text") from None
    try:
        return msgspec.convert(fields, dict[str, TensorRef])
    except msgspec.ValidationError:
        raise ContainerError(
            "a tensor's entry must have exactly dtype, shape and data_offsets, of their types "
            f"and ranges, and at most {MAX_RANK} axes"
        ) from None


def _check_cover(tensors: dict[str, TensorRef], data_bytes: int) -> None:
    """Each range is its tensor's size, and the ranges cover the data exactly."""
    position = 0
    in_order = True
    for ref in tensors.values():
        wire = BY_WIRE_NAME.get(ref.dtype)
        if wire is None:
            raise ContainerError("a tensor's dtype is not one that the format and numpy share")
        shape, itemsize = ref.shape, wire[2]
        size = (shape[0] if len(shape) == 1 else prod(shape)) * itemsize
        start, stop = ref.data_offsets
        if size != stop - start:
            raise ContainerError("a tensor's byte range is not the size of its shape")
        if size == 0 and prod(dim or 1 for dim in shape) * itemsize > _MAX_ARRAY_BYTES:
            # numpy cannot hold it: a zero axis does not excuse the size of the others.
            raise ContainerError("a tensor's shape overflows")
        in_order = in_order and start == position
        position = stop
    if not in_order:
        position = _end_of_ranges(sorted(ref.data_offsets for ref in tensors.values()))
    if position != data_bytes:
        raise ContainerError(
            f"the tensors cover {position} bytes, the payload holds {data_bytes} after the header",
            expected=f"{position} bytes",
            got=f"{data_bytes} bytes",
        )


def _end_of_ranges(ranges: list[tuple[int, int]]) -> int:
    """Where sorted byte ranges end, that follow one another without a hole or overlap."""
    position = 0
    for start, stop in ranges:
        if start != position:
            raise ContainerError("the tensors' byte ranges leave a hole or overlap")
        position = stop
    return position
