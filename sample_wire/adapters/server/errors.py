"""Every error as JSON {"error": text, "code": code}; the code is stable, the text is for people."""

from __future__ import annotations

import logging
from typing import Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from ...errors import AssemblyError, EncodeError, SessionError

_log: Final = logging.getLogger(__name__)
_CODES: Final = {404: "not_found", 405: "method_not_allowed"}
# OpenAI's clients send these again unasked, unless they are told not to.  A 409 sent again would
# roll back the turn that it lost to, and a bad reply would be paid for once more.
_RESENT: Final = (409, 502)
_SEND_NO_MORE: Final = {"x-should-retry": "false"}
_UNPROCESSABLE: Final = {AssemblyError: "assembly_failed", EncodeError: "encode_failed"}


def error_response(
    status: int, text: str, code: str, headers: dict[str, str] | None = None, **more: object
) -> Response:
    """The one form that errors have; what programs need beside it goes into further keys."""
    body = msgspec.json.encode({"error": text, "code": code, **more})
    return Response(body, status, headers, "application/json")


def answer_to(request: Request, error: Exception) -> Response:
    """The response to whatever a handler raised.

    What nobody foresaw is 500: what it was goes to the log, and none of it to the client.
    """
    if isinstance(error, SessionError):
        if error.http_status_hint >= 500:
            _log.warning("%s %s: %s", request.method, request.scope["path"], error)
        headers = _SEND_NO_MORE if error.http_status_hint in _RESENT else None
        return error_response(error.http_status_hint, str(error), error.code, headers)
    if isinstance(error, HTTPException):
        return http_error(request, error)
    for kind, code in _UNPROCESSABLE.items():
        if isinstance(error, kind):
            return error_response(422, str(error), code)
    if isinstance(error, ClientDisconnect):
        return error_response(499, "the client has gone", "client_gone")  # nobody reads it
    _log.error("%s %s", request.method, request.scope["path"], exc_info=error)
    return error_response(500, f"internal error: {type(error).__name__}", "internal_error")


def http_error(request: Request, error: Exception) -> Response:
    """The response to an HTTPException, of ours or of the framework's router."""
    assert isinstance(error, HTTPException)
    code = _CODES.get(error.status_code, "http_error")
    text = f"{error.detail}: {request.method} {request.scope['path']}"
    return error_response(error.status_code, text, code, dict(error.headers or {}))
