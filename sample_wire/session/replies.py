"""Engine replies: checked, held without what the ledgers hold, and written again as they came."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .._json import encode_json
from ..assembly import Turn
from ..errors import SessionError
from ._cuts import INDEXER, PROMPT, ROUTING, Cut, cut_out, cuts_of, loaded, put

if TYPE_CHECKING:
    from .engine_kind import EngineKind


@dataclass(frozen=True, slots=True)
class HeldReply:
    """A reply's JSON text without its routing, and what was cut out."""

    text: bytes
    cuts: tuple[Cut, ...]

    def body(self, turn: Turn) -> Any:
        """The reply as it was.  Cost: its routing as text, twice."""
        body = loaded(self.text)
        for cut in self.cuts:
            put(body, cut.path, cut.value(turn))
        return body

    def bare_body(self) -> Any:
        """The reply without what was cut out: empty texts and lists in its place."""
        return loaded(self.text)

    def client_body(self, turn: Turn) -> dict[str, Any]:
        """The reply as a client gets it: without the arrays."""
        body: dict[str, Any] = loaded(self.text)
        for cut in self.cuts:
            if cut.kind == PROMPT:
                put(body, cut.path, cut.value(turn))
        holders = [body.get("sglext"), *body["choices"]]
        holders += [choice.get("meta_info") for choice in body["choices"]]
        for holder in holders:
            if isinstance(holder, dict):
                holder.pop(ROUTING, None)
                holder.pop(INDEXER, None)
        return body


class ReceivedReply:
    """A reply that was received and passed the checks.

    Args:
        reply: its bytes.
        prompt_ids: int64 [P], those that were sent.
        kind: of the engine.

    Attributes:
        answer: the parts of its JSON that tell a turn; routing values are views of the bytes.
        id: the engine's name for it, or "" where it has none.

    Raises:
        SessionError: 502 "bad_engine_reply".
    """

    __slots__ = ("_places", "_text", "answer", "id")

    def __init__(
        self, reply: bytes | bytearray, prompt_ids: npt.NDArray[np.int64], kind: EngineKind
    ) -> None:
        try:
            self._places, self._text = cut_out(reply, prompt_ids)
            body = loaded(self._text)
        except (ValueError, RecursionError):
            raise bad_reply("it is not JSON") from None
        kind.check(body)
        check_written(body)
        for place in self._places:
            if place.kind != PROMPT:
                put(body, place.path, place.value)
        self.answer = {key: body[key] for key in kind.answer_keys if key in body}
        given = body.get(kind.id_key)
        self.id = given if isinstance(given, str) else ""

    def held(self, turn: Turn) -> HeldReply:
        """What is kept of it beside its turn."""
        return HeldReply(self._text, cuts_of(self._places, turn))


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
