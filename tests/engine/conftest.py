"""One embedded engine for all tests that need no settings of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sample_wire.demo.engine import serve_engine

from ._calls import Caller


@pytest.fixture(scope="session")
def engine_url() -> Iterator[str]:
    """An engine with the default settings, in this process."""
    with serve_engine() as url:
        yield url


@pytest.fixture(scope="session")
def engine(engine_url: str) -> Iterator[Caller]:
    """That engine, to be called."""
    with Caller(engine_url) as caller:
        yield caller
