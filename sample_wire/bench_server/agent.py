"""The agent: conversations of one size, one after another, each turn sent with all before it."""

from __future__ import annotations

import itertools
import random
import string
import time
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from .exchanges import Server, Span, connected, timed
from .scale import Scale
from .workers import Told

# Of a turn's tokens, the share that the agent's message brings; the engine samples the others.
_PROMPT_SHARE: Final = 0.4
# What the chat template puts around a message.
_FRAME_TOKENS: Final = 20
_LETTERS: Final = string.ascii_letters + string.digits + " "


class Talked(NamedTuple):
    """What an agent has done.

    Attributes:
        session_ids: of the sessions that it left open.
        turns: when each turn was asked for and answered.
    """

    session_ids: list[str]
    turns: list[Span]


def talk(_told: Told, url: str, scale: Scale, name: str) -> Talked:
    """Has all turns of as many sessions as the scale says, and leaves them open.

    Args:
        url: of the session server.
        scale: the size of the sessions, and their number.
        name: of the conversations: others say something else.
    """
    talked = Talked([], [])
    with connected(url) as server:
        for number in range(scale.sessions):
            session_id = server.create()
            talked.session_ids.append(session_id)
            talked.turns.extend(_turns(server, session_id, scale, f"{name} {number}"))
    return talked


def talk_on(told: Told, url: str, scale: Scale, name: str, until_told: bool = False) -> Talked:
    """Has sessions and deletes each: as many as the scale says, or more until it is told to end.

    Args:
        url, scale, name: as for talk.
    """
    turns: list[Span] = []
    with connected(url) as server:
        for number in itertools.count():
            if told(0) if until_told else number == scale.sessions:
                break
            session_id = server.create()
            for span in _turns(server, session_id, scale, f"{name} {number}"):
                turns.append(span)
                if until_told and told(0):
                    break
            server.delete(session_id)
    return Talked([], turns)


def _turns(server: Server, session_id: str, scale: Scale, name: str) -> Iterator[Span]:
    """When each turn of a conversation was asked for and answered."""
    letters = random.Random(name)
    size = max(int(_PROMPT_SHARE * scale.tokens_per_turn) - _FRAME_TOKENS, 1)
    messages: list[dict[str, Any]] = []
    for _ in range(scale.turns):
        text = "".join(letters.choices(_LETTERS, k=size))
        messages.append({"role": "user", "content": text})
        body = {"model": "replay", "messages": messages}
        began = time.monotonic()
        reply = server.told("POST", f"/sessions/{session_id}/v1/chat/completions", body)
        yield timed(began)
        messages.append(reply["choices"][0]["message"])
