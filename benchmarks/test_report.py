"""report.py: it yields every row, and changes nothing of the README but its tables."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks._assembly import has_pybase64
from benchmarks._data import SHAPES
from benchmarks._figures import MEASURED, PER_SECOND, TARGETS, Result
from benchmarks._formats import FormatRow, FormatTable, installed
from benchmarks._memory import has_resident_peak
from benchmarks._peers import FORMATS, OURS, format_of
from benchmarks._tables import (
    duration,
    formats_table,
    losses_text,
    measured_table,
    sizes_table,
    targets_table,
)
from benchmarks._timing import Effort, Timing, compare
from benchmarks.report import BEGIN, END, README, replaced

ROOT = Path(__file__).resolve().parents[1]
ROWS = [
    *(target.what for target in TARGETS.values()),
    *(figure.what for figure in MEASURED.values()),
]


@pytest.fixture
def slow_table() -> FormatTable:
    """Ours take 2 s and 1 s, safetensors 0.5 s, everything at S; 100 bytes of tensors."""
    seconds = {OURS[0]: 2.0, OURS[1]: 1.0, "safetensors.numpy": 0.5}
    rows = {
        name: FormatRow(
            format_of(name),
            dict.fromkeys(("encode arrays", "encode lists", "decode"), Timing(time_s, time_s)),
            110,
        )
        for name, time_s in seconds.items()
    }
    return FormatTable("S", rows, 100)


@pytest.mark.heavy
def test_quick_report_yields_every_row() -> None:
    done = subprocess.run(
        [sys.executable, "benchmarks/report.py", "--quick"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    for what in ROWS:
        assert done.stdout.count(f"| {what} |") == 1
    for shape in SHAPES:
        assert f"### Formats at {shape}" in done.stdout
    tells_all = has_resident_peak() and has_pybase64()
    assert ("not measured" in done.stdout) == (not tells_all)
    assert done.stderr == ""


@pytest.mark.parametrize("key", TARGETS)
def test_result_at_its_limit_is_met(key: str) -> None:
    target = TARGETS[key]
    table = targets_table({key: Result(target.limit / PER_SECOND[target.unit])})
    assert f"| {target.what} |" in table
    assert table.count("| met |") == 1


@pytest.mark.parametrize("key", TARGETS)
def test_result_beyond_its_limit_is_missed(key: str) -> None:
    target = TARGETS[key]
    worse = 1.01 if target.bound == "<=" else 0.99
    table = targets_table({key: Result(worse * target.limit / PER_SECOND[target.unit])})
    assert table.count("| **missed** |") == 1


def test_row_that_the_system_cannot_tell_is_said() -> None:
    assert targets_table({}).count("not measured") == len(TARGETS)
    assert measured_table({}).count("not measured") == len(MEASURED)


@pytest.mark.parametrize("key", TARGETS)
def test_result_of_another_shape_has_no_verdict(key: str) -> None:
    table = targets_table({key: Result(0.0, measured_at="shape M")})
    assert table.count("| measured at shape M |") == 1
    assert not {"| met |", "| **missed** |"} & {line[-14:] for line in table.splitlines()}


def test_row_without_a_bound_is_shown_beside_its_peer() -> None:
    table = measured_table({"read all": Result(2.0, None, "peer", 6.0)})
    assert "| 2000 ms |  | peer: 6000 ms | 3.00x | P |" in table


def test_faster_peer_is_named(slow_table: FormatTable) -> None:
    assert losses_text(slow_table).count(": safetensors.numpy") == 3


def test_operation_without_a_faster_peer_says_none(slow_table: FormatTable) -> None:
    del slow_table.rows["safetensors.numpy"]
    assert losses_text(slow_table).count(": none") == 3


def test_peer_is_compared_with_ours_in_the_same_form(slow_table: FormatTable) -> None:
    [line] = [row for row in formats_table(slow_table).splitlines() if "safetensors" in row]
    assert line.count("500 ms (0.500x)") == 3


def test_format_that_is_not_installed_is_said(slow_table: FormatTable) -> None:
    missing = len(FORMATS) - len(slow_table.rows)
    assert formats_table(slow_table).count("not installed") == missing


def test_size_is_given_with_its_share_of_the_tensors(slow_table: FormatTable) -> None:
    assert "| sample_wire | 110 (1.1000) |" in sizes_table([slow_table])


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (1.5e-6, "1.50 us"),
        (42.123e-6, "42.1 us"),
        (0.0005, "500 us"),
        (0.012345, "12.3 ms"),
        (1.5, "1500 ms"),
    ],
)
def test_duration_has_three_digits_in_a_fitting_unit(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_calls_are_timed_in_turns() -> None:
    order: list[str] = []
    effort = Effort("test", rounds=3, long_rounds=3, round_s=0.0, gap_rounds=1)
    compare({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, effort)
    assert "".join(order)[-6:] == "ababab"


def test_report_goes_between_the_markers() -> None:
    text = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    assert replaced(text, "new") == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"


@pytest.mark.parametrize(
    "text",
    ["", BEGIN, f"{END} {BEGIN}", f"{BEGIN} {BEGIN} {END}", f"{BEGIN} {END} {END}"],
    ids=["none", "no end", "wrong order", "two begins", "two ends"],
)
def test_text_without_its_markers_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="markers"):
        replaced(text, "new")


def test_format_without_its_package_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    format_of.cache_clear()
    assert "Arrow IPC, one-row batch" not in installed()


@pytest.mark.parametrize("what", ROWS)
def test_readme_has_a_result_for_the_row(what: str) -> None:
    assert README.read_text().count(f"| {what} |") == 1


def test_readme_has_the_markers() -> None:
    assert f"{BEGIN}\n\nunique text\n\n{END}" in replaced(README.read_text(), "unique text")
