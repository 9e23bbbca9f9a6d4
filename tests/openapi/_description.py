"""The published description, and values judged by it.

Knows the keywords of JSON Schema that the description uses, and refuses any other: a keyword
that is not looked at would pass everything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from sample_wire.adapters.server.openapi import description

DESCRIPTION: Final[dict[str, Any]] = json.loads(description())
METHODS: Final = ("get", "head", "post", "delete")
_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
KEYWORDS: Final = {
    *("type", "const", "enum", "anyOf", "description", "pattern"),
    *("properties", "required", "additionalProperties", "items", "minItems"),
}


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Path, method and operation of all that is described."""
    for path, item in DESCRIPTION["paths"].items():
        for method in METHODS:
            if method in item:
                yield path, method, item[method]


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema that a reference names, or the schema itself.

    Raises:
        ValueError: a keyword that is not known here.
    """
    while "$ref" in schema:
        (reference,) = schema.values()
        found: Any = DESCRIPTION
        for key in reference.removeprefix("#/").split("/"):
            found = found[key]
        schema = found
    if unknown := schema.keys() - KEYWORDS:
        raise ValueError(f"keywords that are not known here: {unknown}")
    return schema


def types_of(schema: dict[str, Any]) -> list[str]:
    """The types that a schema names; none where it leaves them open."""
    named = schema.get("type", [])
    return [named] if isinstance(named, str) else named


def faults(value: object, schema: dict[str, Any], where: str = "body") -> list[str]:
    """Where a value is not as its schema says; none where it is."""
    schema = resolved(schema)
    if "anyOf" in schema:
        tries = [faults(value, one, where) for one in schema["anyOf"]]
        return [] if [] in tries else [f"{where}: {tries}"]
    if "const" in schema and value != schema["const"]:
        return [f"{where} is not {schema['const']!r}"]
    if "enum" in schema and value not in schema["enum"]:
        return [f"{where} is {value!r}, none of {schema['enum']}"]
    if (named := types_of(schema)) and not any(_is(value, name) for name in named):
        return [f"{where} is {type(value).__name__}, not {named}"]
    if isinstance(value, dict):
        return _faults_of_object(value, schema, where)
    if isinstance(value, list):
        return _faults_of_array(value, schema, where)
    if isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
        return [f"{where} is {value!r}"]
    return []


def _is(value: object, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, _TYPES[name])


def _faults_of_object(value: dict[str, Any], schema: dict[str, Any], where: str) -> list[str]:
    known = schema.get("properties", {})
    found = [f"{where} has no {key}" for key in schema.get("required", []) if key not in value]
    if schema.get("additionalProperties", True) is False:
        found += [f"{where} has {key!r}" for key in value if key not in known]
    for key in value.keys() & known.keys():
        found += faults(value[key], known[key], f"{where}.{key}")
    return found


def _faults_of_array(value: list[Any], schema: dict[str, Any], where: str) -> list[str]:
    found = []
    if len(value) < schema.get("minItems", 0):
        found.append(f"{where} has {len(value)} items")
    for index, item in enumerate(value):
        found += faults(item, schema.get("items", {}), f"{where}[{index}]")
    return found
