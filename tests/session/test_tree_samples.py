"""A tree's samples: one a leaf, retries dropped, each completion trained once."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from sample_wire.errors import AssemblyError, SessionError
from sample_wire.sample import Sample, Status
from sample_wire.session import SampleHooks, SampleOptions, TreeTrajectory
from sample_wire.session.tree_samples import drop_retries, train_once

from ._trees import A1, A2, T1, T2, U1, collect, grow, leaf_ids, line, paths
from ._words import FULL, Words, answer, chat, raw_base64, refusal, routed, say, take_turn, tree


def masks(found: Any) -> list[list[int]]:
    """The loss mask of each sample."""
    return [sample.loss_mask.tolist() for sample in found.samples]


def retried() -> TreeTrajectory:
    """Root 0; 1 under it, then 2, its retry; 3 under 2."""
    session = tree()
    grow(session, U1, says=A1)
    grow(session, U1, A1, T1, says=A2)
    grow(session, U1, A1, T1, says=say("assistant", "again"))
    grow(session, U1, A1, T1, say("assistant", "again"), T2)
    return session


def forked() -> TreeTrajectory:
    """Root 0 of two ids; 1 under it, 2 under 1; then 3 under 0."""
    session = tree()
    grow(session, U1, says=A1, output=(50, 51))
    grow(session, U1, A1, T1, says=A2, output=(60,))
    grow(session, U1, A1, T1, A2, T2, output=(70, 71))
    grow(session, U1, A1, say("user", "fork"), output=(80,))
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


def test_a_completion_on_two_paths_is_trained_in_the_sample_of_the_earlier_leaf() -> None:
    found = collect(forked())
    early, late = found.samples
    spans = [node["completion_span"] for node in found.session_metadata["tree"]["nodes"]]
    num_prompt = spans[0][0]
    assert masks(found)[0][:2] == [1, 1]
    assert masks(found)[1][:2] == [0, 0]
    assert masks(found)[1][-1] == 1
    for sample, nodes in ((early, (0, 1, 2)), (late, (3,))):
        trained = np.flatnonzero(sample.loss_mask) + num_prompt
        places = [place for node in nodes for place in range(*spans[node])]
        assert trained.tolist() == places


def test_a_dropped_leaf_owns_nothing() -> None:
    session = tree()
    grow(session, U1, says=A1, output=(50, 51))
    grow(session, U1, A1, T1)
    grow(session, U1, A1, T1)
    (sample,) = collect(session).samples
    assert sample.loss_mask is not None
    assert sample.loss_mask[:2].tolist() == [1, 1]


def test_masks_are_those_of_one_call_alone() -> None:
    session = forked()
    assert masks(collect(session)) == masks(collect(session))


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
    found = collecting()
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


def test_a_completion_that_was_cut_in_the_middle_is_masked_as_far_as_it_goes() -> None:
    session = tree(hooks=SampleHooks.load(pick=f"{__name__}.all_of_them"))
    grow(session, U1, says=A1, output=(50, 51, 52))
    grow(session, U1, A1, T1)
    grow(session, say("user", "other"), says=A1)
    grow(session, U1, A1, say("tool", "t1'"))
    num_prompt = session.metadata(None)["tree"]["nodes"][0]["completion_span"][0]
    found = collect(session, num_prompt + 2)
    by_leaf = dict(zip(leaf_ids(found), masks(found), strict=True))
    assert by_leaf[1] == [1, 1]
    assert by_leaf[3] == [0, 0]
    assert {sample.status for sample in found.samples} >= {Status.TRUNCATED}


def all_of_them(samples: list[Any], _metadata: dict[str, Any]) -> list[Any]:
    return samples


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


def test_a_dropped_last_id_of_a_shared_turn_is_trained_by_nobody() -> None:
    words = Words(max_trim_tokens=1)
    session = tree(words, hooks=SampleHooks.load(pick=f"{__name__}.all_of_them"))
    mark = words.id_of("<tool>")
    grow(session, U1, says=A1, output=(50, mark))
    grow(session, U1, A1, say("user", "x"), output=(60,))
    grow(session, U1, A1, say("user", "y"), says=A2, output=(70,))
    grow(session, U1, A1, say("user", "y"), A2, T2, output=(80,))
    first, second = collect(session).samples
    assert first.loss_mask is not None
    assert first.loss_mask.tolist()[:2] == [1, 0]
    assert second.loss_mask is not None
    assert second.loss_mask.tolist()[:2] == [0, 0]
    assert int(second.loss_mask.sum()) == 2


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
    (sample,) = found.samples
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


# Hooks of an operator's own.


def newest_leaf(samples: list[Any], _metadata: dict[str, Any]) -> list[Any]:
    return samples[-1:]


def none_of_them(_samples: list[Any], _metadata: dict[str, Any]) -> list[Any]:
    return []


def twice(samples: list[Any], _metadata: dict[str, Any]) -> list[Any]:
    return [samples[0], samples[0]]


def another(_samples: list[Any], _metadata: dict[str, Any]) -> list[Any]:
    return [Sample()]


def as_tuple(samples: list[Any], _metadata: dict[str, Any]) -> Any:
    return tuple(samples)


def raises(_samples: list[Any], _metadata: dict[str, Any]) -> list[Any]:
    raise KeyError("what")


def no_samples(_samples: list[Any], _metadata: dict[str, Any]) -> list[Any]:
    return [{}]


def clears(samples: list[Any], metadata: dict[str, Any]) -> list[Any]:
    kept = list(samples)
    samples.clear()
    return train_once(drop_retries(kept, metadata), metadata)


async def later(samples: list[Any], _metadata: dict[str, Any]) -> list[Any]:
    return samples


async def generates(samples: list[Any], _metadata: dict[str, Any]) -> Any:
    yield samples


def of_one(samples: list[Any]) -> list[Any]:
    return samples


NOT_CALLABLE = 7


def hooked(**names: str) -> TreeTrajectory:
    """The forked tree with hooks of this module."""
    session = tree(hooks=SampleHooks.load(**{key: f"{__name__}.{n}" for key, n in names.items()}))
    grow(session, U1, says=A1, output=(50, 51))
    grow(session, U1, A1, T1, says=A2, output=(60,))
    return session


def test_hooks_of_ones_own_pick_and_process() -> None:
    assert leaf_ids(collect(hooked(pick="newest_leaf"))) == [1]
    assert leaf_ids(collect(hooked(pick="clears", post_process="all_of_them"))) == [1]
    assert collect(hooked(post_process="another")).samples[0].response_length == 0


@pytest.mark.parametrize("hook", ["pick", "post_process"])
def test_hooks_that_leave_nothing_give_no_sample_and_say_why(hook: str) -> None:
    found = collect(hooked(**{hook: "none_of_them"}))
    assert (found.samples, found.empty_reason) == ([], "all_truncated")


BAD_HOOKS = {
    "pick_twice": ("pick", "twice", "it gave a sample twice, or one that it was not given"),
    "pick_another": ("pick", "another", "it gave a sample twice, or one that it was not given"),
    "pick_no_sample": ("pick", "no_samples", "it gave a sample twice, or one"),
    "pick_tuple": ("pick", "as_tuple", "it gave a tuple, not a list"),
    "pick_raises": ("pick", "raises", "KeyError: 'what'"),
    "process_tuple": ("post_process", "as_tuple", "it gave a tuple, not a list"),
    "process_raises": ("post_process", "raises", "KeyError: 'what'"),
    "process_no_sample": ("post_process", "no_samples", "it gave something that is no"),
}


@pytest.mark.parametrize(("hook", "name", "why"), BAD_HOOKS.values(), ids=BAD_HOOKS)
def test_a_hook_that_fails_is_a_422_that_names_both(hook: str, name: str, why: str) -> None:
    session = hooked(**{hook: name})
    with pytest.raises(SessionError) as error:
        collect(session)
    assert refusal(error) == (422, "hook_failed")
    text = str(error.value)
    assert f"the {hook.replace('_', '-')} hook failed" in text
    assert f"{__name__}.{name}" in text
    default = {"pick": "train_once", "post_process": "drop_retries"}[hook]
    assert f"sample_wire.session.tree_samples.{default}" in text
    assert why in text
    assert session.version == 2


WRONG_PATHS = {
    "no_dots": ("collect", "is no dotted path"),
    "no_module": ("no_such_module_here.hook", "cannot be imported"),
    "no_name": (f"{__name__}.no_such_name", "cannot be imported"),
    "not_callable": (f"{__name__}.NOT_CALLABLE", "is no synchronous function"),
    "async": (f"{__name__}.later", "is no synchronous function"),
    "async_generator": (f"{__name__}.generates", "is no synchronous function"),
    "one_argument": (f"{__name__}.of_one", "does not take (samples, session_metadata)"),
}


@pytest.mark.parametrize(("path", "why"), WRONG_PATHS.values(), ids=WRONG_PATHS)
@pytest.mark.parametrize("hook", ["pick", "post_process"])
def test_a_path_that_leads_to_no_hook_is_refused_at_start(hook: str, path: str, why: str) -> None:
    text = f"{hook.replace('_', '-')} hook {path!r} {why}"
    with pytest.raises(ValueError, match=f"^{re.escape(text)}"):
        SampleHooks.load(**{hook: path})


def test_a_builtin_that_does_not_tell_its_arguments_is_taken() -> None:
    assert SampleHooks.load(pick="builtins.max").pick_path == "builtins.max"


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
