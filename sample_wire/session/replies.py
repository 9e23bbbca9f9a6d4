"""Engine replies: checked, held without what the ledgers hold, and written again as they came."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .._json import encode_json
from ..assembly import Turn
from ..errors import SessionError
from ._cuts import INDEXER, PROMPT, ROUTING, Cut, cut_out, cuts_of, loaded, put


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

    Attributes:
        answer: the parts of its JSON that tell a turn; routing values are views of the bytes.

    Raises:
        SessionError: 502 "bad_engine_reply".
    """

    __slots__ = ("_places", "_text", "answer")

    def __init__(self, reply: bytes | bytearray, prompt_ids: npt.NDArray[np.int64]) -> None:
        try:
            self._places, self._text = cut_out(reply, prompt_ids)
            body = loaded(self._text)
        except (ValueError, RecursionError):
            raise bad_reply("it is not JSON") from None
        check_reply(body)
        for place in self._places:
            if place.kind != PROMPT:
                put(body, place.path, place.value)
        self.answer = {key: body[key] for key in ("choices", "sglext") if key in body}

    def held(self, turn: Turn) -> HeldReply:
        """What is kept of it beside its turn."""
        return HeldReply(self._text, cuts_of(self._places, turn))


def check_reply(body: Any) -> None:
    """Passes for a reply that has what a turn needs.

    Raises:
        SessionError: 502 "bad_engine_reply", with the first rule that is violated.
    """
    choices = body.get("choices", [{}]) if isinstance(body, dict) else None
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise bad_reply("it is no object with choices")
    meta = choices[0].get("meta_info")
    entries = meta.get("output_token_logprobs") if isinstance(meta, dict) else None
    if not isinstance(meta, dict) or not isinstance(entries, list):
        raise bad_reply("choices[0].meta_info has no output_token_logprobs")
    _check_message(choices[0].get("message"))
    count = meta.get("completion_tokens")
    if type(count) is not int or count != len(entries):
        said = count if type(count) is int else type(count).__name__
        raise bad_reply(f"completion_tokens is {said}, there are {len(entries)} log-probs")
    try:
        encode_json(body)
    except (UnicodeError, RecursionError):
        raise bad_reply("it cannot be written as JSON again") from None


def _check_message(message: Any) -> None:
    """A session goes on from this message: what is no message would make later turns fail."""
    if not isinstance(message, dict) or message.get("content") is None:
        raise bad_reply("choices[0].message has no content")
    if not isinstance(message["content"], str | list):
        raise bad_reply("choices[0].message.content is neither text nor a list of parts")
    if not isinstance(message.get("role"), str | None):
        raise bad_reply("choices[0].message.role is no text")
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        raise bad_reply("choices[0].message.tool_calls is no list of objects")


def bad_reply(why: str) -> SessionError:
    """An engine's answer that a session cannot take."""
    return SessionError(f"bad engine reply: {why}", code="bad_engine_reply", http_status=502)
