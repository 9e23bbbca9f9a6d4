"""Runs `sample-wire assemble` for the tests of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import sample_wire as sw
from sample_wire import cli

from ._recordings import text_of


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


def error_of(capsys: pytest.CaptureFixture[str], command: Command) -> str:
    """The one line that refuses the file, without what names command and file."""
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    start = f"sample-wire: {command.source}: AssemblyError: "
    assert err.startswith(start)
    return err.removeprefix(start).rstrip("\n")
