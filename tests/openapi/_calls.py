"""Requests that are made from the published description, right ones and wrong ones."""

from __future__ import annotations

import json
import string
from typing import Any, Final, NamedTuple

from hypothesis import strategies as st

from ._description import operations, resolved, types_of

OWN: Final = "{own}"
_OTHER_METHODS: Final = ("put", "patch", "options", "trace", "purge", "get", "post", "delete")
_ACCEPTED: Final = (
    "*/*",
    "application/octet-stream",
    "application/octet-stream; format=2",
    "application/json;q=0.5, text/*;q=0",
    "nonsense;;q=7",
)
# Half of what is asked has a body, and so more than one way to go wrong.
_WITH_BODY: Final = [one for one in operations() if "requestBody" in one[2]]
_WEIGHED: Final = [*operations(), *_WITH_BODY * 2]


class Call(NamedTuple):
    """A request before the session is there that it is sent to.

    Attributes:
        path: as described.
        method: in upper case.
        session_id: OWN is that of the session at hand.
        body: JSON, or bytes that are meant to be none; None for no body.
        extends: whether messages of the body go on behind the conversation so far.
        headers: one of each name.
        query: with its question mark, or "".
    """

    path: str
    method: str
    session_id: str
    body: Any
    extends: bool
    headers: dict[str, str]
    query: str


def _scalars() -> st.SearchStrategy[Any]:
    return st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(max_size=20),
    )


def any_json() -> st.SearchStrategy[Any]:
    """JSON values of whatever form."""
    return st.recursive(
        _scalars(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
        max_leaves=8,
    )


def values(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that are as a schema says."""
    schema = resolved(schema)
    if "const" in schema:
        return st.just(schema["const"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    named = types_of(schema)
    return st.one_of([_of_type(name, schema) for name in named]) if named else any_json()


def _of_type(name: str, schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    if name == "object":
        return _objects(schema)
    if name == "array":
        items = values(schema.get("items", {}))
        return st.lists(items, min_size=schema.get("minItems", 0), max_size=4)
    return {
        "string": st.text(max_size=40),
        "integer": st.integers(-2, 50) | st.integers(),
        "number": st.floats(0, 2) | st.floats(allow_nan=False, allow_infinity=False),
        "boolean": st.booleans(),
        "null": st.none(),
    }[name]


def _objects(schema: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects with all required keys, some of the others, and now and then a foreign one."""
    known = {key: values(value) for key, value in schema.get("properties", {}).items()}
    required = {key: known.pop(key) for key in schema.get("required", [])}
    made = st.fixed_dictionaries(required, optional=known)
    foreign = st.dictionaries(st.text(max_size=8), any_json(), max_size=1)
    return st.builds(lambda one, other: {**other, **one}, made, foreign)


def _spoilt(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Objects as a schema says, but for one key, which holds anything or is missing."""

    def spoil(value: dict[str, Any], key: str, other: Any) -> dict[str, Any]:
        rest = {name: item for name, item in value.items() if name != key}
        return rest if other == key else {**rest, key: other}

    keys = st.sampled_from([*schema["properties"]])
    return st.builds(spoil, values(schema), keys, any_json() | keys)


@st.composite
def _bodies(draw: st.DrawFn, operation: dict[str, Any]) -> Any:
    if "requestBody" not in operation or draw(_rarely()):
        return draw(st.none() | st.binary(max_size=40) | any_json())
    (content,) = operation["requestBody"]["content"].values()
    schema = resolved(content["schema"])
    schema = resolved(draw(st.sampled_from(schema.get("anyOf", [schema]))))
    make = _spoilt if "properties" in schema and draw(_rarely()) else values
    return draw(make(schema))


def _rarely() -> st.SearchStrategy[bool]:
    return st.sampled_from([False] * 9 + [True])


def _foreign_ids() -> st.SearchStrategy[str]:
    return st.text(string.ascii_letters + string.digits + "-_~", min_size=1, max_size=40)


def _headers() -> st.SearchStrategy[dict[str, str]]:
    return st.fixed_dictionaries(
        {},
        optional={
            "Accept": st.sampled_from(_ACCEPTED),
            "Content-Type": st.sampled_from(["application/json", "text/plain", "x"]),
            "X-Own": st.text(string.ascii_letters, max_size=8),
        },
    )


@st.composite
def calls(draw: st.DrawFn) -> Call:
    """One request; mostly one that is described."""
    path, method, operation = draw(st.sampled_from(_WEIGHED))
    if draw(_rarely()):
        method, operation = draw(st.sampled_from(_OTHER_METHODS)), {}
    return Call(
        path,
        method.upper(),
        draw(_foreign_ids()) if draw(_rarely()) else OWN,
        draw(_bodies(operation)),
        draw(st.booleans()),
        draw(_headers()),
        draw(st.sampled_from(["", "", "?", "?a=1&b=%20"])),
    )


def text_of(body: Any) -> bytes | None:
    """The bytes of a call's body."""
    return body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
