"""`sample-wire inspect --tree`: the turns of a session, and what became of its leaves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sample_wire as sw
from sample_wire import cli


def node(number: int, parent: int | None, num_tokens: int, num_sampled: int = 1) -> dict[str, Any]:
    """A node as a session tells it."""
    return {
        "id": number,
        "parent": parent,
        "seq": number,
        "truncated": num_tokens > 1000,
        "committed_at": None,
        "completion_span": [num_tokens - num_sampled, num_tokens],
        "num_tokens": num_tokens,
        "response_id": "r",
    }


def payload(nodes: Any, leaves: Sequence[Any]) -> sw.Payload:
    """A payload with a sample for each of these leaves."""
    samples = [
        sw.Sample(tokens=np.arange(3), metadata={} if leaf is None else {"leaf": {"node_id": leaf}})
        for leaf in leaves
    ]
    metadata = {} if nodes is None else {"tree": {"nodes": nodes, "leaves": []}}
    return sw.encode_samples(samples, metadata, field_set=2)


def shown(
    folder: Path, capsys: pytest.CaptureFixture[str], nodes: Any, leaves: Sequence[int]
) -> list[str]:
    """The lines that are printed for it."""
    path = folder / "payload"
    path.write_bytes(bytes(payload(nodes, leaves)))
    assert cli.main(["inspect", "--tree", "--field-set", "2", str(path)]) == 0
    return capsys.readouterr().out.splitlines()


def test_a_retry_and_a_fork(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [node(0, None, 5, 2), node(1, 0, 9, 2), node(2, 0, 8), node(3, 2, 12), node(4, 0, 8, 2)]
    assert shown(tmp_path, capsys, nodes, [3, 4]) == [
        "tree: turns 5, leaves 3, kept 2",
        "0      5 tokens, 2 sampled",
        "+- 1   9 tokens, 2 sampled, dropped",
        "+- 2   8 tokens, 1 sampled",
        "|  3  12 tokens, 1 sampled, sample 0",
        "+- 4   8 tokens, 2 sampled, sample 1",
    ]


def test_several_first_turns_and_branches_of_branches(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = [
        node(0, None, 5),
        node(1, None, 6),
        node(2, 0, 7),
        node(3, 0, 8),
        node(4, 2, 9),
        node(5, 2, 2000),
        node(6, 1, 10),
    ]
    assert shown(tmp_path, capsys, nodes, [3, 6]) == [
        "tree: turns 7, leaves 4, kept 2",
        "+- 0            5 tokens, 1 sampled",
        "|  +- 2         7 tokens, 1 sampled",
        "|  |  +- 4      9 tokens, 1 sampled, dropped",
        "|  |  +- 5  2,000 tokens, 1 sampled, truncated, dropped",
        "|  +- 3         8 tokens, 1 sampled, sample 0",
        "+- 1            6 tokens, 1 sampled",
        "   6           10 tokens, 1 sampled, sample 1",
    ]


def test_a_line_is_not_set_in(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [node(number, number - 1 if number else None, 5) for number in range(2000)]
    lines = shown(tmp_path, capsys, nodes, [1999])
    assert lines[1] == "0     5 tokens, 1 sampled"
    assert lines[-1] == "1999  5 tokens, 1 sampled, sample 0"


def test_samples_of_one_leaf_are_told_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shown(tmp_path, capsys, [node(0, None, 5)], [0, 0])[1].endswith("sample 0, 1")


def test_an_empty_tree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(tmp_path, capsys, [], []) == ["tree: turns 0, leaves 0, kept 0"]


REFUSED = {
    "no_tree": (None, [], "there is no tree"),
    "no_nodes": ("x", [], "there is no tree"),
    "no_leaf": ([node(0, None, 5)], [None], "there is no tree"),
    "negative": ([node(0, None, 5) | {"num_tokens": -1}], [], "there is no tree"),
    "parent_later": ([node(0, 1, 5), node(1, None, 5)], [], "node 0 is out of order"),
    "own_parent": ([node(0, 0, 5)], [], "node 0 is out of order"),
    "wrong_id": ([node(1, None, 5)], [], "node 0 is out of order"),
    "unknown_leaf": ([node(0, None, 5)], [1], "a leaf that the tree does not have"),
}


@pytest.mark.parametrize(("nodes", "leaves", "why"), REFUSED.values(), ids=REFUSED)
def test_a_payload_without_a_whole_tree_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], nodes: Any, leaves: Any, why: str
) -> None:
    path = tmp_path / "payload"
    path.write_bytes(bytes(payload(nodes, leaves)))
    assert cli.main(["inspect", "--tree", "--field-set", "2", str(path)]) == 1
    assert why in capsys.readouterr().err


def test_the_tree_and_json_exclude_each_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        cli.main(["inspect", "--tree", "--json", str(tmp_path)])
    assert "not allowed with" in capsys.readouterr().err
