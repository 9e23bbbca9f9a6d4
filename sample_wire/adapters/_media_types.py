"""The media types of a payload's layouts, and which of them an Accept header asks for.

    application/octet-stream              format 1, the exact layout
    application/octet-stream; format=2    format 2, the compact layout

A media range means the format that its parameter names, and format 1 where it names none: who
does not name format 2 need not be able to read it, so no wildcard means it.  Else RFC 9110 holds
(12.5.1): of the ranges that mean a format the most specific one gives its weight, and of the
formats the one of the greatest weight is sent.  Equal weights: the more specific range, then the
one that was named first.  Parameters other than `format` and `q` say nothing about a payload.

A member of the header that is malformed is passed over, and a header without any other counts as
absent: a client that misspells it gets what it would have got before there were layouts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from .._meta import COMPACT, EXACT
from ..codec import Layout

_OCTET_STREAM: Final = "application/octet-stream"
PAYLOAD_TYPES: Final[dict[Layout, str]] = {
    "exact": _OCTET_STREAM,
    "compact": f"{_OCTET_STREAM}; format={COMPACT}",
}
_LAYOUTS: Final[dict[str, Layout]] = {str(EXACT): "exact", str(COMPACT): "compact"}
# The ranges that a payload lies in; the greater the more specific.
_RANGES: Final = {"*/*": 0, "application/*": 1, _OCTET_STREAM: 2}

_SPACES: Final = " \t"
_TOKEN: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]++"
# Possessive: a header of quotes and backslashes is read in linear time.
_QUOTED: Final = r'"(?:[^"\\]|\\.)*+'
_NAME: Final = re.compile(f"{_TOKEN}/{_TOKEN}")
_PARAMETER: Final = re.compile(f'({_TOKEN})=(?:({_TOKEN})|({_QUOTED}"))', re.DOTALL)
_WEIGHT: Final = re.compile(r"0(\.[0-9]{0,3})?|1(\.0{0,3})?")
# What stands between separators outside quoted strings; one that is not closed takes the rest.
_MEMBERS: Final = re.compile(f'(?:[^",]|{_QUOTED}"?+)++', re.DOTALL)
_PARAMETERS: Final = re.compile(f'(?:[^";]|{_QUOTED}"?+)++', re.DOTALL)


class _MediaType(NamedTuple):
    """A media type or range: its name and the names of its parameters in lower case."""

    name: str
    parameters: dict[str, str]


class _Choice(NamedTuple):
    """A layout that a range of an Accept header means; the greatest is the best."""

    weight: float
    specificity: tuple[int, bool]
    precedence: int
    layout: Layout


def accepted_layout(headers: Sequence[str]) -> Layout | None:
    """The layout that a client is sent, or None where it takes neither.

    Args:
        headers: the values of its Accept headers, in order; none for a client without one.
    """
    members = _MEMBERS.findall(",".join(headers))
    ranges = [found for found in map(_media_type, members) if found is not None]
    if not ranges:
        return "exact"
    governing: dict[Layout, _Choice] = {}
    for index, found in enumerate(ranges):
        choice = _choice(found, -index)
        if choice is not None:
            rival = governing.get(choice.layout, choice)
            governing[choice.layout] = max(choice, rival, key=lambda one: one[1:3])
    best = max(governing.values(), default=None)
    return best.layout if best is not None and best.weight > 0 else None


def wanted_types(layout: Layout) -> tuple[str, ...]:
    """The types that a client takes which wants this layout, the best first.

    Format 1 is always among them: a server that knows no other sends it.
    """
    wanted, plain = PAYLOAD_TYPES[layout], PAYLOAD_TYPES["exact"]
    return (wanted,) if wanted == plain else (wanted, plain)


def accept_header(media_types: Sequence[str]) -> str:
    """The Accept header for these types, of which the first is wanted most."""
    wanted, *others = media_types
    return ", ".join([wanted, *(f"{other}; q=0.5" for other in others)])


def canonical_type(content_type: str) -> str:
    """A Content-Type as it is spelled here, without the parameters that mean nothing here."""
    name = content_type.partition(";")[0].strip(_SPACES).lower()
    found = _media_type(content_type)
    number = "1" if found is None else found.parameters.get("format", "1")
    return name if name != _OCTET_STREAM or number == "1" else f"{name}; format={number}"


def _choice(found: _MediaType, precedence: int) -> _Choice | None:
    """What a range means for a payload, or None for nothing."""
    layout = _LAYOUTS.get(found.parameters.get("format", "1"))
    level = _RANGES.get(found.name)
    if layout is None or level is None:
        return None
    weight = float(found.parameters.get("q", "1"))
    return _Choice(weight, (level, "format" in found.parameters), precedence, layout)


def _media_type(text: str) -> _MediaType | None:
    """A media type or range, or None for what is none, weight included."""
    name, _, rest = text.partition(";")
    parameters: dict[str, str] = {}
    for piece in filter(None, (item.strip(_SPACES) for item in _PARAMETERS.findall(rest))):
        match = _PARAMETER.fullmatch(piece)
        if match is None or match[1].lower() in parameters:
            return None
        quoted = match[3]
        value = match[2] if quoted is None else re.sub(r"\\(.)", r"\1", quoted[1:-1])
        parameters[match[1].lower()] = value
    name = name.strip(_SPACES).lower()
    if _NAME.fullmatch(name) is None or _WEIGHT.fullmatch(parameters.get("q", "1")) is None:
        return None
    return _MediaType(name, parameters)
