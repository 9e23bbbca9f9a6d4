"""A conversation that goes one way gives a server of trees the sample that a linear one gives."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from server._serving import serving

from sample_wire import Sample
from sample_wire.adapters.client import SessionClient
from sample_wire.adapters.server import ServerSettings, create_app
from sample_wire.demo.engine import serve_engine
from sample_wire.rollout import GenerateInput, GenerateOutput, agentic

from ._talks import question, tool_agent
from .test_parity import PARAMS, SETTINGS, check_equal

# What a linear session's samples tell of the session, and a tree's of their leaf.
OF_A_SESSION = {"max_trim_tokens"}
OF_A_LEAF = {"leaf"}


@pytest.fixture(scope="module")
def engine_url() -> Iterator[str]:
    with serve_engine(SETTINGS) as url:
        yield url


def talked(
    engine_url: str, trajectory: Any, *, incremental: bool, limit: int | None
) -> GenerateOutput[Sample]:
    """What an agent with tools gives on a server of this kind."""
    settings = ServerSettings(
        engine_url=engine_url,
        tokenizer="chatml",
        routing=SETTINGS.routing_spec(incremental=incremental),
        trajectory=trajectory,
        field_set=2,
    )
    given = GenerateInput(sample=question(index=3), sampling_params=PARAMS, max_seq_len=limit)
    with serving(create_app(settings)) as port:
        return asyncio.run(
            agentic.generate(
                given,
                sessions=lambda: SessionClient(f"http://127.0.0.1:{port}", field_set=2),
                agent=tool_agent(8),
                trajectory=trajectory,
            )
        )


def check_same(engine_url: str, *, incremental: bool, limit: int | None) -> Sample:
    """The linear sample, which a tree gives too."""
    modes: Any = {"incremental": incremental, "limit": limit}
    linear = talked(engine_url, "linear", **modes).samples
    branches = talked(engine_url, "tree", **modes).samples
    assert isinstance(linear, Sample)
    assert isinstance(branches, list)
    (branch,) = branches
    check_equal(linear, branch)
    assert linear.status is branch.status
    assert len(branch.metadata["lifecycle"]) == len(linear.metadata["lifecycle"])
    assert {*branch.metadata} - OF_A_LEAF == {*linear.metadata} - OF_A_SESSION
    for key in ("turns", "accumulated_token_ids", "tito_session_mismatch"):
        assert branch.metadata[key] == linear.metadata[key]
    assert branch.rollout_id is None
    return linear


@pytest.mark.parametrize("incremental", [False, True], ids=["full", "incremental"])
def test_one_way_gives_one_sample_whole_and_cut(engine_url: str, incremental: bool) -> None:
    whole = check_same(engine_url, incremental=incremental, limit=None)
    assert len(whole.metadata["lifecycle"]) > 2
    cut = check_same(engine_url, incremental=incremental, limit=len(whole.tokens) - 5)
    assert cut.tokens.tolist() == whole.tokens[:-5].tolist()
