"""A real engine's recorded session, committed turn by turn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sample_wire.assembly import RoutingSpec, assemble
from sample_wire.session import LinearTrajectory, upstream_body

from ._words import Scripted, trajectory

CAPTURE = Path(__file__).parents[1] / "data" / "captures" / "sgl_tito_s31_t6.json"
SPEC = RoutingSpec(num_layers=4, top_k=8, num_experts=64, incremental=True)
TURNS: list[dict[str, Any]] = json.loads(CAPTURE.read_bytes())["turns"]
BODIES = [(turn["request"]["body"], turn["response"]["body"]) for turn in TURNS]


@pytest.fixture(scope="module")
def session() -> LinearTrajectory:
    """The session after its six turns, each prompt planned to be the recorded one."""
    made = trajectory(Scripted([request["input_ids"] for request, _ in BODIES]), routing=SPEC)
    for request, reply in BODIES:
        plan = made.plan(request)
        upstream = upstream_body(plan, request, incremental=True)
        assert upstream == request
        made.commit(plan, upstream, json.dumps(reply).encode(), 1.0, None)
    return made


def test_every_turn_extends_the_one_before(session: LinearTrajectory) -> None:
    assert len(session.turns) == len(BODIES) == session.version


def test_the_records_are_the_recorded_bodies(session: LinearTrajectory) -> None:
    for record, (request, reply) in zip(session.records(), BODIES, strict=True):
        assert record["request"] == request
        assert record["response"] == reply


@pytest.mark.parametrize("limit", [None, 900, 500])
def test_the_sample_is_that_of_the_records(session: LinearTrajectory, limit: int | None) -> None:
    (sample,) = session.collect(limit, routing=SPEC).samples
    (expected,) = assemble(
        [{"request": request, "response": reply, "timestamp": 1.0} for request, reply in BODIES],
        accumulated_token_ids=None,
        max_trim_tokens=0,
        decode_text=Scripted([]).decode,
        max_seq_len=limit,
        routing=SPEC,
    ).samples
    assert np.array_equal(sample.tokens, expected.tokens)
    assert np.array_equal(
        np.asarray(sample.rollout_routed_experts), np.asarray(expected.rollout_routed_experts)
    )
    for name in ("response", "response_length", "status", "weight_versions", "metadata"):
        assert getattr(sample, name) == getattr(expected, name)
    assert sample.loss_mask.tobytes() == expected.loss_mask.tobytes()
    assert sample.rollout_log_probs.tobytes() == expected.rollout_log_probs.tobytes()
    assert len(sample.rollout_routed_experts) == len(sample.tokens) - 1
