"""The import-time guard: which declarations make no sense, said when the class is defined.

A declaration that passes here can be validated, stripped, merged, encoded and decoded; so no
later layer needs a special case, and no field is lost for want of a rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ._arrays import ValueRefusedError, wire_array
from ._declarations import (
    AXIS_OF_ROWS,
    MERGES,
    NULLS,
    NULLS_KEY,
    OVERLAYS,
    Axis,
    Codec,
    Computed,
    Field,
    Json,
    Ragged,
    Template,
    Tensor,
    union_options,
    wire_of,
)
from ._dtypes import MAX_RANK
from .errors import SchemaError


def check_field(owner_name: str, field: Field, axis_fields: Mapping[Axis, Field]) -> None:
    """The guard's rules for one field that has its owner."""
    for broken, rule in _broken_rules(field, axis_fields):
        if broken:
            raise SchemaError(f"{owner_name}.{field.name}: {rule}", field=field.name)


def _broken_rules(field: Field, axis_fields: Mapping[Axis, Field]) -> list[tuple[bool, str]]:
    owner = field.owner
    axis = AXIS_OF_ROWS.get(owner.rows) if owner.rows is not None else None
    rules = [
        (owner.rows is not None and axis is None, f"unknown rows {owner.rows!r}"),
        (axis is not None and axis not in axis_fields, f"no field sets the axis {axis}"),
    ]
    if isinstance(owner, Template):
        rules.append((owner.rows not in (None, "response"), "a template's rows are the response's"))
    else:
        rules += _broken_codec_rules(field, owner) + _broken_merge_rules(owner, field.default)
    return rules


def _broken_codec_rules(field: Field, owner: Computed) -> list[tuple[bool, str]]:
    codec = owner.codec
    if not isinstance(codec, Codec):
        return [(True, "a computed field needs a codec")]
    if owner.null not in NULLS or owner.overlay not in OVERLAYS:
        return [(True, f"null is one of {NULLS}, overlay one of {OVERLAYS}")]
    if not isinstance(owner.response_keys, tuple):
        return [(True, "response_keys is a tuple of keys")]
    if isinstance(codec, Json):
        return [
            (field.name == NULLS_KEY, f"the JSON key {NULLS_KEY} is taken"),
            (bool(owner.sets) and not _is_int(field), "a JSON field that sets an axis is an int"),
            (bool(owner.sets) and owner.omit_default, "a field that sets an axis is not left out"),
            (owner.rows is not None, "a JSON field has no rows"),
            (owner.null in ("none", "empty"), "the type of a JSON field says whether it is None"),
            (owner.overlay == "update" and owner.null == "template", "a mapping has no null"),
        ]
    named: object = codec.dtype
    if not isinstance(named, str) or type(getattr(codec, "rank", 1)) is not int:
        return [(True, "a codec's dtype is a name and its rank an integer")]
    too_deep = isinstance(codec, Tensor) and codec.rank > MAX_RANK
    too_flat = isinstance(codec, Tensor) and codec.rank < (1 if owner.rows else 0)
    wire = wire_of(codec)
    no_ids = getattr(codec, "experts", False) and wire is not None and wire.dtype.kind not in "iu"
    return [
        (wire is None, f"no wire dtype is called {codec.dtype!r}"),
        (no_ids, "expert ids are integers"),
        (too_deep, f"a tensor has at most {MAX_RANK} axes"),
        (owner.merge == "text" and owner.rows is None, "only a JSON field can be decoded text"),
        (too_flat, f"rank {getattr(codec, 'rank', None)} has no axis for rows"),
        (isinstance(codec, Ragged) and owner.rows is None, "a ragged field needs rows"),
        (owner.sets not in (None, owner.rows), f"what sets the axis {owner.sets} has its rows"),
        (owner.overlay == "update", "only a JSON field can update the template's value"),
        (owner.omit_default, "only a JSON field can be left out"),
    ]


def _broken_merge_rules(
    owner: Computed, default: Callable[[], Any] | None
) -> list[tuple[bool, str]]:
    merge = owner.merge
    if merge is None:
        return [(True, "a computed field needs a merge rule")]
    fills = owner.fill is not None or isinstance(owner.codec, Ragged) or callable(merge)
    by_response = owner.rows == "response"
    by_token = owner.rows in ("tokens", "transitions")
    return [
        (not callable(merge) and merge not in MERGES, f"unknown merge rule {merge!r}"),
        (by_response and not fills, "a field with a row for each response token needs a fill"),
        (
            by_response and merge != "concat" and not callable(merge),
            "response rows are merged by concat or a function",
        ),
        (by_token and merge == "concat", "token rows are those of the last turn: no concat"),
        (not _fill_fits(owner), f"fill {owner.fill} is no value of the wire dtype"),
        (type(owner.since) is not int or owner.since < 1, "field sets count from 1"),
        (owner.omit_default and default is None, "a field left out at its default needs one"),
    ]


def _is_int(field: Field) -> bool:
    return union_options(field.annotation) == (int,)


def _fill_fits(owner: Computed) -> bool:
    if owner.fill is None or not isinstance(owner.codec, Tensor | Ragged):
        return True
    wire = wire_of(owner.codec)
    try:
        return wire is None or wire_array([owner.fill], wire.dtype, strict=False).size == 1
    except ValueRefusedError:
        return False
