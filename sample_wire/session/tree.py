"""The trajectory tree: every generation of a session is kept, however its agent goes about.

Agents re-send a request, go back, rewrite what was said, and ask several things at once.  A
request goes on from the node that stands for the most of its messages; what comes after that
in the request, and the engine's answer, are a new node.  Nothing is ever refused for leading
elsewhere, and nothing that was committed is changed or dropped.

Planning changes nothing, as in a linear trajectory.  Two requests that were planned on one
node are siblings, whichever is answered first, so no plan is ever stale.  What the session
shows is the newest node's conversation: a failed engine call shows nothing.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ..assembly import Turn, TurnReader
from ..errors import AssemblyError, SessionError
from ._commits import Commit, TurnMaker, checked_ids, token_ids
from ._cuts import ReplyBytes
from ._kept import EncodeBase64, standard_base64
from ._nodes import Node, Nodes
from .engine_kind import SGLANG, EngineKind
from .matchers import MessageMatcher
from .requests import messages_of
from .tokenizer import Message, TokenizerAdapter
from .trajectory import Collected, Mismatch, SampleOptions, Snapshot, Trajectory, TurnPlan

MAX_NODES: Final = 1024


class TreeTrajectory(Trajectory):
    """The state of a session whose conversation may go several ways.

    Args:
        reader: reads this session's turns; of no other.
        tokenizer: renders prompts.
        matcher: whether a replayed message is the stored one.
        kind: of the engine that answers.
    """

    __slots__ = ("_maker", "_matcher", "_nodes", "_planned")

    def __init__(
        self,
        reader: TurnReader,
        tokenizer: TokenizerAdapter,
        matcher: MessageMatcher,
        kind: EngineKind = SGLANG,
    ) -> None:
        self._maker = TurnMaker(reader, tokenizer, kind)
        self._matcher = matcher
        self._nodes = Nodes()
        # A plan holds a place while its engine call runs; one that fails is simply dropped.
        self._planned: weakref.WeakSet[TurnPlan] = weakref.WeakSet()

    @property
    def version(self) -> int:
        """How many turns were committed."""
        return len(self._nodes)

    @property
    def held_bytes(self) -> int:
        """As Trajectory.held_bytes."""
        return self._nodes.held_bytes

    @property
    def messages(self) -> tuple[Message, ...]:
        """Those of the newest conversation, the engine's included."""
        return self._nodes.messages(self._nodes.last)

    def plan(self, body: Mapping[str, Any]) -> TurnPlan:
        """What a request would do; changes nothing that the session shows.

        A plan holds one of the MAX_NODES places for as long as it lives.

        Args:
            body: the request, normalised.

        Raises:
            SessionError: 400 "append_role", "bad_request", "template_kwargs" or
                "render_failed"; 409 "truncated_turn" or "too_many_turns"; 500
                "matcher_failed" or "prefix_mismatch".
        """
        messages = messages_of(body)
        node = self._nodes.attach_point(self._matcher, messages)
        if node is not None and node.is_truncated:
            raise _truncated(node)
        if self.version + len(self._planned) >= MAX_NODES:
            raise _full()
        base = node.commit if node else None
        stored = self._nodes.messages(node)
        plan = self._maker.plan(body, messages, base, stored, self.version)
        self._planned.add(plan)
        return plan

    def read(
        self,
        plan: TurnPlan,
        body: Mapping[str, Any],
        reply: ReplyBytes,
        timestamp: float | None,
        request_timestamp: float | None,
    ) -> Callable[[], Turn]:
        """As Trajectory.read; never stale."""
        parent = None if plan.base is None else self._nodes.of(plan.base)
        base = parent.commit if parent else None
        like = _commit_of(self._nodes.nearest_child(parent, plan.prompt_ids))
        done = self._maker.commit(plan, base, body, reply, timestamp, request_timestamp, like)
        return functools.partial(self._record, parent, plan, done)

    def _record(self, parent: Node | None, plan: TurnPlan, done: Commit) -> Turn:
        self._nodes.add(parent, done)
        self._planned.discard(plan)
        return done.turn

    def token_ids(self) -> npt.NDArray[np.int64]:
        """The ids of the newest turn's prompt and output."""
        return token_ids(_commit_of(self._nodes.last))

    def client_reply(self, turn: Turn) -> dict[str, Any]:
        """The reply of a committed turn as its client gets it: without routing arrays."""
        return self._maker.client_reply(self._nodes.of(turn).commit)

    def client_text(self, turn: Turn) -> bytes:
        """The JSON text of that, compact and in UTF-8."""
        return self._maker.client_text(self._nodes.of(turn).commit)

    def packing(self, turn: Turn) -> Callable[[], None]:
        """As Trajectory.packing."""
        return self._nodes.of(turn).commit.reply.pack

    def ends(self) -> tuple[int, ...]:
        """The versions that the leaves were committed as, oldest first; 0 for no leaf."""
        return tuple(leaf.id + 1 for leaf in self._nodes.leaves()) or (0,)

    def snapshot(self, version: int | None = None) -> Snapshot:
        """The conversation that was committed as a version, or the newest; it never changes."""
        version = self.version if version is None else version
        node = self._nodes[version - 1] if version else None
        return self._maker.snapshot(version, _commit_of(node), self._nodes.messages(node))

    def metadata(self, mismatch: Mismatch) -> dict[str, Any]:
        """As Trajectory.metadata; the tree last."""
        told = self._maker.metadata(_commit_of(self._nodes.last), mismatch)
        return {**told, "tree": self._nodes.described()}

    def records(self) -> list[dict[str, Any]]:
        """The records of the newest conversation, each request and reply as it was sent."""
        return list(self.iter_records())

    def iter_records(
        self, encode_base64: EncodeBase64 = standard_base64
    ) -> Iterator[dict[str, Any]]:
        """The same, made one by one as they are taken."""
        return (node.commit.record(encode_base64) for node in self._nodes.path(self._nodes.last))

    def collecting(
        self,
        max_seq_len: int | None,
        agent: object,
        mismatches: Mapping[int, Mismatch],
        options: SampleOptions,
    ) -> Callable[[], Collected]:
        """As Trajectory.collecting: a sample for each leaf, in the order of commits.

        Which of them are sent is for SampleHooks to say.  The agent's object is told under
        "agent" in the session's metadata.

        Returns:
            A function that raises AssemblyError naming the leaf whose turns cannot become a
            sample.

        Raises:
            SessionError: 422 "invalid_metadata": the agent's is no object.
        """
        metadata = self.metadata(mismatches.get(self.version)) | _agents(agent)
        paths = [self._nodes.path(leaf) for leaf in self._nodes.leaves()]

        def collect() -> Collected:
            samples: list[Any] = []
            for path in paths:
                mismatch = mismatches.get(path[-1].id + 1)
                samples += self._samples(path, max_seq_len, mismatch, options)
            reason = None if samples else "all_truncated" if paths else "no_records"
            return Collected(samples, metadata, reason)

        return collect

    def _samples(
        self, path: list[Node], max_seq_len: int | None, mismatch: Mismatch, options: SampleOptions
    ) -> list[Any]:
        """The sample of the leaf that ends a path, or none where no turn fits."""
        leaf = path[-1]
        try:
            result = self._maker.assembled([node.commit for node in path], max_seq_len, options)
        except AssemblyError as error:
            told = AssemblyError(f"leaf {leaf.id}: {error}", field=error.field)
            told.turn = error.turn
            raise told from error
        for sample in result.samples:
            sample.metadata |= checked_ids(leaf.commit, mismatch) | {"leaf": _leaf_of(path)}
        return result.samples


def _commit_of(node: Node | None) -> Commit | None:
    return None if node is None else node.commit


def _leaf_of(path: list[Node]) -> dict[str, Any]:
    """A leaf as a sample's metadata tells of it."""
    leaf = path[-1]
    return {
        "node_id": leaf.id,
        "parent": leaf.parent,
        "path_node_ids": [node.id for node in path],
        "response_id": leaf.commit.response_id,
    }


def _agents(agent: object) -> dict[str, Any]:
    """The agent's object as the session's metadata tells it."""
    if not isinstance(agent, dict | None):
        raise SessionError(
            f"metadata is a {type(agent).__name__}, not an object and not null",
            code="invalid_metadata",
            http_status=422,
        )
    return {} if agent is None else {"agent": agent}


def _truncated(node: Node) -> SessionError:
    return SessionError(
        f"the request goes on from turn {node.commit.turn.number} (node {node.id}), which the "
        "engine cut at its length limit",
        code="truncated_turn",
        http_status=409,
    )


def _full() -> SessionError:
    return SessionError(
        f"a session has at most {MAX_NODES} turns, those that are running included",
        code="too_many_turns",
        http_status=409,
    )
