"""The short way to read a payload of one sample that is spelled as our writer spells it.

Such a payload is the usual one, and at a few kilobytes the steps of the general reader are its
cost.  Here the header is parsed into a type that is made for the schema: which tensors there
may be, with which dtypes and ranks.  A header that parses, and written again gives the same
bytes, has every entry that it must have, once, and in the order of the layout.  What is left
are byte ranges, nulls and rows, which code checks that `_direct_code` writes for the schema.

Nothing is refused here: whatever this way does not take, the general reader decides on.  Only
the JSON is the same step in both, with the same errors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, Literal

import msgspec

from ._container import PREFIX_BYTES, Size, unpack_prefix
from ._declarations import Axis
from ._direct_code import Entry, column_of, end_function, values_function
from ._dtypes import BY_WIRE_NAME
from ._json import encode_json
from ._json_fields import JsonField
from ._meta import META_TENSOR, Documents
from ._tensors import DenseField
from .rows import RowRuleError

_META_WIRE: Final = BY_WIRE_NAME["U8"]


class DirectReader:
    """Reads payloads of one sample for one schema and field set.

    Args:
        arrays: the array fields, each of which `takes` is true of.
        json_fields: the JSON fields.
        documents: parses the JSON.
        axis_names: as of a Plan.
    """

    __slots__ = ("_decode_header", "_documents", "_end_of", "_meta_of", "_values_of")

    def __init__(
        self,
        arrays: Sequence[DenseField],
        json_fields: Sequence[JsonField],
        documents: Documents,
        axis_names: Mapping[Axis, str],
    ) -> None:
        entries = sorted(
            (
                *(
                    Entry(field.wire.order, f"{field.name}.0", field.wire, field)
                    for field in arrays
                ),
                Entry(_META_WIRE.order, META_TENSOR, _META_WIRE, None),
            ),
            key=lambda entry: entry[:2],
        )
        header = msgspec.defstruct(
            "Header",
            [_header_column(column_of(at), entry) for at, entry in enumerate(entries)],
            rename={column_of(at): entry.name for at, entry in enumerate(entries)},
            forbid_unknown_fields=True,
            kw_only=True,
        )
        meta_at = [entry.name for entry in entries].index(META_TENSOR)
        self._documents = documents
        self._decode_header: Callable[[bytes], Any] = msgspec.json.Decoder(header).decode
        self._meta_of = attrgetter(column_of(meta_at))
        self._end_of = end_function(entries)
        self._values_of = values_function(entries, arrays, json_fields, axis_names)

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
            DecodeError: as the general reader, about the JSON.
        """
        nbytes = len(view)
        if nbytes < PREFIX_BYTES:
            return None
        (header_bytes,) = unpack_prefix(view)
        start = PREFIX_BYTES + header_bytes
        if header_bytes > max_header_bytes or start > nbytes:
            return None
        header = view[PREFIX_BYTES:start].tobytes()
        try:
            entries = self._decode_header(header)
        except (ValueError, RecursionError):
            return None
        if encode_json(entries) != header.rstrip(b" ") or start + self._end_of(entries) != nbytes:
            return None
        first, last = self._meta_of(entries).data_offsets
        document = self._documents.parse(view[start + first : start + last].tobytes(), max_depth)
        if len(document.samples) != 1:
            return None
        try:
            values = self._values_of(entries, document.samples[0], view, start)
        except RowRuleError:
            return None
        return None if values is None else (document, values)


def _header_column(name: str, entry: Entry) -> tuple[Any, ...]:
    """The column of one tensor's entry in the type of the header."""
    field = entry.field
    kind = msgspec.defstruct(
        "Entry",
        [
            ("dtype", Literal[entry.wire.name]),
            ("shape", tuple[(Size,) * (1 if field is None else field.rank)]),  # type: ignore[misc]  # made for the schema
            ("data_offsets", tuple[Size, Size]),
        ],
        forbid_unknown_fields=True,
    )
    if field is not None and (field.nullable or field.null_is_empty):
        return name, kind | msgspec.UnsetType, msgspec.UNSET
    return name, kind
