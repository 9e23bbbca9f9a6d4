"""multi_turn and agentic on one engine: the same conversation gives the same sample."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given as examples
from hypothesis import settings
from hypothesis import strategies as st
from server._serving import serving

from sample_wire import Sample, Status
from sample_wire.adapters.client import SessionClient
from sample_wire.adapters.engine_client import HttpEngine
from sample_wire.adapters.engines import fast_base64
from sample_wire.adapters.server import ServerSettings, create_app
from sample_wire.adapters.tokenizer import ByteChatML
from sample_wire.demo.engine import EngineSettings, serve_engine, structural_tag
from sample_wire.rollout import GenerateInput, agentic, multi_turn

from ._agents import one
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


@pytest.fixture(scope="module")
def whole(engine_url: str) -> Sample:
    """The sample of a conversation without limits."""
    given = GenerateInput(sample=question(), sampling_params=PARAMS)
    return asyncio.run(by_multi_turn(engine_url, given, max_turns=8))


async def by_multi_turn(
    engine_url: str, given: GenerateInput[Sample], max_turns: int, *, incremental: bool = False
) -> Sample:
    """The sample of a conversation that is held here."""
    async with HttpEngine(engine_url) as engine:
        output = await multi_turn.generate(
            given,
            engine=engine,
            tokenizer=ByteChatML(),
            max_turns=max_turns,
            tools=multi_turn.Tools(definitions=TOOLS, run=run_tool),
            routing=SETTINGS.routing_spec(incremental=incremental),
            decode_base64=fast_base64(),
        )
    return one(output)


def both(
    engine_url: str, site: tuple[str, bool], given: GenerateInput[Sample], max_turns: int
) -> tuple[Sample, Sample]:
    """The samples of multi_turn and of agentic."""
    server_url, incremental = site

    async def main() -> tuple[Sample, Sample]:
        talked = await agentic.generate(
            given, sessions=lambda: SessionClient(server_url), agent=tool_agent(max_turns)
        )
        held = await by_multi_turn(engine_url, given, max_turns, incremental=incremental)
        return held, one(talked)

    return asyncio.run(main())


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
    for sample in (held, talked):
        assert sample.rollout_routed_experts is not None
        assert len(sample.rollout_routed_experts) == len(sample.tokens) - 1


def completions(sample: Sample) -> tuple[list[int], list[int]]:
    """Where completions start and where they end, as positions of the sample's tokens."""
    assert sample.loss_mask is not None
    edges = np.diff(sample.loss_mask.astype(np.int8), prepend=0, append=0)
    offset = len(sample.tokens) - sample.response_length
    starts, ends = np.flatnonzero(edges == 1) + offset, np.flatnonzero(edges == -1) + offset
    return starts.tolist(), ends.tolist()


@pytest.mark.parametrize("text", ["What is the weather?", "Where? \u00e4" * 40])
def test_both_give_the_same_sample(engine_url: str, site: tuple[str, bool], text: str) -> None:
    given = GenerateInput(sample=question(text), sampling_params=PARAMS)
    held, talked = both(engine_url, site, given, max_turns=8)
    check_equal(held, talked)
    assert held.status is talked.status is Status.COMPLETED
    assert len(held.weight_versions) == talked.metadata["turns"] >= 3


@pytest.mark.parametrize("max_turns", [1, 2])
def test_both_end_with_a_tool_call_where_no_turn_is_left(
    engine_url: str, site: tuple[str, bool], max_turns: int
) -> None:
    given = GenerateInput(sample=question(), sampling_params=PARAMS)
    held, talked = both(engine_url, site, given, max_turns)
    check_equal(held, talked)
    assert held.response.endswith("</tool_call><|im_end|>")
    assert len(held.weight_versions) == max_turns


@pytest.mark.parametrize("number", [0, 1, -1], ids=["first", "second", "last"])
def test_both_are_cut_inside_a_completion(
    engine_url: str, site: tuple[str, bool], whole: Sample, number: int
) -> None:
    starts, ends = completions(whole)
    limit = (starts[number] + ends[number]) // 2
    cut = GenerateInput(sample=question(), sampling_params=PARAMS, max_seq_len=limit)
    held, talked = both(engine_url, site, cut, max_turns=8)
    check_equal(held, talked)
    assert held.status is talked.status is Status.TRUNCATED
    assert held.tokens.tolist() == whole.tokens[:limit].tolist()


def test_both_end_before_a_prompt_that_has_no_room(
    engine_url: str, site: tuple[str, bool], whole: Sample
) -> None:
    starts, ends = completions(whole)
    limit = (ends[0] + starts[1]) // 2
    cut = GenerateInput(sample=question(), sampling_params=PARAMS, max_seq_len=limit)
    held, talked = both(engine_url, site, cut, max_turns=8)
    check_equal(held, talked)
    assert held.tokens.tolist() == whole.tokens[: ends[0]].tolist()
    # The session knows turns that it drops, and says so; multi_turn never asked for them.
    assert (held.status, talked.status) == (Status.TRUNCATED, Status.COMPLETED)
    assert talked.metadata["dropped_turns"]["reason"] == "max_seq_len"


@settings(max_examples=6)
@examples(
    text=st.text(st.characters(codec="utf-8"), max_size=80),
    seed=st.integers(0, 2**31),
    temperature=st.sampled_from([0.0, 0.5, 1.5]),
    max_new_tokens=st.sampled_from([20, 60, 160]),
    max_turns=st.integers(1, 8),
)
def test_both_give_the_same_sample_of_any_conversation(
    engine_url: str,
    site: tuple[str, bool],
    text: str,
    seed: int,
    temperature: float,
    max_new_tokens: int,
    max_turns: int,
) -> None:
    params = PARAMS | {
        "sampling_seed": seed,
        "temperature": temperature,
        "max_new_tokens": max_new_tokens,
    }
    given = GenerateInput(sample=question(text), sampling_params=params)
    held, talked = both(engine_url, site, given, max_turns)
    check_equal(held, talked)
    assert held.status is talked.status
