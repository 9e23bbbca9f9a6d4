"""Memory of a tree grows with what its branches do not share."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from sample_wire.assembly import RoutingSpec
from sample_wire.session import TreeTrajectory, upstream_body

from ._words import Scripted, answer, chat, raw_base64, say, sent, tree
from .test_memory import LEDGER_BYTES, held_bytes, rows_of

SHAPE = (25, 10)
ROW_BYTES = SHAPE[0] * SHAPE[1]
NUM_TURNS = 6
TURN_TOKENS = 200
ID_BYTES = 4
# What a turn costs beside its rows: its objects, texts and log-probs.
OBJECTS_BYTES = 12 * 1024


def branching(num_leaves: int, *, incremental: bool, own: bool) -> TreeTrajectory:
    """A line of turns, the last of them tried so often.

    Args:
        own: the prompts of the tries, and so their rows, differ in their last TURN_TOKENS - 1.
    """
    spec = RoutingSpec(num_layers=SHAPE[0], top_k=SHAPE[1], incremental=incremental)
    prompt: list[int] = []
    prompts = []
    for _ in range(NUM_TURNS):
        prompt = [*prompt, *range(1000, 1000 + TURN_TOKENS - 1)]
        prompts.append(prompt)
        prompt = [*prompt, 5]
    shared = prompts[-1][: 1 - TURN_TOKENS]
    for leaf in range(1, num_leaves):
        first = 1000 + leaf * own
        prompts.append([*shared, *range(first, first + TURN_TOKENS - 1)])
    session = tree(Scripted(prompts), routing=spec)
    rows = rows_of(NUM_TURNS * TURN_TOKENS, SHAPE)
    for _ in range(NUM_TURNS):
        ask(session, rows, list(session.messages), incremental=incremental)
    for _ in range(1, num_leaves):
        rows[-TURN_TOKENS:] = (rows[-TURN_TOKENS:] + own) % 256
        ask(session, rows, list(session.messages[:-2]), incremental=incremental)
    assert len(session.ends()) == num_leaves
    return session


def ask(session: TreeTrajectory, rows: Any, history: list[Any], *, incremental: bool) -> None:
    """One turn; the engine sends the rows that it is asked for."""
    body = chat(*history, say("user", "go"), return_routed_experts=True)
    plan = session.plan(body)
    upstream = upstream_body(plan, body, incremental=incremental)
    start = upstream.get("routed_experts_start_len", 0)
    reply = answer([5], routed_experts=raw_base64(rows[start : len(plan.prompt_ids)]))
    session.commit(plan, upstream, sent(reply), None, None)


@pytest.mark.parametrize("incremental", [False, True], ids=["full", "incremental"])
@pytest.mark.parametrize("own", [False, True], ids=["equal_tries", "tries_of_their_own"])
def test_leaves_that_share_a_line_cost_only_what_is_their_own(incremental: bool, own: bool) -> None:
    num_leaves = 40
    make = functools.partial(branching, incremental=incremental, own=own)
    extra = held_bytes(lambda: make(num_leaves)) - held_bytes(lambda: make(1))
    distinct = TURN_TOKENS * (ROW_BYTES + ID_BYTES) * own
    assert extra < (num_leaves - 1) * (distinct + OBJECTS_BYTES) + LEDGER_BYTES
    copies = (num_leaves - 1) * NUM_TURNS * TURN_TOKENS * ROW_BYTES
    assert copies > 4 * (num_leaves - 1) * (distinct + OBJECTS_BYTES)


def interleaved(num_rounds: int) -> TreeTrajectory:
    """A long first turn that is tried again and again, each time after a short one of others."""
    long = [*range(1000, 1000 + NUM_TURNS * TURN_TOKENS)]
    prompts = [prompt for _ in range(num_rounds) for prompt in (long, [7, 8])]
    session = tree(Scripted(prompts), routing=RoutingSpec(num_layers=SHAPE[0], top_k=SHAPE[1]))
    rows = rows_of(len(long), SHAPE)
    for number in range(2 * num_rounds):
        ask(session, rows[: len(prompts[number])], [], incremental=False)
    return session


def test_conversations_that_take_turns_store_what_they_share_once() -> None:
    """A subagent asks between two tries of the same request."""
    num_rounds = 12
    extra = held_bytes(lambda: interleaved(num_rounds)) - held_bytes(lambda: interleaved(1))
    again = NUM_TURNS * TURN_TOKENS * (ROW_BYTES + ID_BYTES)
    assert extra < LEDGER_BYTES + 2 * num_rounds * OBJECTS_BYTES
    assert (num_rounds - 1) * again > 2 * (LEDGER_BYTES + 2 * num_rounds * OBJECTS_BYTES)
