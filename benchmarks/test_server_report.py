"""server_report.py: the report of a run as README.md has it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
from bench_server._runs import leg, run

from benchmarks._machine import cpu
from benchmarks.report import README, replaced
from benchmarks.server_report import BEGIN, END, PLOT
from sample_wire.bench_server.tables import report_markdown

ROOT = Path(__file__).resolve().parents[1]
FOUND = run(leg(), leg(incremental=True))


def test_a_run_that_was_kept_is_told_with_its_machine_command_and_plot(tmp_path: Path) -> None:
    kept = tmp_path / "run.json"
    kept.write_bytes(msgspec.json.encode(FOUND))
    command = ["benchmarks/server_report.py", "--run", str(kept)]
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert report_markdown(FOUND) in done.stdout
    assert f"- CPU: {cpu()}; memory: " in done.stdout
    assert f"; seed: 0; command: `python {' '.join(command)}`" in done.stdout
    assert f"]({PLOT.name})" in done.stdout
    assert done.stderr == ""


def test_readme_has_the_markers() -> None:
    assert f"{BEGIN}\n\nunique text\n\n{END}" in replaced(
        README.read_text(), "unique text", BEGIN, END
    )
