"""Trees over HTTP, grown by an agent's turns, and what a trainer gets of them."""

from __future__ import annotations

from typing import Any, Final

from sample_wire import Sample, SamplesReply, decode_samples

from ._serving import Handle, Message
from ._sglang import TOOL, USER, first_turn, second_turn, speaks
from ._stub import StubEngine

A1: Final = {"role": "assistant", "content": "10 11"}
OTHER_TOOL: Final = {"role": "tool", "content": "22", "tool_call_id": "call_1"}


def collect(session: Handle, **body: Any) -> SamplesReply[Sample]:
    """The samples reply, decoded over a template with a reward."""
    response = session.samples(body)
    assert response.status_code == 200, response.text
    return decode_samples(response.content, Sample(reward=9.0), field_set=2)


def say(session: Handle, engine: StubEngine, answer: Any, *messages: Message) -> None:
    """One turn."""
    engine.will(answer)
    response = session.chat(messages)
    assert response.status_code == 200, response.text


def grow(session: Handle, engine: StubEngine) -> None:
    """Node 0; 1 and its retry 2 under it, and 3 under 2; then the fork 4 under 0."""
    say(session, engine, first_turn(), USER)
    say(session, engine, second_turn(), USER, A1, TOOL)
    say(session, engine, speaks([40]), USER, A1, TOOL)
    say(session, engine, speaks([41]), USER, A1, TOOL, {"role": "assistant", "content": "40"}, USER)
    say(session, engine, speaks([50, 51]), USER, A1, OTHER_TOOL)
