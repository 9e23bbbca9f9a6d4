"""Both clients and the server, for both layouts: the samples are the same."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable
from typing import Any

import httpx2
import numpy as np
import pytest

from sample_wire import Sample, SamplesReply
from sample_wire.adapters.client import SessionClient, SyncSessionClient
from sample_wire.demo.equality import differences
from sample_wire.rollout import GenerateInput, agentic

from ._serving import Handle, Site
from ._sglang import TOOL, USER, first_turn, routed, second_turn
from ._stub import StubEngine
from ._trees import A1, grow
from .conftest import SPEC, StartServer

Talk = Callable[[str], None]
Collect = Callable[..., SamplesReply[Sample]]


def collect_sync(url: str, talk: Talk, **arguments: Any) -> SamplesReply[Sample]:
    with SyncSessionClient(url, **arguments) as client:
        talk(client.chat_base_url)
        return client.collect(Sample())


def collect_async(url: str, talk: Talk, **arguments: Any) -> SamplesReply[Sample]:
    async def run() -> SamplesReply[Sample]:
        async with SessionClient(url, **arguments) as client:
            talk(client.chat_base_url)
            return await client.collect(Sample())

    return asyncio.run(run())


each_client = pytest.mark.parametrize("collect", [collect_sync, collect_async])


def two_turns(engine: StubEngine) -> Talk:
    """An agent that plays two turns."""

    def talk(base_url: str) -> None:
        engine.will(first_turn(), second_turn())
        for messages in ([USER], [USER, A1, TOOL]):
            url = f"{base_url}/chat/completions"
            httpx2.post(url, json={"messages": messages}).raise_for_status()

    return talk


def branches(engine: StubEngine) -> Talk:
    """An agent that plays the tree of `grow`."""

    def talk(base_url: str) -> None:
        site_url, _, path = base_url.removesuffix("/v1").rpartition("/sessions/")
        site = Site(int(site_url.rpartition(":")[2]))
        with site.http:
            grow(Handle(site, path), engine)

    return talk


def differing(one: Sample, other: Sample, field_set: int = 1) -> list[str]:
    """The fields that differ, but for the moments of their turns."""
    for sample in (one, other):
        del sample.metadata["lifecycle"]
    return differences(one, other, Sample(), field_set=field_set)


@each_client
def test_a_linear_session_comes_back_alike_in_both_layouts(
    start: StartServer, engine: StubEngine, caplog: pytest.LogCaptureFixture, collect: Collect
) -> None:
    url = start(routing=SPEC).url
    exact, compact = (
        collect(url, two_turns(engine), layout=layout) for layout in ("exact", "compact")
    )
    assert differing(exact.samples[0], compact.samples[0]) == []
    assert np.array_equal(np.asarray(exact.samples[0].rollout_routed_experts), routed(8))
    assert exact.session_metadata == compact.session_metadata
    assert [item for item in caplog.records if item.levelno >= logging.WARNING] == []


@each_client
def test_the_leaves_of_a_tree_come_back_alike_in_both_layouts(
    start: StartServer, engine: StubEngine, collect: Collect
) -> None:
    url = start(trajectory="tree", routing=SPEC).url
    exact, compact = (
        collect(url, branches(engine), field_set=2, layout=layout)
        for layout in ("exact", "compact")
    )
    assert len(exact.samples) == 2
    for one, other in zip(exact.samples, compact.samples, strict=True):
        assert differing(one, other, 2) == []


@each_client
@pytest.mark.parametrize(
    ("layout", "widen", "dtype"),
    [
        ("exact", True, np.int32),
        ("exact", False, np.int32),
        ("compact", True, np.int32),
        ("compact", False, np.uint16),
    ],
)
def test_rows_come_as_wide_as_they_are_wanted(
    start: StartServer, engine: StubEngine, collect: Collect, layout: str, widen: bool, dtype: type
) -> None:
    url = start(routing=SPEC).url
    (sample,) = collect(url, two_turns(engine), layout=layout, widen=widen).samples
    rows = np.asarray(sample.rollout_routed_experts)
    assert rows.dtype == dtype
    assert np.array_equal(rows, routed(8))


def test_a_rollout_takes_the_layout_of_its_sessions(start: StartServer, engine: StubEngine) -> None:
    url = start(routing=SPEC).url

    async def agent(*, base_url: str, **_: object) -> None:
        await asyncio.to_thread(two_turns(engine), base_url)

    sessions = functools.partial(SessionClient, url, layout="compact", widen=False)
    given = GenerateInput(sample=Sample(), sampling_params={})
    output = asyncio.run(agentic.generate(given, sessions=sessions, agent=agent))
    assert isinstance(output.samples, Sample)
    assert np.asarray(output.samples.rollout_routed_experts).dtype == np.uint16
