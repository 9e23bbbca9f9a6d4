"""Judges `decode_samples` on a payload: by its own rules, and by the second decoder's verdict.

Only DecodeError may leave it; the template stays as it was; what is accepted is what the
decoder made from SPEC.md alone reads, and can be encoded and read again.
"""

from __future__ import annotations

import json
import pickle
from typing import Any, Final

import numpy as np
from vectors._meaning import reply_meaning
from vectors.independent_decoder import RefusedError, decode_reply

from sample_wire import (
    DecodeError,
    Payload,
    Sample,
    SamplesReply,
    decode_samples,
    encode_samples,
)
from sample_wire.codec import LAYOUTS, Layout

from ._findings import Finding

_MAX_TEXT: Final = 2000
_PIECE_BYTES: Final = 29
TEMPLATE: Final = Sample(group_index=7, label={"answer": [1, {"deep": np.arange(3)}]})
_TEMPLATE_BYTES: Final = pickle.dumps(TEMPLATE)


def check_payload(data: bytes) -> str | Finding:
    """Decodes the input in both field sets; names the outcome, or gives the finding."""
    try:
        outcomes = [_check(data, field_set) for field_set in (1, 2)]
    except _FindingError as found:
        return Finding(found.what, data)
    except BaseException as error:  # noqa: BLE001  # any other error at all is the finding
        return Finding(f"raised {error!r}", data)
    if pickle.dumps(TEMPLATE) != _TEMPLATE_BYTES:
        return Finding("the template was changed", data)
    return " / ".join(outcomes)


class _FindingError(Exception):
    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


def _check(data: bytes, field_set: int) -> str:
    expected = _second_opinion(data, field_set)
    found = _decode(data, field_set)
    if isinstance(found, DecodeError):
        if len(str(found)) > _MAX_TEXT:
            raise _FindingError("the error's text is too long")
        if isinstance(expected, dict):
            raise _FindingError(f"field set {field_set}: refused: {found}; it is good")
        return type(found).__name__
    if isinstance(expected, str):
        raise _FindingError(f"field set {field_set}: accepted; it breaks {expected}")
    text = json.dumps(reply_meaning(found, field_set))
    if text != json.dumps(expected):
        raise _FindingError(f"field set {field_set}: read to something else")
    for layout in LAYOUTS:
        _check_again(found, field_set, layout, text)
    return "accepted"


def _second_opinion(data: bytes, field_set: int) -> dict[str, Any] | str:
    """The meaning, or the rule that the payload breaks."""
    try:
        return decode_reply(data, field_set)
    except RefusedError as refused:
        return refused.rule


def _decode(data: bytes, field_set: int) -> SamplesReply[Sample] | DecodeError:
    """The reply or the error, which must be the same for whole bytes and for pieces of them, and
    where nothing is widened."""
    whole = _decode_buffer(data, field_set)
    starts = range(0, len(data), _PIECE_BYTES)
    pieces = Payload([data[start : start + _PIECE_BYTES] for start in starts])
    in_pieces = _decode_buffer(pieces, field_set)
    if type(whole) is not type(in_pieces):
        raise _FindingError(f"field set {field_set}: another verdict in pieces")
    if type(whole) is not type(_decode_buffer(data, field_set, widen=False)):
        raise _FindingError(f"field set {field_set}: another verdict where nothing is widened")
    return whole


def _decode_buffer(
    buffer: object, field_set: int, *, widen: bool = True
) -> SamplesReply[Sample] | DecodeError:
    try:
        return decode_samples(buffer, TEMPLATE, field_set=field_set, widen=widen)
    except DecodeError as error:
        return error


def _check_again(reply: SamplesReply[Sample], field_set: int, layout: Layout, text: str) -> None:
    """What was read must come back equal once it is encoded in either layout."""
    again = bytes(
        encode_samples(
            reply.samples,
            reply.session_metadata,
            empty_reason=reply.empty_reason,
            field_set=field_set,
            layout=layout,
        )
    )
    read_again = decode_samples(again, Sample(), field_set=field_set)
    if json.dumps(reply_meaning(read_again, field_set)) != text:
        raise _FindingError(
            f"field set {field_set}: not equal once it was encoded ({layout}) and read again"
        )
