"""The fixture that makes every test of one client a test of the other."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any, cast

import pytest

from sample_wire.adapters._client_core import servers_told_of
from sample_wire.adapters.client import SessionClient, SyncSessionClient

from ._clients import AnyClient, Blocking, Connect, Kind


@pytest.fixture(autouse=True)
def _each_server_is_new() -> None:
    """Forgets the servers that a warning has named: another test's may have the same port."""
    servers_told_of.clear()


@pytest.fixture(params=["async", "sync"])
def kind(request: pytest.FixtureRequest) -> Kind:
    """Which of the two clients is tested."""
    return cast(Kind, request.param)


@pytest.fixture
def connect(kind: Kind) -> Iterator[Connect]:
    """Makes a client of that kind, with the arguments that both have."""
    with ExitStack() as stack:
        runner = stack.enter_context(asyncio.Runner())

        def make(servers: str | Sequence[str], **arguments: Any) -> AnyClient:
            if kind == "sync":
                return cast(AnyClient, SyncSessionClient(servers, **arguments))
            return Blocking(SessionClient(servers, **arguments), runner)

        yield make
