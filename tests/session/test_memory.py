"""Memory of a session is linear in what is said, whatever clients and engines re-send.

Measured as the bytes that Python objects and arrays hold after garbage collection, by
tracemalloc, which numpy reports its buffers to.
"""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from sample_wire.assembly import RoutingSpec
from sample_wire.session import LinearTrajectory

from ._words import Scripted, answer, chat, raw_base64, say, sent, trajectory

KIB = 1024
# A ledger of rows takes memory by the MiB.
LEDGER_BYTES = KIB * KIB


def held_bytes(make: Callable[[], Any]) -> int:
    """The bytes that what `make` returns holds."""
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        kept = make()
        gc.collect()
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert kept is not None
    return held


def talk(num_turns: int, text_bytes: int, tools: Any = None) -> LinearTrajectory:
    """A session in which user and engine say so much in each turn."""
    prompts: list[list[int]] = [[1]]
    for turn in range(num_turns):
        prompts.append([*prompts[-1], 50 + turn % 9, 2])
    session = trajectory(Scripted(prompts))
    for turn in range(num_turns):
        text = f"{turn:06d}" * (text_bytes // 6)
        # As a client does: parsed anew in each turn, so that no object is shared.
        history = [{key: "".join(value) for key, value in m.items()} for m in session.messages]
        body = chat(*history, say("user", text), tools=tools and list(tools))
        reply = answer([50 + turn % 9], message=say("assistant", text))
        session.commit(session.plan(body), body, sent(reply), None, None)
    return session


def test_requests_are_held_as_deltas() -> None:
    num_turns, text_bytes = 40, 6 * KIB
    said = 2 * num_turns * text_bytes
    # As messages, as texts of requests, and the engine's half of it as replies too.
    assert held_bytes(lambda: talk(num_turns, text_bytes)) < 3 * said + LEDGER_BYTES
    whole = sum(2 * turn * text_bytes for turn in range(num_turns))
    assert whole > 10 * said


def test_tools_that_do_not_change_are_held_once() -> None:
    tools = [{"name": "f", "description": "x" * 40 * KIB}]
    extra = held_bytes(lambda: talk(30, 60, tools)) - held_bytes(lambda: talk(30, 60))
    assert extra < 2 * 41 * KIB


def rows_of(num_rows: int, shape: tuple[int, int]) -> Any:
    """Rows of ids below 256, the same for the same place."""
    generator = np.random.default_rng(7)
    return generator.integers(0, 256, (num_rows, *shape), np.int32)


def full_prefix(num_turns: int, tokens_a_turn: int, *, dropped: int = 0) -> LinearTrajectory:
    """A session whose engine sends the rows of the whole prefix with every turn.

    Args:
        dropped: how often the last turn is rolled back and made again.
    """
    shape = (25, 10)
    prompt = list(range(1000, 1000 + tokens_a_turn - 1))
    prompts = []
    for _ in range(num_turns):
        prompts.append(prompt)
        prompt = [*prompt, 5, *range(2000, 2000 + tokens_a_turn - 1)]
    spec = RoutingSpec(num_layers=shape[0], top_k=shape[1])
    session = trajectory(Scripted(prompts + [prompts[-1]] * dropped), routing=spec)
    rows = rows_of(num_turns * tokens_a_turn, shape)

    def turn(history: list[Any]) -> None:
        body = chat(*history, say("user", "go"))
        plan = session.plan(body)
        reply = answer([5], routed_experts=raw_base64(rows[: len(plan.prompt_ids)]))
        session.commit(plan, body, sent(reply), None, None)

    for _ in range(num_turns):
        turn(list(session.messages))
    for _ in range(dropped):
        turn(list(session.messages[:-2]))
    assert len(session.turns) == num_turns
    return session


def test_a_full_prefix_engines_routing_is_held_once_and_narrow() -> None:
    num_turns, tokens_a_turn = 20, 200
    narrow = num_turns * tokens_a_turn * 250
    assert held_bytes(lambda: full_prefix(num_turns, tokens_a_turn)) < 1.5 * narrow + LEDGER_BYTES
    sent_text = sum(turn * tokens_a_turn * 250 * 16 // 3 for turn in range(1, num_turns + 1))
    assert sent_text > 50 * narrow


def echoing(num_turns: int, tokens_a_turn: int, *, echo: bool) -> LinearTrajectory:
    """A session whose engine repeats the prompt's ids, or does not."""
    prompts = [[100_000] * tokens_a_turn * turn for turn in range(1, num_turns + 1)]
    session = trajectory(Scripted(prompts))
    for _ in range(num_turns):
        body = chat(*session.messages, say("user", "go"))
        plan = session.plan(body)
        reply = answer([100_000])
        if echo:
            reply["choices"][0]["prompt_token_ids"] = plan.prompt_ids.tolist()
        session.commit(plan, body, sent(reply), None, None)
    return session


def test_prompt_ids_that_an_engine_repeats_are_not_held_again() -> None:
    extra = held_bytes(lambda: echoing(20, 500, echo=True)) - held_bytes(
        lambda: echoing(20, 500, echo=False)
    )
    assert extra < 20 * KIB
    assert sum(turn * 500 * 7 for turn in range(1, 21)) > 700 * KIB


def test_turns_that_were_rolled_back_do_not_pile_up() -> None:
    once = held_bytes(lambda: full_prefix(3, 40))
    often = held_bytes(lambda: full_prefix(3, 40, dropped=60))
    assert often < once + LEDGER_BYTES


def test_a_reply_is_not_kept_alive_by_its_turn() -> None:
    session = trajectory(Scripted([[1, 2]]), routing=RoutingSpec(num_layers=1, top_k=1))
    reply = sent(answer([5], routed_experts=raw_base64(rows_of(2, (1, 1)))))
    body = chat(say("user", "go"))
    plan = session.plan(body)
    before = sys.getrefcount(reply)
    session.commit(plan, body, reply, None, None)
    assert sys.getrefcount(reply) == before


@pytest.mark.parametrize("num_turns", [10, 40])
def test_records_are_made_one_at_a_time(num_turns: int) -> None:
    session = full_prefix(num_turns, 40)
    text_bytes = num_turns * 40 * 250 * 16 // 3

    def largest() -> int:
        gc.collect()
        tracemalloc.start()
        try:
            for record in session.iter_records():
                assert record["status_code"] == 200
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    # One text as it is made: rows, their bytes, base64 and str, and the record before it.
    assert largest() < 6 * text_bytes + LEDGER_BYTES
