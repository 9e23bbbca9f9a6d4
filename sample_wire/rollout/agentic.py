"""agentic.generate: a user's agent talks to a session server, which makes the sample.

The rules: a failure of the agent is its own, and what it has said so far is still a sample; a
failure to collect is the caller's to see; cancellation ends the session and goes on.
"""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Protocol

from .._json import MAX_JSON_DEPTH
from .._plain import plain_object
from ..codec import SamplesReply
from ..errors import ClientError
from ..overlay import independent
from ..sample import Status
from ._chat_keys import request_kwargs
from .types import GenerateInput, GenerateOutput, SampleT

logger: Final = logging.getLogger("sample_wire.rollout")


class OpenSession(Protocol):
    """A session that was opened; `adapters.client.SessionClient` is one."""

    @property
    def chat_base_url(self) -> str:
        """The base URL for an OpenAI client."""
        ...

    @property
    def server_url(self) -> str:
        """The URL of the server that the session lives on."""
        ...

    @property
    def instance_id(self) -> str | None:
        """The id of that server's process, or None where it is not known."""
        ...

    async def collect(
        self, template: SampleT, *, max_seq_len: int | None, metadata: Mapping[str, Any] | None
    ) -> SamplesReply[SampleT]:
        """The session's samples, laid over copies of the template.  Ends the session."""
        ...


# Opens a session for one `async with`, which ends it.
SessionOpener = Callable[[], AbstractAsyncContextManager[OpenSession]]


class AgentFunction(Protocol):
    """The user's agent."""

    def __call__(
        self,
        *,
        base_url: str,
        prompt: str | list[dict[str, Any]],
        request_kwargs: dict[str, Any],
        metadata: dict[str, Any],
    ) -> Awaitable[Mapping[str, Any] | None]:
        """Holds one conversation.

        Args:
            base_url: for an OpenAI client.
            prompt: a copy of the input sample's.
            request_kwargs: the sampling parameters as keys of a chat request.  The openai
                package takes those that it does not know in `extra_body`.
            metadata: a copy of the input sample's; also `session_server_id` (host and port),
                `session_server_instance_id` and `max_seq_len`, where they are known.

        Returns:
            What the sample's metadata is to be told, a JSON object, or None.  A number of
            seconds at `agent_metrics.total_tool_time` is the sample's non_generation_time.
        """
        ...


async def generate(
    given: GenerateInput[SampleT], *, sessions: SessionOpener, agent: AgentFunction
) -> GenerateOutput[SampleT]:
    """The sample of one conversation that an agent holds.

    An exception of the agent is logged, and so is an answer that is not what an AgentFunction
    returns; the samples are collected all the same.  Cancellation is no exception of the agent:
    the session is ended, and nothing is collected.

    Args:
        sessions: opens a session, `lambda: SessionClient(url)` for example.
        agent: the agent.

    Returns:
        One sample.  Its metadata is the input's, overlaid by the server's, the agent's, and the
        session's.  A session without a sample gives a copy of the input whose status is aborted.

    Raises:
        ClientError, DecodeError: whatever opening the session or collecting raises; ClientError
            too for a reply with several samples, which a linear session does not give.
    """
    async with sessions() as session:
        told = await _answer(given, session, agent)
        reply = await session.collect(given.sample, max_seq_len=given.max_seq_len, metadata=told)
    return GenerateOutput(_finished(given.sample, reply, told))


async def _answer(
    given: GenerateInput[SampleT], session: OpenSession, agent: AgentFunction
) -> dict[str, Any] | None:
    """What the agent told, or None where it told nothing or failed."""
    try:
        answer: object = await agent(
            base_url=session.chat_base_url,
            prompt=independent(given.sample.prompt, copy_arrays=False),
            request_kwargs=independent(request_kwargs(given.sampling_params), copy_arrays=False),
            metadata=_agent_metadata(given, session),
        )
        if answer is None:
            return None
        if not isinstance(answer, Mapping):
            raise TypeError(f"the agent gave a {type(answer).__name__}, not an object or None")
        told = plain_object(answer, MAX_JSON_DEPTH - 1)
        _tool_time_s(told)
    except Exception:
        logger.exception("the agent of %s failed", session.chat_base_url)
        return None
    kept: dict[str, Any] = independent(told, copy_arrays=False)
    return kept


def _agent_metadata(given: GenerateInput[SampleT], session: OpenSession) -> dict[str, Any]:
    metadata: dict[str, Any] = independent(given.sample.metadata or {}, copy_arrays=False)
    known = {
        "max_seq_len": given.max_seq_len,
        "session_server_instance_id": session.instance_id,
        "session_server_id": session.server_url.partition("://")[2],
    }
    return metadata | {key: value for key, value in known.items() if value is not None}


def _tool_time_s(told: Mapping[str, Any]) -> float | None:
    """The seconds that the agent spent in its tools, or None where it does not say.

    Raises:
        TypeError, ValueError: it says something else.
    """
    metrics = told.get("agent_metrics")
    if metrics is None:
        return None
    if not isinstance(metrics, dict):
        raise TypeError("agent_metrics is no object")
    seconds = metrics.get("total_tool_time")
    if seconds is None:
        return None
    if type(seconds) not in (int, float) or not 0 <= seconds < math.inf:
        raise ValueError("agent_metrics.total_tool_time is no time in seconds")
    return float(seconds)


def _finished(
    template: SampleT, reply: SamplesReply[SampleT], told: Mapping[str, Any] | None
) -> SampleT:
    """The reply's sample with what the agent and the session have to say of it."""
    if not reply.samples:
        sample = copy.deepcopy(template)
        sample.status = Status.ABORTED
        return sample
    if len(reply.samples) > 1:
        raise ClientError(
            f"the reply has {len(reply.samples)} samples, a linear session gives one",
            expected="1",
            got=str(len(reply.samples)),
        )
    (sample,) = reply.samples
    told = told or {}
    sample.metadata = {**sample.metadata, **told, **reply.session_metadata}
    seconds = _tool_time_s(told)
    if seconds is not None:
        sample.non_generation_time = seconds
    return sample
