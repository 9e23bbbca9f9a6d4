"""The agent's tools, a calculator and a table of units: they compute what the model asks for.

A model may write any arguments.  Those that do not hold are answered with an error for it to
read, as a tool should.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple, Protocol, get_args

import msgspec

Number = int | float
Operation = Literal["add", "subtract", "multiply"]
Unit = Literal["inch", "foot", "yard", "mile"]

_OPERATIONS: Final[dict[str, Callable[[Number, Number], Number]]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
}
_METRES_IN: Final[dict[str, float]] = {
    "inch": 0.0254,
    "foot": 0.3048,
    "yard": 0.9144,
    "mile": 1609.344,
}


class _Arguments(Protocol):
    def result(self) -> object: ...


class Calculation(msgspec.Struct, forbid_unknown_fields=True):
    """One operation on two numbers."""

    operation: Operation
    a: Number
    b: Number

    def result(self) -> Number:
        """The number that it comes to."""
        return _OPERATIONS[self.operation](self.a, self.b)


class Length(msgspec.Struct, forbid_unknown_fields=True):
    """A length in a unit that is not metric."""

    amount: Number
    unit: Unit

    def result(self) -> str:
        """The same length in metres."""
        return f"{self.amount * _METRES_IN[self.unit]:g} m"


class _Tool(NamedTuple):
    description: str
    arguments: type[_Arguments]
    properties: dict[str, dict[str, Any]]


_TOOLS: Final = {
    "calculate": _Tool(
        "Adds, subtracts or multiplies two numbers.",
        Calculation,
        {
            "operation": {"type": "string", "enum": list(get_args(Operation))},
            "a": {"type": "integer", "minimum": -999, "maximum": 999},
            "b": {"type": "integer", "minimum": -999, "maximum": 999},
        },
    ),
    "to_metres": _Tool(
        "Converts a length to metres.",
        Length,
        {
            "amount": {"type": "integer", "minimum": 0, "maximum": 9999},
            "unit": {"type": "string", "enum": list(get_args(Unit))},
        },
    ),
}


def described() -> list[Any]:
    """The tools as a chat request names them."""
    return [
        {
            "type": "function",
            "function": {
                "name": name,
                "description": tool.description,
                "parameters": {
                    "type": "object",
                    "properties": tool.properties,
                    "required": list(tool.properties),
                },
            },
        }
        for name, tool in _TOOLS.items()
    ]


def call(name: str, arguments: str) -> str:
    """What a tool answers, as JSON: {"result": ...}, or {"error": ...}.

    Args:
        name: of the tool, as the model wrote it.
        arguments: JSON text, as the model wrote it.
    """
    tool = _TOOLS.get(name)
    if tool is None:
        return json.dumps({"error": f"the tools are {', '.join(_TOOLS)}"})
    try:
        found = msgspec.json.decode(arguments, type=tool.arguments)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        return json.dumps({"error": f"the arguments do not hold: {error}"})
    return json.dumps({"result": found.result()})
