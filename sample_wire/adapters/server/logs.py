"""Logs as JSON lines: one object an event, for programs to read.

What an event carries beside its text is a field of its own.  Of an error that nobody foresaw the
kind and the places are told; its text may quote a conversation.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Mapping
from typing import Final

import msgspec

_NO_FIELDS: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "color_message"}


class JsonLines(logging.Formatter):
    """Formats a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """The line: time in seconds, level, logger and event, then the event's own fields."""
        told = {
            "time": round(record.created, 6),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **{key: value for key, value in vars(record).items() if key not in _NO_FIELDS},
        }
        if record.exc_info and record.exc_info[1] is not None:
            told |= fault(record.exc_info[1])
        return msgspec.json.encode(told, enc_hook=str).decode()


def request_event(
    request_id: str, method: str, route: str, status: int, code: str | None, seconds: float
) -> dict[str, object]:
    """The fields of the one event that a request is.

    Args:
        method: "" where it was not read.
        route: its pattern: paths hold the ids of sessions; "" where none was found.
        code: of an error.
    """
    return {
        "request_id": request_id,
        "method": method,
        "route": route,
        "status": status,
        "code": code,
        "seconds": round(seconds, 6),
    }


def fault(error: BaseException) -> dict[str, object]:
    """What is told of an error: its kind, and where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    places = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
    return {"error": type(error).__name__, "places": places}


def log_fault(
    logger: logging.Logger,
    event: str,
    error: BaseException,
    more: Mapping[str, object] | None = None,
) -> None:
    """Logs an error that nobody foresaw, without its text; more are further fields."""
    told = fault(error)
    logger.error("%s: %s", event, told["error"], extra={**told, **(more or {})})


def write_logs() -> None:
    """Writes the events of this process to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.getLogger("sample_wire").setLevel(logging.INFO)
