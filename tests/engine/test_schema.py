"""Grammars of JSON schemas: whatever is chosen, the text is JSON of the schema."""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sample_wire.demo.engine.schema import Followed, Schema, one_of, value

NAMES: Final = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=4)
PLAIN: Final = st.none() | st.booleans() | st.integers() | NAMES
BOUNDS: Final = st.tuples(st.integers(-2000, 2000), st.integers(0, 2000))


def _range(low: int, span: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": low, "maximum": low + span}


def _sizes(kind: str, names: tuple[str, str]) -> st.SearchStrategy[dict[str, Any]]:
    return st.tuples(st.integers(0, 5), st.integers(0, 20)).map(
        lambda sizes: {"type": kind, names[0]: sizes[0], names[1]: sum(sizes)}
    )


LEAVES: Final = st.one_of(
    st.sampled_from(["string", "integer", "boolean", "null"]).map(lambda kind: {"type": kind}),
    st.lists(PLAIN, min_size=1, max_size=4).map(lambda values: {"enum": values}),
    PLAIN.map(lambda one: {"const": one}),
    BOUNDS.map(lambda bounds: _range(*bounds)),
    _sizes("string", ("minLength", "maxLength")),
)


def _objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    properties = st.dictionaries(NAMES, inner, max_size=3)
    lists = st.tuples(_sizes("array", ("minItems", "maxItems")), inner)
    return st.one_of(
        properties.map(lambda found: {"type": "object", "properties": found}),
        lists.map(lambda found: found[0] | {"items": found[1]}),
        inner.map(lambda found: {"anyOf": [found, {"type": "null"}]}),
    )


SCHEMAS: Final = st.recursive(LEAVES, _objects, max_leaves=5)


def written(grammar: Followed, pick: Any) -> tuple[bytes, int]:
    """What a grammar lets through where `pick` chooses, and its result."""
    out = bytearray()
    allowed = next(grammar)
    while True:
        assert allowed
        out.append(pick(sorted(allowed)))
        try:
            allowed = grammar.send(out[-1])
        except StopIteration as ended:
            return bytes(out), ended.value


def fits(found: Any, schema: dict[str, Any]) -> Any:
    """Whether a value is of a schema, as far as the tests' schemas go."""
    if "anyOf" in schema:
        return any(fits(found, one) for one in schema["anyOf"])
    if "enum" in schema or "const" in schema:
        options = schema.get("enum", [schema.get("const")])
        return any(found == one and type(found) is type(one) for one in options)
    match schema["type"]:
        case "string":
            size = len(found)
            return schema.get("minLength", 0) <= size <= schema.get("maxLength", size)
        case "integer" | "number":
            return schema.get("minimum", found) <= found <= schema.get("maximum", found)
        case "boolean":
            return found in (True, False)
        case "null":
            return found is None
        case "array":
            sizes = range(schema.get("minItems", 0), schema.get("maxItems", len(found)) + 1)
            items = schema.get("items", {"type": "string"})
            return len(found) in sizes and all(fits(one, items) for one in found)
    properties = schema.get("properties", {})
    return [*found] == [*properties] and all(fits(found[key], properties[key]) for key in found)


@given(SCHEMAS, st.data())
@example({"type": "boolean"}, None)
@example({"type": "array", "maxItems": 0}, None)
@example({"type": "array", "minItems": 7}, None)
@example({"type": "string", "minLength": 30}, None)
@example({"type": "string", "maxLength": 0}, None)
@example({"type": "integer", "minimum": 2000}, None)
@example({"type": "integer", "maximum": -2000}, None)
@example({"type": "integer", "minimum": 0.5, "maximum": 1.5}, None)
def test_whatever_is_chosen_is_json_of_the_schema(schema: dict[str, Any], data: Any) -> None:
    def pick(allowed: list[int]) -> Any:
        return data.draw(st.sampled_from(allowed)) if data else allowed[0]

    text, behind = written(value(msgspec.convert(schema, Schema), frozenset(b"}")), pick)
    assert (text[-1:], behind) == (b"}", ord("}"))
    found = json.loads(text[:-1])
    assert fits(found, schema)
    assert json.dumps(found, ensure_ascii=False).encode() == text[:-1]


@given(BOUNDS, st.data())
def test_every_integer_of_the_range_can_be_written(bounds: tuple[int, int], data: Any) -> None:
    schema = _range(*bounds)
    wanted = data.draw(st.integers(schema["minimum"], schema["maximum"]))
    left = [*f"{wanted},".encode()][::-1]

    def pick(allowed: list[int]) -> Any:
        assert left[-1] in allowed
        return left.pop()

    written(value(msgspec.convert(schema, Schema), frozenset(b",")), pick)
    assert not left


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "null"}, b"null,"),
        ({"const": {"a": [1, "\u00e9"]}}, '{"a": [1, "\u00e9"]},'.encode()),
        ({"type": "object"}, b"{},"),
        ({"enum": ["only"]}, b'"only",'),
        ({"type": "integer", "minimum": 7, "maximum": 7}, b"7,"),
        ({"type": ["null", "string"]}, b"null,"),
        ({"oneOf": [{"type": "null"}]}, b"null,"),
    ],
    ids=["null", "const", "empty object", "enum of one", "integer of one", "types", "oneOf"],
)
def test_what_leaves_no_choice_is_forced(schema: dict[str, Any], text: bytes) -> None:
    def pick(allowed: list[int]) -> int:
        assert len(allowed) == 1
        return allowed[0]

    assert written(value(msgspec.convert(schema, Schema), frozenset(b",")), pick) == (text, 44)


def test_one_of_says_which() -> None:
    for index, option in enumerate([b"get", b"put", b"go"]):
        left = [*option][::-1]
        grammar = one_of([b"get", b"put", b"go"])
        assert written(grammar, lambda _allowed, left=left: left.pop()) == (option, index)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "date"},
        {"type": []},
        {"enum": []},
        {"$ref": "#/$defs/a"},
        {"type": "integer", "minimum": 5, "maximum": 4},
        {"type": "integer", "minimum": 0.2, "maximum": 0.8},
        {"type": "string", "maxLength": -1},
        {"properties": {"a": {"items": {"$ref": "#"}}}},
        {"properties": []},
        {"allOf": [{"type": "string"}]},
        {"not": {"type": "string"}},
        {"anyOf": []},
        {"pattern": "a+"},
        {"type": "array", "minItems": 5, "maxItems": 2},
        {"type": "string", "minLength": 5, "maxLength": 2},
    ],
    ids=str,
)
def test_a_schema_without_a_grammar_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(schema, Schema)
