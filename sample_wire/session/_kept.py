"""What a session keeps of the arrays that it cut out of a reply: how to make them again.

A turn holds their rows.  From those the text is made on demand, byte for byte.
"""

from __future__ import annotations

import binascii
import functools
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ..assembly import Turn
from ..blocks import RowBlocks
from ._cuts import PROMPT, ROUTING, Path, Place, loaded

EncodeBase64 = Callable[[bytes], bytes]
_RAW_DTYPE: Final = np.dtype(np.int32)
_NPY_PREFIX_BYTES: Final = 10
_CHUNK_BYTES: Final = 1 << 18
standard_base64: Final[EncodeBase64] = functools.partial(binascii.b2a_base64, newline=False)


@dataclass(frozen=True, slots=True)
class Cut:
    """What was cut out of a reply, told by what its turn holds.

    Attributes:
        path: where it lies in the reply.
        kind: ROUTING, INDEXER or PROMPT.
        num_rows: how many of the turn's rows it is made of, the last ones.
        dtype: what they are sent in.
        head: bytes before the rows: a .npy header, or none.
        tail: the last characters of the base64, whose unused bits may be set.
        verbatim: the base64 itself, where the turn's rows do not tell it; else None.
    """

    path: Path
    kind: str
    num_rows: int = 0
    dtype: np.dtype[Any] = _RAW_DTYPE
    head: bytes = b""
    tail: bytes = b""
    verbatim: bytes | None = None

    def value(self, turn: Turn, encode_base64: EncodeBase64) -> str | list[int]:
        """The base64 text, or the prompt's ids."""
        if self.kind == PROMPT:
            return turn.prompt_and_output(0, turn.num_prompt)
        if self.verbatim is not None:
            return self.verbatim.decode()
        rows = _rows_of(turn, self.kind)
        assert rows is not None
        rows = rows[len(rows) - self.num_rows :]
        pieces = [*_encoded(self.head, rows, self.dtype, encode_base64)]
        last = pieces.pop()
        return "".join([*pieces, last[: len(last) - len(self.tail)] + self.tail.decode()])


def cuts_of(places: list[Place], turn: Turn) -> tuple[Cut, ...]:
    """What is kept of each place beside the turn that was read from the reply.

    Raises:
        ValueError: an array that the turn does not have is no JSON text.
    """
    read: dict[str, Place] = {}
    cuts = []
    for place in places:
        first = read.setdefault(place.kind, place)
        same = place is first or _equal(place.value, first.value)
        cuts.append(_cut_of(place, _rows_of(turn, place.kind) if same else None))
    return tuple(cuts)


def _cut_of(place: Place, rows: RowBlocks | None) -> Cut:
    """What is kept of a place; rows are those that its text was read to, or None."""
    if place.kind == PROMPT:
        return Cut(place.path, place.kind)
    text = place.text
    if rows is None:
        # As it is parsed: nobody has decoded it, so that it may have escapes.
        spelled = bytes(text) if place.is_wrapped else loaded(bytes(place.value)).encode()
        return Cut(place.text_path, place.kind, verbatim=spelled)
    head, dtype = _npy_head(text)
    if place.dtype is not None:
        dtype = np.dtype(place.dtype)
    num_bytes = len(text) // 4 * 3 - bytes(text[-2:]).count(b"=") - len(head)
    row_bytes = int(np.prod(rows.shape[1:])) * dtype.itemsize
    num_rows = num_bytes // row_bytes if num_bytes else 0
    return Cut(place.text_path, place.kind, num_rows, dtype, head, bytes(text[-4:]))


def _npy_head(text: memoryview) -> tuple[bytes, np.dtype[Any]]:
    """The header of a .npy file and its dtype; no header and int32 for raw rows.

    The reader of the turn has checked it.
    """
    magic = np.lib.format.MAGIC_PREFIX
    prefix = binascii.a2b_base64(text[:16])
    if not prefix.startswith(magic):
        return b"", _RAW_DTYPE
    num_bytes = _NPY_PREFIX_BYTES + int.from_bytes(prefix[8:_NPY_PREFIX_BYTES], "little")
    head = binascii.a2b_base64(text[: -(-num_bytes // 3) * 4])[:num_bytes]
    header = io.BytesIO(head[len(magic) + 2 :])
    return head, np.lib.format.read_array_header_1_0(header)[2]


def _equal(one: memoryview, other: memoryview) -> bool:
    """Equal bytes; numpy compares them ten times faster than memoryview does."""
    return np.array_equal(np.frombuffer(one, np.uint8), np.frombuffer(other, np.uint8))


def _encoded(
    head: bytes, rows: RowBlocks, dtype: np.dtype[Any], encode_base64: EncodeBase64
) -> Iterator[str]:
    """The base64 of a header and rows, in pieces that stay in the cache; the last is whole."""
    row_bytes = int(np.prod(rows.shape[1:])) * dtype.itemsize
    step = max(_CHUNK_BYTES // max(row_bytes, 1), 1)
    waiting = head
    for start in range(0, len(rows), step):
        waiting += rows[start : start + step].to_array(dtype).tobytes()
        # At least one byte stays, for a last piece that has the end of the text.
        ready = (len(waiting) - 1) // 3 * 3
        yield encode_base64(waiting[:ready]).decode()
        waiting = waiting[ready:]
    yield encode_base64(waiting).decode()


def _rows_of(turn: Turn, kind: str) -> RowBlocks | None:
    return turn.routing if kind == ROUTING else turn.indexer
