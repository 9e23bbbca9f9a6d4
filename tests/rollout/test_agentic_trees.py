"""agentic.generate on a server of trees: a list of samples back, refusals before a session."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from client._samples import make_sample
from client._stub import Stub, answer
from server._numbers import NumberTokenizer
from server._serving import Site, running
from server._sglang import NUM_LAYERS, TOP_K, USER, first_turn, routed, second_turn, speaks
from server._stub import StubEngine

from sample_wire import ClientError, GroupError, Sample, ServerError, Status, encode_samples
from sample_wire.adapters.client import SessionClient
from sample_wire.assembly import RoutingSpec
from sample_wire.rollout import GenerateInput, GenerateOutput, TrainerOptions, agentic, flatten

from ._agents import Agent, Chat, nested

TREE: Any = {"nodes": [], "leaves": []}


@pytest.fixture(scope="module")
def site(_engine: StubEngine) -> Iterator[Site]:
    """A session server of trees, which asks for full routing."""
    routing = RoutingSpec(num_layers=NUM_LAYERS, top_k=TOP_K)
    with running(NumberTokenizer(), _engine.url, routing=routing, trajectory="tree") as tree_site:
        yield tree_site


async def forks(chat: Chat) -> None:
    """A first turn, one way on from it and its next turn, then another way."""
    said = await chat(USER)
    one_way = [USER, said, {"role": "user", "content": "20 21"}]
    other = await chat(*one_way)
    await chat(*one_way, other, {"role": "user", "content": "22"})
    await chat(USER, said, {"role": "user", "content": "23"})


async def one_turn(chat: Chat) -> None:
    await chat(USER)


def will_fork(engine: StubEngine) -> None:
    engine.will(first_turn(), second_turn(), speaks([40]), speaks([50]))


def rollout(
    url: str, agent: Agent, sample: Sample | None = None, **options: Any
) -> GenerateOutput[Sample]:
    """One rollout on the server of trees at that URL."""
    given = GenerateInput(sample=sample or Sample(), sampling_params={}, max_seq_len=None)
    return asyncio.run(
        agentic.generate(
            given,
            sessions=lambda: SessionClient(url, field_set=2),
            agent=agent,
            **{"trajectory": "tree", **options},
        )
    )


def several(output: GenerateOutput[Sample]) -> list[Sample]:
    """The samples of an output that is a list."""
    assert isinstance(output.samples, list)
    return output.samples


def test_every_branch_is_a_sample_of_one_rollout(site: Site, engine: StubEngine) -> None:
    will_fork(engine)
    given = Sample(label="kept", index=4, reward=0.5, metadata={"mine": [1]})
    samples = several(rollout(site.url, Agent(forks), given))
    assert [sample.tokens.tolist() for sample in samples] == [
        [1, 2, 3, 10, 11, 20, 21, 30, 31, 22, 40],
        [1, 2, 3, 10, 11, 23, 50],
    ]
    masks = [sample.loss_mask.tolist() for sample in samples if sample.loss_mask is not None]
    assert masks == [[1, 1, 0, 0, 1, 1, 0, 1], [0, 0, 0, 1]]
    for sample in samples:
        rows = np.asarray(sample.rollout_routed_experts)
        assert np.array_equal(rows, routed(len(sample.tokens) - 1))
        assert (sample.label, sample.reward, sample.rollout_id) == ("kept", 0.5, 4)
        assert sample.metadata["mine"] == [1]
        assert "tree" not in sample.metadata
    assert flatten([samples]) == samples
    assert given.rollout_id is None


@pytest.mark.parametrize("rollout_id", [0, 7, "a"])
def test_an_inputs_own_rollout_id_wins_over_its_index(
    site: Site, engine: StubEngine, rollout_id: Any
) -> None:
    will_fork(engine)
    given = Sample(index=4, rollout_id=rollout_id)
    samples = several(rollout(site.url, Agent(forks), given))
    assert [sample.rollout_id for sample in samples] == [rollout_id, rollout_id]


def test_several_samples_of_an_input_without_an_id_are_refused(
    site: Site, engine: StubEngine
) -> None:
    will_fork(engine)
    with pytest.raises(GroupError, match="gave 2 samples") as refused:
        rollout(site.url, Agent(forks))
    assert refused.value.field == "rollout_id"


def test_one_sample_is_a_list_too_and_needs_no_id(site: Site, engine: StubEngine) -> None:
    engine.will(first_turn())
    (sample,) = several(rollout(site.url, Agent(one_turn), Sample(index=4)))
    assert sample.tokens.tolist() == [1, 2, 3, 10, 11]
    assert sample.rollout_id is None


def test_the_agents_answer_is_applied_by_the_server(site: Site, engine: StubEngine) -> None:
    will_fork(engine)
    told = {
        "reward": 0.0,
        "turns": 4,
        "leaf": "planted",
        "dropped_turns": {"count": 9},
        "agent_metrics": {"total_tool_time": 2},
        "deep": nested(124),
    }
    given = Sample(index=4, reward=9.0, metadata={"turns": 1, "mine": 1})
    samples = several(rollout(site.url, Agent(forks, told), given))
    for sample, leaf in zip(samples, (2, 3), strict=True):
        assert sample.reward == 0.0
        assert (sample.metadata["turns"], sample.metadata["mine"]) == (4, 1)
        assert sample.metadata["leaf"]["node_id"] == leaf
        assert "dropped_turns" not in sample.metadata
        assert sample.metadata["accumulated_token_ids"] == sample.tokens.tolist()
        assert sample.non_generation_time == 2.0


def test_what_the_servers_hooks_refuse_is_raised(site: Site, engine: StubEngine) -> None:
    engine.will(first_turn())
    with pytest.raises(ServerError, match="the agent's reward is a str"):
        rollout(site.url, Agent(one_turn, {"reward": "good"}))


def test_an_agent_that_fails_leaves_the_samples_of_what_it_said(
    site: Site, engine: StubEngine, caplog: pytest.LogCaptureFixture
) -> None:
    async def breaks(chat: Chat) -> None:
        await one_turn(chat)
        raise RuntimeError("no tool of that name")

    engine.will(first_turn())
    (sample,) = several(rollout(site.url, Agent(breaks)))
    assert sample.status is Status.COMPLETED
    assert "no tool of that name" in caplog.text


def test_a_session_without_a_turn_gives_a_list_of_one_aborted_copy(site: Site) -> None:
    given = Sample(label="kept", metadata={"mine": [1]})
    told = {"reward": 1.0, "agent_metrics": {"total_tool_time": 3.0}}
    (sample,) = several(rollout(site.url, Agent(told=told), given))
    assert sample is not given
    assert (sample.status, sample.label) == (Status.ABORTED, "kept")
    assert (sample.metadata, sample.reward, sample.rollout_id) == ({"mine": [1]}, None, None)
    assert sample.metadata is not given.metadata


@pytest.mark.parametrize("told", [None, {}, {"reward": 1.0}], ids=repr)
def test_what_the_agent_told_goes_to_the_server(told: Any) -> None:
    with Stub(answer(bytes(encode_samples([make_sample()], {"tree": TREE}, field_set=2)))) as stub:
        rollout(stub.url, Agent(told=told))
        sent = json.loads(stub.only("collect").body)
    assert sent == {"max_seq_len": None} | ({} if told is None else {"metadata": told})


def test_a_reply_that_tells_no_tree_is_refused() -> None:
    payload = bytes(encode_samples([make_sample()], {}, field_set=2))
    with Stub(answer(payload)) as stub, pytest.raises(ClientError, match="not that of a tree"):
        rollout(stub.url, Agent())


def test_a_reply_that_tells_a_tree_is_refused_where_none_is_expected() -> None:
    payload = bytes(encode_samples([make_sample()], {"tree": TREE}, field_set=2))
    with Stub(answer(payload)) as stub, pytest.raises(ClientError, match="that of a tree"):
        rollout(stub.url, Agent(), trajectory="linear")


def test_a_session_of_another_kind_is_refused_before_the_agent_is_called(
    site: Site, engine: StubEngine
) -> None:
    agent = Agent(one_turn)
    with pytest.raises(ClientError, match="sessions are tree, the rollout's linear"):
        rollout(site.url, agent, trajectory="linear")
    with (
        running(NumberTokenizer(), engine.url, field_set=2) as linear,
        pytest.raises(ClientError, match="sessions are linear, the rollout's tree"),
    ):
        rollout(linear.url, agent)
    assert (agent.calls, engine.seen) == ([], [])


@pytest.mark.parametrize("name", ["group_reward", "partial_rollout", "recompute_log_probs"])
def test_a_trainer_that_needs_one_sample_is_refused_before_there_is_a_session(name: str) -> None:
    trainer = TrainerOptions(**{name: True})
    agent = Agent()
    with Stub() as stub:
        with pytest.raises(ValueError, match=f"^{name} needs one sample"):
            rollout(stub.url, agent, trainer=trainer)
        assert stub.requests == []
    assert agent.calls == []


def test_a_linear_session_suits_every_trainer(engine: StubEngine) -> None:
    trainer = TrainerOptions(group_reward=True, partial_rollout=True, recompute_log_probs=True)
    engine.will(first_turn())
    with running(NumberTokenizer(), engine.url, field_set=2) as site:
        agent = Agent(one_turn)
        output = rollout(site.url, agent, trajectory="linear", trainer=trainer)
    assert isinstance(output.samples, Sample)


def test_another_kind_of_trajectory_is_refused_before_there_is_a_session() -> None:
    with Stub() as stub:
        with pytest.raises(ValueError, match="trajectory is one of"):
            rollout(stub.url, Agent(), trajectory="v2")
        assert stub.requests == []
