"""Mismatch reports: made in a worker thread, once for each version of a session.  Section 8."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from ._errors import refusal
from ._numbers import NumberTokenizer
from ._serving import Handle, running
from ._sglang import TOOL, USER, first_turn, second_turn
from ._stub import PATIENCE_S, Gate, StubEngine

ENTRY = {"type": "assistant_text", "segment_index": 0, "expected_text": "a", "actual_text": "b"}


class Reporter:
    """What the tokenizer's report does in a test.

    Attributes:
        ids: the token ids of each report that was asked for.
        threads: the threads that they were made in.
        gates: each report waits for the next of these, while there are any.
        fails: reports raise.
    """

    def __init__(self) -> None:
        self.ids: list[list[int]] = []
        self.threads: list[int] = []
        self.gates: list[Gate] = []
        self.fails = False

    def __call__(self, ids: Sequence[int]) -> list[dict[str, Any]]:
        self.ids.append([*ids])
        self.threads.append(threading.get_ident())
        if self.gates:
            self.gates.pop(0).pass_through()
        if self.fails:
            raise RuntimeError("a fault in the report")
        return [ENTRY]


class LoopTokenizer(NumberTokenizer):
    """Knows the thread that prompts are rendered in, which is the loop's."""

    loop_thread = 0

    def render(self, *arguments: Any) -> list[int]:
        self.loop_thread = threading.get_ident()
        return super().render(*arguments)


@pytest.fixture
def reporter() -> Reporter:
    return Reporter()


@pytest.fixture
def tokenizer(reporter: Reporter) -> LoopTokenizer:
    return LoopTokenizer(report=reporter)


@pytest.fixture
def session(tokenizer: LoopTokenizer, engine: StubEngine) -> Iterator[Handle]:
    """A session with one turn."""
    with running(tokenizer, engine.url) as site:
        session = site.create()
        engine.will(first_turn())
        assert session.chat([USER]).status_code == 200
        yield session


def test_the_report_is_in_the_metadata_of_samples_and_records(session: Handle) -> None:
    metadata = {
        "tito_session_mismatch": [ENTRY],
        "accumulated_token_ids": [1, 2, 3, 10, 11],
        "max_trim_tokens": 0,
    }
    assert session.collect().session_metadata == metadata
    assert session.dump()["metadata"] == metadata
    assert list(session.dump()["metadata"]) == list(metadata)


def test_it_is_made_once_for_each_version(
    session: Handle, reporter: Reporter, engine: StubEngine
) -> None:
    for _ in range(3):
        session.collect()
        session.dump()
    assert reporter.ids == [[1, 2, 3, 10, 11]]
    engine.will(second_turn())
    session.chat([USER, {"role": "assistant", "content": "10 11"}, TOOL])
    session.collect()
    session.dump()
    assert reporter.ids[1:] == [[1, 2, 3, 10, 11, 20, 21, 30, 31]]


def test_it_is_not_made_on_the_loop(
    session: Handle, reporter: Reporter, tokenizer: LoopTokenizer
) -> None:
    session.collect()
    assert reporter.threads != [tokenizer.loop_thread]


def test_it_is_not_made_for_an_empty_session(session: Handle, reporter: Reporter) -> None:
    empty = session.site.create()
    expected = {"accumulated_token_ids": [], "max_trim_tokens": 0}
    assert empty.collect().session_metadata == expected
    assert empty.dump() == {"session_id": empty.id, "records": [], "metadata": expected}
    assert reporter.ids == []


def test_where_it_fails_its_key_is_absent_and_samples_are_given(
    session: Handle, reporter: Reporter, caplog: pytest.LogCaptureFixture
) -> None:
    reporter.fails = True
    reply = session.collect()
    assert len(reply.samples) == 1
    assert "tito_session_mismatch" not in reply.session_metadata
    assert "tito_session_mismatch" not in session.dump()["metadata"]
    assert "the mismatch report failed" in caplog.text


def held_collect(
    threads: ThreadPoolExecutor, session: Handle, reporter: Reporter
) -> tuple[Gate, Any]:
    """A collect that waits for its report, and the gate that lets the report go on."""
    gate = Gate()
    reporter.gates.append(gate)
    future = threads.submit(session.samples)
    gate.wait_for_request()
    return gate, future


def test_the_server_answers_while_a_report_is_made(
    session: Handle, reporter: Reporter, threads: ThreadPoolExecutor
) -> None:
    gate, future = held_collect(threads, session, reporter)
    try:
        assert session.site.http.get("/health").status_code == 200
    finally:
        gate.open()
    assert future.result(PATIENCE_S).status_code == 200


def test_those_who_wait_share_one_report(
    session: Handle, reporter: Reporter, threads: ThreadPoolExecutor
) -> None:
    gate, future = held_collect(threads, session, reporter)
    others = [threads.submit(session.samples) for _ in range(2)]
    gate.open()
    replies = {one.result(PATIENCE_S).content for one in (future, *others)}
    assert len(replies) == 1
    assert len(reporter.ids) == 1


def test_a_turn_that_comes_meanwhile_is_in_the_samples_and_in_a_new_report(
    session: Handle, reporter: Reporter, threads: ThreadPoolExecutor, engine: StubEngine
) -> None:
    gate, future = held_collect(threads, session, reporter)
    engine.will(second_turn())
    said = {"role": "assistant", "content": "10 11"}
    try:
        assert session.chat([USER, said, TOOL]).status_code == 200
    finally:
        gate.open()
    assert future.result(PATIENCE_S).content == session.samples().content
    assert [len(ids) for ids in reporter.ids] == [5, 9]


def test_a_session_deleted_meanwhile_is_404(
    session: Handle, reporter: Reporter, threads: ThreadPoolExecutor
) -> None:
    gate, future = held_collect(threads, session, reporter)
    try:
        assert session.delete().status_code == 204
    finally:
        gate.open()
    assert refusal(future.result(PATIENCE_S)) == (404, "unknown_session")
