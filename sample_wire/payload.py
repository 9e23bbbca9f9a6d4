"""Payload: one encoded reply as a list of buffers that are not joined.

The buffers alias the caller's arrays: until they are sent, copied or pickled, whoever
changes such an array changes the payload.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, Protocol, SupportsIndex

import numpy as np

from ._arrays import Array, bytes_of

if TYPE_CHECKING:
    from typing_extensions import Buffer  # collections.abc.Buffer is of Python 3.12

# Linux takes at most 1024 buffers in one sendmsg (IOV_MAX); other systems take as many or more.
_MAX_BUFFERS_PER_SEND: Final = 1024


# Bytes of a recast array that are made at once: small enough to stay in the cache.
_RECAST_BYTES: Final = 1 << 20


class Recast:
    """An array that is sent in another dtype; those bytes are made piece by piece.

    Args:
        array: C-contiguous; the caller has made sure that dtype holds every item.
        dtype: the wire dtype.

    Attributes:
        flat: the array's items.
        size: how many there are.
        nbytes: on the wire.
    """

    __slots__ = ("_dtype", "flat", "nbytes", "size")

    def __init__(self, array: Array, dtype: np.dtype[np.generic]) -> None:
        self.flat = array.reshape(-1)
        self._dtype = dtype
        self.size = array.size
        self.nbytes: int = array.size * dtype.itemsize

    def __getitem__(self, items: slice) -> Recast:
        """Some of the items, sent likewise."""
        return Recast(self.flat[items], self._dtype)

    def views(self) -> Iterator[memoryview]:
        """The bytes on the wire, in new buffers of limited size."""
        step = _RECAST_BYTES // self._dtype.itemsize
        for start in range(0, self.flat.size, step):
            yield bytes_of(self.flat[start : start + step].astype(self._dtype))

    def copy_into(self, target: Array) -> None:
        """Writes the bytes on the wire into a uint8 array of nbytes."""
        np.copyto(target.view(self._dtype), self.flat, casting="unsafe")


Piece = Array | memoryview | Recast


class BinaryWriter(Protocol):
    """Anything with a write method for bytes: a file, a BytesIO, a pipe."""

    def write(self, data: memoryview, /) -> int | None: ...


class MessageSocket(Protocol):
    """The one method of a blocking socket.socket that sending needs."""

    def sendmsg(self, buffers: Iterable[Buffer], /) -> int: ...


class Payload:
    """The bytes of one container, as unjoined read-only buffers.

    Iterate it to send it piece by piece, `bytes()` it, write it to a file or a socket, or
    pickle it: with protocol 5 and a buffer_callback no byte is copied.

    Args:
        buffers: C-contiguous buffers in wire order; held, not copied.

    Attributes:
        nbytes: total size in bytes.

    Source: SPEC section 4.
    """

    __slots__ = ("_pieces", "nbytes")

    def __init__(self, buffers: Iterable[Buffer]) -> None:
        self._pieces: Sequence[Piece] = [as_bytes_view(item) for item in buffers]
        self.nbytes: int = sum(piece.nbytes for piece in self._pieces)

    @classmethod
    def of_pieces(cls, pieces: Sequence[Piece], nbytes: int) -> Payload:
        """A payload of C-contiguous arrays, byte views and recast arrays, of nbytes in total.

        Views of the arrays are made when the payload is iterated, not here.
        """
        payload = cls.__new__(cls)
        payload._pieces = pieces
        payload.nbytes = nbytes
        return payload

    def __iter__(self) -> Iterator[memoryview]:
        """The buffers in wire order: read-only, one-dimensional, format 'B', no copies."""
        for piece in self._pieces:
            if isinstance(piece, Recast):
                yield from piece.views()
            else:
                yield bytes_of(piece) if isinstance(piece, np.ndarray) else piece.toreadonly()

    def __bytes__(self) -> bytes:
        """The whole payload as one bytes object.  Cost: one copy; `contiguous` is faster."""
        return b"".join(self)

    def __repr__(self) -> str:
        return f"Payload({self.nbytes} bytes in {len(self._pieces)} pieces)"

    def contiguous(self) -> memoryview:
        """The whole payload as one new writable buffer of format 'B'.

        Cost: one copy, three times faster than joining at 100 MB, since numpy asks for huge
        pages and copies without the interpreter lock.
        """
        whole = np.empty(self.nbytes, np.uint8)
        self._copy_into(whole)
        return whole.data

    def copy_into(self, buffer: object) -> int:
        """Copies the whole payload to the start of a buffer; returns the bytes copied.

        The way into memory that another process maps, without one copy more.

        Args:
            buffer: writable and C-contiguous; memoryview, bytearray, mmap or SharedMemory.

        Raises:
            ValueError: the buffer is smaller than the payload.
            TypeError: it is read-only, not contiguous, or no buffer.
        """
        view = _flat_view(buffer)
        if view.readonly:
            raise TypeError("a payload cannot be copied into a read-only buffer")
        if view.nbytes < self.nbytes:
            raise ValueError(f"the buffer has {view.nbytes} bytes, the payload {self.nbytes}")
        self._copy_into(np.frombuffer(view, np.uint8))
        return self.nbytes

    def _copy_into(self, whole: Array) -> None:
        position = 0
        for piece in self._pieces:
            target = whole[position : position + piece.nbytes]
            if isinstance(piece, Recast):
                piece.copy_into(target)
            else:
                view = bytes_of(piece) if isinstance(piece, np.ndarray) else piece
                np.copyto(target, np.frombuffer(view, np.uint8))
            position += piece.nbytes

    def write_to(self, file: BinaryWriter) -> int:
        """Writes every buffer to a binary file, buffered or raw; returns the bytes written."""
        for view in self:
            position = 0
            while position < len(view):
                written = file.write(view[position:])
                if not written:  # None or 0: what was taken is not known, or nothing was
                    raise BlockingIOError("the file takes no more, or does not say how much")
                position += written
        return self.nbytes

    def send_to(self, sock: MessageSocket) -> int:
        """Sends every buffer over a blocking socket by sendmsg; returns the bytes sent."""
        pending = list(self)[::-1]
        while pending:
            sent = sock.sendmsg(pending[: -_MAX_BUFFERS_PER_SEND - 1 : -1])
            while pending and sent >= len(pending[-1]):
                sent -= len(pending.pop())
            if sent:
                pending[-1] = pending[-1][sent:]
        return self.nbytes

    def __reduce_ex__(
        self, protocol: SupportsIndex
    ) -> tuple[type[Payload], tuple[list[pickle.PickleBuffer] | list[bytes]]]:
        """Protocol 5 hands the buffers over as they are; older protocols copy them."""
        if int(protocol) >= 5:
            return Payload, ([pickle.PickleBuffer(view) for view in self],)
        return Payload, ([bytes(view) for view in self],)


def as_bytes_view(buffer: object) -> memoryview:
    """A read-only, one-dimensional view of format 'B' of any contiguous buffer; no copy.

    Also takes an object that keeps its buffer in an attribute `buf`, as SharedMemory does.

    Raises:
        TypeError: no buffer, or one that is not C-contiguous.
    """
    if type(buffer) is bytes:
        return memoryview(buffer)
    return _flat_view(buffer).toreadonly()


def _flat_view(buffer: object) -> memoryview:
    """The same, and writable where the buffer is."""
    try:
        view = memoryview(buffer)  # type: ignore[arg-type]  # anything may come; it is tried
    except (ValueError, BufferError) as error:
        raise TypeError(f"the payload's buffer cannot be read: {error}") from None
    except TypeError:
        view = getattr(buffer, "buf", None)  # type: ignore[assignment]  # narrowed below
        if not isinstance(view, memoryview):
            name = type(buffer).__name__
            raise TypeError(f"a payload must be a bytes-like object, not {name}") from None
    if not view.c_contiguous:
        raise TypeError("a payload's buffer must be C-contiguous")
    if view.nbytes == 0:
        return memoryview(bytearray())
    return view.cast("B")
