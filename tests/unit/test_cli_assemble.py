"""`sample-wire assemble` in this process: the payload that it writes, and what it refuses."""

from __future__ import annotations

import io
import json
import math
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sample_wire as sw
from sample_wire import cli
from sample_wire.assembly import RoutingSpec, assemble
from sample_wire.demo.run import bundled_recording

from ._recordings import (
    NUM_EXPERTS,
    NUM_LAYERS,
    SHAPE_OPTIONS,
    TOP_K,
    accumulated,
    capture,
    dump,
    record,
    rows,
    session,
    text_of,
)


class Command:
    """Runs the command on a document; what it wrote is in `output`."""

    def __init__(self, folder: Path) -> None:
        self.source = folder / "records.json"
        self.output = folder / "payload.safetensors"

    def run(self, document: Any, *options: str) -> int:
        text = document if isinstance(document, bytes) else text_of(document)
        self.source.write_bytes(text)
        return cli.main(["assemble", str(self.source), "-o", str(self.output), *options])

    def reply(self, field_set: int = 1) -> sw.SamplesReply[sw.Sample]:
        return sw.decode_samples(self.output.read_bytes(), sw.Sample(), field_set=field_set)

    def sample(self) -> sw.Sample:
        (found,) = self.reply().samples
        return found


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path)


def error_of(capsys: pytest.CaptureFixture[str], command: Command) -> str:
    """The one line that refuses the file, without what names command and file."""
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    start = f"sample-wire: {command.source}: AssemblyError: "
    assert err.startswith(start)
    return err.removeprefix(start).rstrip("\n")


@pytest.mark.parametrize("incremental", [False, True], ids=["full", "incremental"])
def test_the_payload_is_that_of_assemble(command: Command, incremental: bool) -> None:
    records = session(incremental=incremental)
    metadata = {"accumulated_token_ids": accumulated(), "max_trim_tokens": 0}
    options = ["--incremental"] if incremental else []
    assert command.run(dump(records, **metadata), *SHAPE_OPTIONS, *options) == 0
    result = assemble(
        records,
        accumulated_token_ids=accumulated(),
        max_trim_tokens=0,
        decode_text=None,
        routing=RoutingSpec(num_layers=NUM_LAYERS, top_k=TOP_K, incremental=incremental),
    )
    assert command.output.read_bytes() == bytes(sw.encode_samples(result.samples, metadata))


@pytest.mark.parametrize(
    "form",
    [
        pytest.param(lambda records: dump(records), id="dump"),
        pytest.param(lambda records: {"records": records}, id="dump_without_metadata"),
        pytest.param(lambda records: {"records": records, "metadata": None}, id="null_metadata"),
        pytest.param(capture, id="capture"),
        pytest.param(lambda records: capture(records)["turns"], id="list_of_a_capture"),
        pytest.param(lambda records: records, id="list"),
    ],
)
def test_every_form_of_a_file_gives_the_same_payload(
    form: Callable[[list[Any]], Any], command: Command
) -> None:
    assert command.run(form(session()), *SHAPE_OPTIONS) == 0
    found = command.output.read_bytes()
    assert command.run(dump(session()), *SHAPE_OPTIONS) == 0
    assert found == command.output.read_bytes()
    assert command.sample().tokens.tolist() == accumulated()


def test_a_reply_that_is_a_list_is_taken(command: Command) -> None:
    item = record([1, 2], [3])
    item["response"] = [item["response"]["choices"][0]]
    assert command.run([item]) == 0
    assert command.sample().tokens.tolist() == [1, 2, 3]


def test_a_streamed_reply_is_taken(command: Command) -> None:
    final = record([1, 2], [3])["response"]["choices"][0]
    item = {
        "request": {"body": {"input_ids": [1, 2]}},
        "response": {"body": {"sse": [{"text": ""}, final]}},
    }
    assert command.run({"turns": [item]}) == 0
    assert command.sample().tokens.tolist() == [1, 2, 3]


def test_real_traffic_of_an_engine_is_taken(command: Command) -> None:
    shape = ("--routing-layers", "4", "--routing-top-k", "8", "--num-experts", "64")
    assert command.run(bundled_recording(), *shape, "--incremental") == 0
    sample = command.sample()
    assert sample.rollout_routed_experts is not None
    assert (len(sample.tokens), sample.rollout_routed_experts.shape) == (975, (974, 4, 8))


def test_the_metadata_of_a_dump_becomes_that_of_the_session(command: Command) -> None:
    metadata = {"accumulated_token_ids": accumulated(), "tito_session_mismatch": []}
    assert command.run(dump(session(), **metadata), *SHAPE_OPTIONS) == 0
    assert command.reply().session_metadata == metadata


def test_the_message_says_what_was_made_and_that_there_is_no_text(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.run(session(), *SHAPE_OPTIONS) == 0
    out, err = capsys.readouterr()
    num_bytes = command.output.stat().st_size
    assert out == (
        f"{command.output}: {num_bytes:,} bytes, turns 3, samples 1\n"
        "There is no tokenizer here: the response text is empty.\n"
    )
    assert err == ""
    assert command.sample().response == ""


TRIMMED = [record([1, 2], [10, 99]), record([1, 2, 10, 3], [20, 99])]


@pytest.mark.parametrize(
    ("metadata", "options"),
    [
        pytest.param({"max_trim_tokens": 1}, [], id="as_the_dump_says"),
        pytest.param({"max_trim_tokens": 0}, ["--max-trim-tokens", "1"], id="option_wins"),
        pytest.param({}, ["--max-trim-tokens", "1"], id="only_the_option"),
    ],
)
def test_turns_are_trimmed_to_the_ids_of_the_session(
    metadata: dict[str, Any], options: list[str], command: Command
) -> None:
    ids = [1, 2, 10, 3, 20, 99]
    assert command.run(dump(TRIMMED, accumulated_token_ids=ids, **metadata), *options) == 0
    assert command.sample().tokens.tolist() == ids


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


def test_a_sample_is_cut_at_the_length_and_the_rest_is_told(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.run(session(), *SHAPE_OPTIONS, "--max-seq-len", "7") == 0
    assert command.sample().tokens.tolist() == accumulated()[:7]
    assert "sample 0: turns left out 1 (max_seq_len)\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("records", "options", "reason"),
    [
        pytest.param([], [], "no_records", id="no_records"),
        pytest.param(session(routed=False), ["--max-seq-len", "1"], "all_truncated", id="cut"),
    ],
)
def test_a_payload_without_samples_says_why(
    records: list[Any],
    options: list[str],
    reason: str,
    command: Command,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert command.run(records, *options) == 0
    assert (command.reply().samples, command.reply().empty_reason) == ([], reason)
    assert f"no samples: {reason}\n" in capsys.readouterr().out


def test_runs_become_samples_where_it_is_asked_for(command: Command) -> None:
    other = record([50, 51], [52])
    assert command.run([*session(2, routed=False), other], "--split") == 0
    found = [sample.tokens.tolist() for sample in command.reply().samples]
    assert found == [accumulated(2), [50, 51, 52]]


@pytest.mark.parametrize(("options", "count"), [([], 0), (["--speculative"], 5)], ids=str)
def test_speculative_counters_are_kept_on_demand(
    options: list[str], count: int, command: Command
) -> None:
    assert command.run([record([1], [2], spec_verify_ct=5)], *options) == 0
    assert command.sample().spec_info.spec_verify_ct == count


@pytest.mark.parametrize(
    ("options", "messages"),
    [
        ([], None),
        (
            ["--keep-messages"],
            [
                {"role": "user", "content": "request 6"},
                {"role": "assistant", "content": "reply 6"},
            ],
        ),
    ],
    ids=["left_out", "kept"],
)
def test_messages_are_kept_on_demand(
    options: list[str], messages: list[Any] | None, command: Command
) -> None:
    assert command.run(session(2, routed=False), *options) == 0
    assert command.sample().metadata.get("messages") == messages


def test_times_of_the_records_reach_the_sample(command: Command) -> None:
    item = {**record([1, 2], [3], e2e_latency=2.0), "request_timestamp": 99.5}
    assert command.run([item]) == 0
    assert command.sample().metadata["lifecycle"] == [
        {"t0": 100.0, "t1": 102.0, "turn": 1, "req_ts": 99.5}
    ]


@pytest.mark.parametrize(("options", "field_set"), [([], 1), (["--field-set", "2"], 2)], ids=str)
def test_the_field_set_is_the_one_that_is_asked_for(
    options: list[str], field_set: int, command: Command
) -> None:
    assert command.run([record([1], [2])], *options) == 0
    document = json.loads(sw.read_container(command.output.read_bytes())["_samples_meta"].tobytes())
    assert ("reward" in document["samples"][0]) is (field_set == 2)


def test_an_infinite_log_prob_is_kept_though_json_has_none(command: Command) -> None:
    item = record([1, 2], [3])
    item["response"]["choices"][0]["meta_info"]["output_token_logprobs"][0][0] = -math.inf
    assert command.run(dump([item])) == 0
    log_probs = command.sample().rollout_log_probs
    assert log_probs is not None
    assert log_probs.tolist() == [-math.inf]


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
        ([*SHAPE_OPTIONS, "--num-experts", "2"], "num_experts is at least top_k"),
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


def test_records_are_read_from_standard_input(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = io.TextIOWrapper(io.BytesIO(text_of([record([1, 2], [3])])))
    monkeypatch.setattr(sys, "stdin", data)
    assert cli.main(["assemble", "-", "-o", str(command.output)]) == 0
    assert command.sample().tokens.tolist() == [1, 2, 3]


def test_a_short_recording_shows_no_progress(
    command: Command, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert command.run(session(2), *SHAPE_OPTIONS) == 0
    assert capsys.readouterr().err == ""


def test_a_long_recording_shows_every_turn_on_one_line_of_a_terminal(
    command: Command, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "PROGRESS_BYTES", 1)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert command.run(session(3), *SHAPE_OPTIONS) == 0
    out, err = capsys.readouterr()
    assert err == "".join(
        f"sample-wire: turn {turn} of 3{end}" for turn, end in enumerate("\r\r\n", 1)
    )
    assert "turn 1 of 3" not in out


def test_a_long_recording_shows_ten_lines_in_a_log(
    command: Command, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "PROGRESS_BYTES", 1)
    assert command.run(session(25), *SHAPE_OPTIONS) == 0
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 10
    assert lines[0] == "sample-wire: turn 3 of 25"
    assert lines[-1] == "sample-wire: turn 25 of 25"


def test_the_routing_text_of_a_large_file_never_becomes_objects(command: Command) -> None:
    shape = ("--routing-layers", "25", "--routing-top-k", "10")
    num_rows = 8_000
    text = rows(0, num_rows, 25, 10)
    document = text_of(dump([record([1] * num_rows, [2], routed=text)]))
    del text
    command.source.write_bytes(document)
    tracemalloc.start()
    try:
        status = cli.main(["assemble", str(command.source), "-o", str(command.output), *shape])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert status == 0
    # The rows as uint16, and what is read or written at a time; the text alone is 10.7 MB.
    assert peak < len(document)
    routed_TLK = command.sample().rollout_routed_experts
    assert routed_TLK is not None
    assert np.array_equal(routed_TLK[:, 0, 0], np.arange(num_rows) * 10 % NUM_EXPERTS)
