"""The recorded demo as a whole: what it prints, what it returns, and that its check can fail."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sample_wire as sw
from sample_wire import cli
from sample_wire.demo import recorded
from sample_wire.demo.comparison import read_records, with_full_routing
from sample_wire.demo.equality import differences
from sample_wire.demo.recording import build_sample, read_recording

FIELDS = [field.name for field in sw.Sample.__sample_schema__.fields]


def changed(change: Callable[[Any], None]) -> bytes:
    """The bundled recording after a change of its JSON."""
    records = json.loads(recorded.bundled_recording())
    change(records)
    return json.dumps(records).encode()


def choice_of(record: Any) -> Any:
    return record["response"]["body"]["choices"][0]


def run_on(folder: Path, text: bytes) -> int:
    file = folder / "recording.json"
    file.write_bytes(text)
    return cli.main(["demo", str(file)])


def test_the_recording_is_the_captured_one_byte_for_byte() -> None:
    found = hashlib.sha256(recorded.bundled_recording()).hexdigest()
    assert found == "268df333e535f215bdd23900b12d93801b21af7a3ac0014eded341beb389f724"


def test_the_demo_exits_with_0_as_a_process_of_its_own() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sample_wire", "demo", "--recorded"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("sample-wire demo: vllm_tito_s21_t5.json\n")
    assert "weights were random, so the text is noise" in done.stdout


def test_a_user_sees_the_demo_start_before_the_file_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = str(tmp_path / "missing")
    assert cli.main(["demo", missing]) == 2
    assert capsys.readouterr().out == f"sample-wire demo: {missing}\n"


def test_the_demo_shows_the_summary_of_its_payload(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["demo", "--recorded"]) == 0
    out = capsys.readouterr().out
    assert "samples 1, tokens 975, trained 253" in out
    assert "R3: 124,672 bytes" in out
    assert "     0  truncated     975       931      253      5  " in out
    assert "974x4x8   int32      63  124,672" in out
    assert max(map(len, out.splitlines())) <= 90


def test_the_sizes_in_the_table_are_those_of_what_would_be_sent(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["demo", "--recorded"]) == 0
    out = capsys.readouterr().out
    sizes = [
        int(found[1].replace(",", ""))
        for name in ("one payload", "records, R3 as recorded")
        if (found := re.search(rf"^{name} +([\d,]+) ", out, re.MULTILINE))
    ]
    recording = read_recording(recorded.bundled_recording())
    payload = sw.encode_samples([build_sample(recording)], recorded.session_metadata(recording))
    compact = json.dumps(json.loads(recorded.bundled_recording()), separators=(",", ":"))
    assert sizes == [payload.nbytes, len(compact)]


def test_a_recording_of_ones_own_is_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_on(tmp_path, changed(lambda records: records["turns"].pop())) == 0
    out = capsys.readouterr().out
    assert "tokens 831, trained 213" in out
    assert "random" not in out


def test_a_recording_without_routing_is_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def without_routing(records: Any) -> None:
        for record in records["turns"]:
            del choice_of(record)["routed_experts"]

    assert run_on(tmp_path, changed(without_routing)) == 0
    out = capsys.readouterr().out
    assert "SGLang" not in out
    assert "nulls: rollout_routed_experts, rollout_indexer_topk" in out


@pytest.mark.parametrize(
    ("text", "error"),
    [
        pytest.param(b"", "the recording is not JSON", id="empty"),
        pytest.param(b"{'turns': []}", "the recording is not JSON", id="not_json"),
        pytest.param(b"\xff", "the recording is not JSON", id="not_utf8"),
        pytest.param(b'{"x": ' + b"[" * 100_000, "the recording is not JSON", id="too_deep"),
        pytest.param(b'{"turns": []}', "`$.turns`", id="no_turn"),
        pytest.param(b'{"exchanges": []}', "`turns`", id="another_recorder"),
        pytest.param(
            changed(lambda records: records["turns"][1]["response"].update(body={"sse": []})),
            "`choices` - at `$.turns[1].response.body`",
            id="streamed_turn",
        ),
        pytest.param(
            changed(lambda records: records["turns"][2]["request"]["body"].pop("token_ids")),
            "`token_ids` - at `$.turns[2].request.body`",
            id="messages_instead_of_ids",
        ),
    ],
)
def test_a_recording_of_another_shape_is_refused_in_one_line(
    text: bytes, error: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_on(tmp_path, text) == 1
    err = capsys.readouterr().err
    assert err.startswith("sample-wire: RecordingError: ")
    assert error in err
    assert err.count("\n") == 1


def test_turns_that_do_not_fit_together_are_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_on(tmp_path, changed(lambda records: records["turns"].pop(1))) == 1
    assert capsys.readouterr().err == (
        "sample-wire: AssemblyError: turn 2: additional R3: starts at row 269; expected 93: "
        "gap of 176 rows\n"
    )


@pytest.mark.parametrize(
    "extra",
    [
        pytest.param(b"9" * 5000, id="number_of_5000_digits"),
        pytest.param(b'"\xff"', id="text_that_is_not_utf8"),
    ],
)
def test_a_key_that_is_not_needed_must_still_be_json_to_python(
    extra: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = b'{"extra": ' + extra + b", " + recorded.bundled_recording()[1:]
    assert run_on(tmp_path, text) == 1
    assert capsys.readouterr().err.startswith("sample-wire: RecordingError: ")


def test_a_payload_that_comes_back_changed_exits_with_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def decode_wrongly(buffer: Any, template: sw.Sample, **options: Any) -> Any:
        reply = sw.decode_samples(buffer, template, copy=True, **options)
        mask = reply.samples[0].loss_mask
        assert mask is not None
        mask[-1] ^= 1
        return reply

    monkeypatch.setattr(recorded, "decode_samples", decode_wrongly)
    assert cli.main(["demo", "--recorded"]) == 1
    assert capsys.readouterr().out.endswith("NOT EQUAL after encode and decode: loss_mask\n")


@pytest.fixture(scope="module")
def sent() -> sw.Sample:
    return build_sample(read_recording(recorded.bundled_recording()))


@pytest.fixture(scope="module")
def received(sent: sw.Sample) -> sw.Sample:
    return sw.decode_samples(sw.encode_samples([sent]), recorded.make_template()).samples[0]


def test_what_comes_back_has_no_differences(sent: sw.Sample, received: sw.Sample) -> None:
    assert differences(sent, received, recorded.make_template()) == []


@pytest.mark.parametrize("name", FIELDS)
def test_the_check_sees_a_difference_in_any_field(
    name: str, sent: sw.Sample, received: sw.Sample
) -> None:
    changes: dict[str, Any] = {name: object()}
    other = dataclasses.replace(received, **changes)
    assert differences(sent, other, recorded.make_template()) == [name]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda array: array.astype(np.float32), id="dtype"),
        pytest.param(lambda array: array[:-1], id="length"),
        pytest.param(lambda array: array * -1.0 * -1.0 + np.float64(5e-324), id="last_bit"),
        pytest.param(lambda array: np.where(array == 0, -0.0, array), id="sign_of_zero"),
        pytest.param(list, id="type"),
    ],
)
def test_the_check_sees_a_difference_of_bits(
    change: Callable[[Any], Any], sent: sw.Sample, received: sw.Sample
) -> None:
    other = dataclasses.replace(received, rollout_log_probs=change(received.rollout_log_probs))
    assert differences(sent, other, recorded.make_template()) == ["rollout_log_probs"]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda rows: rows.astype(np.int64), id="dtype"),
        pytest.param(lambda rows: rows[:-1], id="length"),
        pytest.param(lambda rows: rows[:, :, ::-1], id="order_in_a_row"),
    ],
)
def test_the_check_sees_a_difference_of_routing(
    change: Callable[[Any], Any], sent: sw.Sample, received: sw.Sample
) -> None:
    rows = change(received.rollout_routed_experts)
    other = dataclasses.replace(received, rollout_routed_experts=rows)
    assert differences(sent, other, recorded.make_template()) == ["rollout_routed_experts"]


def test_records_as_recorded_are_read_into_the_arrays_of_each_turn(sent: sw.Sample) -> None:
    turns = read_records(recorded.bundled_recording(), None)
    assert [len(arrays) for arrays in turns] == [4] * 5
    routed_TLK = sent.rollout_routed_experts
    assert routed_TLK is not None
    assert np.array_equal(np.concatenate([arrays[3] for arrays in turns]), routed_TLK)


def test_records_with_full_routing_have_every_row_on_every_turn(received: sw.Sample) -> None:
    routed_TLK = received.rollout_routed_experts
    assert routed_TLK is not None
    recording = read_recording(recorded.bundled_recording())
    full = with_full_routing(json.loads(recorded.bundled_recording()), recording, routed_TLK)
    turns = read_records(json.dumps(full).encode(), routed_TLK.shape[1:])
    for prompt, output, log_probs, rows in turns:
        assert len(log_probs) == len(output)
        assert rows.dtype == np.int32
        assert np.array_equal(rows, routed_TLK[: len(prompt) + len(output) - 1])
    assert sum(len(arrays[3]) for arrays in turns) == 93 + 269 + 580 + 830 + 974


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--engine", "http://h"), "--engine"),
        (("--tokenizer", "x"), "--tokenizer"),
        (("--model-config", "absent"), "--model-config"),
        (("--incremental",), "--incremental"),
        (("--trajectory", "tree"), "no tree"),
    ],
    ids=["engine", "tokenizer", "model", "incremental", "tree"],
)
def test_what_only_a_rollout_needs_is_refused_with_a_recording(
    arguments: tuple[str, ...], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        cli.main(["demo", "--recorded", *arguments])
    assert refused.value.code == 2
    assert named in capsys.readouterr().err
