"""The tree of a session, as its payload tells it, for a terminal.

A turn stands below the one that it goes on from.  Only where a conversation goes several ways
are its branches set in, each behind "+-":

    0       5 tokens, 2 sampled
    +- 1    9 tokens, 2 sampled, dropped
    +- 2    8 tokens, 1 sampled
    |  3   12 tokens, 1 sampled, sample 0
    +- 4    8 tokens, 2 sampled, sample 1
"""

from __future__ import annotations

from typing import Any

import msgspec

from ._plan import plan_of
from .errors import MetaError
from .reader import MAX_SAMPLES, PayloadReader
from .sample import Counter, Sample

_METADATA = "metadata"


class _Node(msgspec.Struct):
    id: Counter
    parent: Counter | None
    truncated: bool
    completion_span: tuple[Counter, Counter]
    num_tokens: Counter


class _Tree(msgspec.Struct):
    nodes: list[_Node]


class _Leaf(msgspec.Struct):
    node_id: Counter


class _SampleMetadata(msgspec.Struct):
    leaf: _Leaf


class _SessionMetadata(msgspec.Struct):
    tree: _Tree


def tree_text(buffer: object, *, field_set: int, max_samples: int = MAX_SAMPLES) -> str:
    """The tree of a payload's session as lines, with what became of each leaf.

    Args:
        buffer, field_set, max_samples: as for inspect_payload.

    Raises:
        DecodeError: as for inspect_payload; MetaError where there is no tree.
    """
    reader = PayloadReader(
        buffer, plan_of(Sample.__sample_schema__, field_set), max_samples=max_samples
    )
    nodes = _converted(reader.document.session_metadata, _SessionMetadata, None).tree.nodes
    children = _children(nodes)
    samples: dict[int, list[int]] = {}
    for index in range(len(reader.refs)):
        told = _converted(reader.values(index, {_METADATA})[_METADATA], _SampleMetadata, index)
        samples.setdefault(told.leaf.node_id, []).append(index)
    if not samples.keys() <= children.keys():
        raise MetaError("a sample is of a leaf that the tree does not have", field=_METADATA)
    num_leaves = sum(not children[node.id] for node in nodes)
    head = f"tree: turns {len(nodes):,}, leaves {num_leaves:,}, kept {len(samples):,}"
    return "\n".join([head, *_lines(nodes, children, samples)])


def _converted(metadata: Any, kind: Any, sample_index: int | None) -> Any:
    try:
        return msgspec.convert(metadata, kind)
    except msgspec.ValidationError as error:
        raise MetaError(
            f"there is no tree of a session: {error}", field=_METADATA, sample_index=sample_index
        ) from None


def _children(nodes: list[_Node]) -> dict[int | None, list[int]]:
    """The ids below each node, and below None the first turns."""
    children: dict[int | None, list[int]] = {None: []}
    for number, node in enumerate(nodes):
        if node.id != number or node.parent not in children:
            raise MetaError(f"the tree's node {number} is out of order", field="session_metadata")
        children[node.parent].append(number)
        children[number] = []
    return children


def _lines(
    nodes: list[_Node], children: dict[int | None, list[int]], samples: dict[int, list[int]]
) -> list[str]:
    placed = _placed(children)
    labels = [f"{lead}{number}" for lead, number in placed]
    width = max(map(len, labels), default=0)
    digits = max((len(f"{node.num_tokens:,}") for node in nodes), default=0)
    lines = []
    for label, (_, number) in zip(labels, placed, strict=True):
        node = nodes[number]
        start, stop = node.completion_span
        told = [f"{node.num_tokens:>{digits},} tokens", f"{stop - start:,} sampled"]
        told += ["truncated"] * node.truncated
        if number in samples:
            told.append(f"sample {', '.join(map(str, samples[number]))}")
        elif not children[number]:
            told.append("dropped")
        lines.append(f"{label:<{width}}  {', '.join(told)}")
    return lines


def _placed(children: dict[int | None, list[int]]) -> list[tuple[str, int]]:
    """The nodes from top to bottom, each with what stands before it; without recursion."""
    placed = []
    waiting: list[tuple[str, str, int]] = []  # before the node, before those below it, the node

    def wait(lead: str, below: list[int]) -> None:
        for number in reversed(below):
            if len(below) == 1:
                waiting.append((lead, lead, number))
            else:
                rest = "   " if number == below[-1] else "|  "
                waiting.append((f"{lead}+- ", lead + rest, number))

    wait("", children[None])
    while waiting:
        lead, rest, number = waiting.pop()
        placed.append((lead, number))
        wait(rest, children[number])
    return placed
