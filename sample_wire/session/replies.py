"""Engine replies: checked, held without what the ledgers hold, and written again as they came."""

from __future__ import annotations

import contextlib
import re
import zlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from .._json import encode_json
from ..assembly import Turn
from ..errors import AssemblyError, SessionError
from ._cuts import (
    INDEXER,
    MAX_TEXT_BYTES,
    MAX_VALUES,
    PROMPT,
    ROUTING,
    Place,
    ReplyBytes,
    cut_found,
    cut_out,
    has_many_values,
    loaded,
    put,
    without_member,
)
from ._kept import Cut, EncodeBase64, cuts_of, standard_base64

if TYPE_CHECKING:
    from .engine_kind import EngineKind

# The beginning of an object that is written without blanks; its writer sets none later either.
_COMPACT: Final = re.compile(rb'\{"[^"\\]*":[^ \t\r\n]')
ReadTurn = Callable[[Any, Mapping[str, memoryview]], Turn]


class HeldReply:
    """A reply's JSON text without its routing, and what was cut out.

    Args:
        text, cuts: these.
        is_plain: whether the arrays are named nowhere else in the text.

    Attributes:
        cuts, is_plain: as given.
    """

    __slots__ = ("_stored", "cuts", "is_plain")

    def __init__(self, text: bytes, cuts: tuple[Cut, ...], *, is_plain: bool) -> None:
        self._stored: tuple[bytes, bool] = (text, False)
        self.cuts = cuts
        self.is_plain = is_plain

    @property
    def text(self) -> bytes:
        """The text."""
        stored, is_packed = self._stored
        return zlib.decompress(stored) if is_packed else stored

    @property
    def num_bytes(self) -> int:
        """Of the text as it is held now, and of what else was cut out of it."""
        kept = (len(cut.verbatim) for cut in self.cuts if cut.verbatim is not None)
        return len(self._stored[0]) + sum(kept)

    def pack(self) -> None:
        """Holds the text in a quarter of its size; takes a millisecond, in any thread."""
        self._stored = (zlib.compress(self.text, 1), True)

    def body(self, turn: Turn, encode_base64: EncodeBase64) -> Any:
        """The reply as it was.  Cost: its routing as text, twice."""
        body = loaded(self.text)
        for cut in self.cuts:
            put(body, cut.path, cut.value(turn, encode_base64))
        return body

    def bare_body(self) -> Any:
        """The reply without what was cut out: empty texts and lists in its place."""
        return loaded(self.text)

    def client_body(self, turn: Turn) -> dict[str, Any]:
        """The reply as a client gets it: without the arrays."""
        body: dict[str, Any] = loaded(self.text)
        for cut in self.cuts:
            if cut.kind == PROMPT:
                put(body, cut.path, cut.value(turn, standard_base64))
        holders = [body.get("sglext"), *body["choices"]]
        holders += [choice.get("meta_info") for choice in body["choices"]]
        for holder in holders:
            if isinstance(holder, dict):
                holder.pop(ROUTING, None)
                holder.pop(INDEXER, None)
        return body

    def client_text(self, turn: Turn) -> bytes:
        """The JSON text of that, compact and in UTF-8.

        A plain reply is not parsed for it where it is written so already.
        """
        text = self.text
        if not self.is_plain or b"\\u" in text or not _COMPACT.match(text):
            return encode_json(self.client_body(turn))
        for cut in self.cuts:
            text = without_member(text, cut.kind)
        return text


class Received(NamedTuple):
    """A reply that passed the checks.

    Attributes:
        turn: that it makes.
        held: what is kept of it beside the turn.
        id: the engine's name for it, or "" where it has none.
    """

    turn: Turn
    held: HeldReply
    id: str


def received(
    reply: ReplyBytes, prompt_ids: npt.NDArray[np.int64], kind: EngineKind, read: ReadTurn
) -> Received:
    """What a reply makes.

    Args:
        reply: as it was received.
        prompt_ids: int64 [P], those that were sent.
        kind: of the engine.
        read: makes the turn from the reply, be it JSON text or parsed, and the arrays that
            were cut out of that.

    Raises:
        SessionError: 502 "bad_engine_reply".
    """
    found = cut_found(reply)
    if found is not None:
        places, text, given = found
        with contextlib.suppress(AssemblyError):  # of several faults the checks tell the first
            turn = read(text, {place.kind: place.value for place in places})
            if kind.is_spoken(turn):
                return Received(turn, _held(text, places, turn, is_plain=True), given)
    return _received_parsed(reply, prompt_ids, kind, read)


def _received_parsed(
    reply: ReplyBytes, prompt_ids: npt.NDArray[np.int64], kind: EngineKind, read: ReadTurn
) -> Received:
    """The same for every reply: it is parsed, and checked rule by rule."""
    if has_many_values(reply):
        raise bad_reply(f"its JSON has more than {MAX_VALUES} values")
    try:
        places, text = cut_out(reply, prompt_ids)
        _check_size(text)
        body = loaded(text)
    except (ValueError, RecursionError):
        raise bad_reply("it is not JSON") from None
    kind.check(body)
    check_written(body)
    for place in places:
        if place.kind != PROMPT:
            put(body, place.path, place.value)
    answer = {key: body[key] for key in kind.answer_keys if key in body}
    try:
        turn = read(answer, {})
    except AssemblyError as error:
        raise bad_reply(str(error)) from error
    given = body.get(kind.id_key)
    held = _held(text, places, turn, is_plain=False)
    return Received(turn, held, given if isinstance(given, str) else "")


def _check_size(text: bytes) -> None:
    if len(text) > MAX_TEXT_BYTES:
        raise bad_reply(f"without its arrays it has more than {MAX_TEXT_BYTES} bytes")


def _held(text: bytes, places: list[Place], turn: Turn, *, is_plain: bool) -> HeldReply:
    try:
        return HeldReply(text, cuts_of(places, turn), is_plain=is_plain)
    except ValueError:
        raise bad_reply("it is not JSON") from None


def first_choice(body: Any) -> dict[str, Any]:
    """The choice that makes the turn.

    Raises:
        SessionError: 502 "bad_engine_reply": there is none.
    """
    choices = body.get("choices", [{}]) if isinstance(body, dict) else None
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise bad_reply("it is no object with choices")
    return choices[0]


def check_written(body: Any) -> None:
    """Passes for a reply that can be told again.

    Raises:
        SessionError: 502 "bad_engine_reply".
    """
    try:
        encode_json(body)
    except (UnicodeError, RecursionError):
        raise bad_reply("it cannot be written as JSON again") from None


def bad_reply(why: str) -> SessionError:
    """An engine's answer that a session cannot take."""
    return SessionError(f"bad engine reply: {why}", code="bad_engine_reply", http_status=502)
