"""The row rules: how long a field's first axis is, checked and cut in one place.

A sample has two axes: T tokens, and R response tokens at their end.  Each per-row field
follows one of them, as its declaration says; the fields that set an axis say how long it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import numpy as np

from ._declarations import AXIS_OF_ROWS, Axis, Computed, Field, Rows
from .errors import EncodeError, SampleWireError
from .overlay import field_setter
from .schema import Schema, schema_of

Axes = dict[Axis, int]
ErrorT = TypeVar("ErrorT", bound=SampleWireError)
_UNIT: Final = {"tokens": "tokens", "response": "response tokens"}


# The rules of expected_rows and check_rows as expressions of the axes' lengths, for a sample that
# has tokens; test_row_rule_code compares them.
EXPECTED_ROWS_CODE: Final[dict[Rows, str]] = {
    "tokens": "tokens",
    "transitions": "tokens - 1",
    "response": "response",
}
RESPONSE_FITS_CODE: Final = "0 <= response <= tokens"


class RowRuleError(ValueError):
    """A broken row rule; the caller turns it into its own error with the sample's index."""

    def __init__(self, field: str, rule: str, *, expected: int, got: int) -> None:
        super().__init__(f"field {field} {rule}")
        self.field = field
        self.expected = str(expected)
        self.got = str(got)

    def of_sample(self, kind: type[ErrorT], index: int | None = None) -> ErrorT:
        """The error that the caller raises for it, with the sample's index where there is one."""
        where = "" if index is None else f"sample {index}, "
        return kind(
            f"{where}{self}",
            field=self.field,
            sample_index=index,
            expected=self.expected,
            got=self.got,
        )


def expected_rows(rows: Rows, axes: Axes) -> int:
    """Rows that a per-row field must have, given the length of both axes."""
    if rows == "transitions":
        return max(axes["tokens"] - 1, 0)
    return axes[rows]


def check_rows(
    axes: Axes, shapes: Iterable[tuple[str, Rows, Sequence[int]]], setters: Mapping[Axis, str]
) -> None:
    """Checks every per-row field's shape, and that the response lies within the tokens.

    Args:
        axes: length of each axis that the schema has.
        shapes: name, rows rule and shape of each per-row field that is not null.
        setters: the name of the field that sets each axis.

    Raises:
        RowRuleError: a wrong number of rows, or rows with nothing in them.

    Source: SPEC section 5.3.
    """
    response = axes.get("response", 0)
    if not 0 <= response <= axes.get("tokens", response):
        tokens = axes.get("tokens", 0)
        raise RowRuleError(
            setters["response"],
            f"says {response} response tokens, the sample has {tokens} tokens",
            expected=tokens,
            got=response,
        )
    for name, rows, shape in shapes:
        needed = expected_rows(rows, axes)
        if shape[0] != needed:
            axis = AXIS_OF_ROWS[rows]
            raise RowRuleError(
                name,
                f"has {shape[0]} rows, {axes[axis]} {_UNIT[axis]} need {needed}",
                expected=needed,
                got=shape[0],
            )
        if needed and 0 in shape:
            raise RowRuleError(
                name, f"has {needed} rows of shape {tuple(shape[1:])}", expected=needed, got=0
            )


def validate(sample: object, *, schema: Schema | None = None) -> None:
    """Checks the row rules of a sample's declared fields, computed and template ones alike.

    Args:
        sample: an instance of the schema's class; its arrays may be any sized array-likes.
        schema: the class's schema; None takes the one that the class declares on itself.

    Raises:
        EncodeError: a field breaks a row rule; it is named, with both numbers.

    Source: SPEC section 5.3.
    """
    schema = schema or schema_of(type(sample))
    axes = axes_of(sample, schema)
    shapes = [
        (field.name, field.owner.rows, _shape(field.name, value))
        for field in schema.fields
        if field.owner.rows is not None and (value := getattr(sample, field.name)) is not None
    ]
    try:
        check_rows(axes, shapes, schema.axis_names)
    except RowRuleError as error:
        raise error.of_sample(EncodeError) from None


def axes_of(sample: object, schema: Schema) -> Axes:
    """The length of each axis, from the fields that set them; a null field sets 0."""
    axes: Axes = {}
    for axis, field in schema.axis_fields.items():
        value = getattr(sample, field.name)
        if value is None:
            axes[axis] = 0
        elif field.owner.rows is not None:
            axes[axis] = _shape(field.name, value)[0]
        elif isinstance(value, (int, np.integer)) and not isinstance(value, bool):
            axes[axis] = int(value)
        else:
            raise EncodeError(f"field {field.name} is no integer", field=field.name)
    return axes


def strip_response(
    sample: Any,
    num_tokens: int,
    *,
    decode_text: Callable[[Any], str],
    schema: Schema | None = None,
) -> None:
    """Cuts the last num_tokens response tokens off a sample, in place, and all that follow them.

    Every per-row field loses its last rows, template fields included; the response length
    shrinks, and the response text is decoded anew from the tokens that stay.

    Args:
        sample: an instance of the schema's class.
        num_tokens: how many; 0 or less does nothing.
        decode_text: maps the remaining response ids to text; not called for none.
        schema: the class's schema; None takes the one that the class declares on itself.

    Raises:
        EncodeError: more tokens than the response has, or a sample that breaks a row rule.

    Arrays are cut to views, lists to new lists.
    """
    if num_tokens <= 0:
        return
    schema = schema or schema_of(type(sample))
    validate(sample, schema=schema)
    kept = _axes_after_cut(axes_of(sample, schema), num_tokens)
    ids = getattr(sample, schema.axis_fields["tokens"].name)
    changed = {field.name: _stripped(sample, field, kept) for field in schema.fields}
    for field in schema.fields:
        if isinstance(field.owner, Computed) and field.owner.merge == "text":
            left = ids[kept["tokens"] - kept["response"] : kept["tokens"]]
            changed[field.name] = decode_text(left) if kept["response"] else ""
    setter = field_setter(type(sample))
    for name, value in changed.items():
        setter(sample, name, value)


def _axes_after_cut(axes: Axes, num_tokens: int) -> Axes:
    if len(axes) < 2:
        raise EncodeError("the schema has no axis of tokens, or none of response tokens")
    if num_tokens > axes["response"]:
        raise EncodeError(
            f"cannot strip {num_tokens} tokens of a response of {axes['response']}",
            expected=f"at most {axes['response']}",
            got=str(num_tokens),
        )
    return {axis: length - num_tokens for axis, length in axes.items()}


def _stripped(sample: Any, field: Field, kept: Axes) -> Any:
    """A field's value after the cut; the value itself where the cut does not touch it."""
    owner, value = field.owner, getattr(sample, field.name)
    if value is None:
        return value
    if owner.rows is not None:
        return value[: expected_rows(owner.rows, kept)]
    if isinstance(owner, Computed) and owner.sets is not None:
        return kept[owner.sets]
    if isinstance(owner, Computed) and owner.response_keys:
        cut = {key: value[key][: kept["response"]] for key in owner.response_keys if key in value}
        return {**value, **cut}
    return value


def _shape(name: str, value: Any) -> tuple[int, ...]:
    shape = getattr(value, "shape", None)
    if shape is None and hasattr(value, "__len__"):
        shape = (len(value),)
    if not shape:
        raise EncodeError(f"field {name} has no rows: it is a {type(value).__name__}", field=name)
    return tuple(shape)
