"""`python -m sample_wire assemble` as a process of its own: exit status, both streams, pipes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import sample_wire as sw

from ._recordings import SHAPE_OPTIONS, accumulated, record, session, text_of

COMMAND = (sys.executable, "-m", "sample_wire", "assemble")


def run(*arguments: str, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*COMMAND, *arguments], input=data, capture_output=True, check=False)


def test_a_payload_in_a_pipe_is_all_that_is_on_standard_output() -> None:
    done = run("-", "-o", "-", *SHAPE_OPTIONS, data=text_of(session()))
    assert done.returncode == 0
    (sample,) = sw.decode_samples(done.stdout, sw.Sample()).samples
    assert sample.tokens.tolist() == accumulated()
    assert done.stderr.startswith(b"standard output: ")


def test_a_file_is_read_and_written_and_the_command_exits_with_0(tmp_path: Path) -> None:
    source, output = tmp_path / "records.json", tmp_path / "payload"
    source.write_bytes(text_of(session()))
    done = run(str(source), "-o", str(output), *SHAPE_OPTIONS)
    assert (done.returncode, done.stderr) == (0, b"")
    (sample,) = sw.decode_samples(output.read_bytes(), sw.Sample()).samples
    assert sample.tokens.tolist() == accumulated()


def test_a_refused_record_exits_with_1_and_names_its_turn(tmp_path: Path) -> None:
    records = text_of([record([1], [2]), record([1, 2, 3], [4], completion_tokens=2)])
    done = run("-", "-o", str(tmp_path / "payload"), data=records)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.startswith(b"sample-wire: standard input: AssemblyError: turn 2: ")
    assert b"Traceback" not in done.stderr


def test_incremental_rows_exit_with_1_and_name_the_option(tmp_path: Path) -> None:
    records = text_of(session(incremental=True))
    done = run("-", "-o", str(tmp_path / "payload"), *SHAPE_OPTIONS, data=records)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.rstrip().endswith(b"set --incremental")


def test_a_missing_file_exits_with_2_and_no_traceback(tmp_path: Path) -> None:
    done = run(str(tmp_path / "missing"), "-o", str(tmp_path / "payload"))
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"Traceback" not in done.stderr


def test_no_output_is_wrong_usage() -> None:
    assert run("-", data=b"[]").returncode == 2


@pytest.mark.skipif(os.name != "posix", reason="a closed pipe is another error elsewhere")
def test_a_reader_that_went_away_ends_the_command_without_a_word() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [*COMMAND, "-", "-o", "-"],
            input=text_of([record([1], [2])]),
            stdout=writer,
            stderr=subprocess.PIPE,
            check=False,
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")
