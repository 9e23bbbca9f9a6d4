"""Prompt ids: rendered once, then only appended to; BEHAVIOUR 5.1 and 7.2."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sample_wire.errors import SessionError
from sample_wire.session import TurnPlan, upstream_body

from ._words import (
    END,
    INCREMENTAL,
    NEWLINE,
    Scripted,
    Words,
    answer,
    chat,
    raw_base64,
    refusal,
    routed,
    say,
    sent,
    state,
    take_turn,
    trajectory,
)

USER, SAID = say("user", "hi there"), say("assistant", "hello")


class Refusing(Words):
    """A tokenizer whose template refuses everything."""

    def render(self, *_: Any) -> list[int]:
        raise ValueError("roles must alternate")


class Cutting(Words):
    """A tokenizer that keeps a given number of checkpoint ids."""

    def __init__(self, num_kept: int, max_trim_tokens: int = 0) -> None:
        super().__init__(max_trim_tokens)
        self.num_kept = num_kept

    def append(self, *_: Any) -> tuple[int, list[int]]:
        return self.num_kept, [7]


def test_the_first_prompt_is_the_whole_request_rendered() -> None:
    words = Words()
    plan = trajectory(words).plan(chat(say("system", "be kind"), USER))
    assert words.decode(plan.prompt_ids.tolist()) == (
        "<system> be kind <end> \n <user> hi there <end> \n <assistant>"
    )
    assert plan.prompt_ids.dtype == np.int64
    assert (plan.start_row, plan.version) == (0, 0)


def test_tools_and_template_options_reach_the_renderer() -> None:
    words = Words(launch_kwargs={"thinking": False})
    body = chat(USER, tools=[{"name": "f"}], chat_template_kwargs={"style": "x"})
    first = trajectory(words).plan(body).prompt_ids.tolist()[:1]
    assert words.decode(first) == '[[{"name": "f"}], {"thinking": false, "style": "x"}]'


def test_a_later_prompt_is_the_checkpoint_a_boundary_and_the_new_messages() -> None:
    words = Words()
    session = trajectory(words)
    take_turn(session, chat(USER), answer([*words.ids("hello"), END], message=SAID))
    checkpoint = session.token_ids().tolist()
    plan = session.plan(chat(USER, SAID, say("tool", "sun")))
    assert plan.prompt_ids.tolist() == [
        *checkpoint,
        NEWLINE,
        *words.ids("<tool> sun <end>"),
        NEWLINE,
        *words.ids("<assistant>"),
    ]
    assert plan.num_kept == len(checkpoint)
    assert plan.start_row == len(checkpoint) - 1


def test_sampled_ids_are_kept_though_their_text_would_be_tokenised_otherwise() -> None:
    """C21: [5, 6] stand for text that encodes to [7]."""
    session = trajectory()
    take_turn(session, chat(USER), answer([5, 6], message=SAID))
    take_turn(session, chat(USER, SAID, USER), answer([8], message=SAID))
    (sample,) = session.collect().samples
    first = len(session.turns[0].tokens) - 2
    assert sample.tokens[first : first + 2].tolist() == [5, 6]
    assert sample.loss_mask[:2].tolist() == [1, 1]
    assert len(sample.rollout_log_probs) == sample.response_length


def test_a_trimming_family_drops_the_role_mark_that_ends_a_checkpoint() -> None:
    words = Words(max_trim_tokens=1)
    session = trajectory(words)
    take_turn(session, chat(USER), answer([77, words.id_of("<tool>")], message=SAID))
    held = session.token_ids().tolist()
    plan = session.plan(chat(USER, SAID, say("tool", "sun")))
    assert plan.num_kept == len(held) - 1 == plan.start_row
    assert plan.prompt_ids[: len(held)].tolist() == held
    assert plan.prompt_ids.tolist().count(words.id_of("<tool>")) == 1


@pytest.mark.parametrize(
    ("num_kept", "max_trim_tokens"),
    [(-1, 0), (5, 0), (7, 0), (4, 1), (7, 1)],
    ids=["negative", "one_short", "too_many", "two_short", "too_many_trimming"],
)
def test_a_prompt_that_parts_from_the_checkpoint_is_refused_before_the_engine_is_asked(
    num_kept: int, max_trim_tokens: int
) -> None:
    session = trajectory(Cutting(num_kept, max_trim_tokens))
    take_turn(session, chat(say("user")), answer([50, 51], message=SAID))
    assert len(session.token_ids()) == 6
    before = state(session)
    with pytest.raises(SessionError) as error:
        session.plan(chat(say("user"), SAID, USER))
    assert refusal(error) == (500, "prefix_mismatch")
    assert state(session) == before


def test_a_template_that_refuses_the_messages_is_a_400() -> None:
    with pytest.raises(SessionError, match="roles must alternate") as error:
        trajectory(Refusing()).plan(chat(USER))
    assert refusal(error) == (400, "render_failed")


@pytest.mark.parametrize(
    "body",
    [
        pytest.param({}, id="empty"),
        pytest.param({"messages": None}, id="null"),
        pytest.param({"messages": []}, id="no_message"),
        pytest.param({"messages": "hi"}, id="text"),
        pytest.param({"messages": [USER, "hi"]}, id="a_text_among_them"),
        pytest.param({"messages": [None]}, id="null_among_them"),
        pytest.param({"messages": [USER], "tools": {"name": "f"}}, id="tools"),
    ],
)
def test_a_request_of_a_wrong_form_is_a_400(body: Any) -> None:
    with pytest.raises(SessionError) as error:
        trajectory().plan(body)
    assert refusal(error) == (400, "bad_request")


def test_a_plans_ids_cannot_be_changed() -> None:
    plan = trajectory().plan(chat(USER))
    with pytest.raises(ValueError, match="read-only"):
        plan.prompt_ids[0] = 3


def test_incremental_routing_starts_at_the_row_before_the_checkpoints_last_token() -> None:
    """BEHAVIOUR 5.1.5: prompt 9, output 2, so start 0 and then 10; a retry sends 10 again."""
    session = trajectory(Scripted([range(9), [*range(9), 50, 51, 3], [*range(9), 50, 51, 3]]))
    body = chat(USER, return_routed_experts=True)
    plan = session.plan(body)
    assert upstream_body(plan, body, incremental=True)["routed_experts_start_len"] == 0
    session.commit(plan, body, sent(answer([50, 51], message=SAID)), None, None)
    longer = chat(USER, SAID, USER, return_routed_experts=True)
    for _ in ("first", "retry"):
        plan = session.plan(longer)
        assert upstream_body(plan, longer, incremental=True)["routed_experts_start_len"] == 10


def test_a_retry_after_a_committed_turn_asks_for_the_same_rows_again() -> None:
    session = trajectory(Scripted([range(9), [*range(9), 50, 51, 3], [*range(9), 50, 51, 3]]))
    take_turn(session, chat(USER), answer([50, 51], message=SAID))
    longer = chat(USER, SAID, USER)
    assert take_turn(session, longer, answer([60], message=SAID)).start_row == 10
    assert session.plan(longer).start_row == 10


@pytest.mark.parametrize(
    ("incremental", "asks"),
    [(False, True), (True, False), (True, None)],
    ids=["full", "replay_off", "not_asked"],
)
def test_the_start_row_is_sent_only_for_incremental_routing_that_is_asked_for(
    incremental: bool, asks: Any
) -> None:
    body = chat(USER) if asks is None else chat(USER, return_routed_experts=asks)
    upstream = upstream_body(trajectory().plan(body), body, incremental=incremental)
    assert "routed_experts_start_len" not in upstream


def test_the_upstream_body_has_the_plans_ids_in_place_of_the_clients() -> None:
    body = chat(USER, input_ids=[9, 9], model="m")
    plan = trajectory().plan(body)
    upstream = upstream_body(plan, body, incremental=False)
    assert upstream == body | {"input_ids": plan.prompt_ids.tolist()}
    assert body["input_ids"] == [9, 9]


def test_rows_that_a_prompt_drops_cannot_be_asked_for_incrementally() -> None:
    plan = TurnPlan(
        prompt_ids=np.arange(5),
        prompt_text=b"0,1,2,3,4",
        base=None,
        num_base_turns=0,
        num_kept=3,
        new_messages=(),
        start_row=4,
        version=0,
    )
    with pytest.raises(SessionError) as error:
        upstream_body(plan, chat(return_routed_experts=True), incremental=True)
    assert refusal(error) == (500, "prefix_mismatch")


def test_incremental_turns_collect_to_the_rows_of_all_tokens() -> None:
    session = trajectory(routing=INCREMENTAL)
    body = chat(USER, return_routed_experts=True)
    for output in ([50, END], [60, 61, END]):
        plan = session.plan(body)
        upstream = upstream_body(plan, body, incremental=True)
        num_rows = len(plan.prompt_ids) + len(output) - 1 - plan.start_row
        reply = answer(
            output, message=SAID, routed_experts=raw_base64(routed(num_rows, plan.start_row))
        )
        session.commit(plan, upstream, sent(reply), None, None)
        body = chat(*session.messages, USER, return_routed_experts=True)
    (sample,) = session.collect(routing=INCREMENTAL).samples
    rows = np.asarray(sample.rollout_routed_experts)
    assert np.array_equal(rows, routed(len(sample.tokens) - 1))
