"""An HTTP answer as it arrives: judged by its head, then collected into one buffer.

The body of a reply is 100 MB.  It is written once, into memory that is as large as the server
says; where it does not say, into a buffer that grows in place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NoReturn

import msgspec
import numpy as np

from ..errors import ClientError, LimitError, ServerError
from ._media_types import canonical_type

# The words of a refusal are for people and logs; what is longer is a page of some proxy.
MAX_REFUSAL_BYTES: Final = 2**20
# The longest decimal that every 64-bit size is shorter than.
_MAX_LENGTH_DIGITS: Final = 19


class Answer:
    """One answer; the shell gives it the body piece by piece.

    Args:
        status: the HTTP status.
        headers: looked up by lower-case name.
        media_types: what the body of a success may be, the last where the head does not say;
            none where nobody looks at it.
        max_bytes: a longer body is refused; None for no limit.

    Attributes:
        status: as given.
        media_type: what the body is, one of media_types, or None where it is none of them.

    Raises:
        LimitError: the server says that the body is longer than max_bytes.
    """

    def __init__(
        self,
        status: int,
        headers: Mapping[str, str],
        *,
        media_types: Sequence[str],
        max_bytes: int | None,
    ) -> None:
        self.status = status
        self._refusal = bytearray()
        self._body: KnownBody | GrowingBody = GrowingBody(max_bytes)
        self._fault: ClientError | None = None
        self.media_type: str | None = None
        if self.is_success:
            if media_types:
                found = canonical_type(headers.get("content-type", media_types[-1]))
                self._fault = _fault_of_head(headers, found, media_types)
                self.media_type = None if self._fault else found
            length = _length(headers)
            if length is not None and self._fault is None:
                self._body = KnownBody(length, max_bytes)

    @property
    def is_success(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300

    @property
    def body(self) -> memoryview:
        """The whole body of a success, without a copy."""
        return self._body.view()

    def add(self, chunk: bytes) -> bool:
        """Takes the next bytes; False once no more are wanted.

        Raises:
            LimitError: the body is longer than max_bytes.
            ClientError: it is longer than the server said.
        """
        if self._fault is not None:
            return False
        if self.is_success:
            self._body.add(chunk)
            return True
        self._refusal += chunk[: MAX_REFUSAL_BYTES - len(self._refusal)]
        return len(self._refusal) < MAX_REFUSAL_BYTES

    def finish(self) -> None:
        """Checks that the body is whole.

        Raises:
            ClientError: it is shorter than the server said.
        """
        if self.is_success and self._fault is None:
            self._body.finish()

    def require_success(self) -> None:
        """Does nothing for a 2xx with a body of the right kind.

        Raises:
            ClientError: a success whose body is in a content encoding, or of another type.
            ServerError: for any other status, with the server's words.
        """
        if self._fault is not None:
            raise self._fault
        if not self.is_success:
            raise self.refusal()

    def refusal(self) -> ServerError:
        """The error for another status than 2xx."""
        try:
            refusal = msgspec.json.decode(self._refusal, type=_Refusal)
        except msgspec.DecodeError:
            return ServerError(self.status, None, self._refusal.decode("utf-8", "replace"))
        return ServerError(self.status, refusal.code, refusal.error)


class KnownBody:
    """A body whose length the server has told, in memory of that size.

    The memory is not filled with zeros first, as a bytearray would be: a wrong length costs
    nothing, and no page is touched twice.
    """

    def __init__(self, length: int, max_bytes: int | None) -> None:
        if max_bytes is not None and length > max_bytes:
            _refuse_size(f"{length}", max_bytes)
        try:
            self._whole = np.empty(length, np.uint8).data
        except (MemoryError, ValueError):
            raise LimitError(f"there is no memory for a reply of {length} bytes") from None
        self._position = 0

    def add(self, chunk: bytes) -> None:
        """Copies the chunk to its place."""
        stop = self._position + len(chunk)
        if stop > len(self._whole):
            raise ClientError(f"the body is longer than the {len(self._whole)} bytes it should be")
        self._whole[self._position : stop] = chunk
        self._position = stop

    def finish(self) -> None:
        """Checks that the memory is full."""
        if self._position != len(self._whole):
            raise ClientError(f"the body ends at {self._position} of {len(self._whole)} bytes")

    def view(self) -> memoryview:
        """The memory."""
        return self._whole


class GrowingBody:
    """A body of unknown length.  A bytearray of this size grows in place, by an eighth."""

    def __init__(self, max_bytes: int | None) -> None:
        self._max_bytes = max_bytes
        self._whole = bytearray()

    def add(self, chunk: bytes) -> None:
        """Appends the chunk."""
        size = len(self._whole) + len(chunk)
        if self._max_bytes is not None and size > self._max_bytes:
            _refuse_size(f"at least {size}", self._max_bytes)
        self._whole += chunk

    def finish(self) -> None:
        """Nothing to compare the length with."""

    def view(self) -> memoryview:
        """What has come."""
        return memoryview(self._whole)


class _Refusal(msgspec.Struct):
    """The error form of this library; other keys are ignored."""

    error: str
    code: str | None = None


def _fault_of_head(
    headers: Mapping[str, str], found: str, media_types: Sequence[str]
) -> ClientError | None:
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        return ClientError(f"the body has content-encoding {encoding}, which was not asked for")
    if found in media_types:
        return None
    expected = " or ".join(media_types)
    return ClientError(
        f"the body is {found}, not {expected}, as was asked for",
        expected=expected,
        got=found,
    )


def _length(headers: Mapping[str, str]) -> int | None:
    """The declared length, or None: without one, and where chunks make it void (RFC 9112 6.3)."""
    text = headers.get("content-length", "")
    if "transfer-encoding" in headers or len(text) > _MAX_LENGTH_DIGITS:
        return None
    return int(text) if text.isascii() and text.isdigit() else None


def _refuse_size(size: str, max_bytes: int) -> NoReturn:
    raise LimitError(
        f"the reply has {size} bytes, the limit is {max_bytes}",
        expected=f"at most {max_bytes} bytes",
        got=f"{size} bytes",
    )
