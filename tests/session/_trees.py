"""Trees for tests: grown turn by turn, each engine answer made of ids of its own."""

from __future__ import annotations

from typing import Any

from sample_wire import Sample
from sample_wire.session import (
    Collected,
    SampleHooks,
    SampleOptions,
    Trajectory,
    TreeTrajectory,
)

from ._words import answer, chat, say, take_turn, tree

SYSTEM = say("system", "be kind")
U1, A1 = say("user", "u1"), say("assistant", "a1")
T1, A2 = say("tool", "t1"), say("assistant", "a2")
T2, A3 = say("tool", "t2"), say("assistant", "a3")
# What n0, n1 and n2 of `line` stand for.
WHOLE = [SYSTEM, U1, A1, T1, A2, T2, A3]


def grow(
    session: Trajectory,
    *messages: Any,
    says: Any = None,
    output: tuple[int, ...] = (50,),
    finish: str = "stop",
    **meta: Any,
) -> int:
    """One turn on these messages; gives its node's id."""
    reply = answer(output, message=says or say("assistant", "said"), finish=finish, **meta)
    reply["id"] = f"r{session.version}"
    take_turn(session, chat(*messages), reply, timestamp=float(session.version))
    return session.version - 1


def line(session: TreeTrajectory) -> TreeTrajectory:
    """n0 = [system, u1, a1], n1 = [t1, a2] under it, n2 = [t2, a3] under that."""
    grow(session, SYSTEM, U1, says=A1)
    grow(session, SYSTEM, U1, A1, T1, says=A2)
    grow(session, SYSTEM, U1, A1, T1, A2, T2, says=A3)
    return session


def forked() -> TreeTrajectory:
    """Root 0 of two ids; 1 under it, 2 under 1; then 3 under 0."""
    session = tree()
    grow(session, U1, says=A1, output=(50, 51))
    grow(session, U1, A1, T1, says=A2, output=(60,))
    grow(session, U1, A1, T1, A2, T2, output=(70, 71))
    grow(session, U1, A1, say("user", "fork"), output=(80,))
    return session


def parents(session: TreeTrajectory) -> list[int | None]:
    """The parent of each node."""
    return [node["parent"] for node in session.metadata(None)["tree"]["nodes"]]


def paths(session: TreeTrajectory) -> list[list[int]]:
    """The path of each leaf."""
    return [leaf["path_node_ids"] for leaf in session.metadata(None)["tree"]["leaves"]]


def collect(
    session: TreeTrajectory,
    max_seq_len: int | None = None,
    agent: Any = None,
    hooks: SampleHooks | None = None,
    **options: Any,
) -> Collected:
    """What is sent of a tree where no report says anything; None is the library's hooks."""
    mismatches: dict[int, Any] = {version: [] for version in session.ends()}
    found = session.collecting(max_seq_len, agent, mismatches, SampleOptions(**options))()
    return (hooks or SampleHooks.load()).apply(found, Sample)


def leaf_ids(found: Collected) -> list[int]:
    """The leaves that the samples are of, in their order."""
    return [sample.metadata["leaf"]["node_id"] for sample in found.samples]


def masks(found: Any) -> list[list[int]]:
    """The loss mask of each sample."""
    return [sample.loss_mask.tolist() for sample in found.samples]
