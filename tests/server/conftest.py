"""One stub engine for all tests, and servers in front of it, one for each set of settings."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from sample_wire.assembly import RoutingSpec
from sample_wire.session import TokenizerAdapter

from ._numbers import NumberTokenizer
from ._serving import Handle, Site, running
from ._sglang import NUM_LAYERS, TOP_K
from ._stub import StubEngine
from ._vllm import CHATML

SPEC = RoutingSpec(num_layers=NUM_LAYERS, top_k=TOP_K)
INCREMENTAL = RoutingSpec(num_layers=NUM_LAYERS, top_k=TOP_K, incremental=True)
StartServer = Callable[..., Site]


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


@contextlib.contextmanager
def _starting(tokenizer: TokenizerAdapter, engine: StubEngine) -> Iterator[StartServer]:
    with contextlib.ExitStack() as stack:
        sites: dict[str, Site] = {}

        def start(**settings: Any) -> Site:
            key = repr(sorted(settings.items()))
            if key not in sites:
                site = running(tokenizer, engine.url, **settings)
                sites[key] = stack.enter_context(site)
            return sites[key]

        yield start


@pytest.fixture(scope="session")
def start(_engine: StubEngine) -> Iterator[StartServer]:
    """Starts a server with these settings, or gives the one that runs with them already."""
    with _starting(NumberTokenizer(), _engine) as start:
        yield start


@pytest.fixture(scope="session")
def start_vllm(_engine: StubEngine) -> Iterator[StartServer]:
    """The same for servers in front of vLLM, with the byte-level tokenizer."""
    with _starting(CHATML, _engine) as start:
        yield functools.partial(start, engine_kind="vllm")


@pytest.fixture
def vllm_session(start_vllm: StartServer) -> Handle:
    """A new session of a server in front of vLLM that knows of no routing."""
    return start_vllm().create()


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    """Callers that wait at the same time."""
    with ThreadPoolExecutor(8) as executor:
        yield executor


@pytest.fixture
def site(start: StartServer) -> Site:
    """A server that asks for no routing."""
    return start()


@pytest.fixture
def session(site: Site) -> Handle:
    """A new session of that server."""
    return site.create()


@pytest.fixture
def routed_session(start: StartServer) -> Handle:
    """A new session of a server that asks for full routing."""
    return start(routing=SPEC).create()


@pytest.fixture
def incremental_session(start: StartServer) -> Handle:
    """A new session of a server that asks for new routing rows only."""
    return start(routing=INCREMENTAL).create()
