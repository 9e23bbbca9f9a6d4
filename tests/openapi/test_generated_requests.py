"""Requests made from the description against a real server and the embedded engine, on sockets.

HYPOTHESIS_PROFILE=long makes more of them, other ones each time (CONTRIBUTING.md, Long runs).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from server._serving import serving

from sample_wire.adapters.server import ServerSettings, create_app
from sample_wire.demo.engine import EngineSettings, serve_engine

from ._calls import Call, calls
from ._talking import Talk

ENGINE = EngineSettings(num_layers=2, num_experts=8, top_k=2, max_context=512, mean_answer_tokens=6)
SESSION = "/sessions/{session_id}"


@pytest.fixture(scope="module")
def engine_url() -> Iterator[str]:
    with serve_engine(ENGINE) as url:
        yield url


@pytest.fixture(scope="module", params=["linear", "tree"])
def port(request: pytest.FixtureRequest, engine_url: str) -> Iterator[int]:
    """A server of each kind of sessions."""
    told = ServerSettings(
        engine_url=engine_url,
        tokenizer="chatml",
        routing=ENGINE.routing_spec(),
        trajectory=request.param,
        instance_id="i-1",
    )
    with serving(create_app(told)) as port:
        yield port


@settings(max_examples=settings().max_examples // 2)  # each is up to eight requests
@given(plan=st.lists(calls(), min_size=1, max_size=8))
def test_no_request_brings_an_answer_that_is_not_described(port: int, plan: list[Call]) -> None:
    """Nor one of 500 and more; and the session has a record for no more turns than were told."""
    with Talk(port) as talk:
        for call in plan:
            talk.call(call)
        if not talk.is_deleted:
            records = talk.checked("get", SESSION).json["records"]
            assert len(records) <= talk.num_recorded
            talk.checked("delete", SESSION)
        assert talk.checked("get", "/health").json["status"] == "ok"
