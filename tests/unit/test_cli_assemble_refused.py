"""`sample-wire assemble` in this process: the files and options that it refuses, and how."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from sample_wire import cli
from sample_wire.demo.recorded import bundled_recording

from ._assemble_command import Command, error_of
from ._recordings import (
    NUM_EXPERTS,
    SHAPE_OPTIONS,
    TRIMMED,
    accumulated,
    dump,
    record,
    rows,
    session,
    text_of,
)


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path)


def test_no_token_is_trimmed_where_nothing_allows_it(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.run(dump(TRIMMED)) == 1
    assert "turn 2: its prompt parts" in error_of(capsys, command)


def test_ids_that_are_not_those_of_the_turns_are_refused(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    records = session(routed=False)
    assert command.run(dump(records, accumulated_token_ids=[*accumulated(), 7])) == 1
    assert error_of(capsys, command) == "turn 3: cursor 12 != len(accumulated_token_ids) 13"
    assert not command.output.exists()


def test_a_log_prob_that_is_no_number_is_refused(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    item = record([1, 2], [3])
    item["response"]["choices"][0]["meta_info"]["output_token_logprobs"][0][0] = math.nan
    assert command.run([record([1], [2]), item]) == 1
    assert error_of(capsys, command) == "turn 2: log-prob 0 of 1 is missing or no number"


def test_incremental_rows_name_the_option_to_set(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.run(session(incremental=True), *SHAPE_OPTIONS) == 1
    assert error_of(capsys, command) == (
        "turn 3: additional R3: starts at row 7; a full prefix at 0.  The turns bring only new "
        "rows: set --incremental"
    )


def test_incremental_rows_name_all_options_to_set(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.run(bundled_recording()) == 1
    assert error_of(capsys, command).endswith(
        "The turns bring only new rows: set --incremental; it needs --routing-layers and "
        "--routing-top-k"
    )


def test_a_gap_in_incremental_rows_names_no_option(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    records = session(2, incremental=True)
    records[1]["request"]["routed_experts_start_len"] = 4
    meta_info = records[1]["response"]["choices"][0]["meta_info"]
    meta_info["routed_experts"] = rows(4, 7)
    assert command.run(records, *SHAPE_OPTIONS, "--incremental") == 1
    assert error_of(capsys, command).endswith("starts at row 4; expected 3: gap of 1 row")


def test_rows_without_a_header_name_the_options_to_set(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.run(session()) == 1
    assert error_of(capsys, command).endswith("Set --routing-layers and --routing-top-k")


def test_a_prompt_of_another_conversation_names_the_option_to_set(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.run([record([1], [2]), record([1, 7], [3])]) == 1
    assert error_of(capsys, command).endswith("Set --split to start a new sample there")


def test_an_id_beyond_the_experts_is_refused(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    records = [record([1, 2], [3], routed=rows(38, 40))]
    experts = ("--num-experts", str(NUM_EXPERTS - 5))
    assert command.run(records, *SHAPE_OPTIONS, *experts) == 1
    assert "turn 1: routed_experts holds id 395, of 395 experts" in error_of(capsys, command)


def test_a_turn_without_routing_is_refused_where_routing_is_required(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.run(session(routed=False), *SHAPE_OPTIONS) == 0
    capsys.readouterr()
    assert command.run(session(routed=False), *SHAPE_OPTIONS, "--required") == 1
    assert error_of(capsys, command) == "turn 1: the reply has no routed_experts"


@pytest.mark.parametrize(
    ("document", "error"),
    [
        pytest.param(b"", "the file is not JSON", id="empty"),
        pytest.param(b"{'records': []}", "the file is not JSON", id="not_json"),
        pytest.param(b"\xff", "the file is not JSON", id="not_utf8"),
        pytest.param(b"[" * 100_000, "the file is not JSON", id="too_deep"),
        pytest.param(b"3", "no known form: Expected `object | array`", id="number"),
        pytest.param(b"[NaN, 3]", "turn 1: the record is malformed: Expected `object`", id="nan"),
        pytest.param(b"NaN", "no known form: Expected `object | array`", id="only_nan"),
        pytest.param({"exchanges": []}, "needs either records or turns", id="another_recorder"),
        pytest.param({"records": [], "turns": []}, "needs either records or turns", id="both"),
        pytest.param({"records": 3}, "`$.records`", id="no_list"),
        pytest.param([3], "turn 1: the record is malformed: Expected `object`", id="record"),
        pytest.param([{}], "turn 1: the record is malformed", id="record_of_nothing"),
        pytest.param(
            [{"request": {}, "response": None}], "turn 1: the reply is malformed", id="null_reply"
        ),
        pytest.param(
            [record([1], [2]), {"request": [1], "response": {}}],
            "turn 2: the record is malformed: Expected `object`, got `array` - at `$.request`",
            id="request_is_a_list",
        ),
        pytest.param(
            [{**record([1], [2]), "timestamp": "noon"}],
            "turn 1: the record is malformed: Expected `float | null`, got `str`",
            id="timestamp",
        ),
        pytest.param(
            [{"request": {"input_ids": [1]}, "response": {"body": {"error": "busy"}}}],
            "turn 1: the reply has neither meta_info nor token_ids",
            id="error_reply",
        ),
        pytest.param(
            [{"request": {"messages": []}, "response": record([1], [2])["response"]}],
            "turn 1: no prompt ids",
            id="no_prompt_ids",
        ),
        pytest.param(
            dump([record([1], [2])], accumulated_token_ids=[1, -2]),
            "the session's metadata is malformed: Expected `int` >= 0",
            id="negative_id",
        ),
        pytest.param(
            dump([record([1], [2])], max_trim_tokens="1"),
            "the session's metadata is malformed: Expected `int`",
            id="trim_is_text",
        ),
    ],
)
def test_a_file_of_another_shape_is_refused_in_one_line(
    document: Any, error: str, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.run(document) == 1
    assert error in error_of(capsys, command)
    assert not command.output.exists()


def test_metadata_that_the_wire_cannot_carry_is_refused(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.run(dump([record([1], [2])], score=math.inf)) == 1
    assert "EncodeError" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--incremental"], "--incremental needs --routing-layers and --routing-top-k"),
        (["--required"], "--required needs --routing-layers and --routing-top-k"),
        (["--num-experts", "8"], "--num-experts needs --routing-layers and --routing-top-k"),
        (["--routing-top-k", "8"], "--routing-layers and --routing-top-k go together"),
        (["--routing-layers", "8"], "--routing-layers and --routing-top-k go together"),
        ([*SHAPE_OPTIONS, "--num-experts", "2"], "RoutingSpec.num_experts is"),
        (["--routing-layers", "0", "--routing-top-k", "8"], "num_layers is a positive integer"),
        (["--routing-layers", "-1"], "-1 is negative"),
        (["--max-trim-tokens", "some"], "invalid whole_number value: 'some'"),
        (["--field-set", "3"], "invalid choice: 3"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_options_that_do_not_go_together_are_a_usage_error(
    options: list[str], error: str, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_info:
        command.run([], *options)
    assert exit_info.value.code == 2
    assert error in capsys.readouterr().err


def test_the_recording_is_not_written_over(command: Command) -> None:
    command.output = command.source
    with pytest.raises(SystemExit) as exit_info:
        command.run([record([1], [2])])
    assert exit_info.value.code == 2
    assert command.source.read_bytes() == text_of([record([1], [2])])


def test_a_file_that_is_not_there_is_a_usage_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = str(tmp_path / "missing")
    assert cli.main(["assemble", missing, "-o", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == f"sample-wire: {missing}: No such file or directory\n"


def test_an_output_that_cannot_be_written_is_a_usage_error(
    command: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command.output = tmp_path / "missing" / "payload"
    assert command.run([]) == 2
    assert capsys.readouterr().err == f"sample-wire: {command.output}: No such file or directory\n"
