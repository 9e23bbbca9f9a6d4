"""Results as Markdown tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from benchmarks._figures import MEASURED, PER_SECOND, TARGETS, Result, Results, Target, Unit
from benchmarks._formats import OPERATIONS, FormatRow, FormatTable, Operation
from benchmarks._layouts import EXACT, SOURCES, WAYS, LayoutTable
from benchmarks._peers import FORMATS, OURS
from sample_wire._report import markdown_table

_NOT_HERE: Final = "not installed"


def targets_table(results: Results) -> str:
    """Every target with its result; "not measured" where the system cannot tell it."""
    rows = [
        _target_cells(target, results[key])
        if key in results
        else [target.what, _bound(target), "not measured", "", "", "", ""]
        for key, target in TARGETS.items()
    ]
    head = ["row", "target", "median", "min", "peer in the same run", "peer / ours", "verdict"]
    return markdown_table([head, *rows])


def measured_table(results: Results) -> str:
    """What is measured beside the targets, with no verdict."""
    rows = [
        [figure.what, *_value_cells(results[key], figure.unit), results[key].measured_at or "P"]
        if key in results
        else [figure.what, "not measured", "", "", "", ""]
        for key, figure in MEASURED.items()
    ]
    head = ["row", "median", "min", "peer in the same run", "peer / ours", "measured at"]
    return markdown_table([head, *rows])


def formats_table(table: FormatTable) -> str:
    """Every format at one shape; in brackets, its time over ours in the same form."""
    head = ["format", *OPERATIONS, "wire bytes", "decode gives", "note"]
    rows = [
        _format_cells(table, table.rows[name])
        if name in table.rows
        else [name, _NOT_HERE, "", "", "", "", ""]
        for name in FORMATS
    ]
    return markdown_table([head, *rows])


def losses_text(table: FormatTable) -> str:
    """Where a peer was faster than ours: a line for each operation, the fastest peer first."""
    lines = [
        f"- {operation}: {'; '.join(table.faster_peers(operation)) or 'none'}"
        for operation in OPERATIONS
    ]
    head = f"Faster than sample_wire in the same form at {table.shape}:"
    return "\n".join([head, "", *lines])


def sizes_table(tables: Sequence[FormatTable]) -> str:
    """Bytes of each format at each shape, and their share of the bare tensors."""
    head = ["format", *(f"{table.shape}, bytes" for table in tables)]
    rows = [["the tensors alone", *(f"{table.tensor_bytes:,}" for table in tables)]]
    for name in FORMATS:
        if name != OURS[1]:  # the same bytes as unjoined
            shown = "sample_wire" if name == OURS[0] else name
            rows.append([shown, *(_size_cell(table, name) for table in tables)])
    return markdown_table([head, *rows])


def layouts_table(table: LayoutTable) -> str:
    """The layouts and zstd-1: bytes, their share of the exact layout's, and the times at P."""
    head = ["way", *(f"{name}, bytes" for name in SOURCES), "encode P", "decode P"]
    rows = [
        [
            way,
            *(
                f"{size:,} ({size / table.nbytes[EXACT][name]:.4f})"
                for name, size in table.nbytes[way].items()
            ),
            duration(table.encode[way].median_s),
            duration(table.decode[way].median_s),
        ]
        if way in table.nbytes
        else [way, _NOT_HERE, *([""] * (len(head) - 2))]
        for way in WAYS
    ]
    return markdown_table([head, *rows])


def duration(seconds: float) -> str:
    """Three digits in the unit that suits the size."""
    if seconds < 1e-3:
        return f"{_digits(seconds * 1e6)} us"
    return f"{_digits(seconds * 1e3)} ms"


def _target_cells(target: Target, result: Result) -> list[str]:
    return [
        target.what,
        _bound(target),
        *_value_cells(result, target.unit),
        _verdict(target, result),
    ]


def _value_cells(result: Result, unit: Unit) -> list[str]:
    return [
        _in_unit(result.value, unit),
        "" if result.least is None else _in_unit(result.least, unit),
        _peer_cell(result, unit),
        "" if result.peer_value is None else f"{_digits(result.peer_value / result.value)}x",
    ]


def _verdict(target: Target, result: Result) -> str:
    if result.measured_at is not None:
        return f"measured at {result.measured_at}"
    return "met" if target.is_met(result.value * PER_SECOND[target.unit]) else "**missed**"


def _peer_cell(result: Result, unit: Unit) -> str:
    if result.peer_value is None:
        return result.peer or ""
    return f"{result.peer}: {_in_unit(result.peer_value, unit)}"


def _bound(target: Target) -> str:
    return f"{target.bound} {target.limit:g} {target.unit}"


def _in_unit(value: float, unit: Unit) -> str:
    return f"{_digits(value * PER_SECOND[unit])} {unit}"


def _digits(number: float) -> str:
    """Three significant digits, without an exponent."""
    decimals = 0 if number >= 100 else 1 if number >= 10 else 2 if number >= 1 else 3
    return f"{number:.{decimals}f}"


def _size_cell(table: FormatTable, name: str) -> str:
    if name not in table.rows:
        return _NOT_HERE
    size = table.rows[name].wire_bytes
    return f"{size:,} ({size / table.tensor_bytes:.4f})"


def _format_cells(table: FormatTable, row: FormatRow) -> list[str]:
    return [
        row.format.name,
        *(_time_cell(table, row, operation) for operation in OPERATIONS),
        f"{row.wire_bytes:,}",
        "views" if row.format.gives_views else "copies",
        row.format.note,
    ]


def _time_cell(table: FormatTable, row: FormatRow, operation: Operation) -> str:
    seconds = row.times[operation].median_s
    if row.format.name in OURS:
        return duration(seconds)
    ratio = seconds / table.ours(row, operation).times[operation].median_s
    return f"{duration(seconds)} ({_digits(ratio)}x)"
