"""Reads the tables and code blocks of SPEC.md, for the tests that compare them with the code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

SPEC_PATH: Final = Path(__file__).parents[2] / "SPEC.md"
_HEADING: Final = re.compile(r"^#+ (\d+(?:\.\d+)?)\.? ")


def section(number: str) -> str:
    """The text under a numbered heading, up to the next numbered one."""
    lines = SPEC_PATH.read_text(encoding="ascii").splitlines()
    starts = [index for index, line in enumerate(lines) if _HEADING.match(line)]
    for start, stop in zip(starts, [*starts[1:], len(lines)], strict=True):
        heading = _HEADING.match(lines[start])
        if heading is not None and heading.group(1) == number:
            return "\n".join(lines[start + 1 : stop])
    raise LookupError(f"SPEC.md has no section {number}")


def table(number: str, first_column: str) -> list[dict[str, str]]:
    """The rows of a section's table, by column; backquotes are taken off.

    Args:
        number: the section's number, as "4.2".
        first_column: heading of the first column, which tells a section's tables apart.
    """
    rows = [_cells(line) for line in section(number).splitlines()]
    for index, cells in enumerate(rows):
        if cells and cells[0] == first_column:
            return [dict(zip(cells, row, strict=True)) for row in _body(rows[index + 2 :])]
    raise LookupError(f"section {number} has no table that begins with {first_column!r}")


def code_blocks(number: str, language: str) -> list[str]:
    """The fenced blocks of one language in a section."""
    return re.findall(rf"^```{language}\n(.*?)^```$", section(number), re.DOTALL | re.MULTILINE)


def _cells(line: str) -> list[str]:
    if not line.startswith("|"):
        return []
    return [cell.strip().replace("`", "") for cell in line.strip().strip("|").split("|")]


def _body(rows: list[list[str]]) -> list[list[str]]:
    end = next((index for index, cells in enumerate(rows) if not cells), len(rows))
    return rows[:end]
