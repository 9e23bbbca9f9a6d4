"""Every error as JSON {"error": text, "code": code}; the code is stable, the text is for people."""

from __future__ import annotations

import logging
from typing import Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from ...errors import AssemblyError, EncodeError, SessionError
from .logs import log_fault

_log: Final = logging.getLogger(__name__)
_CODES: Final = {404: "not_found", 405: "method_not_allowed"}
# OpenAI's clients send these again unasked, unless they are told not to.  A 409 sent again would
# roll back the turn that it lost to, and a bad reply would be paid for once more.
_SEND_NO_MORE: Final = {"x-should-retry": "false"}
# Room comes back when sessions end, and another server may have some.
_COME_AGAIN: Final = {"retry-after": "5"}
_HEADERS: Final = {
    401: {"www-authenticate": "Bearer"},
    409: _SEND_NO_MORE,
    502: _SEND_NO_MORE,
    503: _COME_AGAIN,
}
# Where a request's scope says which code it was answered with.
CODE_KEY: Final = "sample_wire.code"
# And where with which status and code its connection refused it, while its body came.
REFUSAL_KEY: Final = "sample_wire.refusal"
# How long a client that was answered early may go on sending, and read the answer meanwhile: a
# connection that is closed with bytes unread takes back the answer too.
LINGER_S: Final = 1.0
# What a client sent is told back to it no further than this.
_MAX_PATH: Final = 200
_UNPROCESSABLE: Final = {AssemblyError: "assembly_failed", EncodeError: "encode_failed"}


def error_response(
    status: int, text: str, code: str, headers: dict[str, str] | None = None, **more: object
) -> Response:
    """The one form that errors have; what programs need beside it goes into further keys."""
    body = msgspec.json.encode({"error": text, "code": code, **more})
    return Response(body, status, headers, "application/json")


def answer_to(request: Request, error: Exception) -> Response:
    """The response to whatever a handler raised.

    What nobody foresaw is 500: its kind and place go to the log, and no text of it to anybody.
    """
    if isinstance(error, HTTPException):
        return http_error(request, error)
    status, text, code = _told(error)
    told = {"request_id": request.headers.get("x-request-id"), "code": code}
    if code == "internal_error":
        log_fault(_log, "internal error", error, told)
    elif status >= 500:
        _log.warning("%s: %s", code, text, extra=told)
    request.scope[CODE_KEY] = code
    return error_response(status, text, code, _HEADERS.get(status))


def _told(error: Exception) -> tuple[int, str, str]:
    """Status, text and code of an error."""
    if isinstance(error, SessionError):
        return error.http_status_hint, str(error), error.code
    for kind, code in _UNPROCESSABLE.items():
        if isinstance(error, kind):
            return 422, str(error), code
    if isinstance(error, ClientDisconnect):
        return 499, "the client has gone", "client_gone"  # nobody reads it
    return 500, f"internal error: {type(error).__name__}", "internal_error"


def http_error(request: Request, error: Exception) -> Response:
    """The response to an HTTPException, of ours or of the framework's router."""
    assert isinstance(error, HTTPException)
    code = _CODES.get(error.status_code, "http_error")
    text = f"{error.detail}: {request.method} {request.scope['path']:.{_MAX_PATH}}"
    request.scope[CODE_KEY] = code
    return error_response(error.status_code, text, code, dict(error.headers or {}))
