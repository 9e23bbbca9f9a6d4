"""A conversation that goes one way gives a tree the sample that a linear trajectory gives."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sample_wire import encode_samples
from sample_wire.assembly import RoutingSpec
from sample_wire.session import (
    LinearTrajectory,
    SampleOptions,
    Trajectory,
    TreeTrajectory,
    upstream_body,
)
from sample_wire.session.linear import ROLLED_BACK_KEY

from ._words import (
    FULL,
    INCREMENTAL,
    Scripted,
    Words,
    answer,
    chat,
    raw_base64,
    routed,
    say,
    sent,
    trajectory,
    tree,
)

CAPTURES: Final = Path(__file__).parents[1] / "data" / "captures"
REPLAYED = RoutingSpec(num_layers=4, top_k=8, num_experts=64, incremental=True)
TURNS: list[dict[str, Any]] = json.loads((CAPTURES / "sgl_tito_s31_t6.json").read_bytes())["turns"]
BODIES = [(turn["request"]["body"], turn["response"]["body"]) for turn in TURNS]
# What only a tree's samples tell.
OWN_KEYS: Final = ("accumulated_token_ids", "tito_session_mismatch", "leaf")
# And what each of the two alone tells of the session.
OWN_SESSION_KEYS: Final = ("tree", ROLLED_BACK_KEY)


def payload(session: Trajectory, limit: int | None, routing: RoutingSpec | None) -> bytes:
    """The payload that a session comes to, without what only a tree tells."""
    mismatches: dict[int, Any] = {version: [] for version in session.ends()}
    options = SampleOptions(routing=routing, keep_messages=True)
    found = session.collecting(limit, None, mismatches, options)()
    for sample in found.samples:
        for key in OWN_KEYS:
            sample.metadata.pop(key, None)
    for key in OWN_SESSION_KEYS:
        found.session_metadata.pop(key, None)
    return bytes(
        encode_samples(
            found.samples, found.session_metadata, empty_reason=found.empty_reason, field_set=2
        )
    )


def replayed(session: Trajectory) -> Trajectory:
    """The session after the recorded turns."""
    for request, reply in BODIES:
        plan = session.plan(request)
        upstream = upstream_body(plan, request, incremental=True)
        assert upstream == request
        session.commit(plan, upstream, json.dumps(reply).encode(), 1.0, 0.5)
    return session


def scripted() -> Scripted:
    """Plans the recorded prompts."""
    return Scripted([request["input_ids"] for request, _ in BODIES])


@pytest.mark.parametrize("limit", [None, 1126, 1000, 909, 908, 500, 403, 402, 1, 0])
def test_a_recorded_session_gives_the_same_payload(limit: int | None) -> None:
    line = replayed(trajectory(scripted(), routing=REPLAYED))
    branch = replayed(tree(scripted(), routing=REPLAYED))
    assert payload(branch, limit, REPLAYED) == payload(line, limit, REPLAYED)


def test_a_recorded_session_gives_the_same_records() -> None:
    line = replayed(trajectory(scripted(), routing=REPLAYED))
    branch = replayed(tree(scripted(), routing=REPLAYED))
    assert list(branch.iter_records()) == list(line.iter_records())


class Pair:
    """A linear trajectory and a tree that are asked the same."""

    def __init__(self, rng: random.Random, routing: RoutingSpec | None, max_trim: int) -> None:
        self.rng = rng
        self.routing = routing
        self.words = Words(max_trim)
        self.line: LinearTrajectory = trajectory(self.words, routing=routing)
        self.tree: TreeTrajectory = tree(self.words, routing=routing)

    def step(self) -> None:
        """One more turn, or another try of a turn that is not the first."""
        rng, stored = self.rng, list(self.line.messages)
        new = say(rng.choice(["user", "tool"]), f"w{rng.randrange(4)}")
        if len(self.line.turns) > 1 and rng.random() < 0.3:
            stored = stored[:-1] if rng.random() < 0.5 else [*stored[:-2], new]
        else:
            stored.append(new)
        self.take(chat(*stored, return_routed_experts=True))

    def take(self, body: dict[str, Any]) -> None:
        """The same reply for both, which ask the engine for the same."""
        incremental = self.routing is not None and self.routing.incremental
        sessions: Sequence[Trajectory] = (self.line, self.tree)
        plans = [session.plan(body) for session in sessions]
        bodies = [upstream_body(plan, body, incremental=incremental) for plan in plans]
        assert bodies[0] == bodies[1]
        reply = self.reply(len(plans[0].prompt_ids), bodies[0].get("routed_experts_start_len", 0))
        for session, plan, sent_body in zip(sessions, plans, bodies, strict=True):
            session.commit(plan, sent_body, reply, float(self.tree.version), None)

    def reply(self, num_prompt: int, start: int) -> bytes:
        rng = self.rng
        output = [rng.randrange(50, 60) for _ in range(rng.randrange(1, 4))]
        output.append(self.words.id_of(rng.choice(["<tool>", "<user>", "<end>"])))
        meta: dict[str, Any] = {}
        if self.routing is not None:
            meta["routed_experts"] = raw_base64(routed(num_prompt + len(output) - 1 - start, start))
        message = say("assistant", f"w{rng.randrange(99999)}")
        return sent(answer(output, message=message, weight_version=f"{rng.randrange(3)}", **meta))


@pytest.mark.parametrize("routing", [None, FULL, INCREMENTAL], ids=["none", "full", "incremental"])
@pytest.mark.parametrize("max_trim", [0, 1], ids=["no_trim", "trim"])
@given(seed=st.integers(0, 2**32), num_steps=st.integers(1, 8))
def test_random_turns_and_retries_give_the_same_payload(
    routing: RoutingSpec | None, max_trim: int, seed: int, num_steps: int
) -> None:
    pair = Pair(random.Random(seed), routing, max_trim)
    for _ in range(num_steps):
        pair.step()
    limit = pair.rng.choice([None, None, pair.rng.randrange(60)])
    assert payload(pair.tree, limit, routing) == payload(pair.line, limit, routing)
    assert pair.tree.messages == pair.line.messages
    assert repr(pair.tree.records()) == repr(pair.line.records())
