"""What a server holds at most: new sessions are refused first, and no live one loses anything."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pytest

from sample_wire.adapters.server import budgets
from sample_wire.adapters.server.budgets import Budgets, default_held_bytes

from ._errors import refusal
from ._serving import Handle, Message, Site
from ._sglang import NUM_LAYERS, TOOL, TOP_K, USER, first_turn, raw_base64, second_turn, speaks
from ._stub import PATIENCE_S, Answer, StubEngine
from .conftest import SPEC, StartServer

FULL: Final = (503, "memory_full")
SAID: Final = {"role": "assistant", "content": "10 11"}
# More than a turn's texts and objects come to, as they are counted.
TURN_BYTES: Final = 20_000


@contextlib.contextmanager
def limited(site: Site, **settings: Any) -> Iterator[Budgets]:
    """What a server counts from here on, with other limits; earlier sessions do not count."""
    before = site.state.settings, site.state.budgets
    site.state.settings = msgspec.structs.replace(site.state.settings, **settings)
    site.state.budgets = Budgets(site.state.settings)
    try:
        yield site.state.budgets
    finally:
        site.state.settings, site.state.budgets = before


def say(session: Handle, engine: StubEngine, answer: Any, *messages: Message) -> int:
    """The status of one chat."""
    engine.will(answer)
    return session.chat(messages).status_code


def size_of_a_turn(site: Site, engine: StubEngine) -> int:
    """What the first turn holds, as a server counts."""
    with limited(site) as held:
        assert say(site.create(), engine, first_turn(), USER) == 200
        return held.held_bytes


def test_there_are_no_more_sessions_than_there_may_be(site: Site, engine: StubEngine) -> None:
    with limited(site, max_sessions=2):
        first, second = site.create(), site.create()
        response = site.http.post("/sessions")
        assert refusal(response) == (503, "too_many_sessions")
        assert response.headers["retry-after"] == "5"
        assert say(second, engine, first_turn(), USER) == 200
        assert first.delete().status_code == 204
        assert site.http.post("/sessions").status_code == 200


def test_a_session_that_nobody_uses_makes_room_for_another(site: Site) -> None:
    with limited(site, max_sessions=1, idle_timeout_s=1e-9):
        idle = site.create()
        assert site.http.post("/sessions").status_code == 200
        assert refusal(idle.samples()) == (404, "unknown_session")


def test_from_four_fifths_on_new_sessions_are_refused_and_turns_are_not(
    site: Site,
    engine: StubEngine,
) -> None:
    with limited(site, max_held_bytes=int(size_of_a_turn(site, engine) / 0.9)):
        session = site.create()
        assert say(session, engine, first_turn(), USER) == 200
        response = site.http.post("/sessions")
        assert refusal(response) == FULL
        assert response.headers["retry-after"] == "5"
        assert say(session, engine, second_turn(), USER, SAID, TOOL) == 200


def test_below_four_fifths_new_sessions_are_taken(site: Site, engine: StubEngine) -> None:
    with limited(site, max_held_bytes=int(size_of_a_turn(site, engine) / 0.7)):
        assert say(site.create(), engine, first_turn(), USER) == 200
        assert site.http.post("/sessions").status_code == 200


def test_at_the_limit_a_turn_is_refused_before_the_engine_is_called(
    site: Site, engine: StubEngine
) -> None:
    with limited(site, max_held_bytes=1):
        session = site.create()
        assert say(session, engine, first_turn(), USER) == 200
        before = session.dump()
        response = session.chat([USER, SAID, TOOL])
        assert refusal(response) == FULL
        assert response.headers["retry-after"] == "5"
        assert "x-should-retry" not in response.headers
        assert len(engine.seen) == 1
        assert session.dump() == before


def test_at_the_limit_what_there_is_can_be_collected_and_then_there_is_room(
    site: Site,
    engine: StubEngine,
) -> None:
    with limited(site, max_held_bytes=1):
        full, other = site.create(), site.create()
        assert say(full, engine, first_turn(), USER) == 200
        assert refusal(other.chat([USER])) == FULL
        assert full.collect().samples[0].tokens.tolist() == [1, 2, 3, 10, 11]
        assert full.delete().status_code == 204
        assert say(other, engine, first_turn(), USER) == 200


def test_a_turn_that_is_at_the_engine_when_the_limit_is_reached_is_recorded(
    site: Site, threads: ThreadPoolExecutor, engine: StubEngine
) -> None:
    with limited(site, max_held_bytes=size_of_a_turn(site, engine) // 2):
        early, late = site.create(), site.create()
        gate = engine.will_hold(first_turn())
        waiting = threads.submit(early.chat, [USER])
        gate.wait_for_request()
        assert say(late, engine, first_turn(), USER) == 200
        gate.open()
        assert waiting.result(PATIENCE_S).status_code == 200
        assert early.num_records() == 1


def test_a_turn_finds_room_where_nobody_uses_another_session(
    site: Site, engine: StubEngine
) -> None:
    with limited(site, max_held_bytes=1, idle_timeout_s=3600.0):
        idle, busy = site.create(), site.create()
        assert say(idle, engine, first_turn(), USER) == 200
        assert refusal(busy.chat([USER])) == FULL
        site.state.registry.get(idle.id).last_used -= 7200
        assert say(busy, engine, first_turn(), USER) == 200
        assert refusal(idle.samples()) == (404, "unknown_session")


def test_the_session_whose_turn_wants_room_is_not_idle(site: Site, engine: StubEngine) -> None:
    with limited(site, max_held_bytes=1, idle_timeout_s=1e-9):
        session = site.create()
        assert say(session, engine, first_turn(), USER) == 200
        assert refusal(session.chat([USER, SAID, TOOL])) == FULL
        assert session.num_records() == 1


@pytest.mark.parametrize("trajectory", ["linear", "tree"])
def test_each_turn_counts_and_a_deleted_session_counts_nothing(
    start: StartServer, engine: StubEngine, trajectory: str
) -> None:
    site = start(trajectory=trajectory)
    with limited(site) as held:
        session = site.create()
        assert held.held_bytes == 0
        assert say(session, engine, first_turn(), USER) == 200
        one = held.held_bytes
        assert 0 < one < TURN_BYTES
        assert say(session, engine, second_turn(), USER, SAID, TOOL) == 200
        assert one < held.held_bytes < 2 * TURN_BYTES
        session.delete()
        assert held.held_bytes == 0


def test_a_turn_that_was_rolled_back_counts_no_more(site: Site, engine: StubEngine) -> None:
    with limited(site) as held:
        session = site.create()
        assert say(session, engine, first_turn(), USER) == 200
        before = held.held_bytes
        assert say(session, engine, first_turn(), USER) == 200
        assert held.held_bytes == before


def test_every_branch_of_a_tree_counts(start: StartServer, engine: StubEngine) -> None:
    site = start(trajectory="tree")
    with limited(site) as held:
        session = site.create()
        assert say(session, engine, first_turn(), USER) == 200
        before = held.held_bytes
        assert say(session, engine, speaks([40, 41]), USER) == 200
        assert held.held_bytes > 1.5 * before


@pytest.mark.parametrize("bad", [Answer(200, b"{}"), Answer(500, b"{}"), Answer(hang_up=True)])
def test_a_turn_that_failed_counts_nothing(site: Site, engine: StubEngine, bad: Answer) -> None:
    with limited(site) as held:
        assert say(site.create(), engine, bad, USER) >= 500
        assert held.held_bytes == 0


def test_rows_that_the_engine_sends_again_count_once(
    start: StartServer, engine: StubEngine
) -> None:
    """The second turn's reply has the rows of 3,000 tokens again, and 5 new ones."""
    user = {"role": "user", "content": " ".join(["1"] * 3000)}
    site = start(routing=SPEC)
    with limited(site) as held:
        session = site.create()
        assert say(session, engine, first_turn(), user) == 200
        before = held.held_bytes
        num_rows = 3000 + 2 - 1
        row_bytes = NUM_LAYERS * TOP_K * 4  # these values need 32 bits
        assert before > num_rows * (row_bytes + 4)
        assert say(session, engine, second_turn(), user, SAID, TOOL) == 200
        assert held.held_bytes - before < TURN_BYTES


def test_rows_that_differ_from_those_before_count_again(
    start: StartServer, engine: StubEngine
) -> None:
    user = {"role": "user", "content": " ".join(["1"] * 3000)}
    other = speaks([30, 31], routed_experts=_other_rows(3000 + 2 + 2 + 2 - 1))
    site = start(routing=SPEC)
    with limited(site) as held:
        session = site.create()
        assert say(session, engine, first_turn(), user) == 200
        before = held.held_bytes
        assert say(session, engine, other, user, SAID, TOOL) == 200
        assert held.held_bytes - before > 3000 * NUM_LAYERS * TOP_K


def _other_rows(num_rows: int) -> str:
    return raw_base64(np.full((num_rows, NUM_LAYERS, TOP_K), 7, np.int32))


def test_the_default_is_half_of_the_memory_shared_among_workers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(budgets, "_CGROUP_LIMIT", tmp_path / "none")
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert default_held_bytes(1) == memory // 2
    assert default_held_bytes(4) == memory // 2 // 4


@pytest.mark.parametrize(("limit", "expected"), [("1000000\n", 500_000), ("max\n", None)])
def test_a_containers_limit_counts_where_it_has_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, limit: str, expected: int | None
) -> None:
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    (tmp_path / "memory.max").write_text(limit)
    monkeypatch.setattr(budgets, "_CGROUP_LIMIT", tmp_path / "memory.max")
    assert default_held_bytes(1) == (expected or machine)
