"""agentic.generate with the openai package as agent and a real session server."""

from __future__ import annotations

import asyncio
import copy
import logging
import math
from typing import Any

import httpx2
import numpy as np
import pytest
from server._numbers import NumberTokenizer
from server._serving import Site, running
from server._sglang import USER, first_turn, second_turn
from server._stub import NEVER, PATIENCE_S, StubEngine

from sample_wire import Sample, Status
from sample_wire.adapters.client import SessionClient
from sample_wire.rollout import GenerateInput, agentic

from ._agents import INSTANCE_ID, Agent, Chat, nested, one, rollout

TURN = [USER]


async def one_turn(chat: Chat) -> None:
    await chat(*TURN)


async def two_turns(chat: Chat) -> None:
    said = await chat(*TURN)
    await chat(*TURN, said, {"role": "user", "content": "20 21"})


def num_sessions(agent: Agent) -> int:
    """How many sessions of an agent's calls their server still has."""
    paths = [call["base_url"].removesuffix("/v1") for call in agent.calls]
    return sum(httpx2.get(path).status_code == 200 for path in paths)


def test_a_conversation_becomes_one_sample(site: Site, engine: StubEngine) -> None:
    engine.will(first_turn(), second_turn())
    agent = Agent(two_turns)
    sample = one(rollout(site.url, agent, Sample(label="kept", reward=0.5, index=4)))
    assert sample.tokens.tolist() == [1, 2, 3, 10, 11, 20, 21, 30, 31]
    assert sample.loss_mask is not None
    assert sample.loss_mask.tolist() == [1, 1, 0, 0, 1, 1]
    assert sample.rollout_log_probs is not None
    assert sample.rollout_log_probs.tolist() == [-0.125, -0.25, 0, 0, -0.5, -1]
    assert sample.rollout_routed_experts is not None
    assert len(sample.rollout_routed_experts) == 8
    assert sample.weight_versions == ["w1", "w2"]
    assert (sample.status, sample.response_length) == (Status.COMPLETED, 6)
    assert (sample.label, sample.reward, sample.index) == ("kept", 0.5, 4)
    assert num_sessions(agent) == 0


def test_the_agent_is_told_where_and_what_to_ask(site: Site) -> None:
    agent = Agent()
    prompt = [{"role": "user", "content": "hi"}]
    sample = Sample(prompt=prompt, metadata={"task": {"level": 3}})
    rollout(site.url, agent, sample, {"max_new_tokens": 7, "top_p": 0.5}, max_seq_len=99)
    (call,) = agent.calls
    assert call["base_url"].startswith(f"{site.url}/sessions/")
    assert call["base_url"].endswith("/v1")
    assert call["prompt"] == prompt
    assert call["request_kwargs"] == {"max_tokens": 7, "top_p": 0.5}
    assert call["metadata"] == {
        "task": {"level": 3},
        "max_seq_len": 99,
        "session_server_instance_id": INSTANCE_ID,
        "session_server_id": f"127.0.0.1:{site.port}",
    }


def test_a_text_prompt_is_handed_to_the_agent_as_it_is(site: Site) -> None:
    agent = Agent()
    rollout(site.url, agent, Sample(prompt="<|user|>hi"))
    assert agent.calls[0]["prompt"] == "<|user|>hi"


def test_the_agent_is_not_told_what_is_not_known(engine: StubEngine) -> None:
    agent = Agent()
    sample = Sample()
    sample.metadata = None  # type: ignore[assignment]  # some trainers have none
    with running(NumberTokenizer(), engine.url) as site:
        rollout(site.url, agent, sample)
        assert agent.calls[0]["metadata"] == {"session_server_id": f"127.0.0.1:{site.port}"}


def test_what_the_agent_changes_is_its_own(site: Site, engine: StubEngine) -> None:
    engine.will(first_turn())
    prompt = [{"role": "user", "content": "1 2 3"}]
    given = GenerateInput(
        sample=Sample(prompt=prompt, metadata={"list": [1]}), sampling_params={"stop": ["a"]}
    )
    told = {"deep": [1]}

    async def agent(
        *,
        base_url: str,
        prompt: Any,
        request_kwargs: dict[str, Any],
        metadata: dict[str, Any],
    ) -> dict[str, Any]:
        async def steps(chat: Chat) -> None:
            await chat(*prompt)

        await Agent(steps)(
            base_url=base_url, prompt=prompt, request_kwargs=request_kwargs, metadata=metadata
        )
        prompt[0]["content"] = "changed"
        prompt.append({})
        request_kwargs["stop"].append("b")
        metadata["list"].append(2)
        return told

    before = copy.deepcopy((given.sample.prompt, given.sample.metadata, given.sampling_params))
    sample = one(
        asyncio.run(agentic.generate(given, sessions=lambda: SessionClient(site.url), agent=agent))
    )
    told["deep"].append(2)
    assert (given.sample.prompt, given.sample.metadata, given.sampling_params) == before
    assert (sample.prompt, sample.metadata["list"]) == (prompt, [1])
    assert sample.metadata["deep"] == [1]


def test_later_metadata_overlays_earlier(site: Site, engine: StubEngine) -> None:
    engine.will(first_turn())
    mine = {"input": 1, "lifecycle": "i", "agent": "i", "max_trim_tokens": "i"}
    told = {"agent": "a", "max_trim_tokens": "a", "accumulated_token_ids": "a", "turns": 1}
    sample = one(rollout(site.url, Agent(one_turn, told), Sample(metadata=mine)))
    assert sample.metadata.pop("lifecycle")[0]["turn"] == 1
    assert sample.metadata == {
        "input": 1,
        "agent": "a",
        "turns": 1,
        "tito_session_mismatch": [],
        "accumulated_token_ids": [1, 2, 3, 10, 11],
        "max_trim_tokens": 0,
    }
    assert mine["agent"] == "i"


def test_the_agent_overlays_what_the_server_says_of_a_sample(
    site: Site, engine: StubEngine
) -> None:
    engine.will(first_turn())
    sample = one(rollout(site.url, Agent(one_turn, {"lifecycle": "mine"})))
    assert sample.metadata["lifecycle"] == "mine"


@pytest.mark.parametrize("seconds", [0, 0.0, 2.5, 3, np.float32(0.5)], ids=repr)
def test_the_time_of_tools_becomes_the_samples(
    site: Site, engine: StubEngine, seconds: Any
) -> None:
    engine.will(first_turn())
    told = {"agent_metrics": {"total_tool_time": seconds, "calls": 2}}
    sample = one(rollout(site.url, Agent(one_turn, told), Sample(non_generation_time=1.0)))
    assert type(sample.non_generation_time) is float
    assert sample.non_generation_time == seconds


@pytest.mark.parametrize(
    "told",
    [
        None,
        {},
        {"agent_metrics": None},
        {"agent_metrics": {}},
        {"agent_metrics": {"total_tool_time": None}},
    ],
    ids=repr,
)
def test_without_a_time_of_tools_the_inputs_stays(
    site: Site, engine: StubEngine, told: Any
) -> None:
    engine.will(first_turn())
    sample = one(rollout(site.url, Agent(one_turn, told), Sample(non_generation_time=1.5)))
    assert sample.non_generation_time == 1.5


async def breaks(chat: Chat) -> None:
    await chat(*TURN)
    raise RuntimeError("no tool of that name")


async def runs_out_of_time(chat: Chat) -> None:
    await chat(*TURN)
    async with asyncio.timeout(0):
        await asyncio.Event().wait()


async def is_refused(chat: Chat) -> None:
    await chat(*TURN)
    await chat()  # no message at all


@pytest.mark.parametrize(
    ("steps", "error"),
    [(breaks, "RuntimeError"), (runs_out_of_time, "TimeoutError"), (is_refused, "BadRequestError")],
    ids=["its own", "its time limit", "the server's"],
)
def test_an_agent_that_fails_is_logged_and_its_turns_are_a_sample(
    site: Site, engine: StubEngine, caplog: pytest.LogCaptureFixture, steps: Any, error: str
) -> None:
    engine.will(first_turn())
    agent = Agent(steps)
    sample = one(rollout(site.url, agent))
    assert sample.tokens.tolist() == [1, 2, 3, 10, 11]
    assert sample.status is Status.COMPLETED
    (record,) = [one for one in caplog.records if one.name == "sample_wire.rollout"]
    assert record.levelno == logging.ERROR
    assert agent.calls[0]["base_url"] in record.getMessage()
    assert error in caplog.text
    assert num_sessions(agent) == 0


@pytest.mark.parametrize(
    "told",
    [
        "done",
        ["done"],
        {"score": math.nan},
        {"when": object()},
        {1: "a key"},
        {"deep": nested(125)},
    ],
    ids=lambda told: repr(told)[:40],
)
def test_an_answer_of_a_wrong_form_is_a_failure_of_the_agent(
    site: Site, engine: StubEngine, caplog: pytest.LogCaptureFixture, told: Any
) -> None:
    engine.will(first_turn())
    sample = one(rollout(site.url, Agent(one_turn, told), Sample(non_generation_time=1.5)))
    assert sample.tokens.tolist() == [1, 2, 3, 10, 11]
    assert sample.non_generation_time == 1.5
    assert {*sample.metadata} == {
        "lifecycle",
        "tito_session_mismatch",
        "accumulated_token_ids",
        "max_trim_tokens",
    }
    assert [record.name for record in caplog.records] == ["sample_wire.rollout"]


def test_an_answer_may_nest_as_deep_as_a_payload_carries_it(site: Site, engine: StubEngine) -> None:
    engine.will(first_turn())
    sample = one(rollout(site.url, Agent(one_turn, {"deep": nested(124)})))
    assert sample.metadata["deep"] == nested(124)


@pytest.mark.parametrize("seconds", ["3 s", True, -1.0], ids=repr)
def test_a_wrong_time_of_tools_costs_the_time_alone(
    site: Site, engine: StubEngine, caplog: pytest.LogCaptureFixture, seconds: Any
) -> None:
    engine.will(first_turn())
    told = {"agent_metrics": {"total_tool_time": seconds}, "reward": 1}
    sample = one(rollout(site.url, Agent(one_turn, told), Sample(non_generation_time=1.5)))
    assert sample.non_generation_time == 1.5
    assert sample.metadata["reward"] == 1
    assert "total_tool_time is no time" in caplog.text


def test_metrics_that_are_no_object_tell_no_time(site: Site, engine: StubEngine) -> None:
    engine.will(first_turn())
    sample = one(rollout(site.url, Agent(one_turn, {"agent_metrics": 3})))
    assert sample.metadata["agent_metrics"] == 3


def test_a_cancelled_task_that_the_agent_waits_for_is_its_own_failure(
    site: Site, engine: StubEngine, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody cancelled the rollout, and a task group would drop it without a word."""

    async def waits_for_a_cancelled_task(chat: Chat) -> None:
        await one_turn(chat)
        tool = asyncio.ensure_future(asyncio.Event().wait())
        tool.cancel()
        await tool

    engine.will(first_turn())
    sample = one(rollout(site.url, Agent(waits_for_a_cancelled_task)))
    assert sample.tokens.tolist() == [1, 2, 3, 10, 11]
    assert "CancelledError" in caplog.text


def test_a_session_without_a_turn_gives_an_aborted_copy_of_the_input(site: Site) -> None:
    rows = np.arange(6)
    given = Sample(
        prompt=[{"role": "user", "content": "hi"}],
        metadata={"mine": [1]},
        label="kept",
        multimodal_inputs={"image": rows},
        status=Status.PENDING,
    )
    agent = Agent(told={"agent": 1, "agent_metrics": {"total_tool_time": 3.0}})
    sample = one(rollout(site.url, agent, given))
    assert sample is not given
    assert sample.status is Status.ABORTED
    assert given.status is Status.PENDING
    assert (sample.prompt, sample.metadata, sample.label) == (given.prompt, {"mine": [1]}, "kept")
    assert sample.non_generation_time == 0.0
    sample.metadata["mine"].append(2)
    assert sample.multimodal_inputs is not None
    sample.multimodal_inputs["image"][:] = 0
    assert (given.metadata, rows.tolist()) == ({"mine": [1]}, [0, 1, 2, 3, 4, 5])
    assert num_sessions(agent) == 0


def test_an_aborted_copy_can_be_rolled_out_again(site: Site, engine: StubEngine) -> None:
    aborted = one(rollout(site.url, Agent(), Sample(label="kept")))
    engine.will(first_turn())
    sample = one(rollout(site.url, Agent(one_turn), aborted))
    assert (sample.status, sample.label) == (Status.COMPLETED, "kept")


def test_a_sample_is_cut_to_max_seq_len(site: Site, engine: StubEngine) -> None:
    engine.will(first_turn(), second_turn())
    sample = one(rollout(site.url, Agent(two_turns), max_seq_len=8))
    assert sample.tokens.tolist() == [1, 2, 3, 10, 11, 20, 21, 30]
    assert sample.status is Status.TRUNCATED


def test_a_limit_that_leaves_nothing_gives_an_aborted_copy(site: Site, engine: StubEngine) -> None:
    engine.will(first_turn())
    sample = one(rollout(site.url, Agent(one_turn), max_seq_len=3))
    assert (sample.status, len(sample.tokens)) == (Status.ABORTED, 0)


def test_an_agent_that_is_cancelled_ends_its_session_and_collects_nothing(
    site: Site, engine: StubEngine
) -> None:
    engine.will(first_turn(), NEVER)
    agent = Agent(two_turns)

    async def main() -> None:
        given = GenerateInput(sample=Sample(), sampling_params={})
        rolling = asyncio.ensure_future(
            agentic.generate(given, sessions=lambda: SessionClient(site.url), agent=agent)
        )
        await asyncio.to_thread(engine.asked.wait, PATIENCE_S)
        assert num_sessions(agent) == 1
        rolling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await rolling

    asyncio.run(main())
    assert num_sessions(agent) == 0


def test_rollouts_of_a_group_run_at_the_same_time(site: Site, engine: StubEngine) -> None:
    engine.will(*[first_turn()] * 8)

    async def main() -> list[Sample]:
        given = GenerateInput(sample=Sample(), sampling_params={})
        outputs = await asyncio.gather(
            *(
                agentic.generate(
                    given, sessions=lambda: SessionClient(site.url), agent=Agent(one_turn)
                )
                for _ in range(8)
            )
        )
        return [one(output) for output in outputs]

    samples = asyncio.run(main())
    assert [sample.tokens.tolist() for sample in samples] == [[1, 2, 3, 10, 11]] * 8
