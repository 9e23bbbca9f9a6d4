"""Measures every figure and every format in one run and prints the tables of README.md.

    python benchmarks/report.py [--quick] [--write]

--quick takes few rounds, for a look or a test.  --write puts the tables into README.md, between
its two markers.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

# Run as a file, only this folder is on the path, and the benchmarks import each other by name.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks._event_loop import idle_gap_s
from benchmarks._formats import measure_all_formats
from benchmarks._layouts import measure_layouts
from benchmarks._machine import describe
from benchmarks._tables import (
    duration,
    formats_table,
    layouts_table,
    losses_text,
    measured_table,
    sizes_table,
    targets_table,
)
from benchmarks._targets import measure_targets
from benchmarks._timing import FULL, QUICK, Effort

README: Final = Path(__file__).with_name("README.md")
BEGIN: Final = "<!-- report: begin -->"
END: Final = "<!-- report: end -->"
_IDLE_WINDOW_S: Final = 1.0


def make_report(effort: Effort, command: str) -> str:
    """Measures all and gives the Markdown of the report."""
    results = measure_targets(effort)
    idle = duration(idle_gap_s(_IDLE_WINDOW_S))
    tables = measure_all_formats(effort)
    layouts = measure_layouts(effort)
    parts = [
        "\n".join(describe(command)),
        "### Figures to reach",
        targets_table(results),
        "### Beside them",
        measured_table(results),
        f"The ticker's longest gap in an idle loop, measured over {_IDLE_WINDOW_S:g} s: {idle}.",
    ]
    parts += ["### Layouts", layouts_table(layouts)]
    for table in tables:
        parts += [
            f"### Formats at {table.shape}",
            formats_table(table),
            losses_text(table),
        ]
    parts += ["### Sizes", sizes_table(tables)]
    return "\n\n".join(parts)


def replaced(text: str, report: str, begin_mark: str = BEGIN, end_mark: str = END) -> str:
    """The README's text with the report between its markers.

    Raises:
        ValueError: the markers are not there, once each and in order.
    """
    head, begin, rest = text.partition(begin_mark)
    old, end, tail = rest.partition(end_mark)
    if not (begin and end) or begin_mark in old + tail or end_mark in head + tail:
        raise ValueError("the README needs both markers, once each and in order")
    return f"{head}{begin}\n\n{report}\n\n{end}{tail}"


def main(arguments: Sequence[str]) -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few rounds: not for publishing")
    parser.add_argument("--write", action="store_true", help="put the tables into README.md")
    options = parser.parse_args(arguments)
    command = " ".join(["python benchmarks/report.py", *arguments])
    report = make_report(QUICK if options.quick else FULL, command)
    print(report)
    if options.write:
        README.write_text(replaced(README.read_text(), report))


if __name__ == "__main__":
    main(sys.argv[1:])
