"""The registry of sessions: ids, closing, removal, and those that are no longer used."""

from __future__ import annotations

import gc
import string
import weakref

import pytest

from sample_wire.errors import SessionError
from sample_wire.session import SessionRegistry

from ._words import refusal, trajectory


@pytest.fixture
def registry() -> SessionRegistry:
    return SessionRegistry(trajectory)


def test_an_id_is_32_lower_case_hex_digits_and_never_the_same(registry: SessionRegistry) -> None:
    ids = {registry.create().id for _ in range(100)}
    assert len(ids) == 100
    assert all(len(name) == 32 and set(name) <= set(string.hexdigits.lower()) for name in ids)


def test_each_session_has_a_trajectory_of_its_own(registry: SessionRegistry) -> None:
    first, second = registry.create(), registry.create()
    assert first.trajectory is not second.trajectory
    assert [session.id for session in registry] == [first.id, second.id]


def test_a_session_is_found_until_it_is_removed(registry: SessionRegistry) -> None:
    session = registry.create()
    assert registry.get(session.id) is session
    registry.start_closing(session.id)
    assert registry.get(session.id) is session
    registry.remove(session.id)
    assert len(registry) == 0
    with pytest.raises(SessionError):
        registry.get(session.id)


@pytest.mark.parametrize("operation", ["get", "start_closing", "remove"])
def test_an_unknown_id_is_a_404_with_the_id(registry: SessionRegistry, operation: str) -> None:
    with pytest.raises(SessionError, match=r"^session not found: session_id=x$") as error:
        getattr(registry, operation)("x")
    assert refusal(error) == (404, "unknown_session")


def test_closing_twice_is_a_404(registry: SessionRegistry) -> None:
    session = registry.create()
    registry.start_closing(session.id)
    with pytest.raises(SessionError) as error:
        registry.start_closing(session.id)
    assert refusal(error) == (404, "unknown_session")


def test_a_closing_session_says_that_it_is_not_open(registry: SessionRegistry) -> None:
    session = registry.create()
    session.check_open()
    registry.start_closing(session.id)
    with pytest.raises(SessionError) as error:
        session.check_open()
    assert refusal(error) == (404, "unknown_session")


def test_the_clock_is_the_callers(registry: SessionRegistry) -> None:
    session = registry.create(now=5.0)
    assert (session.created_at, session.last_used) == (5.0, 5.0)
    registry.get(session.id)
    assert session.last_used == 5.0
    registry.get(session.id, now=9.0)
    assert (session.created_at, session.last_used) == (5.0, 9.0)


def test_idle_sessions_are_those_not_used_since_and_not_closing(registry: SessionRegistry) -> None:
    old, used, closing = (registry.create(now=1.0) for _ in range(3))
    registry.get(used.id, now=7.0)
    registry.start_closing(closing.id)
    assert registry.idle(before=7.0) == [old]


def test_sessions_may_be_removed_while_they_are_looked_through(registry: SessionRegistry) -> None:
    for _ in range(3):
        registry.create()
    for session in registry:
        registry.remove(session.id)
    assert len(registry) == 0


def test_a_removed_session_is_freed(registry: SessionRegistry) -> None:
    session = registry.create()
    alive = weakref.ref(session)
    registry.remove(session.id)
    del session
    gc.collect()
    assert alive() is None
