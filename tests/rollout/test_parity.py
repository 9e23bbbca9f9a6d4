"""multi_turn and agentic on one engine: the same conversation gives the same sample."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from server._serving import serving

from sample_wire import Sample, Status
from sample_wire.adapters.client import SessionClient
from sample_wire.adapters.engine_client import HttpEngine
from sample_wire.adapters.engines import fast_base64
from sample_wire.adapters.server import ServerSettings, create_app
from sample_wire.adapters.tokenizer import ByteChatML
from sample_wire.demo.engine import EngineSettings, serve_engine, structural_tag
from sample_wire.rollout import GenerateInput, agentic, multi_turn

from ._talks import TOOLS, question, run_tool, tool_agent

SETTINGS = EngineSettings(
    num_layers=2, num_experts=8, top_k=2, hidden_size=32, num_heads=2, mean_answer_tokens=30
)
PARAMS: dict[str, Any] = {
    "temperature": 0.9,
    "max_new_tokens": 160,
    "structural_tag": structural_tag(TOOLS),
}


@pytest.fixture(scope="module")
def engine_url() -> Iterator[str]:
    with serve_engine(SETTINGS) as url:
        yield url


@pytest.fixture(scope="module", params=[False, True], ids=["full", "incremental"])
def site(engine_url: str, request: pytest.FixtureRequest) -> Iterator[tuple[str, bool]]:
    """The URL of a session server, and whether it asks for new routing rows only."""
    routing = SETTINGS.routing_spec(incremental=request.param)
    settings = ServerSettings(engine_url=engine_url, tokenizer="chatml", routing=routing)
    with serving(create_app(settings)) as port:
        yield f"http://127.0.0.1:{port}", request.param


def both(
    engine_url: str, site: tuple[str, bool], given: GenerateInput[Sample], max_turns: int
) -> tuple[Sample, Sample]:
    """The samples of multi_turn and of agentic."""
    server_url, incremental = site

    async def main() -> tuple[Any, Any]:
        async with HttpEngine(engine_url) as engine:
            held = await multi_turn.generate(
                given,
                engine=engine,
                tokenizer=ByteChatML(),
                max_turns=max_turns,
                tools=multi_turn.Tools(definitions=TOOLS, run=run_tool),
                routing=SETTINGS.routing_spec(incremental=incremental),
                decode_base64=fast_base64(),
            )
        talked = await agentic.generate(
            given, sessions=lambda: SessionClient(server_url), agent=tool_agent(max_turns)
        )
        return held.samples, talked.samples

    held, talked = asyncio.run(main())
    return held, talked


def check_equal(held: Sample, talked: Sample) -> None:
    """Fails where a field that the engine's tokens determine is not the same."""
    assert held.tokens.tolist() == talked.tokens.tolist()
    assert held.loss_mask is not None
    assert held.rollout_log_probs is not None
    assert held.rollout_routed_experts is not None
    np.testing.assert_array_equal(held.loss_mask, talked.loss_mask)
    np.testing.assert_array_equal(held.rollout_log_probs, talked.rollout_log_probs)
    np.testing.assert_array_equal(held.rollout_routed_experts, talked.rollout_routed_experts)
    assert held.response == talked.response
    assert held.response_length == talked.response_length
    assert held.weight_versions == talked.weight_versions
    assert held.status is talked.status
    for sample in (held, talked):
        assert sample.rollout_routed_experts is not None
        assert len(sample.rollout_routed_experts) == len(sample.tokens) - 1


@pytest.mark.parametrize("text", ["What is the weather?", "When?", "Where? \u00e4", "a" * 300])
def test_both_give_the_same_sample(engine_url: str, site: tuple[str, bool], text: str) -> None:
    given = GenerateInput(sample=question(text), sampling_params=PARAMS)
    held, talked = both(engine_url, site, given, max_turns=8)
    check_equal(held, talked)
    assert held.status is Status.COMPLETED
    assert len(held.weight_versions) == talked.metadata["turns"] >= 3
