"""The command line in this process: what it prints, and the exit status it returns."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

import sample_wire as sw
from sample_wire import cli
from sample_wire.inspection import inspect_payload, summary_json


def make_sample(**fields: Any) -> sw.Sample:
    return sw.Sample(tokens=np.arange(5), response_length=3, **fields)


def stored(folder: Path, name: str, payload: sw.Payload | bytes) -> str:
    """The path of a file with these bytes."""
    path = folder / name
    path.write_bytes(bytes(payload))
    return str(path)


@pytest.fixture
def good(tmp_path: Path) -> str:
    return stored(tmp_path, "good", sw.encode_samples([make_sample()]))


@pytest.fixture
def broken(tmp_path: Path) -> str:
    return stored(tmp_path, "broken", bytes(sw.encode_samples([make_sample()]))[:-1])


@pytest.fixture
def empty(tmp_path: Path) -> str:
    return stored(tmp_path, "empty", b"")


def set_stdin(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_inspect_prints_the_summary(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["inspect", good]) == 0
    assert capsys.readouterr().out.startswith(f"{good}: ")


def test_inspect_prints_json_where_it_is_asked_for(
    good: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["inspect", good, "--json"]) == 0
    assert capsys.readouterr().out == summary_json(inspect_payload(Path(good).read_bytes())) + "\n"


def test_inspect_reads_standard_input(
    good: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_stdin(monkeypatch, Path(good).read_bytes())
    assert cli.main(["inspect", "-"]) == 0
    assert capsys.readouterr().out.startswith("standard input: ")


@pytest.mark.parametrize(("options", "max_id"), [([], 3), (["--no-max-id"], None)], ids=str)
def test_inspect_leaves_the_max_id_out_on_demand(
    options: list[str],
    max_id: int | None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    routed = np.arange(4, dtype=np.int32).reshape(4, 1, 1)
    payload = sw.encode_samples([make_sample(rollout_routed_experts=routed)])
    assert cli.main(["inspect", "--json", *options, stored(tmp_path, "r3", payload)]) == 0
    assert json.loads(capsys.readouterr().out)["samples"][0]["r3"]["max_id"] == max_id


@pytest.mark.parametrize("command", ["inspect", "verify"])
def test_a_refused_payload_is_named_with_its_error(
    command: str, broken: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([command, broken]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"sample-wire: {broken}: ContainerError: the tensors cover ")
    assert err.count("\n") == 1


@pytest.mark.parametrize("command", ["inspect", "verify"])
def test_an_empty_file_is_a_refused_payload(
    command: str, empty: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([command, empty]) == 1
    assert "ContainerError: the payload is shorter than" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["inspect", "verify"])
def test_an_empty_standard_input_is_a_refused_payload(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_stdin(monkeypatch, b"")
    assert cli.main([command, "-"]) == 1
    assert capsys.readouterr().err.startswith("sample-wire: standard input: ContainerError: ")


@pytest.mark.parametrize("command", ["inspect", "verify", "demo"])
def test_a_file_that_is_not_there_is_a_usage_error(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = str(tmp_path / "missing")
    assert cli.main([command, missing]) == 2
    assert capsys.readouterr().err == f"sample-wire: {missing}: No such file or directory\n"


@pytest.mark.parametrize("command", ["inspect", "verify", "demo"])
def test_a_directory_is_a_usage_error(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([command, str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("sample-wire: ")


@pytest.mark.skipif(not Path("/dev/fd").is_dir(), reason="the system has no /dev/fd")
def test_a_pipe_is_read_though_it_cannot_be_mapped(
    good: str, capsys: pytest.CaptureFixture[str]
) -> None:
    reader, writer = os.pipe()
    os.write(writer, Path(good).read_bytes())
    os.close(writer)
    try:
        assert cli.main(["verify", f"/dev/fd/{reader}"]) == 0
    finally:
        os.close(reader)
    assert "good" in capsys.readouterr().out


def test_verify_says_how_much_is_good(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["verify", good]) == 0
    num_bytes = Path(good).stat().st_size
    assert capsys.readouterr().out == f"{good}: good, {num_bytes:,} bytes, samples 1\n"


def test_verify_refuses_a_tensor_that_no_sample_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tensors = sw.read_container(sw.encode_samples([make_sample()]))
    extra = sw.write_container({**tensors, "extra": np.arange(3)})
    assert cli.main(["verify", stored(tmp_path, "extra", extra)]) == 1
    assert "FieldError" in capsys.readouterr().err


def test_verify_goes_on_after_a_refused_payload(
    good: str, broken: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["verify", broken, good]) == 1
    out, err = capsys.readouterr()
    assert out.startswith(f"{good}: good")
    assert err.startswith(f"sample-wire: {broken}: ")


def test_a_file_that_cannot_be_read_counts_more_than_a_refused_payload(
    good: str, broken: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["verify", str(tmp_path / "missing"), broken, good]) == 2
    out, err = capsys.readouterr()
    assert (out.count("\n"), err.count("\n")) == (1, 2)


@pytest.mark.parametrize("command", ["inspect", "verify"])
def test_the_field_set_is_not_guessed(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    older = stored(tmp_path, "older", sw.encode_samples([make_sample()]))
    newer = stored(tmp_path, "newer", sw.encode_samples([make_sample()], field_set=2))
    statuses = [
        cli.main([command, *options, file])
        for file in (older, newer)
        for options in ([], ["--field-set", "1"], ["--field-set", "2"])
    ]
    # Field set 1 ignores the reward as every key that it does not know.
    assert statuses == [0, 0, 1, 0, 0, 0]
    assert "reward" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["inspect", "verify"])
def test_the_limit_of_samples_can_be_set(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = stored(tmp_path, "three", sw.encode_samples([make_sample()] * 3))
    assert cli.main([command, "--max-samples", "3", file]) == 0
    assert cli.main([command, "--max-samples", "2", file]) == 1
    assert "LimitError" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param([], id="no_command"),
        pytest.param(["unknown"], id="unknown_command"),
        pytest.param(["inspect"], id="no_file"),
        pytest.param(["inspect", "a", "b"], id="two_files"),
        pytest.param(["verify"], id="nothing_to_verify"),
        pytest.param(["inspect", "--field-set", "3", "a"], id="unknown_field_set"),
        pytest.param(["bench", "--shape", "X"], id="unknown_shape"),
    ],
)
def test_wrong_usage_exits_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_info:
        cli.main(arguments)
    assert exit_info.value.code == 2
    assert capsys.readouterr().err.startswith("usage: sample-wire")


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_info:
        cli.main(["--version"])
    assert exit_info.value.code == 0
    assert capsys.readouterr().out == f"sample-wire {sw.__version__}\n"


def test_an_interrupt_exits_with_130(
    good: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_arguments: object, **_options: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "inspect_payload", interrupted)
    assert cli.main(["inspect", good]) == 130
    assert capsys.readouterr() == ("", "")


def test_an_error_line_cannot_drive_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["verify", stored(tmp_path, "\x1b[31m", b"")]) == 1
    err = capsys.readouterr().err
    assert "\x1b" not in err
    assert "\\x1b[31m" in err


def test_a_summary_is_named_by_a_printable_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = stored(tmp_path, "caf\u00e9\udcff", sw.encode_samples([make_sample()]))
    assert cli.main(["inspect", file]) == 0
    assert capsys.readouterr().out.isascii()
