"""What a server needs of a session's state, whether its turns form a line or a tree."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ..assembly import RoutingSpec, Turn
from ..sample import Sample
from ..schema import Schema
from ._cuts import ReplyBytes
from ._kept import EncodeBase64, standard_base64
from .tokenizer import Message

# Where the ids of a conversation differ from its messages rendered afresh; None: not known.
Mismatch = list[dict[str, Any]] | None


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class TurnPlan:
    """What a request would do to a trajectory.

    Attributes:
        prompt_ids: int64 [P], read-only.
        prompt_text: the same as the inside of a JSON array.
        base: the turn that is built on, or None.
        num_base_turns: turns up to that one, those that the new turn goes on from.
        num_kept: leading ids of base that the prompt starts with.
        new_messages: the request's messages after those of base.
        start_row: the first routing row that base does not have.
        version: the state that the plan was made for.
    """

    prompt_ids: npt.NDArray[np.int64]
    prompt_text: bytes
    base: Turn | None
    num_base_turns: int
    num_kept: int
    new_messages: tuple[Message, ...]
    start_row: int
    version: int


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """A conversation at one moment: what a mismatch report is made of, also in another thread.

    Attributes:
        version: what the conversation ends with, one of the trajectory's `ends`.
        messages: all that are stored.
        tools, kwargs: of the last turn's request.
        token_ids: the latest checkpoint.
    """

    version: int
    messages: tuple[Message, ...]
    tools: list[Any] | None
    kwargs: dict[str, Any]
    token_ids: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleOptions:
    """How samples are made, the same for every session of a server.

    Attributes:
        routing, speculative, keep_messages, schema: as for assemble.
    """

    routing: RoutingSpec | None = None
    speculative: bool = False
    keep_messages: bool = False
    schema: Schema = Sample.__sample_schema__


@dataclass(frozen=True, slots=True, eq=False)
class Collected:
    """What encode_samples is given for a session.

    Attributes:
        samples: may be none.
        session_metadata: what the session tells of itself.
        empty_reason: why there is no sample, or None.
    """

    samples: list[Any]
    session_metadata: dict[str, Any]
    empty_reason: str | None


class Trajectory(Protocol):
    """The state of one session.  Only `commit`, in one or in two steps, changes it."""

    __slots__ = ()

    @property
    def version(self) -> int:
        """Grows with every commit."""
        ...

    @property
    def held_bytes(self) -> int:
        """What its turns hold in memory, about: their rows, and the texts of their records."""
        ...

    def plan(self, body: Mapping[str, Any]) -> TurnPlan:
        """What a request would do.

        Args:
            body: the request, normalised.

        Raises:
            SessionError: the request is refused.
        """
        ...

    def commit(
        self,
        plan: TurnPlan,
        body: Mapping[str, Any],
        reply: ReplyBytes,
        timestamp: float | None,
        request_timestamp: float | None,
    ) -> Turn:
        """Takes a turn into the state; on any error the state is as before.

        Args:
            plan: what `plan` gave for the request.
            body: the request that was put to the engine, with the token ids of the plan.
            reply: the engine's answer, a 200.
            timestamp, request_timestamp: seconds, of the commit and of the arrival.

        Raises:
            SessionError: 502 "bad_engine_reply": the reply is malformed; 409 "stale_turn",
                where there is only one line to add to and another turn was added meanwhile.
        """
        return self.read(plan, body, reply, timestamp, request_timestamp)()

    def read(
        self,
        plan: TurnPlan,
        body: Mapping[str, Any],
        reply: ReplyBytes,
        timestamp: float | None,
        request_timestamp: float | None,
    ) -> Callable[[], Turn]:
        """The first step of a commit, which reads the reply; what it gives is the second one.

        It may be taken in another thread, in which nobody plans or commits meanwhile; all else
        finds the state as before until the second step.

        Args:
            plan, body, reply, timestamp, request_timestamp: as for commit.

        Raises:
            SessionError: as commit; so does the second step, for "stale_turn".
        """
        ...

    def client_reply(self, turn: Turn) -> dict[str, Any]:
        """The reply of a committed turn as its client gets it: without routing arrays."""
        ...

    def client_text(self, turn: Turn) -> bytes:
        """The JSON text of that, compact and in UTF-8."""
        ...

    def packing(self, turn: Turn) -> Callable[[], None]:
        """Has less memory hold a committed turn's reply when it is called, in any thread."""
        ...

    def ends(self) -> tuple[int, ...]:
        """The versions that the conversations end with; the newest is the last."""
        ...

    def snapshot(self, version: int | None = None) -> Snapshot:
        """The conversation that ends with a version, one of `ends`; None is the newest."""
        ...

    def metadata(self, mismatch: Mismatch) -> dict[str, Any]:
        """What a session tells of itself, in the order of its keys.

        Args:
            mismatch: the tokenizer's report on the newest snapshot.
        """
        ...

    def iter_records(
        self, encode_base64: EncodeBase64 = standard_base64
    ) -> Iterator[dict[str, Any]]:
        """The records of the newest conversation, made one by one as they are taken."""
        ...

    def collecting(
        self,
        max_seq_len: int | None,
        agent: object,
        mismatches: Mapping[int, Mismatch],
        options: SampleOptions,
    ) -> Callable[[], Collected]:
        """Makes the samples and the metadata of this moment when it is called.

        That may be later and in another thread: what it needs is taken now, and never changes.

        Args:
            max_seq_len: tokens that a sample may have; None for no limit.
            agent: what the agent leaves to the samples, a JSON object, or None.
            mismatches: reports on the snapshots of all ends, by version.
            options: how samples are made.

        Returns:
            A function that raises AssemblyError where turns cannot become samples.

        Raises:
            SessionError: 422, the agent's object is refused.
        """
        ...
