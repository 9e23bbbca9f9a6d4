"""Strict JSON checks that a fast parser does not make: nesting depth and repeated keys.

msgspec parses quickly and strictly, but it keeps the last of two equal keys and recurses.
So depth is measured before parsing, from the bytes alone, and repeated keys are found
afterwards: cheaply where the text is what our own writer writes, else by `strict_loads`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Final, NoReturn

import msgspec
import numpy as np
import numpy.typing as npt

encode_json = msgspec.json.Encoder().encode
MAX_JSON_DEPTH: Final = 128
# Of what peers hand in: a bias for every id of a vocabulary is 150,000.  So many are parsed in a
# tenth of a second, in which no other thread runs.
MAX_JSON_VALUES: Final = 1 << 18
# Longer than any 64-bit integer; refused before int() sees it, since that is quadratic.
_MAX_DIGITS: Final = 4300

# Texts are looked through in blocks of this size: one that is all brackets is soon found out,
# and in a thread of its own the work leaves others their turn.
_BLOCK_BYTES: Final = 1 << 16
_QUOTE: Final = ord('"')
_STEP: Final = np.zeros(256, np.int8)
_STEP[list(b"[{")] = 1
_STEP[list(b"]}")] = -1
_IS_VALUE: Final = np.zeros(256, np.bool_)
_IS_VALUE[list(b"[{,")] = True


class StrictJsonError(ValueError):
    """JSON text that breaks a rule; the message is fit to show, it holds no content."""


def exceeds_depth(text: bytes, max_depth: int) -> bool:
    """Whether arrays and objects nest deeper than max_depth; linear, never recursive."""
    if not _opens_more(text, max_depth):
        return False
    depth = 0
    for block in _outside_strings(text):
        depths = np.cumsum(_STEP[block], dtype=np.int64)
        if depth + int(depths.max()) > max_depth:
            return True
        depth += int(depths[-1])
    return False


def exceeds_values(text: bytes, max_values: int) -> bool:
    """Whether there are more arrays, objects and commas than max_values; linear, before parsing.

    A value that is none of these stands behind a comma, or is its array's or object's first.
    """
    if sum(map(text.count, (b"[", b"{", b","))) <= max_values:
        return False
    found = 0
    for block in _outside_strings(text):
        found += int(np.count_nonzero(_IS_VALUE[block]))
        if found > max_values:
            return True
    return False


def _outside_strings(text: bytes) -> Iterator[npt.NDArray[np.uint8]]:
    """What stands outside the strings of a JSON text, closing quotes included, in pieces.

    Behind a backslash that stands outside of one, which no parser goes past, it may be wrong.
    """
    plain = text.replace(rb"\\", b"").replace(rb"\"", b"")
    whole, is_inside = np.frombuffer(plain, np.uint8), 0
    for start in range(0, len(whole), _BLOCK_BYTES):
        block = whole[start : start + _BLOCK_BYTES]
        # Only whether the number of quotes is odd counts, so that 8 bits will do.
        inside = (np.cumsum(block == _QUOTE, dtype=np.uint8) + is_inside) & 1
        is_inside = int(inside[-1])
        outside = block[inside == 0]
        if len(outside):
            yield outside


def _opens_more(text: bytes, count: int) -> bool:
    """Whether more than so many brackets open; a search skips text without any the fastest."""
    for bracket in (b"[", b"{"):
        position = text.find(bracket)
        while position >= 0:
            count -= 1
            if count < 0:
                return True
            position = text.find(bracket, position + 1)
    return False


def strict_loads(text: bytes, max_depth: int) -> object:
    """The value of a JSON text, with every leniency of the standard parser turned off.

    Raises:
        StrictJsonError: not UTF-8, not JSON, deeper than max_depth, a repeated key, NaN or
            Infinity, a number of thousands of digits, or a lone surrogate.
    """
    if exceeds_depth(text, max_depth):
        raise StrictJsonError(f"nests deeper than {max_depth}")
    try:
        value = json.loads(
            text.decode("utf-8"),
            object_pairs_hook=_unique,
            parse_constant=_refuse_constant,
            parse_int=_parse_int,
            parse_float=_parse_float,
        )
        encode_json(value)  # a lone surrogate can be parsed, but not written again
    except StrictJsonError:
        raise
    except RecursionError:
        raise StrictJsonError("nests deeper than this Python can follow") from None
    except UnicodeError:
        raise StrictJsonError("is not UTF-8 text, or holds a lone surrogate") from None
    except ValueError:
        raise StrictJsonError("is not JSON") from None
    return value


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    unique = dict(pairs)
    if len(unique) != len(pairs):
        raise StrictJsonError("repeats a key in one object")
    return unique


def _refuse_constant(_name: str) -> NoReturn:
    raise StrictJsonError("holds NaN or Infinity, which are not JSON")


def _parse_float(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise StrictJsonError("holds a number beyond the range of a double")
    return number


def _parse_int(digits: str) -> int | float:
    if digits == "-0":
        return -0.0  # no integer: what asks for a plain one must not get 0
    if len(digits) > _MAX_DIGITS:
        raise StrictJsonError("holds a number of thousands of digits")
    return int(digits)
