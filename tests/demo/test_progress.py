"""The demo's progress: one line on a terminal, a few in a log."""

from __future__ import annotations

import io
import sys

import pytest

from sample_wire.demo.progress import Progress


class Terminal(io.StringIO):
    """What a terminal is sent."""

    def isatty(self) -> bool:
        return True


def shown_on(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> str:
    """Everything that goes to standard error while two steps and a detail are told."""
    monkeypatch.setattr(sys, "stderr", stream)
    progress = Progress()
    progress.step("one")
    progress.detail("half of two")
    progress.step("two")
    progress.close()
    return stream.getvalue()


def test_a_terminal_has_one_line_that_is_written_over_and_taken_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = shown_on(Terminal(), monkeypatch)
    assert shown.split("\r\x1b[K") == ["", "one", "half of two", "two", ""]


def test_a_log_has_a_line_for_each_step_and_none_for_a_detail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert shown_on(io.StringIO(), monkeypatch) == "sample-wire: one\nsample-wire: two\n"
