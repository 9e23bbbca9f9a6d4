"""agentic.generate: a user's agent talks to a session server, which makes the sample.

The rules: a failure of the agent is its own, and what it has said so far is still a sample; a
failure to collect is the caller's to see; cancellation ends the session and goes on.
"""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Literal, Protocol, get_args

from .._json import MAX_JSON_DEPTH
from .._plain import plain_object
from ..codec import SamplesReply
from ..errors import ClientError, GroupError
from ..overlay import independent
from ..sample import Sample, Status
from ._chat_keys import request_kwargs
from .types import GenerateInput, GenerateOutput, SampleT, TrainerOptions

TrajectoryKind = Literal["linear", "tree"]
# In a payload it lies in a sample's metadata, three levels down.
_MAX_DEPTH: Final = MAX_JSON_DEPTH - 3
logger: Final = logging.getLogger("sample_wire.rollout")
_ANY_TRAINER: Final = TrainerOptions()


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

    @property
    def trajectory(self) -> str | None:
        """ "linear" or "tree", the kind of session, or None where it is not known."""
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
    given: GenerateInput[SampleT],
    *,
    sessions: SessionOpener,
    agent: AgentFunction,
    trajectory: TrajectoryKind = "linear",
    trainer: TrainerOptions = _ANY_TRAINER,
) -> GenerateOutput[SampleT]:
    """The sample of one conversation that an agent holds, or those of its branches.

    An exception of the agent is logged, and so is an answer that is not what an AgentFunction
    returns; the samples are collected all the same.  Cancellation is no exception of the agent:
    the session is ended, and nothing is collected.

    Args:
        sessions: opens a session, `lambda: SessionClient(url)` for example; of a server of
            trees with `field_set=2`.
        agent: the agent.
        trajectory: "tree" for a server whose sessions are trees; the agent's answer then goes
            to the server, whose hooks may use it.
        trainer: what is refused where a rollout may give several samples.

    Returns:
        One sample.  Its metadata is the input's, overlaid by the server's, the agent's, and the
        session's.  A session without a sample gives a copy of the input whose status is aborted.
        Of a tree a list, also of one sample; the agent's metadata and reward are those that the
        server gave them.  Several samples share the input's rollout_id, or else its index.

    Raises:
        ValueError: trajectory is neither, or trainer does not go with a tree; no session was
            opened.
        ClientError, DecodeError: whatever opening the session or collecting raises; ClientError
            too for a session that is not of this kind, before the agent is called where the
            server tells its kind.
        GroupError: several samples, and the input has neither rollout_id nor index.
    """
    if trajectory not in get_args(TrajectoryKind):
        raise ValueError(f"trajectory is one of {get_args(TrajectoryKind)}")
    is_tree = trajectory == "tree"
    if is_tree:
        trainer.check_several()
    async with sessions() as session:
        if session.trajectory not in (None, trajectory):
            raise ClientError(
                f"the server's sessions are {session.trajectory}, the rollout's {trajectory}",
                expected=trajectory,
                got=session.trajectory,
            )
        told = await _answer(given, session, agent)
        reply = await session.collect(
            given.sample, max_seq_len=given.max_seq_len, metadata=told if is_tree else None
        )
    if is_tree:
        return GenerateOutput(_branches(given.sample, reply, told))
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
        told = plain_object(answer, _MAX_DEPTH)
    except BaseException as error:
        if not isinstance(error, Exception) and not _is_of_the_agents_own(error):
            raise
        logger.exception("the agent of %s failed", session.chat_base_url)
        return None
    kept: dict[str, Any] = independent(told, copy_arrays=False)
    return kept


def _is_of_the_agents_own(error: BaseException) -> bool:
    """Whether it is the cancellation of a task that the agent waits for, and not the rollout's."""
    import asyncio  # who gets here has it; the module itself does no I/O

    task = asyncio.current_task()
    is_cancelled = task is None or task.cancelling() > 0
    return isinstance(error, asyncio.CancelledError) and not is_cancelled


def _agent_metadata(given: GenerateInput[SampleT], session: OpenSession) -> dict[str, Any]:
    metadata: dict[str, Any] = independent(given.sample.metadata or {}, copy_arrays=False)
    known = {
        "max_seq_len": given.max_seq_len,
        "session_server_instance_id": session.instance_id,
        "session_server_id": session.server_url.partition("://")[2],
    }
    return metadata | {key: value for key, value in known.items() if value is not None}


def _tool_time_s(told: Mapping[str, Any]) -> float | None:
    """The seconds that the agent spent in its tools, or None where it does not say."""
    metrics = told.get("agent_metrics")
    seconds = metrics.get("total_tool_time") if isinstance(metrics, dict) else None
    if seconds is None:
        return None
    if type(seconds) not in (int, float) or not 0 <= seconds < math.inf:
        logger.warning("agent_metrics.total_tool_time is no time in seconds, and is left out")
        return None
    return float(seconds)


def _finished(
    template: SampleT, reply: SamplesReply[SampleT], told: Mapping[str, Any] | None
) -> SampleT:
    """The reply's sample with what the agent and the session have to say of it."""
    if not reply.samples:
        return _aborted(template)
    if len(reply.samples) > 1:
        raise ClientError(
            f"the reply has {len(reply.samples)} samples, a linear session gives one",
            expected="1",
            got=str(len(reply.samples)),
        )
    if "tree" in reply.session_metadata:
        raise ClientError("the reply is that of a tree", field="session_metadata")
    (sample,) = reply.samples
    sample.metadata = {**sample.metadata, **(told or {}), **reply.session_metadata}
    _set_tool_time([sample], told)
    return sample


def _branches(
    template: SampleT, reply: SamplesReply[SampleT], told: Mapping[str, Any] | None
) -> list[SampleT]:
    """The reply's samples as those of one rollout."""
    if "tree" not in reply.session_metadata:
        raise ClientError("the reply is not that of a tree", field="session_metadata")
    if not reply.samples:
        return [_aborted(template)]
    if len(reply.samples) > 1:
        rollout_id = template.index if template.rollout_id is None else template.rollout_id
        if rollout_id is None:
            raise GroupError(
                f"the rollout gave {len(reply.samples)} samples, which share a rollout_id: the "
                "input needs one, or an index",
                field="rollout_id",
            )
        for sample in reply.samples:
            sample.rollout_id = rollout_id
    _set_tool_time(reply.samples, told)
    return reply.samples


def _aborted(template: SampleT) -> SampleT:
    sample = copy.deepcopy(template)
    sample.status = Status.ABORTED
    return sample


def _set_tool_time(samples: Sequence[Sample], told: Mapping[str, Any] | None) -> None:
    seconds = _tool_time_s(told or {})
    if seconds is not None:
        for sample in samples:
            sample.non_generation_time = seconds
