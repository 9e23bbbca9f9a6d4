"""The linear trajectory: one conversation, turn after turn, that never goes two ways.

A turn is planned, answered by an engine, and committed.  Planning changes nothing: it says
what the prompt is, and which turns stay.  Only committing changes the state, at once and only
if no other turn was committed since the plan was made; so a failed engine call, a refused
request or a bad reply leaves everything as it was.

A request that departs from what is stored goes back to the last turn that it still agrees
with, by at most one turn.  What stays is kept as it is spelled here: a replay that a lenient
matcher accepts never rewrites it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ..assembly import AssemblyResult, RoutingSpec, Turn, TurnReader
from ..errors import SessionError
from ..sample import Sample
from ..schema import Schema
from ._commits import Commit, TurnMaker, token_ids
from ._cuts import ReplyBytes
from ._kept import EncodeBase64, standard_base64
from .engine_kind import SGLANG, EngineKind
from .matchers import MessageMatcher, prefix_length
from .requests import messages_of
from .tokenizer import Message, TokenizerAdapter
from .trajectory import Collected, Mismatch, SampleOptions, Snapshot, Trajectory, TurnPlan

MAX_ROLLBACK_TURNS: Final = 1
# An agent that leaves something out of what it replays loses a turn with every request, and is
# answered all the same: whoever collects can tell by this key of the metadata.
ROLLED_BACK_KEY: Final = "rolled_back_turns"


class LinearTrajectory(Trajectory):
    """The state of one conversation.

    Args:
        reader: reads this conversation's turns; of no other.
        tokenizer: renders prompts.
        matcher: whether a replayed message is the stored one.
        kind: of the engine that answers.

    Attributes:
        messages: all that are stored, the engine's included.
    """

    __slots__ = ("_commits", "_maker", "_matcher", "_num_rolled_back", "_version", "messages")

    def __init__(
        self,
        reader: TurnReader,
        tokenizer: TokenizerAdapter,
        matcher: MessageMatcher,
        kind: EngineKind = SGLANG,
    ) -> None:
        self._maker = TurnMaker(reader, tokenizer, kind)
        self._matcher = matcher
        self._commits: tuple[Commit, ...] = ()
        self.messages: tuple[Message, ...] = ()
        self._version = 0
        self._num_rolled_back = 0

    @property
    def version(self) -> int:
        """How many turns were committed, those that were rolled back too."""
        return self._version

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The committed turns, without their requests' messages."""
        return tuple(commit.turn for commit in self._commits)

    @property
    def held_bytes(self) -> int:
        """As Trajectory.held_bytes; turns that were rolled back hold nothing."""
        return sum(commit.held_bytes for commit in self._commits)

    def plan(self, body: Mapping[str, Any]) -> TurnPlan:
        """What a request would do; changes nothing.

        Args:
            body: the request, normalised.

        Raises:
            SessionError: 400 "rollback_too_deep", "append_role", "bad_request",
                "template_kwargs" or "render_failed"; 500 "matcher_failed" or
                "prefix_mismatch".
        """
        messages = messages_of(body)
        kept = self._kept(messages)
        base = kept[-1] if kept else None
        stored = self.messages[: base.num_messages if base else 0]
        return self._maker.plan(body, messages, base, stored, self.version)

    def read(
        self,
        plan: TurnPlan,
        body: Mapping[str, Any],
        reply: ReplyBytes,
        timestamp: float | None,
        request_timestamp: float | None,
    ) -> Callable[[], Turn]:
        """As Trajectory.read: 409 "stale_turn" where another turn was committed meanwhile."""
        kept = self._built_on(plan)
        base = kept[-1] if kept else None
        done = self._maker.commit(plan, base, body, reply, timestamp, request_timestamp)
        return functools.partial(self._record, plan, done)

    def _built_on(self, plan: TurnPlan) -> tuple[Commit, ...]:
        """The turns that a plan builds on."""
        if plan.version != self.version:
            raise _stale()
        return self._commits[: plan.num_base_turns]

    def _record(self, plan: TurnPlan, done: Commit) -> Turn:
        kept = self._built_on(plan)
        base = kept[-1] if kept else None
        stored = self.messages[: base.num_messages if base else 0]
        self._num_rolled_back += len(self._commits) - len(kept)
        self._commits, self.messages = (*kept, done), (*stored, *done.messages)
        self._version += 1
        return done.turn

    def token_ids(self) -> npt.NDArray[np.int64]:
        """The latest checkpoint: the ids of the last turn's prompt and output."""
        return token_ids(self._last)

    def client_reply(self, turn: Turn) -> dict[str, Any]:
        """The reply of a committed turn as its client gets it: without routing arrays."""
        return self._maker.client_reply(self._commits[turn.number - 1])

    def client_text(self, turn: Turn) -> bytes:
        """The JSON text of that, compact and in UTF-8."""
        return self._maker.client_text(self._commits[turn.number - 1])

    def packing(self, turn: Turn) -> Callable[[], None]:
        """As Trajectory.packing."""
        return self._commits[turn.number - 1].reply.pack

    def ends(self) -> tuple[int, ...]:
        """The present version: there is one conversation."""
        return (self.version,)

    def snapshot(self, version: int | None = None) -> Snapshot:
        """The trajectory as it is now; later commits do not change it."""
        assert version in (None, self.version)
        return self._maker.snapshot(self.version, self._last, self.messages)

    def metadata(self, mismatch: Mismatch) -> dict[str, Any]:
        """What a session tells of itself, in the order of its keys.

        Args:
            mismatch: the tokenizer's report on a snapshot, or None where there is none.
        """
        return self._metadata(mismatch, is_written=False)

    def records(self) -> list[dict[str, Any]]:
        """All records, each request and reply as it was sent."""
        return list(self.iter_records())

    def iter_records(
        self, encode_base64: EncodeBase64 = standard_base64
    ) -> Iterator[dict[str, Any]]:
        """The records of this moment, made one by one as they are taken."""
        return (commit.record(encode_base64) for commit in self._commits)

    def collect(
        self,
        max_seq_len: int | None = None,
        *,
        routing: RoutingSpec | None = None,
        speculative: bool = False,
        keep_messages: bool = False,
        schema: Schema = Sample.__sample_schema__,
    ) -> AssemblyResult:
        """The session's sample; changes nothing.

        Args:
            max_seq_len, routing, speculative, keep_messages, schema: as for assemble.

        Raises:
            AssemblyError: the turns cannot become a sample.
        """
        options = SampleOptions(
            routing=routing, speculative=speculative, keep_messages=keep_messages, schema=schema
        )
        return self._maker.assembled(self._commits, max_seq_len, options)

    def collecting(
        self,
        max_seq_len: int | None,
        agent: object,  # noqa: ARG002  # laid over the sample by its client
        mismatches: Mapping[int, Mismatch],
        options: SampleOptions,
    ) -> Callable[[], Collected]:
        """As Trajectory.collecting."""
        commits = self._commits
        metadata = self._metadata(mismatches.get(self.version), is_written=True)

        def collect() -> Collected:
            result = self._maker.assembled(commits, max_seq_len, options)
            return Collected(result.samples, metadata, result.empty_reason)

        return collect

    def _metadata(self, mismatch: Mismatch, *, is_written: bool) -> dict[str, Any]:
        rolled_back = {ROLLED_BACK_KEY: self._num_rolled_back} if self._num_rolled_back else {}
        return self._maker.metadata(self._last, mismatch, is_written=is_written) | rolled_back

    @property
    def _last(self) -> Commit | None:
        return self._commits[-1] if self._commits else None

    def _kept(self, messages: Sequence[Message]) -> tuple[Commit, ...]:
        """The turns that a request builds on."""
        if not self._commits:
            return ()
        matched = prefix_length(self._matcher, self.messages, messages)
        kept = tuple(commit for commit in self._commits if commit.num_messages <= matched)
        discarded = len(self._commits) - len(kept)
        if discarded > MAX_ROLLBACK_TURNS:
            raise SessionError(
                f"rollback failed: discard_count={discarded} exceeds "
                f"max_assistant_rollback_steps={MAX_ROLLBACK_TURNS} (stored has "
                f"{len(self.messages)} messages, request has {len(messages)} messages)",
                code="rollback_too_deep",
                http_status=400,
            )
        return kept


def _stale() -> SessionError:
    return SessionError(
        "another turn of this session was committed meanwhile", code="stale_turn", http_status=409
    )
