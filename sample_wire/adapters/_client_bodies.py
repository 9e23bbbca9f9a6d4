"""The JSON that a session client sends, and the answer that it reads."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from .._json import MAX_JSON_DEPTH, encode_json
from .._plain import NotPlainError, plain_object
from ..errors import ClientError, EncodeError
from ._client_answer import Answer

# What a path segment may hold without being quoted or resolved; servers use 32 hex digits.
_SESSION_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")


class Created(msgspec.Struct):
    """The answer to POST /sessions; other keys are ignored."""

    session_id: str
    field_set: int | None = None
    schema: str | None = None
    session_server_instance_id: str | None = None
    trajectory: str | None = None


def read_created(answer: Answer) -> Created:
    """What a server tells of the session that it opened.

    Raises:
        ServerError: it refused.
        ClientError: the answer is not as agreed.
    """
    answer.require_success()
    try:
        created = msgspec.json.decode(answer.body, type=Created)
    except msgspec.DecodeError as error:
        raise ClientError(f"the answer to POST /sessions is not as agreed: {error}") from None
    if _SESSION_ID.fullmatch(created.session_id) is None:
        raise ClientError("the answer to POST /sessions has no usable session_id")
    return created


def collect_body(max_seq_len: int | None, metadata: Mapping[str, Any] | None) -> bytes:
    """The body of the POST that collects.

    Raises:
        TypeError: max_seq_len is no integer.
        EncodeError: metadata that JSON does not carry.
    """
    if isinstance(max_seq_len, bool):
        raise TypeError("max_seq_len is an integer or None, not a bool")
    body: dict[str, Any] = {
        "max_seq_len": None if max_seq_len is None else operator.index(max_seq_len)
    }
    if metadata is not None:
        try:
            body["metadata"] = plain_object(metadata, MAX_JSON_DEPTH - 1)
        except NotPlainError as error:
            raise EncodeError(f"metadata{error.path} {error.rule}", field="metadata") from None
    return encode_json(body)
