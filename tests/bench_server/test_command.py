"""`sample-wire bench server` as a whole, in its small form, and what it refuses."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import pytest

from sample_wire import Sample, cli
from sample_wire.bench_server.errors import BenchError
from sample_wire.bench_server.figures import Run
from sample_wire.bench_server.tables import report_text
from sample_wire.bench_server.trainer import LIBRARY, SAMPLES, STRAIGHTFORWARD, check_equal

PATIENCE_S: Final = 120
SIZES: Final = ("--turns", "3", "--tokens-per-turn", "100", "--layers", "3", "--top-k", "2")


class Ended(NamedTuple):
    """A run that has ended."""

    out: str
    err: str
    found: Run
    plot: str


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """One run."""
    folder = tmp_path_factory.mktemp("bench")
    files = ["--json", str(folder / "run.json"), "--svg", str(folder / "run.svg")]
    done = subprocess.run(
        [sys.executable, "-m", "sample_wire", "bench", "server", "--quick", *SIZES, *files],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    found = msgspec.json.decode((folder / "run.json").read_bytes(), type=Run)
    return Ended(done.stdout, done.stderr, found, (folder / "run.svg").read_text())


def test_it_prints_the_report_of_what_it_wrote(ended: Ended) -> None:
    assert ended.out == report_text(ended.found) + "\n"


def test_a_log_gets_a_line_for_each_step(ended: Ended) -> None:
    lines = ended.err.splitlines()
    assert len(lines) == 10
    assert all(line.startswith("sample-wire: ") for line in lines)


def test_the_plot_is_well_formed(ended: Ended) -> None:
    assert ElementTree.fromstring(ended.plot).tag == "{http://www.w3.org/2000/svg}svg"


def test_both_forms_of_routing_are_run_with_all_their_sessions(ended: Ended) -> None:
    full, incremental = ended.found.legs
    assert (full.incremental, incremental.incremental) == (False, True)
    for leg in ended.found.legs:
        assert leg.quiet.chat.count == 2 * 3
        assert leg.samples.num_replies >= 2
        assert leg.records.num_replies == 2
        assert leg.samples.health.latencies.count > 0


def test_every_way_takes_time_and_both_replies_have_bytes(ended: Ended) -> None:
    for leg in ended.found.legs:
        assert leg.samples.seconds.keys() == {SAMPLES}
        assert leg.records.seconds.keys() == {LIBRARY, STRAIGHTFORWARD}
        assert 0 < leg.samples.received_s <= leg.samples.seconds[SAMPLES]
        assert all(leg.records.received_s < one for one in leg.records.seconds.values())
        assert leg.quiet.longest_gap_s > 0


def test_records_that_repeat_every_row_are_the_larger_ones(ended: Ended) -> None:
    full, incremental = ended.found.legs
    assert full.records.reply_bytes > incremental.records.reply_bytes
    assert abs(full.samples.reply_bytes - incremental.samples.reply_bytes) < 100


def test_the_curve_ends_with_the_whole_session(ended: Ended) -> None:
    for leg in ended.found.legs:
        assert [point.turns for point in leg.curve] == [1, 2, 3]


def test_samples_that_differ_end_the_run() -> None:
    one, other = (Sample(weight_versions=[version]) for version in "12")
    with pytest.raises(BenchError, match=r"it makes another sample .*: weight_versions$"):
        check_equal(one, other, Sample(), "it")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--turns", "0"), "turns must be at least 1"),
        (("--sessions", "-1"), "sessions must be at least 1"),
        (("--tokens-per-turn", "63"), "tokens_per_turn must be at least 64"),
        (("--top-k", "300"), "top_k must be at most num_experts"),
        (("--layers", "x"), "invalid int value"),
    ],
    ids=["turns", "sessions", "tokens", "top-k", "no number"],
)
def test_sizes_that_do_not_hold_are_refused(
    arguments: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        cli.main(["bench", "server", *arguments])
    assert refused.value.code == 2
    assert told in capsys.readouterr().err


def test_a_shape_of_the_other_benchmark_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        cli.main(["bench", "--shape", "S", "server"])
    assert refused.value.code == 2
    assert "--shape is for encode and decode alone" in capsys.readouterr().err


@pytest.mark.skipif(not Path("/proc/meminfo").exists(), reason="only Linux tells the free memory")
def test_records_that_the_memory_cannot_hold_are_refused_at_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["bench", "server", "--turns", "5000"]) == 1
    assert "take fewer turns, or smaller ones" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_told_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = str(tmp_path / "none" / "run.json")
    assert cli.main(["bench", "server", "--quick", "--json", name]) == 2
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", f"sample-wire: {name}: No such file or directory\n")


def test_without_its_extra_it_says_what_it_needs() -> None:
    text = (
        "import sys; sys.modules['starlette'] = None; from sample_wire.cli import main; "
        "sys.exit(main(['bench', 'server']))"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert 'pip install "sample-wire[server]"' in done.stderr
