"""A server that drains: no new sessions, and those that are there go on to their end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sample_wire.adapters.server import ServerSettings, create_app
from sample_wire.adapters.server.state import ServerState

from ._errors import refusal
from ._numbers import NumberTokenizer
from ._serving import Site, serving
from ._sglang import first_turn
from ._stub import StubEngine

Draining = tuple[Site, ServerState]


@pytest.fixture
def draining(engine: StubEngine) -> Iterator[Draining]:
    """A server of its own, and its state."""
    settings = ServerSettings(engine_url=engine.url, tokenizer="of the test")
    app = create_app(settings, tokenizer=NumberTokenizer())
    with serving(app) as port:
        site = Site(port)
        with site.http:
            yield site, app.state.server


def test_a_draining_server_refuses_new_sessions(draining: Draining) -> None:
    site, state = draining
    state.is_draining = True
    response = site.http.post("/sessions")
    assert refusal(response) == (503, "draining")
    assert len(state.registry) == 0


def test_a_draining_server_lets_its_sessions_go_on_to_their_end(
    draining: Draining, engine: StubEngine
) -> None:
    site, state = draining
    session = site.create()
    state.is_draining = True
    engine.will(first_turn())
    assert session.chat([{"role": "user", "content": "1 2 3"}]).status_code == 200
    (sample,) = session.collect().samples
    assert sample.response_length == 2
    assert len(state.registry) == 1
    assert session.delete().status_code == 204
    assert len(state.registry) == 0
