"""The short way to read a payload of one sample that is spelled as our writer spells it.

Such a payload is the usual one, and at a few kilobytes the general reader's steps are the cost
of it.  Here the header is parsed into a type that is made for the schema: which tensors there
may be, their dtypes and ranks are the type, so that a header that parses and is written again
byte for byte has every entry that it should have, once, and in the order of the layout.  What
is left to check are byte ranges, nulls and rows.

Nothing is refused here: whatever this way does not take, the general reader decides on.  Only
the JSON is the same step in both, with the same errors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Final, Literal

import msgspec
import numpy as np

from ._container import PREFIX_BYTES, Size, unpack_prefix
from ._declarations import Axis, Rows
from ._dtypes import BY_WIRE_NAME, WireDtype
from ._getters import tuple_getter
from ._json import encode_json
from ._json_fields import JsonField
from ._meta import META_TENSOR, Documents
from ._tensors import DenseField
from .rows import Axes, RowRuleError, check_rows

_UNSET: Final = msgspec.UNSET
_NO_ROWS: Final = (0,)
_META_WIRE: Final = BY_WIRE_NAME["U8"]


class DirectReader:
    """Reads payloads of one sample for one schema and field set.

    Args:
        arrays: the array fields, each of one tensor.
        json_fields: the JSON fields.
        documents: parses the JSON.
        axis_names: as of a Plan.
    """

    __slots__ = (
        "_arrays",
        "_axis_names",
        "_decode_header",
        "_documents",
        "_item_bytes",
        "_json_axes",
        "_json_names",
        "_json_values",
        "_meta_at",
        "_omitted_at_default",
        "_refs",
    )

    def __init__(
        self,
        arrays: Sequence[DenseField],
        json_fields: Sequence[JsonField],
        documents: Documents,
        axis_names: dict[Axis, str],
    ) -> None:
        self._documents = documents
        self._axis_names = axis_names
        self._json_names = [field.name for field in json_fields]
        self._json_values = tuple_getter(self._json_names)
        self._json_axes = [(field.name, field.sets) for field in json_fields if field.sets]
        self._omitted_at_default = [field for field in json_fields if field.omit_default]
        entries = [(f.wire.order, f"{f.name}.0", f.rank, f.wire) for f in arrays]
        entries.append((_META_WIRE.order, META_TENSOR, 1, _META_WIRE))
        entries.sort()
        names = [name for _, name, _, _ in entries]
        self._meta_at = names.index(META_TENSOR)
        self._arrays = [
            (
                field.name,
                names.index(f"{field.name}.0"),
                field.wire.dtype,
                field.rows,
                field.sets,
                field.empty if field.null_is_empty else None,
            )
            for field in arrays
        ]
        self._item_bytes = [wire.itemsize for _, _, _, wire in entries]
        columns = [f"tensor_{at}" for at in range(len(names))]
        types = [_entry_type(wire, rank) for _, _, rank, wire in entries]
        may_lack = {f"{f.name}.0" for f in arrays if f.nullable or f.null_is_empty}
        header = msgspec.defstruct(
            "Header",
            [
                (column, kind | msgspec.UnsetType, _UNSET) if name in may_lack else (column, kind)
                for column, kind, name in zip(columns, types, names, strict=True)
            ],
            rename=dict(zip(columns, names, strict=True)),
            forbid_unknown_fields=True,
            kw_only=True,
        )
        self._decode_header: Callable[[bytes], Any] = msgspec.json.Decoder(header).decode
        self._refs = tuple_getter(columns)

    @staticmethod
    def takes(field: DenseField) -> bool:
        """Whether a field is of one tensor, any bytes of which are values."""
        return type(field) is DenseField and field.wire.name != "BOOL"

    def read(
        self, view: memoryview, max_depth: int, max_header_bytes: int
    ) -> tuple[Any, dict[str, Any]] | None:
        """The document, and the sample's fields as PayloadReader.values gives them; None where
        the general reader decides.

        Raises:
            DecodeError: as the general reader, about the JSON and about BOOL bytes.
        """
        nbytes = len(view)
        if nbytes < PREFIX_BYTES:
            return None
        (header_bytes,) = unpack_prefix(view)
        start = PREFIX_BYTES + header_bytes
        if header_bytes > max_header_bytes or start > nbytes:
            return None
        refs = self._parse_header(view[PREFIX_BYTES:start].tobytes(), nbytes - start)
        if refs is None:
            return None
        first, last = refs[self._meta_at].data_offsets
        document = self._documents.parse(view[start + first : start + last].tobytes(), max_depth)
        if len(document.samples) != 1:
            return None
        values = self._values(document.samples[0], refs, view[start:])
        return None if values is None else (document, values)

    def _parse_header(self, header: bytes, data_bytes: int) -> Any:
        """The tensors' entries in the order of the layout, UNSET where one is not there."""
        try:
            entries = self._decode_header(header)
        except (ValueError, RecursionError):
            return None
        if encode_json(entries) != header.rstrip(b" "):
            return None
        refs = self._refs(entries)
        position = 0
        for ref, item_bytes in zip(refs, self._item_bytes, strict=True):
            if ref is not _UNSET:
                stop = position + prod(ref.shape) * item_bytes
                # An empty tensor's shape may still be too large for numpy.
                if ref.data_offsets != (position, stop) or stop == position:
                    return None
                position = stop
        return refs if position == data_bytes else None

    def _values(self, sample: Any, refs: Sequence[Any], data: memoryview) -> dict[str, Any] | None:
        """The sample's fields, if its tensors are the promised ones and keep the row rules."""
        values = dict(zip(self._json_names, self._json_values(sample), strict=True))
        for field in self._omitted_at_default:
            if values[field.name] is _UNSET:
                values[field.name] = field.new_default()
        axes: Axes = {}
        for name, axis in self._json_axes:
            axes[axis] = values[name]
        nulls: list[str] = []
        shapes: list[tuple[str, Rows, Sequence[int]]] = []
        for name, at, dtype, rows, sets, empty in self._arrays:
            ref = refs[at]
            if ref is _UNSET:
                nulls.append(name)
                values[name] = None if empty is None else empty()
                shape = _NO_ROWS
            else:
                shape = ref.shape
                array = np.frombuffer(data, dtype, prod(shape), ref.data_offsets[0])
                if not array.flags.aligned:
                    return None
                values[name] = array if len(shape) == 1 else array.reshape(shape)
                if rows is not None:
                    shapes.append((name, rows, shape))
            if sets is not None:
                axes[sets] = shape[0]
        try:
            check_rows(axes, shapes, self._axis_names)
        except RowRuleError:
            return None
        return values if sample.nulls == nulls else None


def _entry_type(wire: WireDtype, rank: int) -> Any:
    """The type of the header's entry of one tensor."""
    return msgspec.defstruct(
        "Entry",
        [
            ("dtype", Literal[wire.name]),
            ("shape", tuple[(Size,) * rank]),  # type: ignore[misc]  # made for the schema
            ("data_offsets", tuple[Size, Size]),
        ],
        forbid_unknown_fields=True,
    )
