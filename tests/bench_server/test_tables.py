"""The report: each figure in its place, and held against what was asked for."""

from __future__ import annotations

import msgspec
import pytest

from sample_wire.bench_server.scale import QUICK
from sample_wire.bench_server.tables import (
    leg_rows,
    memory_line,
    report_markdown,
    report_text,
    seconds,
    target_rows,
)

from ._runs import FULL, MIB, leg, run


@pytest.mark.parametrize(
    "row",
    [
        ["collect, straightforward way", "50.0 s", "200 ms", "250x", ""],
        ["collect, this library's assemble", "20.0 s", "200 ms", "100x", ""],
        ["of it, until the last byte", "10.0 s", "190 ms", "52.6x", ""],
        ["reply", "3,300.0 MiB", "100.0 MiB", "33.0x", ""],
        ["replies", "2", "40", "", ""],
        ["chat and one collect each, summed", "125 s", "25.4 s", "4.92x", "25.0 s"],
        ["chat meanwhile, turns", "1,000", "1,000", "", "1,000"],
        [
            "chat p50 / p95 / p99, ms",
            "300 / 600 / 900",
            "100 / 200 / 300",
            "",
            "50.0 / 100 / 150",
        ],
        ["/health meanwhile, asked", "1,000", "1,000", "", "1,000"],
        ["/health meanwhile, not 200", "0", "3", "", "0"],
        [
            "/health p50 / p99 / max, ms",
            "30.0 / 90.0 / 120",
            "10.0 / 30.0 / 40.0",
            "",
            "5.00 / 15.0 / 20.0",
        ],
        ["longest gap of the server's loop", "300 ms", "100 ms", "", "50.0 ms"],
        ["server RSS, peak", "300.0 MiB", "300.0 MiB", "", "300.0 MiB"],
        ["/health all along, not 200", "2 of 1,000", "1 of 1,000", "", ""],
    ],
    ids=lambda row: row[0],
)
def test_a_figure_stands_in_its_row_and_column(row: list[str]) -> None:
    rows = leg_rows(leg(failed=3), FULL)
    assert rows[0] == ["", "records-GET", "samples-POST", "ratio", "no collects"]
    assert row in rows


def test_a_sessions_memory_is_told_beside_its_rows_and_ids() -> None:
    assert memory_line(leg(), FULL) == (
        "Server RSS for each session 30.0 MiB, 1.20x of its narrow R3 and int32 ids"
    )


def test_memory_that_is_not_told_is_said() -> None:
    assert "does not tell" in memory_line(leg(resident=None), FULL)


@pytest.mark.parametrize(
    ("row", "verdict"),
    [
        (["R3 full-prefix: reply smaller than the records dump", ">= 30x", "33.0x"], "met"),
        (["R3 full-prefix: collect faster than by the records dump", ">= 100x", "250x"], "met"),
        (["R3 full-prefix: server RSS over narrow R3 and ids", "<= 1.5x", "1.20x"], "met"),
        (["R3 full-prefix: /health not 200 during collects", "0", "0"], "met"),
        (["R3 full-prefix: /health p99 during collects", "<= 50 ms", "30.0 ms"], "met"),
        (["R3 incremental: /health not 200 during collects", "0", "2"], "**missed**"),
        (["R3 incremental: /health p99 during collects", "<= 50 ms", "30.0 ms"], "met"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else None,
)
def test_a_figure_is_held_against_what_was_asked_for(row: list[str], verdict: str) -> None:
    found = run(leg(), leg(incremental=True, failed=2))
    assert [*row, verdict] in target_rows(found)


def test_what_was_asked_for_is_for_the_full_scale() -> None:
    _, *rows = target_rows(run(leg(), scale=QUICK))
    assert {row[-1] for row in rows} == {"at full scale only"}


def test_more_sessions_than_the_full_scale_has_are_held_against_it_too() -> None:
    scale = msgspec.structs.replace(FULL, sessions=8)
    _, *rows = target_rows(run(leg(), scale=scale))
    assert {row[-1] for row in rows} == {"met"}


def test_memory_that_is_not_told_is_held_against_nothing() -> None:
    found = target_rows(run(leg(resident=None)))
    assert not [row for row in found if "RSS" in row[0]]


def test_the_terminals_report_fits_its_width_and_has_both_legs() -> None:
    text = report_text(run(leg(), leg(incremental=True)))
    assert max(map(len, text.splitlines())) <= 100
    assert text.startswith(
        "Sessions: 2, of 50 turns of 2,060 tokens; R3: 25 layers x top 10 of 256 experts.\n"
    )
    assert text.index("R3 full-prefix.  Server") < text.index("R3 incremental.  Server")
    assert text.endswith("The whole run took 300 s.")


def test_the_pages_report_has_a_table_for_each_leg_and_one_of_targets() -> None:
    text = report_markdown(run(leg(), leg(incremental=True)))
    assert text.count("\n| --- |") == 3
    assert text.count("| reply | 3,300.0 MiB | 100.0 MiB | 33.0x |  |") == 2
    assert [line for line in text.splitlines() if line.startswith("#")] == [
        "### R3 full-prefix",
        "### R3 incremental",
        "### Held against what was asked for",
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.00123, "1.23 ms"),
        (0.0456, "45.6 ms"),
        (0.789, "789 ms"),
        (1.0, "1.00 s"),
        (1234, "1,234 s"),
    ],
)
def test_times_have_three_digits_in_a_fitting_unit(value: float, text: str) -> None:
    assert seconds(value) == text


def test_the_scale_knows_the_size_of_what_it_makes() -> None:
    assert FULL.narrow_bytes() == (103_000 - 1) * 250 + 4 * 103_000
    assert FULL.dump_bytes() // MIB == 3339
