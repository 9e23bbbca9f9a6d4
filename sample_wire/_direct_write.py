"""The short way to write one sample: the counterpart of `_direct`, by code written likewise.

Where the tensors of one sample lie is known but for their sizes, so that the header is one text
with numbers in it.  The JSON is the same step as in the general writer, with the same errors;
whatever else is not as usual, the general writer decides on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from ._container import entry_text, payload_of
from ._direct import Entry, declared, entries_of, is_direct
from ._getters import tuple_getter
from ._json_fields import JsonField
from ._meta import Documents, write_document
from ._tensors import DenseField
from .blocks import RowBlocks
from .payload import Payload
from .rows import EXPECTED_ROWS_CODE, RESPONSE_FITS_CODE

# A sample, session_metadata and empty_reason to the payload; None where the general writer
# decides.  Raises EncodeError as that, about the JSON.
DirectWrite = Callable[[Any, Any, Any], Payload | None]

_CODE: Final = """
def write(sample, session_metadata, empty_reason):
 values = array_values(sample)
 if RowBlocks in map(type, values):
  return None
 {arrays} = values
 nulls = []
{wire_arrays}
 text, written = write_sample(json_values(sample), nulls, 0)
{axes}
 text = write_document([text], session_metadata, empty_reason)
 entries = []
 pieces = []
 stop = 0
{tensors}
 return payload_of(entries, pieces, stop)
"""


def direct_write(
    arrays: Sequence[DenseField], json_fields: Sequence[JsonField], documents: Documents
) -> DirectWrite | None:
    """The short way for one schema and field set; None where it has what this does not take."""
    if not is_direct(arrays):
        return None
    entries = entries_of(arrays)
    in_order = declared(entries, arrays)
    known: dict[str, Any] = {
        "array_values": tuple_getter([field.name for field in arrays]),
        "json_values": tuple_getter([field.name for field in json_fields]),
        "RowBlocks": RowBlocks,
        "ndarray": np.ndarray,
        "payload_of": payload_of,
        "write_document": write_document,
        "write_sample": documents.write_sample,
        **{f"dtype_{at}": field.wire.dtype for at, _, field in in_order},
        **{f"converted_{at}": field.converted for at, _, field in in_order},
    }
    code = _CODE.format(
        arrays="".join(f"array_{at}, " for at, _, _ in in_order) or "()",
        wire_arrays=_indented(line for item in in_order for line in _array_lines(*item)),
        axes=_indented(_axis_lines(in_order, json_fields)),
        tensors=_indented(
            line for at, entry in enumerate(entries) for line in _tensor_lines(at, entry)
        ),
    )
    exec(code, known)
    write: DirectWrite = known["write"]
    return write


def _indented(lines: Iterator[str]) -> str:
    return "\n".join(f" {line}" for line in lines)


def _array_lines(at: int, entry: Entry, field: DenseField) -> Iterator[str]:
    """A wire array of each value that is not null; none that is empty or of a wrong rank."""
    indent = ""
    if entry.is_optional:
        yield f"if array_{at} is None:"
        yield f" nulls.append({field.name!r})"
        yield "else:"
        indent = " "
    usual = f"type(array_{at}) is ndarray and array_{at}.dtype is dtype_{at}"
    yield f"{indent}if not ({usual} and array_{at}.flags.c_contiguous):"
    yield f"{indent} array_{at} = converted_{at}(array_{at})"
    yield f"{indent} if array_{at} is None:"
    yield f"{indent}  return None"
    yield f"{indent}shape_{at} = array_{at}.shape"
    yield f"{indent}if len(shape_{at}) != {entry.rank} or 0 in shape_{at}:"
    yield f"{indent} return None"


def _axis_lines(
    in_order: Sequence[tuple[int, Entry, DenseField]], json_fields: Sequence[JsonField]
) -> Iterator[str]:
    """The axes' lengths and the row rules."""
    axes = [field.sets for field in json_fields if field.sets]
    for at, field in enumerate(json_fields):
        if field.sets is not None:
            yield f"{field.sets} = written[{at}]"
    for at, _, array in in_order:
        if array.sets is not None:
            axes.append(array.sets)
            yield f"{array.sets} = shape_{at}[0]"
    if len(axes) == 2:
        yield f"if not ({RESPONSE_FITS_CODE}):"
        yield " return None"
    for at, entry, array in in_order:
        if array.rows is not None:
            given = f"array_{at} is not None and " if entry.is_optional else ""
            yield f"if {given}shape_{at}[0] != {EXPECTED_ROWS_CODE[array.rows]}:"
            yield " return None"


def _tensor_lines(at: int, entry: Entry) -> Iterator[str]:
    """The header's entries and the pieces, in the order of the layout."""
    indent = ""
    yield "start = stop"
    if entry.field is None:
        yield "stop += len(text)"
        yield "pieces.append(memoryview(text))"
        shape = "{len(text)}"
    else:
        if entry.is_optional:
            yield f"if array_{at} is not None:"
            indent = " "
        yield f"{indent}stop += array_{at}.nbytes"
        yield f"{indent}pieces.append(array_{at})"
        shape = ",".join(f"{{shape_{at}[{axis}]}}" for axis in range(entry.rank))
    head, middle, end = (
        part.replace("{", "{{").replace("}", "}}")
        for part in entry_text(entry.name, entry.wire.name)
    )
    text = f"{head}{shape}{middle}{{start}},{{stop}}{end}"
    yield f"{indent}entries.append(f{text!r})"
