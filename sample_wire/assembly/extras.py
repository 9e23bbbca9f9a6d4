"""Fields of a subclass that the engine fills: read from meta_info, checked as they declare.

A computed field that assembly does not make itself takes its value in a turn from the key of
its own name in the reply's meta_info.  The value is brought into its declared form here, once,
so that merging never meets anything else.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec

from .._arrays import ValueRefusedError, wire_array
from .._declarations import Computed, Field, Ragged, Tensor, wire_of
from .._dtypes import WireDtype
from ..errors import AssemblyError
from ..rows import Axes, expected_rows


def extra_value(field: Field, value: Any, num_tokens: int, num_output: int, turn: int) -> Any:
    """A field's value in one turn, in its declared form; None stays None.

    Args:
        field: a computed field.
        value: what meta_info had under its name.
        num_tokens, num_output: the turn's prompt and output, and its output alone; an array
            with rows has as many as these ask for.
        turn: the turn's number, for errors.

    Raises:
        AssemblyError: not of the declared type, dtype, rank or number of rows.
    """
    if value is None:
        return None
    codec = cast(Computed, field.owner).codec
    axes: Axes = {"tokens": num_tokens, "response": num_output}
    try:
        if isinstance(codec, Ragged):
            return _ragged(field, codec, value, axes)
        if isinstance(codec, Tensor):
            return _tensor(field, codec, value, axes)
        return msgspec.convert(value, field.annotation)
    except ValueRefusedError as error:
        rule = error.rule
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        rule = f"is not of its type: {error}"
    raise AssemblyError(f"{field.name} {rule}", turn=turn, field=field.name)


def _tensor(field: Field, codec: Tensor, value: Any, axes: Axes) -> Any:
    array = wire_array(value, cast(WireDtype, wire_of(codec)).dtype, strict=False)
    if array.size == 0 and array.ndim == 1 < codec.rank:
        array = array.reshape(0, *(0,) * (codec.rank - 1))  # an empty list tells no more axes
    if array.ndim != codec.rank:
        raise ValueRefusedError(f"has rank {array.ndim}, not {codec.rank}")
    _check_rows(field, len(array) if codec.rank else 0, axes)
    return array


def _ragged(field: Field, codec: Ragged, value: Any, axes: Axes) -> list[Any]:
    if not isinstance(value, list):
        raise ValueRefusedError(f"is a {type(value).__name__}, not a list of rows")
    dtype = cast(WireDtype, wire_of(codec)).dtype
    rows = [wire_array(row, dtype, strict=False) for row in value]
    if any(row.ndim != 1 for row in rows):
        raise ValueRefusedError("has a row that is no flat list")
    _check_rows(field, len(rows), axes)
    return rows


def _check_rows(field: Field, num_rows: int, axes: Axes) -> None:
    rows = field.owner.rows
    if rows is not None and num_rows != expected_rows(rows, axes):
        raise ValueRefusedError(f"has {num_rows} rows, its turn needs {expected_rows(rows, axes)}")
