"""Where a request goes on in a tree, and what its prompt then is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sample_wire.assembly import TurnReader
from sample_wire.errors import SessionError
from sample_wire.session import matcher
from sample_wire.session._commits import TurnMaker
from sample_wire.session._nodes import Nodes

from ._trees import A1, A2, SYSTEM, T1, T2, U1, WHOLE, grow, line, parents
from ._words import END, NEWLINE, Words, answer, chat, refusal, say, sent, state, take_turn, tree

NEXT = say("user", "next")
OTHER_T2 = say("tool", "t2'")
OTHER_T1 = say("tool", "t1'")
OTHER_A2 = say("assistant", "a2*")
# Messages of a request, the node that it goes on from, and how many of its messages are new.
POSITIONS: dict[str, tuple[list[Any], int | None, int]] = {
    "next_user": ([*WHOLE, NEXT], 2, 1),
    "exact_resend": (WHOLE, 2, 0),
    "retry_of_the_last_turn": (WHOLE[:-1], 1, 1),
    "other_tool_result": ([*WHOLE[:5], OTHER_T2], 1, 1),
    "other_first_tool_result": ([SYSTEM, U1, A1, OTHER_T1], 0, 1),
    "first_request_again": ([SYSTEM, U1], None, 2),
    "other_user": ([SYSTEM, say("user", "other")], None, 2),
    "other_system": ([say("system", "be rude"), *WHOLE[1:]], None, 7),
    "half_a_delta": ([SYSTEM], None, 1),
    "rewritten_answer": ([SYSTEM, U1, A1, T1, OTHER_A2, T2], 0, 3),
    "rewritten_last_answer": ([*WHOLE[:-1], say("assistant", "a3*"), NEXT], 1, 3),
}


@pytest.mark.parametrize(("messages", "node", "num_new"), POSITIONS.values(), ids=POSITIONS)
def test_a_request_goes_on_from_the_deepest_node_that_it_holds(
    messages: list[Any], node: int | None, num_new: int
) -> None:
    session = line(tree())
    plan = session.plan(chat(*messages))
    assert plan.num_base_turns == (0 if node is None else node + 1)
    assert plan.new_messages == tuple(messages[len(messages) - num_new :])
    grow(session, *messages)
    assert parents(session) == [None, 0, 1, node]


def test_a_request_without_messages_stands_for_no_node_and_is_refused() -> None:
    session = line(tree())
    before = state(session)
    with pytest.raises(SessionError) as error:
        session.plan(chat())
    assert refusal(error) == (400, "bad_request")
    assert state(session) == before


def test_of_two_equal_nodes_the_newer_one_is_built_on() -> None:
    session = tree()
    grow(session, U1, says=A1)
    grow(session, U1, says=A1, output=(60,))
    grow(session, U1, A1, T1)
    assert parents(session) == [None, None, 1]


def test_more_messages_win_over_a_newer_node() -> None:
    session = tree()
    grow(session, U1, says=A1)
    grow(session, U1, A1, T1, says=A2)
    grow(session, U1, says=A1)
    grow(session, U1, A1, T1, A2, T2)
    assert parents(session) == [None, 0, None, 1]


def test_a_nodes_children_are_looked_at_only_where_the_node_matches() -> None:
    session = tree()
    grow(session, U1, says=A1)
    grow(session, U1, A1, T1, says=A2)
    other = say("assistant", "another")
    grow(session, U1, other, T1, A2, T2)
    assert parents(session) == [None, 0, None]


def test_a_client_may_send_an_answer_of_its_own_and_nothing_after_it() -> None:
    session = line(tree())
    plan = session.plan(chat(SYSTEM, U1, A1, T1, OTHER_A2))
    assert plan.num_base_turns == 1
    assert plan.new_messages == (T1, OTHER_A2)


def test_the_prompt_of_a_branch_starts_with_its_nodes_ids() -> None:
    words = Words()
    session = tree(words)
    grow(session, U1, says=A1, output=(50, END))
    held = session.token_ids().tolist()
    grow(session, U1, A1, T1)
    plan = session.plan(chat(U1, A1, OTHER_T1))
    tail = [*words.ids("<tool> t1'"), END, NEWLINE, words.id_of("<assistant>")]
    assert plan.prompt_ids.tolist() == [*held, NEWLINE, *tail]
    assert plan.start_row == len(held) - 1
    assert not plan.prompt_ids.flags.writeable


def test_a_new_root_is_rendered_whole() -> None:
    words = Words()
    session = line(tree(words))
    messages = [SYSTEM, say("user", "other")]
    plan = session.plan(chat(*messages))
    assert plan.prompt_ids.tolist() == words.render(messages, None, {})
    assert (plan.base, plan.start_row) == (None, 0)


def test_what_is_stored_keeps_its_spelling_in_a_leniently_matched_replay() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    respelled = {**call, "function": {"name": "f", "arguments": '{"a":1}'}}
    session = tree(selector="loose_tool_call")
    grow(session, U1, says=say("assistant", "", tool_calls=[call]))
    grow(session, U1, say("assistant", "", tool_calls=[respelled]), T1)
    assert parents(session) == [None, 0]
    assert session.messages[1]["tool_calls"] == [call]


@pytest.mark.parametrize("role", ["developer", None, 7])
def test_a_role_that_may_not_be_appended_is_a_400_that_changes_nothing(role: Any) -> None:
    session = line(tree())
    before = state(session)
    with pytest.raises(SessionError, match=r"^appended message role=") as error:
        session.plan(chat(*WHOLE, {"role": role, "content": "x"}))
    assert refusal(error) == (400, "append_role")
    assert state(session) == before


def test_a_first_message_may_have_any_role() -> None:
    assert tree().plan(chat(say("developer", "x"))).num_base_turns == 0


@pytest.mark.parametrize("messages", [[U1, A1, T1], [U1, A1]], ids=["next", "exact_resend"])
def test_nothing_goes_on_from_a_turn_that_hit_its_length_limit(messages: list[Any]) -> None:
    session = tree()
    grow(session, U1, says=A1, finish="length")
    before = state(session)
    with pytest.raises(SessionError, match=r"node 0.* length limit") as error:
        session.plan(chat(*messages))
    assert refusal(error) == (409, "truncated_turn")
    assert state(session) == before


def test_a_turn_that_hit_its_length_limit_can_be_tried_again() -> None:
    session = tree()
    grow(session, U1, says=A1)
    grow(session, U1, A1, T1, says=A2, finish="length")
    grow(session, U1, A1, T1, says=say("assistant", "longer"))
    assert parents(session) == [None, 0, 0]
    assert [node["truncated"] for node in session.metadata(None)["tree"]["nodes"]] == [
        False,
        True,
        False,
    ]


def always_raises(_stored: Any, _replayed: Any) -> bool:
    raise KeyError("x")


def test_a_matcher_that_raises_is_a_500_that_changes_nothing() -> None:
    session = tree(selector=f"{__name__}.always_raises")
    grow(session, U1)
    with pytest.raises(SessionError) as error:
        session.plan(chat(U1, A1))
    assert refusal(error) == (500, "matcher_failed")
    assert session.version == 1


def test_a_prompt_that_drops_ids_of_its_node_is_refused() -> None:
    class Forgetful(Words):
        def append(self, *_: Any) -> tuple[int, list[int]]:
            return 1, [7]

    session = tree(Forgetful())
    grow(session, U1, says=A1)
    with pytest.raises(SessionError) as error:
        session.plan(chat(U1, A1, T1))
    assert refusal(error) == (500, "prefix_mismatch")


def test_a_family_may_drop_the_last_id_of_a_node_in_one_branch_only() -> None:
    words = Words(max_trim_tokens=1)
    session = tree(words)
    grow(session, U1, says=A1, output=(50, words.id_of("<tool>")))
    held = session.token_ids().tolist()
    plan = session.plan(chat(U1, A1, T1))
    assert plan.num_kept == len(held) - 1
    take_turn(session, chat(U1, A1, T1), answer([60], message=A2))
    assert session.metadata(None)["max_trim_tokens"] == 1
    assert session.metadata(None)["tree"]["nodes"][0]["num_tokens"] == len(held)


def test_a_deep_tree_is_searched_without_recursion() -> None:
    words = Words()
    maker = TurnMaker(TurnReader(routing=None, decode_text=None), words)
    plan = maker.plan(chat(U1), [U1], None, [], 0)
    first = maker.commit(plan, None, chat(U1), sent(answer([50], message=A1)), None, None)
    nodes, node = Nodes(), None
    for number in range(1, 3001):
        node = nodes.add(node, replace(first, num_messages=2 * number))
    assert nodes.attach_point(matcher("strict"), [U1, A1] * 3000) is node
    assert len(nodes.path(node)) == 3000
