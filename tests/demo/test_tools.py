"""The agent's tools: they compute, and answer what does not hold with an error to read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sample_wire.demo import tools


@pytest.mark.parametrize(
    ("name", "arguments", "result"),
    [
        ("calculate", {"operation": "add", "a": 2, "b": -5}, -3),
        ("calculate", {"operation": "subtract", "a": 300, "b": 48}, 252),
        ("calculate", {"operation": "multiply", "a": 12, "b": 7}, 84),
        ("calculate", {"operation": "multiply", "a": 1.5, "b": 2}, 3.0),
        ("to_metres", {"amount": 26, "unit": "mile"}, "41842.9 m"),
        ("to_metres", {"amount": 385, "unit": "yard"}, "352.044 m"),
    ],
)
def test_a_tool_computes_what_it_is_asked(
    name: str, arguments: dict[str, Any], result: object
) -> None:
    assert json.loads(tools.call(name, json.dumps(arguments))) == {"result": result}


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        pytest.param("guess", "{}", "the tools are calculate, to_metres", id="unknown_tool"),
        pytest.param("calculate", "", "do not hold", id="no_arguments"),
        pytest.param("calculate", "{'a': 1}", "do not hold", id="not_json"),
        pytest.param("calculate", '{"operation": "add", "a": 1}', "`b`", id="one_is_missing"),
        pytest.param(
            "calculate", '{"operation": "divide", "a": 1, "b": 0}', "'divide'", id="not_in_the_enum"
        ),
        pytest.param("to_metres", '{"amount": "1", "unit": "mile"}', "`str`", id="wrong_type"),
        pytest.param("to_metres", "[" * 100_000, "do not hold", id="too_deep"),
        pytest.param("to_metres", '"\ud800"', "do not hold", id="not_unicode"),
    ],
)
def test_what_does_not_hold_is_answered_with_an_error(
    name: str, arguments: str, reason: str
) -> None:
    assert reason in json.loads(tools.call(name, arguments))["error"]


def test_the_tools_that_are_described_are_those_that_can_be_called() -> None:
    for described in tools.described():
        function = described["function"]
        schema = function["parameters"]["properties"]
        arguments = {name: one.get("enum", [7])[0] for name, one in schema.items()}
        assert "result" in json.loads(tools.call(function["name"], json.dumps(arguments)))
