"""The demo of a tree: one session whose agent tries a turn again and goes two ways."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import httpx2
import msgspec
import numpy as np
import numpy.typing as npt

from .._report import text_table
from .._tree_report import tree_text
from ..adapters.client import ClientLimits, SessionClient
from ..adapters.server.trajectories import FIELD_SETS
from ..codec import SamplesReply, decode_samples
from ..errors import SampleWireError
from ..rollout import GenerateInput, agentic
from ..sample import Sample
from . import agent
from .equality import differences
from .inputs import input_samples
from .progress import Progress
from .servers import DemoError, Servers
from .settings import StorySettings
from .story_report import engine_lines

_FIELD_SET: Final = FIELD_SETS["tree"]
_SAMPLING: Final = {"temperature": 1.0, "max_new_tokens": 512, "sampling_seed": 7}
_LIMITS: Final = ClientLimits(create_tries=1)
_PATIENCE_S: Final = 120.0
_HEAD: Final = ("sample", "leaf", "turns", "tokens", "trained", "rollout_id")


class Outcome(NamedTuple):
    """What the rollout came to.

    Attributes:
        samples: what the trainer gets.
        payload: the bytes of a samples reply of the same session.
        reply: the same, decoded over the input sample.
        told: the agent's answer.
    """

    samples: list[Sample]
    payload: bytes
    reply: SamplesReply[Sample]
    told: dict[str, Any]


def run_tree_story(settings: StorySettings) -> int:
    """Runs the demo and prints what it finds; returns 0.

    Raises:
        DemoError: the rollout failed, or the samples are not what they must be.
        KeyboardInterrupt: SIGINT came; what was started has ended.
    """
    logging.getLogger("sample_wire").addHandler(logging.NullHandler())  # a fault is raised here
    print("\n".join(_headline(settings)), flush=True)
    outcome = _rolled_out(settings)
    num_trained = check_samples(outcome)
    print("sample-wire inspect --tree says of the session's payload:\n")
    print(tree_text(outcome.payload, field_set=_FIELD_SET))
    print("\n".join(_report(outcome.samples, num_trained)))
    return 0


def check_samples(outcome: Outcome) -> int:
    """Passes where the samples are those of the payload, and each completion is trained once.

    Returns:
        How many tokens are trained.

    Raises:
        DemoError: they are not.
    """
    seconds = outcome.told["agent_metrics"]["total_tool_time"]
    template = dataclasses.replace(_input(), non_generation_time=seconds)
    for received, sample in zip(outcome.reply.samples, outcome.samples, strict=True):
        faults = differences(received, sample, template, field_set=_FIELD_SET)
        if faults:
            raise DemoError(f"a sample is not that of the payload: {', '.join(faults)}")
    masks = [_whole_mask(sample) for sample in outcome.samples]
    paths = [sample.metadata["leaf"]["path_node_ids"] for sample in outcome.samples]
    num_trained = 0
    for node in outcome.reply.session_metadata["tree"]["nodes"]:
        span = slice(*node["completion_span"])
        on = [mask[span] for mask, path in zip(masks, paths, strict=True) if node["id"] in path]
        if on and not np.array_equal(np.sum(on, axis=0), np.ones(len(on[0]))):
            raise DemoError(f"the completion of turn {node['id']} is not trained once")
        num_trained += len(on[0]) if on else 0
    return num_trained


def _input() -> Sample:
    return input_samples()[0]


def _whole_mask(sample: Sample) -> npt.NDArray[np.uint8]:
    """The mask over all tokens of a sample."""
    assert sample.loss_mask is not None
    num_prompt = len(sample.tokens) - sample.response_length
    return np.concatenate([np.zeros(num_prompt, np.uint8), sample.loss_mask])


def _rolled_out(settings: StorySettings) -> Outcome:
    server = msgspec.structs.replace(settings.server, trajectory="tree")
    progress = Progress()
    with contextlib.ExitStack() as stack:
        stack.callback(progress.close)
        progress.step("starting the servers")
        servers = Servers(server, settings.engine, stack)
        try:
            servers.wait()
            progress.step("the servers are up")
            return asyncio.run(_Branching(servers.server_url, progress).run())
        except (SampleWireError, httpx2.HTTPError) as error:
            raise DemoError(f"{error}{servers.fates()}") from error


class _Branching:
    """One input sample on its way: played, its payload looked at, collected."""

    def __init__(self, server_url: str, progress: Progress) -> None:
        self._server_url = server_url
        self._progress = progress
        self._num_turns = 0
        self._told: dict[str, Any] = {}
        self._fault: Exception | None = None
        self._payload = b""

    async def run(self) -> Outcome:
        output = await agentic.generate(
            GenerateInput(sample=_input(), sampling_params=_SAMPLING),
            sessions=lambda: _Session(self._server_url, self),
            agent=self._play,
            trajectory="tree",
        )
        assert isinstance(output.samples, list)
        reply = decode_samples(self._payload, _input(), field_set=_FIELD_SET)
        return Outcome(output.samples, self._payload, reply, self._told)

    async def look_at(self, session_url: str, body: dict[str, Any]) -> None:
        """Fetches the session's payload, which stays as it is."""
        if self._fault is not None:
            raise DemoError(
                f"turn {self._num_turns + 1}: the agent got {agent.told_by(self._fault)}"
            ) from self._fault
        self._progress.step(f"the agent is done: {self._num_turns} turns")
        async with httpx2.AsyncClient(timeout=_PATIENCE_S, trust_env=False) as http:
            response = await http.post(f"{session_url}/samples", json=body)
        self._payload = response.raise_for_status().content

    async def _play(
        self,
        *,
        base_url: str,
        prompt: str | list[dict[str, Any]],
        request_kwargs: dict[str, Any],
        metadata: dict[str, Any],  # noqa: ARG002  # generate tells it every agent
    ) -> dict[str, Any]:
        try:
            self._told = await agent.play_branches(
                base_url, prompt, request_kwargs, self._after_turn
            )
        except Exception as error:  # noqa: BLE001  # a rollout goes on without it, a demo does not
            self._fault = error
        return self._told

    def _after_turn(self) -> None:
        self._num_turns += 1
        self._progress.detail(f"the agent is at work: {self._num_turns} turns")


class _Session(SessionClient):
    def __init__(self, server_url: str, branching: _Branching) -> None:
        super().__init__(server_url, field_set=_FIELD_SET, limits=_LIMITS)
        self._branching = branching

    async def collect(self, template: Any, **options: Any) -> SamplesReply[Any]:
        await self._branching.look_at(self.chat_base_url.removesuffix("/v1"), options)
        return await super().collect(template, **options)


def _headline(settings: StorySettings) -> list[str]:
    return [
        "sample-wire demo: a session that is a tree, on this machine",
        *engine_lines(settings),
        "server   that of sample-wire serve --trajectory tree, in a process of its own",
        "agent    the openai client: a turn, the next one tried twice, on from the second try,",
        "         and another way on from the first turn",
        'trainer  agentic.generate(trajectory="tree"): one input sample, a list of samples',
        "",
    ]


def _report(samples: Sequence[Sample], num_trained: int) -> list[str]:
    rows = [
        [
            str(index),
            str(sample.metadata["leaf"]["node_id"]),
            str(len(sample.metadata["leaf"]["path_node_ids"])),
            f"{len(sample.tokens):,}",
            f"{int(np.count_nonzero(_whole_mask(sample))):,}",
            str(sample.rollout_id),
        ]
        for index, sample in enumerate(samples)
    ]
    return [
        "",
        *text_table([_HEAD, *rows], left=()),
        "",
        "Of a turn that was tried again the first try is dropped.  What both samples share is",
        "trained in the one of the older leaf, so that each completion is trained once: "
        f"{num_trained:,} tokens.",
    ]
