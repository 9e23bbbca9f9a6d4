"""One HTTP request of a session client, and what its answer has to be; no HTTP package."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Literal, Self, TypeVar

import msgspec

from ..errors import ClientError, CollectTimeout
from ._client_answer import Answer
from ._media_types import accept_header

ResultT = TypeVar("ResultT")
Kind = Literal["create", "collect", "delete"]


class Request(msgspec.Struct, frozen=True):
    """One HTTP request for a shell to carry out.

    Attributes:
        kind: the operation.
        url, content: where to, and the body, JSON or nothing.
        timeout_s: for the whole exchange, from connecting to the last byte; None for no limit.
        max_bytes: of the answer's body; None for no limit.
        media_types: what the body of a success may be, the best first; none where nobody reads it.
        pause_s: to wait before it is sent.
        limit_s: what timeout_s is the rest of, where an exchange before it took its part.
        token: the server's, or None.
    """

    kind: Kind
    url: str
    content: bytes
    timeout_s: float | None
    max_bytes: int | None
    media_types: tuple[str, ...] = ()
    pause_s: float = 0.0
    limit_s: float | None = None
    token: str | None = None

    @property
    def method(self) -> str:
        """The HTTP method."""
        return "DELETE" if self.kind == "delete" else "POST"

    @property
    def headers(self) -> dict[str, str]:
        """All that the server has to be told.

        The body is wanted as it is: to undo a content encoding would need it twice in memory.
        No connection is kept: the server may close it just when the next request goes out, and
        a POST that meets that must not be sent again.
        """
        headers = {
            "accept": accept_header(self.media_types) if self.media_types else "*/*",
            "accept-encoding": "identity",
            "connection": "close",
        }
        if self.token is not None:
            headers["authorization"] = f"Bearer {self.token}"
        return headers | {"content-type": "application/json"} if self.content else headers

    @property
    def is_shielded(self) -> bool:
        """Whether it goes out although the caller was cancelled."""
        return self.kind == "delete"

    def answered(self, status: int, headers: Mapping[str, str]) -> Answer:
        """The answer to it that begins with this head."""
        return Answer(status, headers, media_types=self.media_types, max_bytes=self.max_bytes)

    def again(self, media_types: tuple[str, ...], spent_s: float) -> Self:
        """The same request for other media types, in the rest of its time.

        Raises:
            ClientError: as timed_out gives it, where no time is left.
        """
        left_s = None if self.timeout_s is None else self.timeout_s - spent_s
        if left_s is not None and left_s <= 0:
            raise self.timed_out()
        return msgspec.structs.replace(
            self, media_types=media_types, timeout_s=left_s, limit_s=self.timeout_s
        )

    def timed_out(self) -> ClientError:
        """The error for an exchange that ran into its limit."""
        kind = CollectTimeout if self.kind == "collect" else ClientError
        limit_s = self.limit_s or self.timeout_s
        return kind(f"{self.kind} took longer than its limit of {limit_s} s")

    def failed(self, error: Exception) -> ClientError:
        """The error for an exchange that the transport broke off."""
        reason = ": ".join(filter(None, (type(error).__name__, str(error))))
        return ClientError(f"{self.kind} got no whole answer: {reason}")


Steps = Generator[Request, Answer, ResultT]
