"""The short way to read a payload of one sample that is spelled as our writer spells it.

Such a payload is the usual one, and at a few kilobytes the steps of the general reader are its
cost.  Here the header is parsed into a type that is made for the schema: which tensors there
may be, with which dtypes and ranks.  A header that parses, and written again gives the same
bytes, has every entry that it must have, once, and in the order of the layout.  What is left
are byte ranges, nulls and rows.

They are checked by a function that is written for the schema at first use: calls and loops over
the fields take twice the time of straight-line code.  It knows the fields' names, wire dtypes
and ranks from the schema, as literals; all else is handed to it by name.

Nothing is refused here: whatever this way does not take, the general reader decides on.  Only
the JSON is the same step in both, with the same errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any, Final, Literal, NamedTuple

import msgspec
import numpy as np

from ._container import PREFIX_BYTES, Size, unpack_prefix
from ._dtypes import BY_WIRE_NAME, WireDtype
from ._getters import tuple_getter
from ._json import encode_json
from ._json_fields import JsonField
from ._meta import COMPACT, META_TENSOR, Documents
from ._tensors import DenseField
from .rows import EXPECTED_ROWS_CODE, RESPONSE_FITS_CODE

_META_WIRE: Final = BY_WIRE_NAME["U8"]

# A payload, the JSON's largest depth and the header's largest size, to the document and a list of
# the sample's fields as PayloadReader.values gives them; None where the general reader decides.
# Raises DecodeError as the general reader, about the JSON.
DirectRead = Callable[[memoryview, int, int], tuple[Any, list[dict[str, Any]]] | None]

_CODE: Final = """
def read(view, max_depth, max_header_bytes):
 nbytes = len(view)
 if nbytes < PREFIX_BYTES:
  return None
 (header_bytes,) = unpack_prefix(view)
 data = PREFIX_BYTES + header_bytes
 if header_bytes > max_header_bytes or data > nbytes:
  return None
 text = view[PREFIX_BYTES:data].tobytes()
 try:
  header = decode_header(text)
 except (ValueError, RecursionError):
  return None
 if encode_json(header) != text.rstrip(b" "):
  return None
 stop = data
{ranges}
 if stop != nbytes:
  return None
 document = parse(view[meta_start:meta_stop].tobytes(), max_depth)
 if len(document.samples) != 1 or document.format == COMPACT:
  return None
 (sample,) = document.samples
 {json_values} = json_values(sample)
 nulls = []
{values}
 if sample.nulls != nulls:
  return None
 return document, [{{{fields}}}]
"""


class Entry(NamedTuple):
    """A tensor that there may be; the JSON's has no field."""

    order: int
    name: str
    wire: WireDtype
    field: DenseField | None

    @property
    def rank(self) -> int:
        return 1 if self.field is None else self.field.rank

    @property
    def is_optional(self) -> bool:
        """Whether the short ways take a sample without it; a null axis is the general ways'."""
        return self.field is not None and self.field.nullable and self.field.sets is None


def is_direct(arrays: Sequence[DenseField]) -> bool:
    """Whether the short ways take these fields: none that is ragged, and no bools, whose bytes
    need a look."""
    return all(type(field) is DenseField and field.wire.name != "BOOL" for field in arrays)


def entries_of(arrays: Sequence[DenseField]) -> list[Entry]:
    """The tensors of a payload of one sample, in the order of the layout."""
    entries = [Entry(field.wire.order, f"{field.name}.0", field.wire, field) for field in arrays]
    entries.append(Entry(_META_WIRE.order, META_TENSOR, _META_WIRE, None))
    return sorted(entries, key=lambda entry: entry[:2])


def declared(
    entries: Sequence[Entry], arrays: Sequence[DenseField]
) -> list[tuple[int, Entry, DenseField]]:
    """The arrays' places in the layout and entries, in the order of declaration."""
    places = {entry.name: at for at, entry in enumerate(entries)}
    found = [places[f"{field.name}.0"] for field in arrays]
    return [(at, entries[at], field) for at, field in zip(found, arrays, strict=True)]


def direct_read(
    arrays: Sequence[DenseField], json_fields: Sequence[JsonField], documents: Documents
) -> DirectRead | None:
    """The short way for one schema and field set; None where it has what this does not take."""
    if not is_direct(arrays):
        return None
    tensors = entries_of(arrays)
    known: dict[str, Any] = {
        "COMPACT": COMPACT,
        "PREFIX_BYTES": PREFIX_BYTES,
        "UNSET": msgspec.UNSET,
        "decode_header": msgspec.json.Decoder(_header_type(tensors)).decode,
        "encode_json": encode_json,
        "frombuffer": np.frombuffer,
        "json_values": tuple_getter([field.name for field in json_fields]),
        "parse": documents.parse,
        "prod": prod,
        "unpack_prefix": unpack_prefix,
        **{f"new_{at}": field.new_default for at, field in enumerate(json_fields)},
        **{f"dtype_{at}": entry.wire.dtype for at, entry in enumerate(tensors)},
    }
    in_order = declared(tensors, arrays)
    ranges = [f" {line}" for at, entry in enumerate(tensors) for line in _range_lines(at, entry)]
    values = [f" {line}" for line in _value_lines(in_order, json_fields)]
    fields = [f"{field.name!r}: json_{at}" for at, field in enumerate(json_fields)]
    fields += [f"{field.name!r}: array_{at}" for at, _, field in in_order]
    code = _CODE.format(
        ranges="\n".join(ranges),
        values="\n".join(values),
        fields=", ".join(fields),
        json_values="".join(f"json_{at}, " for at in range(len(json_fields))) or "()",
    )
    exec(code, known)
    read: DirectRead = known["read"]
    return read


def _range_lines(at: int, entry: Entry) -> Iterator[str]:
    """Each tensor begins where the one before ends, is of its shape's size, and is not empty: an
    empty one's shape may still be too large for numpy."""
    is_flat = entry.rank == 1
    indent = " " if entry.is_optional else ""
    yield f"ref_{at} = header.tensor_{at}"
    if entry.is_optional:
        yield f"if ref_{at} is not UNSET:"
    yield f"{indent}size_{at} = {f'ref_{at}.shape[0]' if is_flat else f'prod(ref_{at}.shape)'}"
    yield f"{indent}start_{at} = stop"
    yield f"{indent}stop += size_{at} * {entry.wire.itemsize}"
    yield f"{indent}offsets = (start_{at} - data, stop - data)"
    yield f"{indent}if start_{at} == stop or ref_{at}.data_offsets != offsets:"
    yield f"{indent} return None"
    if entry.field is None:
        yield f"meta_start, meta_stop = start_{at}, stop"


def _value_lines(
    in_order: Sequence[tuple[int, Entry, DenseField]], json_fields: Sequence[JsonField]
) -> Iterator[str]:
    """The axes, the arrays with their nulls and rows, and what the JSON leaves out."""
    axes = [field.sets for field in json_fields if field.sets]
    yield from (f"{field.sets} = json_{at}" for at, field in enumerate(json_fields) if field.sets)
    for at, _, array in in_order:
        if array.sets is not None:
            axes.append(array.sets)
            yield f"{array.sets} = ref_{at}.shape[0]"
    if len(axes) == 2:
        yield f"if not ({RESPONSE_FITS_CODE}):"
        yield " return None"
    for at, entry, array in in_order:
        indent = ""
        if entry.is_optional:
            yield f"if ref_{at} is UNSET:"
            yield f" array_{at} = None"
            yield f" nulls.append({array.name!r})"
            yield "else:"
            indent = " "
        yield from (f"{indent}{line}" for line in _array_lines(at, array))
    for at, json_field in enumerate(json_fields):
        if json_field.omit_default:
            yield f"if json_{at} is UNSET:"
            yield f" json_{at} = new_{at}()"


def _array_lines(at: int, field: DenseField) -> Iterator[str]:
    if field.rows is not None:
        yield f"if ref_{at}.shape[0] != {EXPECTED_ROWS_CODE[field.rows]}:"
        yield " return None"
    yield f"array_{at} = frombuffer(view, dtype_{at}, size_{at}, start_{at})"
    if field.wire.itemsize > 1:
        yield f"if not array_{at}.flags.aligned:"
        yield " return None"
    if field.rank != 1:
        yield f"array_{at} = array_{at}.reshape(ref_{at}.shape)"


def _header_type(tensors: Sequence[Entry]) -> type:
    """The type of a header with these tensors, in this order."""
    columns = []
    for at, entry in enumerate(tensors):
        kind = msgspec.defstruct(
            "Entry",
            [
                ("dtype", Literal[entry.wire.name]),
                ("shape", tuple[(Size,) * entry.rank]),  # type: ignore[misc]  # made for the schema
                ("data_offsets", tuple[Size, Size]),
            ],
            forbid_unknown_fields=True,
        )
        optional = (kind | msgspec.UnsetType, msgspec.UNSET) if entry.is_optional else (kind,)
        columns.append((f"tensor_{at}", *optional))
    return msgspec.defstruct(
        "Header",
        columns,
        rename={f"tensor_{at}": entry.name for at, entry in enumerate(tensors)},
        forbid_unknown_fields=True,
        kw_only=True,
    )
