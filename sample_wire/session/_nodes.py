"""Nodes: the committed turns of a tree, in the order in which they came.

A node names its parent by number, so that a session's memory is free as soon as it is dropped:
there are no cycles.  Nodes are only ever added.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ..assembly import Turn
from ..sample import Status
from ._commits import Commit
from .matchers import MessageMatcher, prefix_length
from .tokenizer import Message

_NO_PARENT: Final = -1
# Children that a new one's ids are compared with; a retry is near, and a compare costs a pass.
_MAX_COMPARED: Final = 16


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One committed turn.

    Attributes:
        id: its place in the order of commits, from 0 on.
        parent: the id of the node that it builds on, or None for a root.
        commit: the turn and its record.
    """

    id: int
    parent: int | None
    commit: Commit

    @property
    def is_truncated(self) -> bool:
        """Whether the engine stopped at a length limit: nothing can follow such a turn."""
        return self.commit.turn.status is Status.TRUNCATED

    def matches(self, match: MessageMatcher, messages: Sequence[Message]) -> bool:
        """Whether a conversation has all that this node added, in its place."""
        stop, own = self.commit.num_messages, self.commit.messages
        given = messages[stop - len(own) : stop]
        return len(messages) >= stop and prefix_length(match, own, given) == len(own)

    def described(self) -> dict[str, Any]:
        """The node as metadata."""
        turn = self.commit.turn
        return {
            "id": self.id,
            "parent": self.parent,
            "seq": self.id,
            "truncated": self.is_truncated,
            "committed_at": turn.timestamp,
            "completion_span": [turn.num_prompt, turn.num_tokens],
            "num_tokens": turn.num_tokens,
            "response_id": self.commit.response_id,
        }


class Nodes:
    """All nodes of a tree, or rather of a forest: a conversation may begin more than once.

    Attributes:
        held_bytes: what they hold in memory.
    """

    __slots__ = ("_children", "_nodes", "held_bytes")

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._children: dict[int, list[int]] = {_NO_PARENT: []}
        self.held_bytes = 0

    def __len__(self) -> int:
        return len(self._nodes)

    def __getitem__(self, node_id: int) -> Node:
        return self._nodes[node_id]

    @property
    def last(self) -> Node | None:
        """The newest; it has no children, since those would be newer."""
        return self._nodes[-1] if self._nodes else None

    def add(self, parent: Node | None, commit: Commit) -> Node:
        """A new node."""
        node = Node(len(self._nodes), parent.id if parent else None, commit)
        self._nodes.append(node)
        self.held_bytes += commit.held_bytes
        self._children[node.id] = []
        self._children[parent.id if parent else _NO_PARENT].append(node.id)
        return node

    def of(self, turn: Turn) -> Node:
        """The node of a turn, which is one of these."""
        return next(node for node in reversed(self._nodes) if node.commit.turn is turn)

    def nearest_child(self, parent: Node | None, prompt_ids: npt.NDArray[np.int64]) -> Node | None:
        """Of the newest nodes on this one (None: of roots) that with most ids of a prompt.

        Conversations that begin alike store that once, also where others come between.
        """
        children = self._children[parent.id if parent else _NO_PARENT][-_MAX_COMPARED:]
        return max(
            (self._nodes[child] for child in children),
            key=lambda node: (node.commit.turn.tokens.common_prefix(prompt_ids), node.id),
            default=None,
        )

    def path(self, node: Node | None) -> list[Node]:
        """The nodes from the root to this one; none for None."""
        found = []
        while node is not None:
            found.append(node)
            node = None if node.parent is None else self._nodes[node.parent]
        return found[::-1]

    def messages(self, node: Node | None) -> tuple[Message, ...]:
        """The conversation that ends with a node, as it is stored; empty for None."""
        return tuple(message for one in self.path(node) for message in one.commit.messages)

    def leaves(self) -> list[Node]:
        """The nodes without children, oldest first."""
        return [node for node in self._nodes if not self._children[node.id]]

    def attach_point(self, match: MessageMatcher, messages: Sequence[Message]) -> Node | None:
        """The node that a conversation goes on from, or None where it begins anew.

        That is the one that stands for the most of its messages, and of several the newest.

        Raises:
            SessionError: 500 "matcher_failed".
        """
        found = self._matching(match, messages)
        return max(found, key=lambda node: (node.commit.num_messages, node.id), default=None)

    def described(self) -> dict[str, Any]:
        """The tree as metadata, in the order of commits."""
        leaves = [
            {"node_id": leaf.id, "path_node_ids": [node.id for node in self.path(leaf)]}
            for leaf in self.leaves()
        ]
        return {"nodes": [node.described() for node in self._nodes], "leaves": leaves}

    def _matching(self, match: MessageMatcher, messages: Sequence[Message]) -> Iterator[Node]:
        """Nodes whose whole paths match: children are looked at only where their parent does."""
        waiting = list(self._children[_NO_PARENT])
        while waiting:
            node = self._nodes[waiting.pop()]
            if node.matches(match, messages):
                yield node
                waiting += self._children[node.id]
