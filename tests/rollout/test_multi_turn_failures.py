"""What multi_turn.generate refuses, and what ends its rollout: each is the caller's to see."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from server._sglang import NUM_LAYERS, TOP_K
from server._stub import Answer, StubEngine

from sample_wire import AssemblyError, ClientError, Sample, ServerError, TemplateError
from sample_wire.assembly import RoutingSpec
from sample_wire.rollout import multi_turn
from sample_wire.session.tool_calls import ParsedText

from ._engine import FIRST, TOOLS, USER, Toolbox, generated, hold


@pytest.mark.parametrize(
    ("changes", "error", "rule"),
    [
        ({"sample": Sample(prompt="1 2 3")}, TypeError, "list of messages"),
        ({"sample": Sample(prompt=[])}, TypeError, "list of messages"),
        ({"params": {}}, ValueError, "max_new_tokens or max_seq_len"),
        ({"params": {"max_new_tokens": 5.0}}, TypeError, "max_new_tokens is an integer"),
        ({"params": {"max_new_tokens": True}}, TypeError, "max_new_tokens is an integer"),
        ({"params": {"max_new_tokens": 5, "n": 2}}, ValueError, "one completion"),
        ({"params": {"max_new_tokens": 5, "n": True}}, ValueError, "one completion"),
        ({"params": {"max_new_tokens": 5, "n": 1.0}}, ValueError, "one completion"),
        ({"max_turns": 0}, ValueError, "max_turns"),
        ({"max_turns": 1.0}, ValueError, "max_turns"),
        ({"sample": Sample(prompt=[USER], tokens=np.arange(3))}, TemplateError, "partial"),
        ({"sample": Sample(prompt=[USER], response="a")}, TemplateError, "partial"),
        ({"sample": Sample(prompt=[USER], response_length=1)}, TemplateError, "partial"),
    ],
    ids=[
        "text",
        "no message",
        "no limit",
        "float limit",
        "bool limit",
        "n",
        "n a bool",
        "n a float",
        "no turn",
        "float turns",
        "tokens",
        "response",
        "response length",
    ],
)
def test_what_cannot_be_generated_is_refused_before_the_engine_is_asked(
    engine: StubEngine, changes: dict[str, Any], error: type[Exception], rule: str
) -> None:
    with pytest.raises(error, match=rule):
        hold(engine, **changes)
    assert engine.seen == []


def test_what_a_tool_raises_ends_the_rollout(engine: StubEngine) -> None:
    engine.will(FIRST)
    with pytest.raises(LookupError, match="no such city"):
        hold(engine, tools=Toolbox(LookupError("no such city")).tools)


def test_a_tool_that_says_no_text_is_refused_by_name(engine: StubEngine) -> None:
    engine.will(FIRST)
    with pytest.raises(TypeError, match="tool add gave a dict"):
        hold(engine, tools=Toolbox({"sum": 3}).tools)


@pytest.mark.parametrize("number", [1, 2])
def test_a_malformed_reply_names_its_turn(engine: StubEngine, number: int) -> None:
    engine.will(*[FIRST] * (number - 1), generated([30], completion_tokens=2))
    with pytest.raises(AssemblyError, match="completion_tokens counts 2") as refused:
        hold(engine, tools=Toolbox("20 21").tools)
    assert refused.value.turn == number


def test_a_reply_without_text_cannot_be_searched_for_calls(engine: StubEngine) -> None:
    engine.will(generated([10], text=None))
    with pytest.raises(AssemblyError, match="turn 1: the reply has no text"):
        hold(engine, tools=Toolbox().tools)
    engine.will(generated([10], text=None))
    assert hold(engine).tokens.tolist() == [1, 2, 3, 10]


@pytest.mark.parametrize("call", [{}, {"id": "1"}, {"function": {"name": "f"}}], ids=repr)
def test_a_parser_whose_calls_lack_their_parts_is_told(
    engine: StubEngine, call: dict[str, Any]
) -> None:
    engine.will(FIRST)
    tools = multi_turn.Tools(
        definitions=TOOLS, run=Toolbox().run, parse=lambda text: ParsedText(text, [call])
    )
    with pytest.raises(TypeError, match="parse gave a tool call without an id or a function"):
        hold(engine, tools=tools)


def test_routing_that_is_required_must_be_there(engine: StubEngine) -> None:
    required = RoutingSpec(num_layers=NUM_LAYERS, top_k=TOP_K, required=True)
    engine.will(generated([10], routed_experts=None))
    with pytest.raises(AssemblyError, match="turn 1: the reply has no routed_experts"):
        hold(engine, routing=required)


def test_an_engine_that_refuses_is_an_error(engine: StubEngine) -> None:
    engine.will(FIRST, Answer(400, b'{"error":{"message":"too long"}}'))
    with pytest.raises(ServerError, match="too long") as refused:
        hold(engine, tools=Toolbox("20 21").tools)
    assert (refused.value.status, refused.value.code) == (400, None)


def test_an_engine_that_hangs_up_is_an_error(engine: StubEngine) -> None:
    engine.will(Answer(hang_up=True))
    with pytest.raises(ClientError, match="no whole answer"):
        hold(engine)
    assert len(engine.seen) == 1
