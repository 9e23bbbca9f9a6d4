"""Free-form values to plain JSON values, or a refusal that names the place.

msgspec alone writes NaN as null, number keys as text, bytes as base64, and sets, dates and
Structs without a word.  So whatever is typed Any is walked first: only what comes back equal
from standard JSON passes.  Tuples become lists and numpy scalars Python scalars; a value that
needs neither is returned as it is, not copied.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import numpy as np

from ._json import encode_json

_ATOMS: Final = frozenset({str, int, bool, type(None)})
_MAX_INTEGER_CHARS: Final = 4300
_LONG_NEGATIVE: Final = re.compile(rb"-[0-9]{4300}")
_NUMBERS: Final = frozenset({int, float, bool, type(None), str})


class NotPlainError(ValueError):
    """A value that standard JSON does not carry; `path` names its place under the field."""

    def __init__(self, rule: str) -> None:
        super().__init__(rule)
        self.rule = rule
        self.path = ""

    def under(self, step: str) -> NotPlainError:
        """This error, its path lengthened at the front; made while the walk unwinds."""
        self.path = step + self.path
        return self


class Written(bytes):
    """JSON text of a plain value, made by this library.  Whoever makes one vouches for it."""

    __slots__ = ()


def plain(value: Any, depth: int) -> Any:
    """The value with tuples as lists and numpy scalars as Python scalars.

    Args:
        value: any object.
        depth: how many levels of arrays and objects may still be opened.

    Raises:
        NotPlainError: a non-finite float, a key that is no text, an object of another type, or
            too many levels (which is also how a cycle ends).
    """
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind is float:
        if not math.isfinite(value):
            raise NotPlainError(f"is {value!r}, which JSON cannot say")
        return value
    if kind in (dict, list, tuple):
        if depth == 0:
            raise NotPlainError("nests too deep, or contains itself")
        return _plain_dict(value, depth - 1) if kind is dict else _plain_list(value, depth - 1)
    if kind is Written:
        return msgspec.Raw(value)
    if isinstance(value, np.generic):
        item = value.item()
        if type(item) in _ATOMS or type(item) is float:
            return plain(item, depth)
    raise NotPlainError(f"is of type {kind.__name__}, which JSON does not have")


def check_writable(value: Any) -> Any:
    """The value, if JSON text can be made of each of its leaves; the first that cannot is named.

    Raises:
        NotPlainError: text with a lone surrogate, or an integer of thousands of digits.
    """
    kind = type(value)
    if kind is dict:
        for key, item in value.items():
            _check_under(f".{_shown(key)}", (key, item))
    elif kind in (list, tuple):
        for index, item in enumerate(value):
            _check_under(f"[{index}]", (item,))
    elif kind in _ATOMS:
        try:
            encode_json(value)
        except UnicodeEncodeError:
            raise NotPlainError("holds a lone surrogate, which is no text") from None
        except ValueError:
            raise NotPlainError("has thousands of digits, which readers refuse") from None
        if kind is int and value < 0 and len(str(value)) > _MAX_INTEGER_CHARS:
            raise NotPlainError("has thousands of digits, which readers refuse")
    return value


def plain_object(value: Mapping[str, Any], depth: int) -> dict[str, Any]:
    """A mapping as an object that JSON text can be made of; see plain.

    Raises:
        NotPlainError: as plain and check_writable.
    """
    written: dict[str, Any] = check_writable(plain(dict(value), depth))
    return written


def may_hold_unreadable(text: bytes) -> bool:
    """Whether JSON text may hold an integer that can be written, yet not read by msgspec.

    That is a negative one of 4300 digits: msgspec counts the sign.  Text may look the same.
    """
    return (
        len(text) > _MAX_INTEGER_CHARS
        and b"-" in text  # the usual text has none, and this is the faster search
        and _LONG_NEGATIVE.search(text) is not None
    )


def _check_under(step: str, items: tuple[Any, ...]) -> None:
    try:
        for item in items:
            check_writable(item)
    except NotPlainError as error:
        raise error.under(step) from None


def _shown(key: Any) -> str:
    """A key as it may stand in a message: without lone surrogates."""
    return str(key).encode("utf-8", "replace").decode()


def _plain_dict(value: dict[Any, Any], depth: int) -> dict[str, Any]:
    for key, item in value.items():
        kind = type(item)
        if type(key) is not str or not (kind in _ATOMS or (kind is float and math.isfinite(item))):
            return _mended_dict(value, depth)
    return value


def _mended_dict(value: dict[Any, Any], depth: int) -> dict[str, Any]:
    changed: dict[str, Any] = {}
    for key, item in value.items():
        if type(key) is not str and type(key) is not np.str_:
            raise NotPlainError(f"has a key of type {type(key).__name__}, keys are text")
        try:
            new = plain(item, depth)
        except NotPlainError as error:
            raise error.under(f".{_shown(key)}") from None
        if new is not item or type(key) is not str:
            changed[key] = new
    if not changed:
        return value
    return {str(key): changed.get(key, item) for key, item in value.items()}


def _plain_list(value: list[Any] | tuple[Any, ...], depth: int) -> list[Any]:
    kind = type(value[0]) if value else str
    if kind in _ATOMS and [*map(type, value)].count(kind) == len(value):
        # At C speed: a list of 100,000 token ids ends here.  Counting is faster than a set.
        return value if isinstance(value, list) else list(value)
    kinds = {*map(type, value)}
    if kinds <= _NUMBERS and (float not in kinds or _all_finite(value)):
        return value if isinstance(value, list) else list(value)
    items = []
    for index, item in enumerate(value):
        try:
            items.append(plain(item, depth))
        except NotPlainError as error:
            raise error.under(f"[{index}]") from None
    return items


def _all_finite(value: list[Any] | tuple[Any, ...]) -> bool:
    return all(math.isfinite(item) for item in value if type(item) is float)
