"""How a field is declared: its codec, its owner, and the rules that come with them.

Declarations are data; `_guard` checks them, and every other layer reads them.

Shape letters: T tokens, R response tokens.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable
from typing import Any, Final, Literal

import numpy as np

from ._dtypes import WireDtype, wire_dtype

Axis = Literal["tokens", "response"]
Rows = Literal["tokens", "transitions", "response"]
MergeName = Literal["concat", "last", "sum", "extend", "equal", "text"]
Merge = MergeName | Callable[[Any, Any], Any]
Null = Literal["refused", "none", "empty", "template"]
OverlayRule = Literal["replace", "update"]

AXIS_OF_ROWS: Final[dict[str, Axis]] = {
    "tokens": "tokens",
    "transitions": "tokens",
    "response": "response",
}
NEWEST_FIELD_SET: Final = 2
NULLS_KEY: Final = "nulls"
NULLS: Final = typing.get_args(Null)
OVERLAYS: Final = typing.get_args(OverlayRule)
MERGES: Final = typing.get_args(MergeName)


@dataclasses.dataclass(frozen=True, slots=True)
class Tensor:
    """Codec: one tensor a sample.

    Args:
        dtype: wire dtype, by numpy name.
        rank: number of axes.
        strict: take arrays of this dtype only.  Otherwise any array-like whose values the
            dtype holds exactly.
        experts: the values are expert ids: in the compact layout their width follows the
            number of experts where it is known.
    """

    dtype: str
    rank: int = 1
    strict: bool = False
    experts: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Json:
    """Codec: a value in the JSON of the payload, of the field's annotated type."""


@dataclasses.dataclass(frozen=True, slots=True)
class Ragged:
    """Codec: one flat run of values a row, of any length; two tensors on the wire.

    Args:
        dtype: wire dtype of the values, by numpy name.
    """

    dtype: str


Codec = Tensor | Json | Ragged


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Computed:
    """Declares a field that the server makes and that crosses the wire.

    Args:
        codec: how the value travels.
        merge: how two turns' values become one: "concat" (observation rows get `fill`),
            "last", "sum", "extend", "equal" (or refused), "text" (observation tokens are
            decoded in between), or a function of both values.
        rows: what the first axis follows: "tokens" (T rows), "transitions" (T-1, never below
            0), "response" (R), or None.
        fill: the value of a row that no turn computed; needed with merge "concat" over rows.
        null: what None means.  "refused": it is no value.  "none": it travels as null.
            "empty": it cannot be encoded; a null that is read becomes an empty array.
            "template": a null keeps the template's value.
        sets: the axis whose length this field gives: its own rows, or its value if a number.
        overlay: "replace" the template's value, or "update" a mapping with it.
        omit_default: leave the field out of the JSON while it is at its default.
        since: the wire field set that first carries it; before, it is the template's.
        response_keys: keys of a mapping that hold one item for each response token.
    """

    codec: Codec | None = None
    merge: Merge | None = None
    rows: Rows | None = None
    fill: float | None = None
    null: Null = "refused"
    sets: Axis | None = None
    overlay: OverlayRule = "replace"
    omit_default: bool = False
    since: int = 1
    response_keys: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """Declares a field that stays the trainer's own and never crosses the wire.

    Args:
        rows: "response" where it holds one item for each response token.  Such a field must
            be empty in a template, and is stripped with the tokens.
    """

    rows: Literal["response"] | None = None


Declaration = Computed | Template


@dataclasses.dataclass(frozen=True, slots=True)
class Field:
    """One field of a schema: its name, declaration, type, and default factory if it has one."""

    name: str
    owner: Declaration
    annotation: Any
    default: Callable[[], Any] | None

    @property
    def is_list(self) -> bool:
        """Whether the annotation asks for lists where the codec would give arrays."""
        options = [option for option in union_options(self.annotation) if _is_list(option)]
        if isinstance(self.owner, Computed) and isinstance(self.owner.codec, Ragged):
            # The rows of a ragged field are in a list anyway; what counts is inside.
            return any(_is_list(row) for option in options for row in typing.get_args(option))
        return bool(options)


def wire_of(codec: Tensor | Ragged) -> WireDtype | None:
    """The wire dtype of a tensor codec, or None where the format has no such dtype."""
    try:
        return wire_dtype(np.dtype(codec.dtype))
    except TypeError:
        return None


def _is_list(annotation: Any) -> bool:
    return annotation is list or typing.get_origin(annotation) is list


def union_options(annotation: Any) -> tuple[Any, ...]:
    if typing.get_origin(annotation) is typing.Annotated:
        annotation = typing.get_args(annotation)[0]
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return typing.get_args(annotation)
    return (annotation,)
