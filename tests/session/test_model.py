"""A trajectory under random requests, engines and losses equals a simple model.

The model keeps everything whole: copies of all messages, all ids and all records of every
turn, and rolls back by cutting its lists, as BEHAVIOUR 7 describes it.
"""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sample_wire.assembly import RoutingSpec, assemble
from sample_wire.errors import SessionError
from sample_wire.session import TurnPlan, upstream_body

from ._words import FULL, INCREMENTAL, Words, answer, chat, raw_base64, say, sent, trajectory

ALLOWED = frozenset({"user", "tool", "assistant"})
KEYS = ("role", "content", "reasoning_content", "tool_calls")


@dataclass
class Model:
    """All that was committed, whole."""

    max_trim_tokens: int
    messages: list[Any] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    checkpoints: list[list[int]] = field(default_factory=list)
    records: list[Any] = field(default_factory=list)

    def outcome(self, messages: list[Any]) -> int | str:
        """How many turns stay, or why the request is refused."""
        if not messages:
            return "bad_request"
        matched = 0
        while matched < min(len(messages), len(self.messages)):
            one, other = messages[matched], self.messages[matched]
            if any((one.get(key) or None) != (other.get(key) or None) for key in KEYS):
                break
            matched += 1
        kept = sum(end <= matched for end in self.ends)
        if len(self.ends) - kept > 1:
            return "rollback_too_deep"
        new = messages[self.ends[kept - 1] :] if kept else []
        return kept if all(message["role"] in ALLOWED for message in new) else "append_role"

    def commit(self, kept: int, messages: list[Any], record: Any) -> None:
        """Goes back to the turns that stay, and adds one."""
        end = self.ends[kept - 1] if kept else 0
        reply = record["response"]["choices"][0]
        ids = [entry[1] for entry in reply["meta_info"]["output_token_logprobs"]]
        self.messages = self.messages[:end] + messages[end:] + [reply["message"]]
        self.ends = [*self.ends[:kept], len(self.messages)]
        self.checkpoints = [*self.checkpoints[:kept], record["request"]["input_ids"] + ids]
        self.records = [*self.records[:kept], copy.deepcopy(record)]


class Run:
    """One trajectory beside its model, and an engine that answers at random."""

    def __init__(self, rng: random.Random, routing: RoutingSpec | None, max_trim: int) -> None:
        self.rng = rng
        self.routing = routing
        self.words = Words(max_trim, ALLOWED)
        self.session = trajectory(self.words, routing=routing)
        self.model = Model(max_trim)
        self.rows: dict[int, Any] = {}

    def step(self) -> None:
        """One request, and what becomes of it."""
        body = self.request()
        before = copy.deepcopy(body)
        expected = self.model.outcome(body["messages"])
        if isinstance(expected, str):
            with pytest.raises(SessionError) as refused:
                self.session.plan(body)
            assert refused.value.code == expected
            self.check()
            return
        plan = self.session.plan(body)
        assert plan.num_base_turns == expected
        self.check_prompt(plan)
        self.check()
        fate = self.rng.choice(["commit"] * 6 + ["engine_fails", "bad_reply", "late"])
        if fate == "late":
            self.finish(self.session.plan(body), body)
            with pytest.raises(SessionError) as refused:
                self.finish(plan, body)
            assert refused.value.code == "stale_turn"
        elif fate == "bad_reply":
            with pytest.raises(SessionError) as refused:
                self.session.commit(plan, body, self.rng.choice([b"{}", b"no"]), None, None)
            assert refused.value.code == "bad_engine_reply"
        elif fate == "commit":
            self.finish(plan, body)
        assert body == before
        self.check()

    def request(self) -> dict[str, Any]:
        """What is stored, mostly, changed or cut somewhere, and something new."""
        rng, stored = self.rng, [dict(message) for message in self.session.messages]
        cut = rng.choice([len(stored)] * 4 + [max(len(stored) - 1, 0), rng.randint(0, len(stored))])
        messages = stored[:cut]
        if messages and rng.random() < 0.2:
            messages[rng.randrange(len(messages))]["content"] = rng.choice(["w0", "other", None])
        if messages and rng.random() < 0.3:
            messages[rng.randrange(len(messages))]["name"] = rng.choice(["n", 1, True])
        roles = ["user", "user", "tool", "assistant"] + ["developer"] * (rng.random() < 0.2)
        for _ in range(rng.choice([0, 1, 1, 1, 2])):
            messages.append(say(rng.choice(roles), f"w{rng.randrange(4)}"))
        options = {"model": "m", "n": rng.choice([1, 1, 1.0, True]), "return_routed_experts": True}
        return options | chat(*messages)

    def finish(self, plan: TurnPlan, body: dict[str, Any]) -> None:
        """The engine answers and the turn is committed."""
        rng = self.rng
        incremental = self.routing is not None and self.routing.incremental
        upstream = upstream_body(plan, body, incremental=incremental)
        output = [rng.randrange(50, 60) for _ in range(rng.randrange(4))]
        if rng.random() < 0.7:
            marks = ["<tool>", "<user>"] if self.model.max_trim_tokens else ["<end>"]
            output.append(self.words.id_of(rng.choice(marks)))
        meta: dict[str, Any] = {}
        if self.routing is not None:
            start = plan.start_row if incremental else 0
            meta["routed_experts"] = self.routing_text(upstream["input_ids"] + output, start)
        message = say(
            "assistant", f"w{rng.randrange(4)}", reasoning_content=rng.choice([None, "r"])
        )
        reply = answer(
            output, message=message, finish=rng.choice(["stop"] * 9 + ["length"]), **meta
        )
        stamp = rng.choice([None, 3.5, 7])
        self.session.commit(plan, upstream, sent(reply), stamp, None)
        record = {
            "timestamp": stamp,
            "request_timestamp": None,
            "method": "POST",
            "path": "/v1/chat/completions",
            "status_code": 200,
            "request": upstream,
            "response": reply,
        }
        self.model.commit(plan.num_base_turns, body["messages"], record)

    def routing_text(self, tokens: list[int], start: int) -> str:
        """Rows that depend on the token alone, but for one now and then."""
        rows = np.array(
            [[[t % 7, t % 5, p % 300]] * 2 for p, t in enumerate(tokens[:-1])], np.int32
        )
        rows = rows.reshape(-1, 2, 3)
        if len(rows) > start and self.rng.random() < 0.3:
            rows[self.rng.randrange(start, len(rows))] = self.rng.randrange(-1, 70000)
        return raw_base64(rows[start:])

    def check_prompt(self, plan: TurnPlan) -> None:
        """A prompt starts with the checkpoint it builds on, but for what may be trimmed."""
        prompt = plan.prompt_ids.tolist()
        if not plan.num_base_turns:
            assert plan.base is None
            return
        checkpoint = self.model.checkpoints[plan.num_base_turns - 1]
        fixed = len(checkpoint) - self.model.max_trim_tokens
        assert prompt[:fixed] == checkpoint[:fixed]
        assert plan.start_row == len(checkpoint) - 1

    def check(self) -> None:
        """The trajectory is the model."""
        session, model = self.session, self.model
        assert list(session.messages) == model.messages
        assert session.token_ids().tolist() == (model.checkpoints[-1] if model.checkpoints else [])
        assert [turn.num_tokens for turn in session.turns] == [*map(len, model.checkpoints)]

    def check_records(self) -> None:
        """The records are the model's, to the spelling; the sample is that of the records."""
        records = self.session.records()
        assert repr(records) == repr(self.model.records)
        options: dict[str, Any] = {"routing": self.routing, "keep_messages": True}
        found = assembled(lambda: self.session.collect(**options))
        expected = assembled(
            lambda: assemble(
                self.model.records,
                accumulated_token_ids=self.session.token_ids().tolist(),
                max_trim_tokens=self.model.max_trim_tokens,
                decode_text=self.words.decode,
                **options,
            )
        )
        assert found == expected


def assembled(make: Any) -> str:
    """A result as text, or the error's text."""
    try:
        result = make()
    except ValueError as error:
        return str(error)
    for sample in result.samples:
        rows = sample.rollout_routed_experts
        sample.rollout_routed_experts = None if rows is None else np.asarray(rows).tolist()
        sample.tokens = sample.tokens.tolist()
    return repr(result)


@pytest.mark.parametrize("routing", [None, FULL, INCREMENTAL], ids=["none", "full", "incremental"])
@pytest.mark.parametrize("max_trim", [0, 1], ids=["no_trim", "trim"])
@given(seed=st.integers(0, 2**32), num_steps=st.integers(1, 14))
def test_a_trajectory_equals_the_model(
    routing: RoutingSpec | None, max_trim: int, seed: int, num_steps: int
) -> None:
    run = Run(random.Random(seed), routing, max_trim)
    for _ in range(num_steps):
        run.step()
    run.check_records()


def test_the_random_runs_meet_every_outcome() -> None:
    """So that the test above cannot pass by never getting anywhere."""
    met: set[Any] = set()
    for seed in range(60):
        run = Run(random.Random(seed), FULL, seed % 2)
        for _ in range(12):
            body = run.request()
            outcome = run.model.outcome(body["messages"])
            met.add(outcome if isinstance(outcome, str) else len(run.model.ends) - outcome)
            run.step()
    assert met == {"bad_request", "rollback_too_deep", "append_role", 0, 1}
