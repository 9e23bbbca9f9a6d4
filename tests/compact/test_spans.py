"""Work in spans: all of it is done, in order, and an error is the caller's."""

from __future__ import annotations

import os
import threading

import pytest

from sample_wire._spans import over_spans


@pytest.mark.parametrize("nbytes", [0, 1 << 20, 1 << 26])
@pytest.mark.parametrize("num_items", [0, 1, 7, 1000])
def test_spans_cover_all_items_in_order(num_items: int, nbytes: int) -> None:
    found = over_spans(num_items, nbytes, lambda start, stop: list(range(start, stop)))
    assert [item for span in found for item in span] == list(range(num_items))


def test_little_is_done_in_the_callers_thread() -> None:
    assert over_spans(9, 9, lambda _start, _stop: threading.get_ident()) == [threading.get_ident()]


def test_where_there_are_no_more_threads_the_caller_does_it_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(threading.Thread, "start", refused)
    found = over_spans(100, 1 << 26, lambda start, stop: (start, stop, threading.get_ident()))
    assert [span[:2] for span in found] == [(0, 25), (25, 50), (50, 75), (75, 100)]
    assert {span[2] for span in found} == {threading.get_ident()}


def test_an_error_in_any_span_is_raised_once_all_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    done = []

    def work(start: int, stop: int) -> None:
        done.append((start, stop))
        if stop == 100:
            raise ValueError("the last span")

    with pytest.raises(ValueError, match="the last span"):
        over_spans(100, 1 << 26, work)
    assert sorted(done) == [(0, 25), (25, 50), (50, 75), (75, 100)]
