"""Every way in which collect fails on the wire: what the server does, and the error for it."""

from __future__ import annotations

import gzip
from typing import Final, NamedTuple

from sample_wire import ContainerError, LimitError, MetaError, write_container
from sample_wire.errors import ClientError, CollectTimeout, ServerError

from ._samples import make_payload
from ._stub import Reply, answer, chunked, drip, hang_up, head, reset, sends, silence

# Long enough for the request to arrive on a busy machine, since tests count the requests.
SHORT_TIMEOUT_S: Final = 0.25
LIMIT_BYTES: Final = 2**20
PAYLOAD: Final = make_payload()
HALF: Final = PAYLOAD[: len(PAYLOAD) // 2]
CHUNKED: Final = "Transfer-Encoding: chunked"
HTML: Final = b"<html><body>Log in</body></html>"


class Failure(NamedTuple):
    """One fault.

    Attributes:
        reply: what the server does.
        error: the exact class that collect raises.
        timeout_s: the limit that collect is given.
    """

    reply: Reply
    error: type[Exception]
    timeout_s: float | None = 30.0


def refusal(status: int) -> Reply:
    """A refusal in the error form of the library."""
    return answer(
        b'{"error":"no sample","code":"no_sample"}', status=status, media_type="application/json"
    )


# A server that is slow, and never done.
TIMEOUTS: Final = {
    "silent": Failure(silence, CollectTimeout, SHORT_TIMEOUT_S),
    "silent after the head": Failure(
        sends(head(length=len(PAYLOAD)), then=silence), CollectTimeout, SHORT_TIMEOUT_S
    ),
    "silent in the body": Failure(
        sends(head(length=len(PAYLOAD)), HALF, then=silence), CollectTimeout, SHORT_TIMEOUT_S
    ),
    "a body that drips": Failure(
        sends(head(length=len(PAYLOAD)), then=drip), CollectTimeout, SHORT_TIMEOUT_S
    ),
    "a body without length that drips": Failure(
        sends(head(), then=drip), CollectTimeout, SHORT_TIMEOUT_S
    ),
    "a head that drips": Failure(
        sends(b"HTTP/1.1 200 OK\r\nX-Slow: ", then=drip), CollectTimeout, SHORT_TIMEOUT_S
    ),
    "a refusal that drips": Failure(
        sends(head(422, length=1000), then=drip), CollectTimeout, SHORT_TIMEOUT_S
    ),
}
REFUSALS: Final = {
    f"status {status}": Failure(refusal(status), ServerError)
    for status in (400, 404, 409, 413, 422, 429, 500, 502, 503)
} | {
    "redirect 307": Failure(answer(b"", "Location: /elsewhere", status=307), ServerError),
    "truncated refusal": Failure(sends(head(422, length=1000), b"{", then=hang_up), ServerError),
    "redirect 303": Failure(answer(b"", "Location: /elsewhere", status=303), ServerError),
}
BROKEN_OFF: Final = {
    "reset at once": Failure(reset, ClientError),
    "reset after the head": Failure(sends(head(length=len(PAYLOAD)), then=reset), ClientError),
    "reset in the body": Failure(sends(head(length=len(PAYLOAD)), HALF, then=reset), ClientError),
    "closed without an answer": Failure(hang_up, ClientError),
    "truncated body": Failure(sends(head(length=len(PAYLOAD)), HALF, then=hang_up), ClientError),
    "truncated chunks": Failure(
        sends(
            head(200, "application/octet-stream", None, CHUNKED),
            chunked([HALF], whole=False),
            then=hang_up,
        ),
        ClientError,
    ),
    "no HTTP": Failure(sends(b"SSH-2.0-OpenSSH_9.6\r\n", then=hang_up), ClientError),
    "two lengths": Failure(
        sends(head(200, "application/octet-stream", 5, "Content-Length: 6"), b"123456"), ClientError
    ),
}
NO_PAYLOAD: Final = {
    "gzip that was not asked for": Failure(
        answer(gzip.compress(PAYLOAD), "Content-Encoding: gzip"), ClientError
    ),
    "HTML with status 200": Failure(answer(HTML, media_type="text/html"), ClientError),
    "larger than the limit": Failure(sends(head(length=LIMIT_BYTES + 1), then=silence), LimitError),
    "chunks larger than the limit": Failure(
        sends(
            head(200, "application/octet-stream", None, CHUNKED),
            chunked([bytes(LIMIT_BYTES + 1)]),
        ),
        LimitError,
    ),
    "length one too short": Failure(answer(PAYLOAD[:-1]), ContainerError),
    "truncated body without a length": Failure(sends(head(), HALF, then=hang_up), ContainerError),
    "garbage": Failure(answer(b"\xff" * 100), ContainerError),
    "an empty body": Failure(answer(b""), ContainerError),
    "another container": Failure(answer(bytes(write_container({}))), MetaError),
}
FAILURES: Final = TIMEOUTS | REFUSALS | BROKEN_OFF | NO_PAYLOAD
