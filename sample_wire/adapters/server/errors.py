"""Every error as JSON {"error": text, "code": code}; the code is stable, the text is for people."""

from __future__ import annotations

import logging
from typing import Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ExceptionHandler

from ...errors import AssemblyError, EncodeError, SessionError

_log: Final = logging.getLogger(__name__)
_CODES: Final = {404: "not_found", 405: "method_not_allowed"}


def error_response(
    status: int, text: str, code: str, headers: dict[str, str] | None = None
) -> Response:
    """The one form that errors have."""
    body = msgspec.json.encode({"error": text, "code": code})
    return Response(body, status, headers, "application/json")


def _session_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, SessionError)
    if error.http_status_hint >= 500:
        _log.warning("%s %s: %s", request.method, request.scope["path"], error)
    return error_response(error.http_status_hint, str(error), error.code)


def _assembly_error(_request: Request, error: Exception) -> Response:
    return error_response(422, str(error), "assembly_failed")


def _encode_error(_request: Request, error: Exception) -> Response:
    return error_response(422, str(error), "encode_failed")


def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = _CODES.get(error.status_code, "http_error")
    text = f"{error.detail}: {request.method} {request.scope['path']}"
    return error_response(error.status_code, text, code, dict(error.headers or {}))


def _disconnect(_request: Request, _error: Exception) -> Response:
    """A client that closed its connection while it sent its body; nobody reads this."""
    return error_response(499, "the client has gone", "client_gone")


def _unforeseen(_request: Request, error: Exception) -> Response:
    """The server lives on; what it was goes to the log, and none of it to the client."""
    return error_response(500, f"internal error: {type(error).__name__}", "internal_error")


EXCEPTION_HANDLERS: Final[dict[type[Exception], ExceptionHandler]] = {
    SessionError: _session_error,
    AssemblyError: _assembly_error,
    EncodeError: _encode_error,
    HTTPException: _http_error,
    ClientDisconnect: _disconnect,
    Exception: _unforeseen,
}
