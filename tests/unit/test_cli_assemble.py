"""`sample-wire assemble` in this process: the payload that it writes, and what it says."""

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
from sample_wire.demo.recorded import BUNDLED, bundled_recording

from ._assemble_command import Command
from ._recordings import (
    NUM_EXPERTS,
    NUM_LAYERS,
    SHAPE_OPTIONS,
    TOP_K,
    TRIMMED,
    accumulated,
    capture,
    dump,
    record,
    rows,
    session,
    text_of,
)

CAPTURES = Path(__file__).resolve().parents[1] / "data" / "captures"


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path)


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


@pytest.mark.parametrize(
    ("name", "num_tokens"),
    [
        ("sgl_tito_s31_t6.json", 1127),
        ("vllm_tito_s21_t5.json", 975),
        ("vllm_tito_stream_s22_t3.json", 479),
    ],
    ids=["sglang", "vllm", "vllm_streamed"],
)
def test_real_traffic_of_an_engine_is_taken(name: str, num_tokens: int, command: Command) -> None:
    text = bundled_recording() if name == BUNDLED else (CAPTURES / name).read_bytes()
    shape = ("--routing-layers", "4", "--routing-top-k", "8", "--num-experts", "64")
    assert command.run(text, *shape, "--incremental") == 0
    sample = command.sample()
    assert sample.rollout_routed_experts is not None
    assert len(sample.tokens) == num_tokens
    assert sample.rollout_routed_experts.shape == (num_tokens - 1, 4, 8)


@pytest.mark.parametrize("name", ["sgl_chat_s11_t4.json", "vllm_chat_s12_t4.json"])
def test_chat_that_was_tokenized_anew_is_split_into_its_turns(name: str, command: Command) -> None:
    shape = ("--routing-layers", "4", "--routing-top-k", "8")
    assert command.run((CAPTURES / name).read_bytes(), *shape, "--split") == 0
    assert len(command.reply().samples) == 4


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


def test_records_are_read_from_standard_input(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = io.TextIOWrapper(io.BytesIO(text_of([record([1, 2], [3])])))
    monkeypatch.setattr(sys, "stdin", data)
    assert cli.main(["assemble", "-", "-o", str(command.output)]) == 0
    assert command.sample().tokens.tolist() == [1, 2, 3]


def test_a_payload_on_standard_output_leaves_the_words_to_standard_error(
    command: Command, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    command.source.write_bytes(text_of([record([1, 2], [3])]))
    assert cli.main(["assemble", str(command.source), "-o", "-"]) == 0
    out, err = capsysbinary.readouterr()
    assert sw.decode_samples(out, sw.Sample()).samples[0].tokens.tolist() == [1, 2, 3]
    assert err.startswith(b"standard output: ")


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
