"""The episodes of the demo: agents at work, all at once, and then their sessions collected.

What is measured is measured when the last agent is done, one session at a time, so that no
agent's work is timed with it.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from ..adapters.client import ClientLimits, SessionClient
from ..codec import SamplesReply
from ..rollout import GenerateInput, agentic
from ..sample import Sample
from . import agent
from .equality import differences
from .inputs import input_samples
from .progress import Progress
from .servers import DemoError
from .two_ways import BothWays, TwoWays

# The servers listen before anybody asks: a try that fails means that one is gone.
# What is not deleted in time ends with its server.
_LIMITS: Final = ClientLimits(create_tries=1, delete_timeout_s=2.0)
# Named as SGLang does; the seed makes the embedded engine say the same in every run.
_SAMPLING: Final = {"temperature": 1.0, "max_new_tokens": 160, "sampling_seed": 7}


class Outcome(NamedTuple):
    """What an episode came to.

    Attributes:
        num_tools: tools that were called.
        sample: what the trainer gets.
        both: what it was compared with, and what either way costs.
    """

    num_tools: int
    sample: Sample
    both: BothWays


class Episodes:
    """Plays one episode for each input sample and collects its session.

    Args:
        server_url: of the session server.
        two_ways: gets a session's sample in both ways.
        progress: is told of every turn.
    """

    def __init__(self, server_url: str, two_ways: TwoWays, progress: Progress) -> None:
        self._server_url = server_url
        self._two_ways = two_ways
        self._progress = progress
        self._episodes = [_Episode(self, index) for index in range(len(input_samples()))]
        self._all_played = asyncio.Event()
        self._one_at_a_time = asyncio.Lock()

    async def run(self) -> list[Outcome]:
        """What they come to, in the order of the input samples.

        Raises:
            DemoError: an agent failed, or a sample is not what it must be.
            SampleWireError, httpx2.HTTPError: a session cannot be opened or collected.
        """
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(episode.run()) for episode in self._episodes]
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        return [task.result() for task in tasks]

    def session(self, before_collect: Callable[[str], Awaitable[None]]) -> SessionClient:
        """A session that has something to do before it is collected; not opened yet."""
        return _Session(self._server_url, before_collect)

    def tell_progress(self) -> None:
        """Tells of the turns so far; when the last agent is done, those who wait go on."""
        num_turns = sum(episode.num_turns for episode in self._episodes)
        num_played = sum(episode.is_played for episode in self._episodes)
        self._progress.detail(f"agents at work: {num_turns} turns, {num_played} of them done")
        if num_played == len(self._episodes):
            self._progress.step(f"the agents have ended: {num_turns} turns")
            self._all_played.set()

    async def both_ways(self, session_url: str, template: Sample) -> BothWays:
        """Waits for all agents and for its turn; then gets the session's sample in both ways."""
        await self._all_played.wait()
        async with self._one_at_a_time:
            return await self._two_ways.both(session_url, template)


class _Episode:
    """One input sample on its way: played, got in both ways, collected."""

    def __init__(self, all_episodes: Episodes, index: int) -> None:
        self.num_turns = 0
        self.is_played = False
        self._all = all_episodes
        self._index = index
        self._input = input_samples()[index]
        self._told: dict[str, Any] = {}
        self._fault: Exception | None = None
        self._both: BothWays | None = None

    async def run(self) -> Outcome:
        given = GenerateInput(sample=self._input, sampling_params=_SAMPLING)
        output = await agentic.generate(given, sessions=self._session, agent=self._play)
        assert isinstance(output.samples, Sample)
        return self._outcome(output.samples)

    def _session(self) -> SessionClient:
        return self._all.session(self._before_collect)

    async def _play(
        self,
        *,
        base_url: str,
        prompt: str | list[dict[str, Any]],
        request_kwargs: dict[str, Any],
        metadata: dict[str, Any],  # noqa: ARG002  # generate tells it every agent
    ) -> dict[str, Any]:
        try:
            self._told = await agent.play(base_url, prompt, request_kwargs, self._after_turn)
        except Exception as error:  # noqa: BLE001  # a rollout goes on without it, a demo does not
            self._fault = error
        self.is_played = True
        self._all.tell_progress()
        return self._told

    def _after_turn(self) -> None:
        self.num_turns += 1
        self._all.tell_progress()

    async def _before_collect(self, session_url: str) -> None:
        if self._fault is not None:
            raise DemoError(
                f"session {self._index}, turn {self.num_turns + 1}: the agent got "
                f"{agent.told_by(self._fault)}"
            ) from self._fault
        self._both = await self._all.both_ways(session_url, self._input)

    def _outcome(self, sample: Sample) -> Outcome:
        both, told = self._both, self._told
        assert both is not None
        template = input_samples()[self._index]  # anew: nobody can have changed it
        seconds = told["agent_metrics"]["total_tool_time"]
        final = dataclasses.replace(
            both.assembled,
            metadata={**both.assembled.metadata, **told, **both.session_metadata},
        )
        faults = differences(both.assembled, both.received, template) or differences(
            final, sample, dataclasses.replace(template, non_generation_time=seconds)
        )
        if faults:
            raise DemoError(f"session {self._index}: not equal in both ways: {', '.join(faults)}")
        return Outcome(told["num_tool_calls"], sample, both)


class _Session(SessionClient):
    def __init__(self, server_url: str, before: Callable[[str], Awaitable[None]]) -> None:
        super().__init__(server_url, limits=_LIMITS)
        self._before = before

    async def collect(self, template: Any, **options: Any) -> SamplesReply[Any]:
        await self._before(self.chat_base_url.removesuffix("/v1"))
        return await super().collect(template, **options)
