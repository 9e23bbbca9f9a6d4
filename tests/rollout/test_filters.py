"""Filters: what keeps a group, what drops it and why, and what is no group."""

from __future__ import annotations

import functools
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sample_wire import GroupError, Sample, Status
from sample_wire.rollout import (
    DropCounter,
    FilterResult,
    call_filter,
    flatten,
    no_aborted,
    nonzero_std,
)

REWARDS = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**6), 10**6)


def rewarded(*rewards: Any) -> list[Sample]:
    """Samples with these rewards."""
    return [Sample(reward=reward) for reward in rewards]


def branches(*fields: dict[str, Any]) -> list[Sample]:
    """The samples of one rollout."""
    return [Sample(**{"rollout_id": 3, **one}) for one in fields]


def test_a_group_is_flattened_in_order() -> None:
    first, *several = [Sample(index=index, rollout_id=9) for index in range(4)]
    (last,) = alone = [Sample(index=4)]
    assert flatten([first, several, alone]) == [first, *several, last]
    assert flatten([first, tuple(several)]) == [first, *several]
    assert flatten([]) == flatten([[]]) == []


@pytest.mark.parametrize(
    "item", [None, 0.5, {"reward": 1}, "text", [[Sample()]], np.zeros(2)], ids=lambda i: type(i)
)
def test_what_is_no_sample_is_refused(item: Any) -> None:
    with pytest.raises(TypeError, match="sample 1 of the group"):
        flatten([Sample(), item])


@pytest.mark.parametrize("ids", [(None, None), (1, None), (None, 1), (1, 2), ("a", "b")])
def test_samples_of_one_rollout_must_share_an_id(ids: tuple[Any, Any]) -> None:
    siblings = [Sample(rollout_id=one) for one in ids]
    with pytest.raises(GroupError) as refused:
        flatten([Sample(), siblings])
    assert refused.value.field == "rollout_id"
    assert refused.value.sample_index == (1 if ids[0] is None else 2)


@pytest.mark.parametrize("rollout_id", [0, 7, "a"])
def test_samples_of_one_rollout_that_share_an_id_are_taken(rollout_id: Any) -> None:
    siblings = [Sample(rollout_id=rollout_id), Sample(rollout_id=rollout_id)]
    assert flatten([siblings, siblings]) == [*siblings, *siblings]


@pytest.mark.parametrize("function", [nonzero_std, no_aborted])
def test_every_filter_refuses_siblings_without_an_id(function: Any) -> None:
    with pytest.raises(GroupError, match="share a rollout_id"):
        function([[Sample(reward=0.0), Sample(reward=1.0)]])


@pytest.mark.parametrize(
    ("rewards", "keep"),
    [
        ((0.0, 1.0), True),
        ((1, 0, 0, 0), True),
        ((0.5, 0.5 + 1e-7), True),
        ((0.5, 0.5 + 1e-9), False),
        ((1e308, -1e308), True),
        ((1e10 + 0.1, 1e10 + 0.1, 1e10 + 0.1), False),
        ((0.1, 0.1, 0.1), False),
        ((True, False), True),
        ((np.float32(1), np.int64(0)), True),
        ((1.0,), False),
    ],
    ids=repr,
)
def test_a_group_is_kept_whose_rewards_differ(rewards: tuple[Any, ...], keep: bool) -> None:
    result = nonzero_std(rewarded(*rewards))
    assert result.keep is keep
    assert (result.reason is None) is keep


@pytest.mark.parametrize(
    ("reward", "reason"),
    [
        (0.0, "zero_std_0.0"),
        (-0.0, "zero_std_0.0"),
        (-0.04, "zero_std_0.0"),
        (1, "zero_std_1.0"),
        (0.25, "zero_std_0.2"),
        (-1.26, "zero_std_-1.3"),
        (np.float32(0.1), "zero_std_0.1"),
        (2**60, "zero_std_1.152921504606847e+18"),
    ],
)
def test_the_reason_names_the_first_reward_to_one_digit(reward: Any, reason: str) -> None:
    assert nonzero_std(rewarded(reward, reward)) == FilterResult(False, reason)


def test_rewards_of_nested_rollouts_are_compared_with_all_others() -> None:
    nested = branches({"reward": 1.0}, {"reward": 0.0})
    assert nonzero_std([Sample(reward=1.0), nested]).keep
    assert not nonzero_std([Sample(reward=1.0), nested[:1]]).keep


def test_a_reward_key_picks_one_of_several_rewards() -> None:
    group = rewarded({"a": 1, "b": 0}, {"a": 1, "b": 1})
    assert nonzero_std(group, reward_key="b").keep
    assert nonzero_std(group, reward_key="a") == FilterResult(False, "zero_std_1.0")


@pytest.mark.parametrize(
    "bad",
    [None, math.nan, math.inf, -math.inf, "1", {"a": 1}, [1.0], 1j, Decimal(1), 10**400],
    ids=lambda bad: repr(bad)[:20],
)
def test_a_reward_that_is_no_finite_number_is_refused(bad: Any) -> None:
    with pytest.raises(GroupError) as refused:
        nonzero_std(rewarded(0.5, bad))
    assert (refused.value.field, refused.value.sample_index) == ("reward", 1)


@pytest.mark.parametrize("bad", [None, 0.5, {"b": 1}, {"a": None}, {"a": {}}, {"a": math.nan}])
def test_a_keyed_reward_that_is_missing_or_no_number_is_refused(bad: Any) -> None:
    with pytest.raises(GroupError) as refused:
        nonzero_std(rewarded({"a": 1}, bad), reward_key="a")
    assert (refused.value.field, refused.value.sample_index) == ("reward", 1)


@pytest.mark.parametrize("group", [[], [[]]], ids=repr)
def test_an_empty_group_has_no_rewards_to_compare(group: Any) -> None:
    with pytest.raises(GroupError, match="empty"):
        nonzero_std(group)


@given(st.lists(REWARDS, min_size=2, max_size=8))
def test_the_decision_is_that_of_the_exact_deviation(rewards: list[Any]) -> None:
    values = [Fraction(reward) for reward in rewards]
    # The variance without a mean: half the mean squared distance of all ordered pairs.
    squares = sum((one - other) ** 2 for one in values for other in values)
    num_pairs = len(values) * (len(values) - 1)
    assert nonzero_std(rewarded(*rewards)).keep is (squares > 2 * num_pairs * Fraction(1, 10**16))


@given(st.lists(REWARDS, min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_the_decision_does_not_depend_on_the_order(rewards: list[Any], random: Any) -> None:
    shuffled = random.sample(rewards, len(rewards))
    assert nonzero_std(rewarded(*rewards)).keep is nonzero_std(rewarded(*shuffled)).keep


@given(REWARDS, st.integers(1, 8))
def test_equal_rewards_are_dropped_however_large(reward: Any, count: int) -> None:
    assert not nonzero_std(rewarded(*[reward] * count)).keep


@pytest.mark.parametrize("status", [one for one in Status if one is not Status.ABORTED])
def test_a_group_without_an_aborted_sample_is_kept(status: Status) -> None:
    nested = branches({"status": status}, {"status": status})
    assert no_aborted([Sample(status=status), nested]) == FilterResult(True)


def test_a_group_with_an_aborted_sample_is_dropped() -> None:
    aborted: dict[str, Any] = {"status": Status.ABORTED}
    drop = FilterResult(False, "group_has_aborted")
    assert no_aborted([Sample(), Sample(**aborted)]) == drop
    assert no_aborted([Sample(), branches({}, aborted)]) == drop


def test_an_empty_group_has_no_aborted_sample() -> None:
    assert no_aborted([]) == FilterResult(True)


def test_without_a_filter_a_group_is_kept() -> None:
    assert call_filter(None, [Sample()]) == FilterResult(True)


@pytest.mark.parametrize(
    "answer",
    [True, False, np.bool_(True), np.bool_(False)],
    ids=["true", "false", "numpy true", "numpy false"],
)
def test_a_bool_is_a_result_without_a_reason(answer: Any) -> None:
    result = call_filter(lambda _: answer, [Sample()])
    assert result == FilterResult(bool(answer), None)
    assert type(result.keep) is bool


def test_a_result_is_given_as_it_is() -> None:
    result = FilterResult(False, "too_long")
    assert call_filter(lambda _: result, []) is result


@pytest.mark.parametrize("answer", [None, 1, "yes", np.ones(1, np.bool_)], ids=repr)
def test_an_answer_that_is_no_bool_is_refused(answer: Any) -> None:
    with pytest.raises(TypeError, match="keep is a bool"):
        call_filter(lambda _: answer, [])
    with pytest.raises(TypeError, match="keep is a bool"):
        FilterResult(answer)


def test_a_filter_is_given_the_group() -> None:
    by_key = functools.partial(nonzero_std, reward_key="a")
    assert call_filter(by_key, rewarded({"a": 1}, {"a": 2})).keep


def test_drops_are_counted_by_reason() -> None:
    counter = DropCounter()
    assert counter.metrics() == {}
    for group in (rewarded(0, 0), rewarded(0.0, 0.0), rewarded(0, 1), rewarded(1, 1)):
        counter.add(call_filter(nonzero_std, group))
    counter.add(FilterResult(False))
    counter.add(no_aborted([Sample(status=Status.ABORTED)]))
    assert counter.metrics() == {
        "rollout/dynamic_filter/drop_zero_std_0.0": 2,
        "rollout/dynamic_filter/drop_zero_std_1.0": 1,
        "rollout/dynamic_filter/drop_unspecified": 1,
        "rollout/dynamic_filter/drop_group_has_aborted": 1,
    }


def test_a_reason_that_is_no_text_is_refused() -> None:
    with pytest.raises(TypeError, match="reason is a text or None, not a int"):
        FilterResult(False, 5)  # type: ignore[arg-type]


@pytest.mark.parametrize("group", [None, Sample(), 3], ids=["null", "sample", "number"])
def test_a_group_that_is_no_list_is_refused(group: Any) -> None:
    with pytest.raises(TypeError, match="a group is a list of samples, not a"):
        no_aborted(group)


def test_a_reward_without_the_key_is_refused_by_the_key() -> None:
    group = [Sample(reward={"a": 1}), Sample(reward={"b": 2})]
    with pytest.raises(
        GroupError, match=r"sample 1 of the group: its reward is no dict with .* 'a'"
    ):
        nonzero_std(group, reward_key="a")
