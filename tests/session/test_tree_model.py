"""A tree under random requests, engines and losses equals a simple model.

The model keeps everything whole and finds a request's place by trying every node; what is
trained is told from its own lists.  BEHAVIOUR of the tree is written there a second time, as
plainly as can be.
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

from ._trees import collect
from ._words import FULL, INCREMENTAL, Words, answer, chat, raw_base64, say, sent, tree

ALLOWED = frozenset({"user", "tool", "assistant"})
KEYS = ("role", "content", "reasoning_content", "tool_calls")


@dataclass
class Generation:
    """One generation, whole: its conversation, ids, records from the first turn on."""

    parent: int | None
    messages: list[Any]
    ids: list[int]
    num_prompt: int
    records: list[Any]
    finish: str


@dataclass
class Model:
    """All generations, in the order of commits."""

    generations: list[Generation] = field(default_factory=list)

    def place(self, messages: list[Any]) -> int | None:
        """The generation that a request goes on from."""
        places = [
            number
            for number, one in enumerate(self.generations)
            if len(one.messages) <= len(messages)
            and all(map(alike, one.messages, messages[: len(one.messages)]))
        ]
        return max(
            places,
            key=lambda number: (len(self.generations[number].messages), number),
            default=None,
        )

    def outcome(self, messages: list[Any]) -> int | str | None:
        """The place, or why the request is refused."""
        if not messages:
            return "bad_request"
        place = self.place(messages)
        if place is None:
            return None
        if self.generations[place].finish == "length":
            return "truncated_turn"
        new = messages[len(self.generations[place].messages) :]
        return place if all(message["role"] in ALLOWED for message in new) else "append_role"

    def commit(self, place: int | None, messages: list[Any], record: Any) -> None:
        """One more generation."""
        base = None if place is None else self.generations[place]
        choice = record["response"]["choices"][0]
        prompt = record["request"]["input_ids"]
        output = [entry[1] for entry in choice["meta_info"]["output_token_logprobs"]]
        stored = base.messages if base else []
        self.generations.append(
            Generation(
                parent=place,
                messages=stored + copy.deepcopy(messages[len(stored) :]) + [choice["message"]],
                ids=prompt + output,
                num_prompt=len(prompt),
                records=(base.records if base else []) + [copy.deepcopy(record)],
                finish=choice["meta_info"]["finish_reason"]["type"],
            )
        )

    def path(self, number: int | None) -> list[int]:
        """The generations from the first on."""
        if number is None:
            return []
        return [*self.path(self.generations[number].parent), number]

    def leaves(self) -> list[int]:
        """Generations that nothing goes on from."""
        parents = {one.parent for one in self.generations}
        return [number for number in range(len(self.generations)) if number not in parents]

    def kept(self) -> list[int]:
        """Leaves that are no retries, in the order of their samples."""
        kept = []
        for leaf in self.leaves():
            parent = self.generations[leaf].parent
            later = [one.parent for one in self.generations[leaf + 1 :]]
            if parent is None or parent not in later:
                kept.append(leaf)
        return sorted(kept, key=lambda leaf: (-len(self.path(leaf)), -leaf))


def alike(stored: Any, replayed: Any) -> bool:
    return all((stored.get(key) or None) == (replayed.get(key) or None) for key in KEYS)


class Run:
    """One tree beside its model, and an engine that answers at random."""

    def __init__(self, rng: random.Random, routing: RoutingSpec | None, max_trim: int) -> None:
        self.rng = rng
        self.routing = routing
        self.words = Words(max_trim, ALLOWED)
        self.session = tree(self.words, routing=routing)
        self.model = Model()
        self.met: set[Any] = set()

    def step(self) -> None:
        """One request or several at once, and what becomes of them."""
        bodies = [self.request() for _ in range(self.rng.choice([1, 1, 1, 2, 3]))]
        planned = [(body, plan) for body in bodies if (plan := self.planned(body)) is not None]
        self.rng.shuffle(planned)
        for body, plan in planned:
            fate = self.rng.choice(["commit"] * 6 + ["engine_fails", "bad_reply"])
            if fate == "commit":
                self.finish(plan, body)
            elif fate == "bad_reply":
                with pytest.raises(SessionError) as refused:
                    self.session.commit(plan, body, b"{}", None, None)
                assert refused.value.code == "bad_engine_reply"
            self.check()

    def planned(self, body: dict[str, Any]) -> TurnPlan | None:
        """The plan for a request, which is refused where the model refuses it."""
        expected = self.model.outcome(body["messages"])
        before = copy.deepcopy(body)
        self.met.add(expected if isinstance(expected, str) else "taken")
        if isinstance(expected, str):
            with pytest.raises(SessionError) as refused:
                self.session.plan(body)
            assert refused.value.code == expected
            plan = None
        else:
            plan = self.session.plan(body)
            self.check_prompt(plan, expected)
            body["place"] = expected  # an option as any other, which the run reads below
            before["place"] = expected
        assert body == before
        self.check()
        return plan

    def request(self) -> dict[str, Any]:
        """A stored conversation, mostly, changed or cut somewhere, and something new."""
        rng, generations = self.rng, self.model.generations
        stored = [dict(m) for m in rng.choice(generations).messages] if generations else []
        cut = rng.choice([len(stored)] * 4 + [max(len(stored) - 1, 0), rng.randint(0, len(stored))])
        messages = stored[:cut]
        if messages and rng.random() < 0.2:
            messages[rng.randrange(len(messages))]["content"] = rng.choice(["w0", "other", None])
        roles = ["user", "user", "tool", "assistant"] + ["developer"] * (rng.random() < 0.2)
        for _ in range(rng.choice([0, 1, 1, 1, 2])):
            messages.append(say(rng.choice(roles), f"w{rng.randrange(4)}"))
        return {"model": "m", "return_routed_experts": True} | chat(*messages)

    def finish(self, plan: TurnPlan, body: dict[str, Any]) -> None:
        """The engine answers and the turn is committed."""
        rng = self.rng
        incremental = self.routing is not None and self.routing.incremental
        upstream = upstream_body(plan, body, incremental=incremental)
        output = [rng.randrange(50, 60) for _ in range(rng.randrange(4))]
        if rng.random() < 0.7:
            output.append(self.words.id_of(rng.choice(["<tool>", "<user>", "<end>"])))
        meta: dict[str, Any] = {}
        if self.routing is not None:
            start = plan.start_row if incremental else 0
            meta["routed_experts"] = self.routing_text(upstream["input_ids"] + output, start)
        finish = rng.choice(["stop"] * 8 + ["length", "abort"])
        message = say("assistant", f"w{rng.randrange(4)}")
        reply = answer(output, message=message, finish=finish, **meta)
        self.session.commit(plan, upstream, sent(reply), 3.5, None)
        record = {
            "timestamp": 3.5,
            "request_timestamp": None,
            "method": "POST",
            "path": "/v1/chat/completions",
            "status_code": 200,
            "request": upstream,
            "response": reply,
        }
        self.model.commit(body["place"], body["messages"], record)

    def routing_text(self, tokens: list[int], start: int) -> str:
        """Rows that depend on the token alone, but for one now and then."""
        rows = np.array(
            [[[t % 7, t % 5, p % 300]] * 2 for p, t in enumerate(tokens[:-1])], np.int32
        )
        rows = rows.reshape(-1, 2, 3)
        if len(rows) > start and self.rng.random() < 0.3:
            rows[self.rng.randrange(start, len(rows))] = self.rng.randrange(-1, 70000)
        return raw_base64(rows[start:])

    def check_prompt(self, plan: TurnPlan, place: int | None) -> None:
        """A prompt starts with the ids that it goes on from, but for what may be trimmed."""
        if place is None:
            assert (plan.base, plan.start_row) == (None, 0)
            return
        ids = self.model.generations[place].ids
        fixed = len(ids) - self.words.max_trim_tokens
        assert plan.prompt_ids.tolist()[:fixed] == ids[:fixed]
        assert plan.start_row == len(ids) - 1

    def check(self) -> None:
        """The tree is the model: nothing committed is lost, the newest is shown."""
        session, model = self.session, self.model
        newest = model.generations[-1] if model.generations else None
        assert list(session.messages) == (newest.messages if newest else [])
        assert session.token_ids().tolist() == (newest.ids if newest else [])
        told = session.metadata(None)["tree"]
        assert [
            (node["id"], node["parent"], node["completion_span"], node["truncated"])
            for node in told["nodes"]
        ] == [
            (number, one.parent, [one.num_prompt, len(one.ids)], one.finish == "length")
            for number, one in enumerate(model.generations)
        ]
        assert told["leaves"] == [
            {"node_id": leaf, "path_node_ids": model.path(leaf)} for leaf in model.leaves()
        ]

    def check_records(self) -> None:
        """The records shown are those of the newest path, to the spelling."""
        newest = self.model.generations[-1].records if self.model.generations else []
        assert repr(self.session.records()) == repr(newest)

    def check_samples(self) -> None:
        """Each sample is that of its path's records; each kept completion is trained once."""
        whole = self.whole_samples()
        found = collect(self.session, routing=self.routing).samples
        kept = self.model.kept()
        assert [sample.metadata["leaf"]["node_id"] for sample in found] == kept
        trained: list[int] = []
        for leaf, sample in zip(kept, found, strict=True):
            check_equal(sample, whole[leaf])
            trained += self.check_masks(leaf, sample, whole[leaf])
        assert len(set(trained)) == len(trained)
        if not self.words.max_trim_tokens:
            completions = {number for leaf in kept for number in self.completions(leaf, whole)}
            assert set(trained) == completions

    def completions(self, leaf: int, whole: dict[int, Any]) -> list[int]:
        """The generations that a leaf's sample holds tokens of."""
        one = self.model.generations
        num_tokens = len(whole[leaf].tokens)
        return [
            number
            for number in self.model.path(leaf)
            if one[number].num_prompt < min(num_tokens, len(one[number].ids))
        ]

    def whole_samples(self) -> dict[int, Any]:
        """Each leaf's sample by `assemble`."""
        whole = {}
        for leaf in self.model.leaves():
            (whole[leaf],) = assemble(
                self.model.generations[leaf].records,
                accumulated_token_ids=self.model.generations[leaf].ids,
                max_trim_tokens=self.words.max_trim_tokens,
                decode_text=self.words.decode,
                routing=self.routing,
            ).samples
        return whole

    def check_masks(self, leaf: int, sample: Any, whole: Any) -> list[int]:
        """What a sample trains: all that is left of the completions that no older leaf has."""
        num_prompt = len(sample.tokens) - sample.response_length
        before = np.zeros(num_prompt, np.uint8)
        mask, whole_mask = (np.concatenate([before, one.loss_mask]) for one in (sample, whole))
        older = [
            number for one in self.model.kept() if one < leaf for number in self.model.path(one)
        ]
        trained = []
        for number in self.model.path(leaf):
            one = self.model.generations[number]
            span = slice(one.num_prompt, len(one.ids))
            expected = 0 * whole_mask[span] if number in older else whole_mask[span]
            assert np.array_equal(mask[span], expected)
            if one.num_prompt < len(sample.tokens):
                prompt = one.ids[: one.num_prompt]
                assert sample.tokens[: one.num_prompt].tolist() == prompt
            trained += [number] * bool(expected.any())
            mask[span] = 0
        assert not mask.any()
        return trained


def check_equal(sample: Any, whole: Any) -> None:
    """A sample is another but for its mask and metadata."""
    for name in ("tokens", "rollout_log_probs", "rollout_routed_experts"):
        one, other = getattr(sample, name), getattr(whole, name)
        assert (one is None) == (other is None)
        assert one is None or np.array_equal(np.asarray(one), np.asarray(other))
    for name in ("response", "response_length", "status", "weight_versions"):
        assert getattr(sample, name) == getattr(whole, name)
    assert sample.metadata.items() >= whole.metadata.items()


@pytest.mark.parametrize("routing", [None, FULL, INCREMENTAL], ids=["none", "full", "incremental"])
@pytest.mark.parametrize("max_trim", [0, 1], ids=["no_trim", "trim"])
@given(seed=st.integers(0, 2**32), num_steps=st.integers(1, 12))
def test_a_tree_equals_the_model(
    routing: RoutingSpec | None, max_trim: int, seed: int, num_steps: int
) -> None:
    run = Run(random.Random(seed), routing, max_trim)
    for _ in range(num_steps):
        run.step()
    run.check_records()
    run.check_samples()


def test_the_random_runs_meet_every_outcome() -> None:
    """So that the test above cannot pass by never getting anywhere."""
    met: set[Any] = set()
    for seed in range(40):
        run = Run(random.Random(seed), FULL, seed % 2)
        for _ in range(10):
            run.step()
        met |= run.met
        depths = [len(run.model.path(leaf)) for leaf in run.model.leaves()]
        met |= {"deep" if max(depths, default=0) > 3 else "flat"}
        met |= {"wide" if len(run.model.kept()) > 2 else "narrow"}
        met |= {"retries"} if len(run.model.kept()) < len(depths) else set()
    assert met >= {"bad_request", "truncated_turn", "append_role", "taken"}
    assert met >= {"deep", "wide", "retries"}
