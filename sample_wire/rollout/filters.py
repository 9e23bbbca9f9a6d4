"""Filters of groups: whether the samples of one prompt are worth training on.

A group holds what became of the rollouts of one prompt, each a sample or a list of the samples
of its branches.  A filter takes a group and gives a FilterResult or a bool.
"""

from __future__ import annotations

import collections
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from numbers import Real
from typing import Any, Final

import numpy as np

from ..errors import GroupError
from ..sample import Sample, Status

Group = Sequence[Sample | Sequence[Sample]]
MIN_REWARD_STD: Final = Fraction(1, 10**8)
_METRIC: Final = "rollout/dynamic_filter/drop_"
_NO_REASON: Final = "unspecified"


@dataclass(frozen=True, slots=True)
class FilterResult:
    """A filter's decision.

    Args:
        keep: whether the group is trained on.
        reason: why not: a short name, under which it is counted.

    Raises:
        TypeError: keep is no bool, or reason no text.
    """

    keep: bool
    reason: str | None = None

    def __post_init__(self) -> None:
        """Refuses what is only true or false by its looks, a tensor for example."""
        if type(self.keep) is not bool:
            raise TypeError(f"keep is a bool, not a {type(self.keep).__name__}")
        if not isinstance(self.reason, str | None):
            raise TypeError(f"reason is a text or None, not a {type(self.reason).__name__}")


GroupFilter = Callable[[Group], FilterResult | bool]


def call_filter(function: GroupFilter | None, group: Group) -> FilterResult:
    """What a filter decides.

    Args:
        function: None keeps every group.

    Returns:
        Its result; a bool, numpy's too, as a result without a reason.

    Raises:
        TypeError: the filter gave something else.
    """
    if function is None:
        return FilterResult(True)
    result: object = function(group)
    if isinstance(result, FilterResult):
        return result
    return FilterResult(bool(result) if isinstance(result, np.bool_) else result)  # type: ignore[arg-type]  # it checks


def flatten(group: Group) -> list[Sample]:
    """The samples of a group, one after another.

    Raises:
        TypeError: it is no list, or something else than a sample or a list of samples is in it.
        GroupError: the samples of one rollout do not share one rollout_id, or have none.
    """
    if not isinstance(group, Sequence):
        raise TypeError(f"a group is a list of samples, not a {type(group).__name__}")
    flat: list[Sample] = []
    for rollout in group:
        found: Sequence[object] = rollout if isinstance(rollout, (list, tuple)) else [rollout]
        samples = [_sample(one, len(flat) + at) for at, one in enumerate(found)]
        if len(samples) > 1:
            _check_siblings(samples, len(flat))
        flat += samples
    return flat


def _sample(found: object, index: int) -> Sample:
    if not isinstance(found, Sample):
        raise TypeError(f"sample {index} of the group is a {type(found).__name__}, not a Sample")
    return found


def _check_siblings(samples: Sequence[Sample], start: int) -> None:
    for index, sample in enumerate(samples, start):
        if sample.rollout_id is not None and sample.rollout_id == samples[0].rollout_id:
            continue
        raise GroupError(
            f"sample {index} of the group: samples of one rollout share a rollout_id",
            field="rollout_id",
            sample_index=index,
            expected="one id, not null",
            got="null" if sample.rollout_id is None else "another",
        )


def nonzero_std(group: Group, *, reward_key: str | None = None) -> FilterResult:
    """Keeps a group whose rewards differ: their sample standard deviation exceeds 1e-8.

    Computed exactly, so that equal rewards have none, however large they are.  A single sample
    has none either.

    Args:
        reward_key: which entry of rewards that are dicts; None for rewards that are numbers.

    Returns:
        A bool to keep; the reason to drop is zero_std_ and the first reward to one digit.

    Raises:
        GroupError: the group is empty, or a reward is missing or no finite number.
    """
    rewards = [_reward(sample, index, reward_key) for index, sample in enumerate(flatten(group))]
    if not rewards:
        raise GroupError("the group is empty: it has no rewards to compare", field="reward")
    if len(rewards) > 1 and statistics.variance(rewards) > MIN_REWARD_STD**2:
        return FilterResult(True)
    # Adding zero makes one reason of 0.0 and -0.0.
    return FilterResult(False, f"zero_std_{round(float(rewards[0]), 1) + 0.0}")


def no_aborted(group: Group) -> FilterResult:
    """Keeps a group without an aborted sample, an empty one too."""
    if any(sample.status is Status.ABORTED for sample in flatten(group)):
        return FilterResult(False, "group_has_aborted")
    return FilterResult(True)


def _reward(sample: Sample, index: int, key: str | None) -> Fraction:
    """A sample's reward, the exact value of its double."""
    reward: Any = sample.reward
    if key is not None:
        if not isinstance(reward, dict) or key not in reward:
            raise _bad_reward(index, f"is no dict with the key {key!r}", reward)
        reward = reward[key]
    if not isinstance(reward, Real):
        raise _bad_reward(index, "is no number", reward)
    try:
        return Fraction(float(reward))
    except (OverflowError, ValueError):
        raise _bad_reward(index, "is no finite double", reward) from None


def _bad_reward(index: int, rule: str, reward: object) -> GroupError:
    return GroupError(
        f"sample {index} of the group: its reward {rule}",
        field="reward",
        sample_index=index,
        got=type(reward).__name__,
    )


class DropCounter:
    """Counts the groups that were dropped, by reason."""

    def __init__(self) -> None:
        self._counts: collections.Counter[str] = collections.Counter()

    def add(self, result: FilterResult) -> None:
        """Counts a result, if it drops its group."""
        if not result.keep:
            self._counts[result.reason or _NO_REASON] += 1

    def metrics(self) -> dict[str, int]:
        """`rollout/dynamic_filter/drop_<reason>` to the number of groups; "unspecified" is
        the reason of those that were dropped without one."""
        return {_METRIC + reason: count for reason, count in self._counts.items()}
