"""A stub engine, and session servers in front of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from server._numbers import NumberTokenizer
from server._serving import Site, running
from server._sglang import NUM_LAYERS, TOP_K
from server._stub import StubEngine

from sample_wire.assembly import RoutingSpec

from ._agents import INSTANCE_ID


@pytest.fixture(scope="session")
def _engine() -> Iterator[StubEngine]:
    stub = StubEngine()
    yield stub
    stub.close()


@pytest.fixture
def engine(_engine: StubEngine) -> Iterator[StubEngine]:
    """The engine, with no answers yet."""
    yield _engine
    _engine.reset()


@pytest.fixture(scope="session")
def site(_engine: StubEngine) -> Iterator[Site]:
    """A session server with an instance id, which asks for full routing."""
    routing = RoutingSpec(num_layers=NUM_LAYERS, top_k=TOP_K)
    with running(
        NumberTokenizer(), _engine.url, routing=routing, instance_id=INSTANCE_ID
    ) as running_site:
        yield running_site
