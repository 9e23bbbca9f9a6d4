"""A commit in two steps: until the second one nobody finds a trace of the first."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from sample_wire import encode_samples
from sample_wire.errors import SessionError
from sample_wire.session import LinearTrajectory, SampleOptions
from sample_wire.session.tree import TreeTrajectory

from ._words import answer, chat, refusal, say, sent, spoken, state, take_turn, trajectory, tree

AnyTrajectory = LinearTrajectory | TreeTrajectory
BODY = chat(say("user", "hi"), say("assistant", "a1"), say("user", "more"))


@pytest.fixture(params=[trajectory, tree])
def session(request: pytest.FixtureRequest) -> AnyTrajectory:
    """With one turn."""
    make: Callable[[], AnyTrajectory] = request.param
    found = make()
    take_turn(found, chat(say("user", "hi")), answer([51], message=say("assistant", "a1")))
    return found


def collected(session: AnyTrajectory) -> bytes:
    """The payload of the session, whose ids are written as the text that is held of them."""
    found = session.collecting(
        None, {}, {version: [] for version in session.ends()}, SampleOptions()
    )()
    return bytes(encode_samples(found.samples, found.session_metadata))


def test_what_was_read_is_seen_once_it_is_recorded(session: AnyTrajectory) -> None:
    plan, before = session.plan(BODY), state(session)
    payload = collected(session)
    with ThreadPoolExecutor(1) as thread:
        record = thread.submit(session.read, plan, BODY, sent(answer([52])), None, None).result()
    assert state(session) == before
    assert collected(session) == payload
    turn = record()
    assert session.version == plan.version + 1
    assert session.token_ids().tolist()[-1] == 52
    assert session.client_reply(turn)["choices"][0]["message"]["role"] == "assistant"


def test_both_steps_come_to_the_turn_of_one(session: AnyTrajectory) -> None:
    other = trajectory() if isinstance(session, LinearTrajectory) else tree()
    take_turn(other, chat(say("user", "hi")), answer([51], message=say("assistant", "a1")))
    take_turn(other, BODY, answer([52]))
    session.read(session.plan(BODY), BODY, sent(answer([52])), None, None)()
    assert state(session) == state(other)


def test_a_reply_that_is_read_and_not_recorded_leaves_no_trace(session: AnyTrajectory) -> None:
    before = state(session)
    session.read(session.plan(BODY), BODY, sent(answer([52])), None, None)
    assert state(session) == before
    take_turn(session, BODY, answer([53]))
    assert session.token_ids().tolist()[-1] == 53


def test_a_line_that_went_on_meanwhile_refuses_the_second_step() -> None:
    session = trajectory()
    spoken(session, "hi")
    plan = session.plan(BODY)
    record = session.read(plan, BODY, sent(answer([52])), None, None)
    take_turn(session, BODY, answer([53]))
    before = state(session)
    with pytest.raises(SessionError) as error:
        record()
    assert refusal(error) == (409, "stale_turn")
    assert state(session) == before
