"""JSON schemas as grammars: which ids may come next, one after another.

A grammar is a generator: it yields the set of ids that may come next and is sent the one that
came.  A set with one member forces it.  What is written is JSON as json.dumps writes it, so
that it renders to the same ids when a client sends it back.
"""

from __future__ import annotations

import json
import math
import string
from collections.abc import Generator, Iterable, Sequence
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec

Allowed: TypeAlias = frozenset[int]
Grammar: TypeAlias = Generator[Allowed, int, None]
# A grammar with a result; that of a value is the id that came behind it.
Followed: TypeAlias = Generator[Allowed, int, int]

JSONType = Literal["string", "integer", "number", "boolean", "null", "array", "object"]
Size = Annotated[int, msgspec.Meta(ge=0)]

DIGITS: Final = frozenset(string.digits.encode())
LETTERS: Final = frozenset(string.ascii_lowercase.encode())
_MAX_STRING: Final = 16
_MAX_ITEMS: Final = 3
_RANGE: Final = (-999, 999)
_COMMA, _QUOTE, _MINUS, BLANK = b',"- '


# What makes other values of a schema, and has no grammar here.
_UNKNOWN: Final = ("ref", "all_of", "not_", "if_", "pattern", "patternProperties")
_SPELLED: Final = {
    "ref": "$ref",
    "any_of": "anyOf",
    "one_of": "oneOf",
    "all_of": "allOf",
    "not_": "not",
    "if_": "if",
}


class Schema(msgspec.Struct, rename=_SPELLED):
    """As much of a JSON schema as there are grammars for.

    Raises:
        ValueError: a key that changes what is valid and is not known here, no alternative, or
            bounds that no integer, text or list lies between.
    """

    type: JSONType | Annotated[list[JSONType], msgspec.Meta(min_length=1)] = "string"
    enum: Annotated[list[Any], msgspec.Meta(min_length=1)] | None = None
    const: Any = msgspec.UNSET
    any_of: Annotated[list[Schema], msgspec.Meta(min_length=1)] | None = None
    one_of: Annotated[list[Schema], msgspec.Meta(min_length=1)] | None = None
    ref: Any = None
    all_of: Any = None
    not_: Any = None
    if_: Any = None
    pattern: Any = None
    patternProperties: Any = None
    properties: dict[str, Schema] | None = None
    items: Schema | None = None
    minLength: Size = 1
    maxLength: Size | None = None
    minItems: Size = 1
    maxItems: Size | None = None
    minimum: float | None = None
    maximum: float | None = None

    def __post_init__(self) -> None:
        for name in _UNKNOWN:
            if getattr(self, name) is not None:
                raise ValueError(f"{_SPELLED.get(name, name)} is not known here")
        for what, least, most in (
            ("Length", self.minLength, self.maxLength),
            ("Items", self.minItems, self.maxItems),
        ):
            if most is not None and least > max(most, 1):
                raise ValueError(f"min{what} is more than max{what}")
        low, high = self.bounds()
        if low > high:
            raise ValueError("no integer lies between minimum and maximum: others are not made")

    def depth(self) -> int:
        """How deep it is nested; 1 for a schema without others inside."""
        inner = [*(self.any_of or ()), *(self.one_of or ()), *(self.properties or {}).values()]
        inner += [] if self.items is None else [self.items]
        return 1 + max((one.depth() for one in inner), default=0)

    def bounds(self) -> tuple[int, int]:
        """The least and the largest integer."""
        low, high = self.minimum, self.maximum
        if low is None:
            low = _RANGE[0] if high is None else min(_RANGE[0], high)
        if high is None:
            high = max(_RANGE[1], low)
        return math.ceil(low), math.floor(high)


def literal(ids: Iterable[int]) -> Grammar:
    """Exactly these ids."""
    for token_id in ids:
        yield frozenset([token_id])


def one_of(options: Sequence[Sequence[int]]) -> Followed:
    """One of several sequences, none of which starts another; the result is its index."""
    left = dict(enumerate(options))
    size = 0
    while True:
        for index, option in left.items():
            if len(option) == size:
                return index
        came = yield frozenset(option[size] for option in left.values())
        left = {index: option for index, option in left.items() if option[size] == came}
        size += 1


def choice(options: Iterable[Sequence[int]], follow: Allowed) -> Followed:
    """One of several sequences, and an id behind it."""
    whole = [(*option, token_id) for option in options for token_id in follow]
    return whole[(yield from one_of(whole))][-1]


def value(schema: Schema, follow: Allowed) -> Followed:
    """A value of a schema, and an id behind it.

    Of alternatives the first is taken; an object has all its declared properties, in order.

    Args:
        follow: the ids that may come behind the value.
    """
    for alternatives in (schema.any_of, schema.one_of):
        if alternatives:
            return value(alternatives[0], follow)
    if schema.const is not msgspec.UNSET:
        return choice([_json(schema.const)], follow)
    if schema.enum is not None:
        return choice(map(_json, schema.enum), follow)
    kind = schema.type[0] if isinstance(schema.type, list) else schema.type
    return _TYPES[kind](schema, follow)


def _string(schema: Schema, follow: Allowed) -> Followed:
    longest = _longest(schema.minLength, schema.maxLength, _MAX_STRING)
    yield frozenset([_QUOTE])
    for size in range(longest):
        letters = LETTERS | {BLANK}
        came = yield letters | {_QUOTE} if size >= schema.minLength else letters
        if came == _QUOTE:
            break
    else:
        yield frozenset([_QUOTE])
    return (yield follow)


def _longest(least: int, most: int | None, usual: int) -> int:
    """How long a text or list may become: no longer than usual, where that is allowed."""
    longest = max(least, usual)
    return longest if most is None else min(longest, most)


def _integer(schema: Schema, follow: Allowed) -> Followed:
    low, high = schema.bounds()
    sign, digits = 1, ""
    while True:
        nexts = {byte for byte in DIGITS if _leads_to(sign, digits + chr(byte), low, high)}
        if not digits and sign > 0 and low < 0:
            nexts.add(_MINUS)
        ended = digits and low <= sign * int(digits) <= high
        came = yield follow | nexts if ended else frozenset(nexts)
        if came in follow:
            return came
        if came == _MINUS:
            sign = -1
        else:
            digits += chr(came)


def _leads_to(sign: int, digits: str, low: int, high: int) -> bool:
    """Whether an integer between low and high, of this sign, starts with these digits."""
    if sign < 0:
        low, high = -high, -low
    if digits[0] == "0":
        return digits == "0" and sign > 0 and low <= 0 <= high
    for num_more in range(len(str(abs(high))) - len(digits) + 1):
        least = int(digits) * 10**num_more
        if least <= high and least + 10**num_more > low:
            return True
    return False


def _boolean(_schema: Schema, follow: Allowed) -> Followed:
    return choice([b"true", b"false"], follow)


def _null(_schema: Schema, follow: Allowed) -> Followed:
    return choice([b"null"], follow)


def _array(schema: Schema, follow: Allowed) -> Followed:
    longest = _longest(schema.minItems, schema.maxItems, _MAX_ITEMS)
    end, more = frozenset(b"]"), frozenset(b",")
    yield from literal(b"[")
    for number in range(1, longest + 1):
        nexts = end if number == longest else more if number < schema.minItems else more | end
        came = yield from value(schema.items or Schema(), nexts)
        if came != _COMMA:
            break
        yield frozenset([BLANK])
    else:
        yield from literal(b"]")
    return (yield follow)


def _object(schema: Schema, follow: Allowed) -> Followed:
    properties = schema.properties or {}
    yield from literal(b"{")
    for number, (name, inner) in enumerate(properties.items(), start=1):
        yield from literal(_json(name) + b": ")
        last = number == len(properties)
        yield from value(inner, frozenset(b"}" if last else b","))
        if not last:
            yield frozenset([BLANK])
    if not properties:
        yield from literal(b"}")
    return (yield follow)


_TYPES: Final = {
    "string": _string,
    "integer": _integer,
    "number": _integer,
    "boolean": _boolean,
    "null": _null,
    "array": _array,
    "object": _object,
}


def _json(found: object) -> bytes:
    return json.dumps(found, ensure_ascii=False).encode()
