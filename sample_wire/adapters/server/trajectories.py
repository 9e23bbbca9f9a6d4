"""What the sessions of a server are: lines or trees, and what that means for the wire."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ...assembly.samples import extra_fields
from ...schema import Schema
from ...session import (
    EngineKind,
    LinearTrajectory,
    SampleHooks,
    TokenizerAdapter,
    Trajectory,
    TreeTrajectory,
    matcher,
)
from ..engines import turn_reader
from .settings import ServerSettings

# The field set that a kind of trajectory has on the wire where the settings name none.  A tree
# tells rewards, which the first does not have.
FIELD_SETS: Final = {"linear": 1, "tree": 2}


def field_set_of(settings: ServerSettings) -> int:
    """The field set of a server's payloads.

    Raises:
        ValueError: no such trajectory, or a field set that does not carry its samples.
    """
    if settings.trajectory not in FIELD_SETS:
        raise ValueError(f"trajectory {settings.trajectory!r} is none of {', '.join(FIELD_SETS)}")
    least = FIELD_SETS[settings.trajectory]
    field_set = least if settings.field_set is None else settings.field_set
    if field_set < least:
        raise ValueError(f"field set {field_set} does not carry the rewards of a tree's samples")
    return field_set


def trajectory_maker(
    settings: ServerSettings, tokenizer: TokenizerAdapter, kind: EngineKind, schema: Schema
) -> Callable[[], Trajectory]:
    """Makes the state of each new session.

    Raises:
        ValueError: a matcher or a hook that is none, or hooks without a tree.
    """
    matches = matcher(settings.matcher)
    is_tree = settings.trajectory == "tree"
    if not is_tree and (settings.pick is not None or settings.post_process is not None):
        raise ValueError("hooks are for trees: a linear session has one sample")
    hooks = SampleHooks.load(settings.pick, settings.post_process)

    def make() -> Trajectory:
        reader = turn_reader(
            routing=settings.routing,
            decode_text=tokenizer.decode,
            extras=extra_fields(schema),
        )
        if is_tree:
            return TreeTrajectory(reader, tokenizer, matches, hooks, kind)
        return LinearTrajectory(reader, tokenizer, matches, kind)

    return make
