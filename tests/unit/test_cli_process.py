"""`python -m sample_wire` as a process of its own: exit status, both streams, pipes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

import sample_wire as sw

COMMAND = (sys.executable, "-m", "sample_wire")


def run(
    *arguments: str, data: bytes = b"", environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*COMMAND, *arguments],
        input=data,
        capture_output=True,
        env={**os.environ, **(environment or {})},
        check=False,
    )


@pytest.fixture(scope="module")
def payload() -> bytes:
    sample = sw.Sample(
        tokens=np.arange(3),
        response_length=2,
        loss_mask=np.ones(2, np.uint8),
        rollout_log_probs=np.array([np.nan, -1.0]),
        weight_versions=["gr\u00fcn"],
    )
    return bytes(sw.encode_samples([sample]))


def test_inspect_of_a_pipe_exits_with_0(payload: bytes) -> None:
    done = run("inspect", "-", data=payload)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"standard input: ")


def test_json_can_be_piped_on(payload: bytes) -> None:
    done = run("inspect", "--json", "-", data=payload)
    assert done.returncode == 0
    assert json.loads(done.stdout)["samples"][0]["log_probs"]["mean"] == "NaN"


def test_output_does_not_depend_on_the_terminals_encoding(payload: bytes) -> None:
    ascii_only = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = run("inspect", "-", data=payload, environment=ascii_only)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_refused_payload_exits_with_1_and_no_traceback(payload: bytes) -> None:
    done = run("verify", "-", data=payload[:-1])
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.startswith(b"sample-wire: standard input: ContainerError: ")
    assert b"Traceback" not in done.stderr


def test_a_missing_file_exits_with_2_and_no_traceback(tmp_path: Path) -> None:
    done = run("verify", str(tmp_path / "missing"))
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"Traceback" not in done.stderr


def test_wrong_usage_exits_with_2() -> None:
    assert run().returncode == 2


def test_the_version_is_that_of_the_package() -> None:
    assert run("--version").stdout.decode().split() == ["sample-wire", sw.__version__]


@pytest.mark.skipif(os.name != "posix", reason="a closed pipe is another error elsewhere")
def test_a_reader_that_went_away_ends_the_command_without_a_word(payload: bytes) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [*COMMAND, "inspect", "-"],
            input=payload,
            stdout=writer,
            stderr=subprocess.PIPE,
            check=False,
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")
