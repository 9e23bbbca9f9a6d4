"""What a generate function takes and gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import msgspec

from ..codec import plan_for
from ..sample import Sample

SampleT = TypeVar("SampleT", bound=Sample)


class GenerateInput(msgspec.Struct, Generic[SampleT], frozen=True, kw_only=True):
    """One rollout to be made.

    Args:
        sample: the trainer's input sample; never changed.
        sampling_params: by SGLang's names: max_new_tokens, temperature, ...  None is unset.
        max_seq_len: tokens that a sample may have, prompt included; None for no limit.

    Raises:
        TypeError: sample is none, or max_seq_len no integer.
        ValueError: max_seq_len is below 1, or more than one completion a turn is asked for.
        TemplateError: the sample carries what a rollout is about to bring: counters, weight
            versions, or values aligned to a response.
    """

    sample: SampleT
    sampling_params: Mapping[str, Any]
    max_seq_len: int | None = None

    def __post_init__(self) -> None:
        """Refuses what no rollout can be made of, before there is a session."""
        if not isinstance(self.sample, Sample):
            raise TypeError(f"sample is a Sample, not a {type(self.sample).__name__}")
        if self.max_seq_len is not None:
            if type(self.max_seq_len) is not int:
                raise TypeError("max_seq_len is an integer or None")
            if self.max_seq_len < 1:
                raise ValueError(f"max_seq_len is at least 1, not {self.max_seq_len}")
        wanted = self.sampling_params.get("n")
        if wanted is not None and (type(wanted) is not int or wanted != 1):
            raise ValueError("sampling_params.n: a rollout takes one completion a turn")
        # Any field set will do: they differ in what is decoded, not in what a template may hold.
        plan_for(self.sample, 1, None).overlay.check_template(self.sample)


class TrainerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a trainer does with samples, as far as it matters how many a rollout gives.

    Args:
        group_reward: a group's rewards are made together, from one sample of each rollout.
        partial_rollout: an aborted sample is handed in again, to be gone on with.
        recompute_log_probs: log-probs are computed anew, by a prefill of the whole sample.
    """

    group_reward: bool = False
    partial_rollout: bool = False
    recompute_log_probs: bool = False

    def check_several(self) -> None:
        """Passes where a rollout may give several samples.

        Raises:
            ValueError: one of these needs one sample a rollout.
        """
        for name in self.__struct_fields__:
            if getattr(self, name):
                raise ValueError(f"{name} needs one sample a rollout: a tree gives several")


class GenerateOutput(msgspec.Struct, Generic[SampleT], frozen=True):
    """What became of a rollout.

    Attributes:
        samples: a sample; or a list, where a trajectory that branched gave one for each branch.
            Of several all have one rollout_id.
    """

    samples: SampleT | list[SampleT]
