"""Times and sizes of every format at one shape, in one interleaved run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from benchmarks._data import FORMS, SHAPES, ShapeName, sample_of
from benchmarks._peers import (
    FORMATS,
    OURS,
    Format,
    arrays_of,
    format_of,
    is_same,
    num_bytes,
    received,
)
from benchmarks._timing import Call, Effort, Timing, compare

Operation = Literal["encode arrays", "encode lists", "decode"]
OPERATIONS: Final[tuple[Operation, ...]] = ("encode arrays", "encode lists", "decode")


@dataclass(frozen=True, slots=True)
class FormatRow:
    """One format at one shape: seconds of each operation, and bytes of the wire."""

    format: Format
    times: dict[Operation, Timing]
    wire_bytes: int


@dataclass(frozen=True, slots=True)
class FormatTable:
    """Every installed format at one shape, and the size of the bare tensors."""

    shape: ShapeName
    rows: dict[str, FormatRow]
    tensor_bytes: int

    def ours(self, row: FormatRow, operation: Operation) -> FormatRow:
        """Our row in the form that a row is fairly compared with."""
        plain = row.format.gives_views if operation == "decode" else not row.format.is_joined
        return self.rows[OURS[0] if plain else OURS[1]]

    def faster_peers(self, operation: Operation) -> list[str]:
        """The peers that beat ours in the same form, the fastest first."""
        times = {name: row.times[operation].median_s for name, row in self.rows.items()}
        return sorted(
            (
                name
                for name, row in self.rows.items()
                if name not in OURS
                and times[name] < self.ours(row, operation).times[operation].median_s
            ),
            key=times.__getitem__,
        )


def installed() -> list[str]:
    """Names of the formats whose packages are here."""
    found = []
    for name in FORMATS:
        try:
            format_of(name)
        except ImportError:
            continue
        found.append(name)
    return found


def measure_formats(shape: ShapeName, effort: Effort) -> FormatTable:
    """The table of a shape.

    Raises:
        RuntimeError: a format gave back something else than it was given.
    """
    calls: dict[tuple[str, Operation], Call] = {}
    sizes: dict[str, int] = {}
    formats = {name: format_of(name) for name in installed()}
    for name, one in formats.items():
        wire = _checked_wire(one, shape)
        sizes[name] = num_bytes(wire)
        calls |= {(name, key): call for key, call in _calls(one, shape, wire).items()}
    times = compare(calls, effort)
    rows = {
        name: FormatRow(one, {key: times[name, key] for key in OPERATIONS}, sizes[name])
        for name, one in formats.items()
    }
    arrays = arrays_of(sample_of(shape, "arrays"))
    return FormatTable(shape, rows, sum(array.nbytes for array in arrays.values()))


def _checked_wire(one: Format, shape: ShapeName) -> object:
    """The format's wire of a shape as received, once it has given back what it was given."""
    sample = sample_of(shape, "arrays")
    wire = received(one.encode(sample, {}))
    if not is_same(one.record(one.decode(wire)), sample, {}):
        raise RuntimeError(f"{one.name} does not give back shape {shape}")
    return wire


def _calls(one: Format, shape: ShapeName, wire: object) -> dict[Operation, Call]:
    arrays, lists = (sample_of(shape, form) for form in FORMS)
    return {
        "encode arrays": lambda: one.encode(arrays, {}),
        "encode lists": lambda: one.encode(lists, {}),
        "decode": lambda: one.decode(wire),
    }


def measure_all_formats(effort: Effort) -> list[FormatTable]:
    """A table for each shape, the small one first."""
    return [measure_formats(shape, effort) for shape in SHAPES]
