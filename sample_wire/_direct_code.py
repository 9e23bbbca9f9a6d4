"""Python code that is written for a schema at first use: the hot steps of `_direct`.

A loop over the fields takes twice the time of straight-line code.  The code knows the fields'
names, wire dtypes and ranks from the schema, as literals; all else is handed to it by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import msgspec
import numpy as np

from ._declarations import Axis
from ._dtypes import WireDtype
from ._getters import tuple_getter
from ._json_fields import JsonField
from ._tensors import DenseField
from .rows import check_rows


class Entry(NamedTuple):
    """A tensor that a payload of one sample may hold; the JSON's has no field."""

    order: int
    name: str
    wire: WireDtype
    field: DenseField | None


def column_of(at: int) -> str:
    """The attribute of a parsed header that holds the entry of that place in the layout."""
    return f"tensor_{at}"


def end_function(entries: Sequence[Entry]) -> Callable[[Any], int]:
    """A function of a parsed header: where the data ends, or -1 where a tensor does not begin at
    the end of the one before it, is not of its shape's size, or is empty.

    An empty tensor's shape may still be too large for numpy; the general reader checks that.
    """
    return _compiled("end_of", _end_lines(entries), {"UNSET": msgspec.UNSET, "prod": prod})


def _end_lines(entries: Sequence[Entry]) -> Iterator[str]:
    yield "def end_of(header):"
    yield " stop = 0"
    for at, entry in enumerate(entries):
        yield f" ref = header.{column_of(at)}"
        yield " if ref is not UNSET:"
        yield f"  start, stop = stop, stop + {_size(entry.field)} * {entry.wire.itemsize}"
        yield "  if start == stop or ref.data_offsets != (start, stop):"
        yield "   return -1"
    yield " return stop"


def values_function(
    entries: Sequence[Entry],
    arrays: Sequence[DenseField],
    json_fields: Sequence[JsonField],
    axis_names: Mapping[Axis, str],
) -> Callable[[Any, Any, memoryview, int], dict[str, Any] | None]:
    """A function of a parsed header, the parsed sample, a payload and where its data starts: the
    sample's fields by name; None where nulls are others or in another order, or where an array
    is misaligned.  It raises RowRuleError."""
    known = {
        "UNSET": msgspec.UNSET,
        "axis_names": axis_names,
        "check_rows": check_rows,
        "frombuffer": np.frombuffer,
        "json_values": tuple_getter([field.name for field in json_fields]),
        "prod": prod,
        **{f"new_{at}": field.new_default for at, field in enumerate(json_fields)},
        **{f"empty_{at}": field.empty for at, field in enumerate(arrays)},
        **{f"dtype_{at}": field.wire.dtype for at, field in enumerate(arrays)},
    }
    columns = [column_of([entry.field for entry in entries].index(field)) for field in arrays]
    return _compiled("values_of", _values_lines(columns, arrays, json_fields), known)


def _values_lines(
    columns: Sequence[str], arrays: Sequence[DenseField], json_fields: Sequence[JsonField]
) -> Iterator[str]:
    yield "def values_of(header, sample, view, data):"
    yield f" ({''.join(f'json_{at}, ' for at in range(len(json_fields)))}) = json_values(sample)"
    yield " axes = {}"
    yield " nulls = []"
    yield " shapes = []"
    for at, (column, array) in enumerate(zip(columns, arrays, strict=True)):
        yield f" ref = header.{column}"
        yield " if ref is UNSET:"
        yield from (f"  {line}" for line in _null_lines(at, array))
        yield " else:"
        yield from (f"  {line}" for line in _array_lines(at, array))
    for at, field in enumerate(json_fields):
        if field.sets is not None:
            yield f" axes[{field.sets!r}] = json_{at}"
        if field.omit_default:
            yield f" if json_{at} is UNSET:"
            yield f"  json_{at} = new_{at}()"
    yield " if sample.nulls != nulls:"
    yield "  return None"
    yield " check_rows(axes, shapes, axis_names)"
    yield " return {"
    yield from (f"  {field.name!r}: json_{at}," for at, field in enumerate(json_fields))
    yield from (f"  {array.name!r}: array_{at}," for at, array in enumerate(arrays))
    yield " }"


def _null_lines(at: int, array: DenseField) -> Iterator[str]:
    yield f"nulls.append({array.name!r})"
    yield f"array_{at} = {f'empty_{at}()' if array.null_is_empty else None}"
    if array.sets is not None:
        yield f"axes[{array.sets!r}] = 0"


def _array_lines(at: int, array: DenseField) -> Iterator[str]:
    yield f"array_{at} = frombuffer(view, dtype_{at}, {_size(array)}, data + ref.data_offsets[0])"
    if array.wire.itemsize > 1:
        yield f"if not array_{at}.flags.aligned:"
        yield " return None"
    if array.rank != 1:
        yield f"array_{at} = array_{at}.reshape(ref.shape)"
    if array.sets is not None:
        yield f"axes[{array.sets!r}] = ref.shape[0]"
    if array.rows is not None:
        yield f"shapes.append(({array.name!r}, {array.rows!r}, ref.shape))"


def _size(field: DenseField | None) -> str:
    return "ref.shape[0]" if field is None or field.rank == 1 else "prod(ref.shape)"


def _compiled(name: str, lines: Iterator[str], known: dict[str, Any]) -> Any:
    exec("\n".join(lines), known)
    return known[name]
