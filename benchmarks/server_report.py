"""Runs `sample-wire bench server` and prints its report as the Markdown of README.md.

    python benchmarks/server_report.py [--quick] [--write] [--run FILE] [--sessions N ...]

It takes the command's options of size.  --run takes what the command wrote by --json on this
machine, instead of measuring anew.  --write puts the report into README.md, between its two
markers, and the plot beside it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

# Run as a file, only this folder is on the path, and the benchmarks import each other by name.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import msgspec

from benchmarks._machine import cpu, describe
from benchmarks.report import README, replaced
from sample_wire.bench_server.command import add_scale_arguments, scale_of
from sample_wire.bench_server.figures import Run
from sample_wire.bench_server.measure import measure
from sample_wire.bench_server.plot import plot_svg
from sample_wire.bench_server.tables import report_markdown
from sample_wire.demo.progress import Progress

BEGIN: Final = "<!-- server report: begin -->"
END: Final = "<!-- server report: end -->"
PLOT: Final = README.with_name("server.svg")


def server_report(run: Run, command: str) -> str:
    """The Markdown of the report."""
    plot = f"![Collect time and reply size by number of turns]({PLOT.name})"
    seed = run.scale.engine().seed
    return "\n\n".join(["\n".join(describe(command, seed)), plot, report_markdown(run)])


def _kept(path: Path) -> Run:
    return msgspec.json.decode(path.read_bytes(), type=Run)


def main(arguments: Sequence[str]) -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_scale_arguments(parser)
    parser.add_argument("--run", metavar="FILE", type=Path, help="a run that was kept as JSON")
    parser.add_argument("--write", action="store_true", help="put it into README.md, and the plot")
    options = parser.parse_args(arguments)
    command = " ".join(["python benchmarks/server_report.py", *arguments])
    run = _kept(options.run) if options.run else measure(scale_of(options), Progress())
    report = server_report(run, command)
    print(report)
    if options.write:
        PLOT.write_text(plot_svg(run, f"{cpu()}."), encoding="ascii")
        README.write_text(replaced(README.read_text(), report, BEGIN, END))


if __name__ == "__main__":
    main(sys.argv[1:])
