"""A tree's samples: one a leaf, retries dropped, cut to a limit, with what the agent has to say."""

from __future__ import annotations

from typing import Any

import pytest

from sample_wire.errors import AssemblyError, SessionError
from sample_wire.sample import Sample, Status
from sample_wire.session import SampleHooks, SampleOptions, TreeTrajectory

from ._trees import A1, A2, T1, T2, U1, collect, forked, grow, leaf_ids, line, masks, paths
from ._words import FULL, answer, chat, raw_base64, refusal, routed, say, take_turn, tree


def retried() -> TreeTrajectory:
    """Root 0; 1 under it, then 2, its retry; 3 under 2."""
    session = tree()
    grow(session, U1, says=A1)
    grow(session, U1, A1, T1, says=A2)
    grow(session, U1, A1, T1, says=say("assistant", "again"))
    grow(session, U1, A1, T1, say("assistant", "again"), T2)
    return session


def test_a_turn_that_was_tried_again_is_left_out() -> None:
    assert paths(retried()) == [[0, 1], [0, 2, 3]]
    assert leaf_ids(collect(retried())) == [3]


def test_of_leaves_that_are_no_retries_the_longest_path_comes_first() -> None:
    session = forked()
    assert paths(session) == [[0, 1, 2], [0, 3]]
    # The parent of 3 has the older child 1, and that of 2 has no other: both stay.
    assert leaf_ids(collect(session)) == [2, 3]


def test_a_leaf_is_a_retry_also_where_the_newer_child_is_no_leaf() -> None:
    session = tree()
    grow(session, U1, says=A1)
    grow(session, U1, A1, T1)
    grow(session, U1, A1, say("tool", "t1'"), says=A2)
    grow(session, U1, A1, say("tool", "t1'"), A2, T2)
    assert leaf_ids(collect(session)) == [3]


def test_first_turns_are_all_kept_the_newest_first() -> None:
    session = tree()
    for _ in range(3):
        grow(session, U1)
    assert leaf_ids(collect(session)) == [2, 1, 0]


def test_of_paths_of_one_length_the_newest_leaf_comes_first() -> None:
    session = tree()
    grow(session, U1, says=A1)
    grow(session, U1, A1, T1)
    grow(session, say("user", "other"), says=A2)
    grow(session, say("user", "other"), A2, T2)
    assert leaf_ids(collect(session)) == [3, 1]


def test_a_sample_tells_of_its_leaf_and_its_whole_ids() -> None:
    session = forked()
    found = session.collecting(None, None, {3: [{"type": "x"}], 4: None}, SampleOptions())()
    early, late = found.samples
    assert early.metadata["leaf"] == {
        "node_id": 2,
        "parent": 1,
        "path_node_ids": [0, 1, 2],
        "response_id": "r2",
    }
    assert early.metadata["accumulated_token_ids"] == early.tokens.tolist()
    assert early.metadata["tito_session_mismatch"] == [{"type": "x"}]
    assert "tito_session_mismatch" not in late.metadata
    assert late.metadata["leaf"]["parent"] == 0
    assert "tito_session_mismatch" not in found.session_metadata


def test_a_roots_leaf_has_no_parent() -> None:
    session = tree()
    grow(session, U1)
    (sample,) = collect(session).samples
    assert sample.metadata["leaf"] == {
        "node_id": 0,
        "parent": None,
        "path_node_ids": [0],
        "response_id": "r0",
    }


def test_samples_are_those_of_the_moment_when_they_were_asked_for() -> None:
    session = forked()
    expected = collect(session)
    collecting = session.collecting(None, None, {}, SampleOptions())
    grow(session, U1, A1, T1, says=A2)
    found = SampleHooks.load().apply(collecting(), Sample)
    assert leaf_ids(found) == leaf_ids(expected)
    assert masks(found) == masks(expected)
    assert len(found.session_metadata["tree"]["nodes"]) == 4


def test_each_leaf_is_cut_to_the_limit_and_keeps_its_whole_ids_beside() -> None:
    session = forked()
    whole = collect(session)
    limit = len(whole.samples[1].tokens)
    found = collect(session, limit)
    cut, late = found.samples
    assert len(cut.tokens) <= limit
    assert cut.metadata["dropped_turns"] == {"count": 1, "reason": "max_seq_len"}
    assert cut.metadata["accumulated_token_ids"] == whole.samples[0].tokens.tolist()
    assert late.tokens.tolist() == whole.samples[1].tokens.tolist()
    # What the cut sample still has of the shared turn it trains, and the other does not.
    assert masks(found)[0][:2] == [1, 1]
    assert masks(found)[1][:2] == [0, 0]


def test_a_leaf_none_of_whose_turns_fits_is_dropped() -> None:
    session = tree()
    grow(session, U1, says=A1)
    grow(session, say("user", "a much longer first message of all"))
    limit = len(collect(session).samples[1].tokens)
    assert leaf_ids(collect(session, limit)) == [0]


def test_a_tree_without_turns_gives_no_sample_and_says_why() -> None:
    found = collect(tree(), agent={})
    assert (found.samples, found.empty_reason) == ([], "no_records")
    assert found.session_metadata["agent"] == {}


def test_a_limit_that_leaves_no_output_gives_no_sample_and_says_why() -> None:
    found = collect(forked(), 0)
    assert (found.samples, found.empty_reason) == ([], "all_truncated")


def test_the_fault_of_one_leaf_is_that_of_the_reply_and_names_it() -> None:
    session = tree(routing=FULL)
    rows = raw_base64(routed(len(session.plan(chat(U1)).prompt_ids)))
    grow(session, U1, says=A1, routed_experts=rows)
    grow(session, U1)
    required = FULL.__class__(num_layers=2, top_k=3, required=True)
    with pytest.raises(AssemblyError, match=r"^leaf 1: turn 1: .*routed_experts") as error:
        collect(session, routing=required)
    assert (error.value.field, error.value.turn) == ("routed_experts", 1)


def test_a_cut_turn_in_the_middle_of_a_path_ends_its_sample() -> None:
    session = tree()
    grow(session, U1, says=A1, finish="abort")
    grow(session, U1, A1, T1)
    (sample,) = collect(session).samples
    assert sample.status is Status.ABORTED
    assert sample.metadata["dropped_turns"] == {"count": 1, "reason": "status"}


def test_messages_are_kept_where_that_is_asked_for() -> None:
    session = line(tree())
    (sample,) = collect(session, keep_messages=True).samples
    assert sample.metadata["messages"] == list(session.messages)


def test_speculative_counters_are_kept_where_that_is_asked_for() -> None:
    session = tree()
    take_turn(session, chat(U1), answer([50], spec_verify_ct=3))
    (kept,), (left_out,) = (
        collect(session, speculative=speculative).samples for speculative in (True, False)
    )
    assert (kept.spec_info.spec_verify_ct, left_out.spec_info.spec_verify_ct) == (3, 0)


# What an agent leaves to the samples.


def test_the_agents_object_updates_every_samples_metadata_and_the_sessions() -> None:
    agent = {"score": {"a": 1}, "lifecycle": "mine"}
    found = collect(forked(), agent=agent)
    for sample in found.samples:
        assert sample.metadata["score"] == {"a": 1}
        assert sample.metadata["lifecycle"] == "mine"
    assert found.session_metadata["agent"] == agent
    assert found.samples[0].metadata["score"] is not found.samples[1].metadata["score"]


@pytest.mark.parametrize("agent", [None, {}], ids=["none", "empty"])
def test_the_agents_object_is_told_only_where_there_is_one(agent: Any) -> None:
    found = collect(forked(), agent=agent)
    assert found.session_metadata.get("agent") == agent


def test_a_servers_key_cannot_be_planted_even_where_the_server_has_none() -> None:
    session = tree()
    grow(session, U1)
    planted = {"accumulated_token_ids": [1], "tito_session_mismatch": ["x"], "leaf": {"node_id": 9}}
    found = session.collecting(None, planted, {1: None}, SampleOptions())()
    (sample,) = SampleHooks.load().apply(found, Sample).samples
    assert sample.metadata["accumulated_token_ids"] == sample.tokens.tolist()
    assert "tito_session_mismatch" not in sample.metadata
    assert sample.metadata["leaf"]["node_id"] == 0


@pytest.mark.parametrize("reward", [0.0, 0, 1, -2.5, {"a": 0.5}], ids=str)
def test_the_agents_reward_is_every_samples(reward: Any) -> None:
    found = collect(forked(), agent={"reward": reward})
    assert [sample.reward for sample in found.samples] == [reward, reward]
    assert [sample.metadata["reward"] for sample in found.samples] == [reward, reward]


@pytest.mark.parametrize("agent", [None, {}, {"reward": None}], ids=str)
def test_without_a_reward_of_the_agents_the_templates_stays(agent: Any) -> None:
    assert [sample.reward for sample in collect(forked(), agent=agent).samples] == [None, None]


@pytest.mark.parametrize("reward", [True, False, "1", [1.0]], ids=str)
def test_a_reward_of_another_type_is_a_422(reward: Any) -> None:
    kind = type(reward).__name__
    with pytest.raises(SessionError, match=f"reward is a {kind}, not a number") as error:
        collect(forked(), agent={"reward": reward})
    assert refusal(error) == (422, "hook_failed")
