"""Trajectories over the byte-level ChatML tokenizer, in which appending is rendering."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sample_wire.adapters.tokenizer import ByteChatML
from sample_wire.errors import SessionError
from sample_wire.session import LinearTrajectory, TokenizerAdapter

from ._words import answer, chat, refusal, say, take_turn, trajectory

TOOLS = [{"type": "function", "function": {"name": "sun", "parameters": {"type": "object"}}}]
CALL = {"id": "c1", "type": "function", "function": {"name": "sun", "arguments": '{"day": 1}'}}
CONVERSATION = [
    say("system", "be kind"),
    say("user", "will it shine? \u2600"),
    say("assistant", "", tool_calls=[CALL]),
    say("tool", "yes", tool_call_id="c1"),
    say("assistant", "it will \u00e9"),
    say("user", "thanks"),
    say("assistant", "bye"),
]
CHATML = ByteChatML()


def spoken_by_a_model(message: Any) -> list[int]:
    """The ids that a model would have sampled for a message, its end of turn included."""
    opening = CHATML.encode("<|im_start|>assistant\n")
    whole = CHATML.render([message], None, {})
    end = len(whole) - len(opening)
    return whole[len(opening) : end - 1]  # the line feed after the end of turn is the template's


def conversation(tokenizer: TokenizerAdapter) -> LinearTrajectory:
    """The conversation, an assistant's message being a turn each."""
    session = trajectory(tokenizer)
    for index, message in enumerate(CONVERSATION):
        if message["role"] == "assistant":
            body = chat(*CONVERSATION[:index], tools=TOOLS)
            reply = answer(spoken_by_a_model(message), message=message, finish="stop")
            plan = take_turn(session, body, reply)
            rendered = CHATML.render(CONVERSATION[:index], TOOLS, {})
            assert plan.prompt_ids.tolist() == rendered
    return session


def test_every_prompt_is_the_conversation_rendered_anew() -> None:
    session = conversation(CHATML)
    assert list(session.messages) == CONVERSATION
    assert len(session.turns) == 3


def test_a_model_that_writes_what_the_template_writes_has_no_mismatch() -> None:
    snapshot = conversation(CHATML).snapshot()
    report = CHATML.mismatch(snapshot.messages, snapshot.tools, snapshot.kwargs, snapshot.token_ids)
    assert report == []


def test_a_replay_with_other_spacing_in_its_arguments_goes_on_from_the_sampled_ids() -> None:
    session = trajectory(CHATML, selector="loose_tool_call")
    take_turn(session, chat(*CONVERSATION[:2]), answer([7, 8, 9], message=CONVERSATION[2]))
    function = CALL["function"] | {"arguments": json.dumps({"day": 1}, indent=1)}  # type: ignore[operator]  # a dict
    replayed = CONVERSATION[2] | {"tool_calls": [CALL | {"function": function}]}
    plan = session.plan(chat(*CONVERSATION[:2], replayed, CONVERSATION[3]))
    assert plan.base is session.turns[0]
    assert plan.prompt_ids.tolist()[: plan.num_kept][-3:] == [7, 8, 9]


def test_a_retry_of_the_last_turn_has_the_same_prompt() -> None:
    session = conversation(CHATML)
    before = session.turns[2]
    plan = session.plan(chat(*CONVERSATION[:6], tools=TOOLS))
    assert plan.num_base_turns == 2
    assert plan.prompt_ids.tolist() == before.prompt_and_output(0, before.num_prompt)


@pytest.mark.parametrize(
    "message", [{"content": "x"}, {"role": 7, "content": "x"}, say("user", {"a": 1})], ids=repr
)
def test_messages_that_cannot_be_rendered_are_a_400(message: Any) -> None:
    with pytest.raises(SessionError) as error:
        trajectory(CHATML).plan(chat(message))
    assert refusal(error)[0] == 400


def test_the_sample_has_the_text_of_the_whole_conversation() -> None:
    session = conversation(CHATML)
    (sample,) = session.collect().samples
    assert CHATML.decode(sample.tokens.tolist()) == CHATML.decode(session.token_ids().tolist())
    assert sample.response.startswith("<tool_call>")
    assert sample.response.endswith("bye<|im_end|>")
