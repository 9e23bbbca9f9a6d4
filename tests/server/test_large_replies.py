"""Replies of a megabyte and more, which are received into memory of their own."""

from __future__ import annotations

import pytest

from sample_wire.adapters.server.memory import LARGE_REPLY_BYTES

from ._serving import Handle
from ._sglang import FIRST_OUTPUT, USER, answer, completion
from ._stub import Answer, StubEngine

TEXT = "x" * (1 << 20)
REPLY = completion(3, *FIRST_OUTPUT, message={"role": "assistant", "content": TEXT})


def test_a_large_reply_is_recorded_and_passed_on_whole(session: Handle, engine: StubEngine) -> None:
    engine.will(answer(REPLY))
    assert session.chat([USER]).json() == REPLY
    assert session.dump()["records"][0]["response"] == REPLY


@pytest.mark.parametrize("stated", [1 << 21, 1 << 70], ids=["too_long", "beyond_memory"])
def test_a_large_reply_that_ends_early_is_no_turn(
    stated: int, session: Handle, engine: StubEngine
) -> None:
    whole = answer(REPLY)
    head = [("content-type", "application/json"), ("content-length", str(stated))]
    engine.will(Answer(200, whole.body, head, hang_up=True))
    response = session.chat([USER])
    assert response.status_code == 502
    assert response.json()["code"] == "engine_unreachable"
    assert session.num_records() == 0


def test_a_reply_that_leaves_holes_in_memory_is_a_turn_like_any_other(
    session: Handle, engine: StubEngine
) -> None:
    text = "x" * LARGE_REPLY_BYTES
    reply = completion(3, *FIRST_OUTPUT, message={"role": "assistant", "content": text})
    engine.will(answer(reply))
    assert session.chat([USER]).json() == reply
    assert session.dump()["records"][0]["response"] == reply
