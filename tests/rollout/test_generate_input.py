"""What a rollout is made of is checked before there is a session or a turn."""

from __future__ import annotations

from typing import Any, assert_type

import numpy as np
import pytest

from sample_wire import PrefixCacheInfo, Sample, TemplateError
from sample_wire.rollout import GenerateInput, GenerateOutput


class GradedSample(Sample):
    """A trainer's own class."""


@pytest.mark.parametrize("n", [{}, {"n": None}, {"n": 1}], ids=str)
@pytest.mark.parametrize("limit", [None, 1, 10**6])
def test_a_sample_and_parameters_make_an_input(n: dict[str, Any], limit: int | None) -> None:
    sample = GradedSample()
    given = GenerateInput(sample=sample, sampling_params=n, max_seq_len=limit)
    assert_type(given, GenerateInput[GradedSample])
    assert (given.sample is sample, given.max_seq_len) == (True, limit)


def test_the_parameters_of_the_type_can_be_written_out() -> None:
    assert GenerateInput[Sample](sample=Sample(), sampling_params={}).max_seq_len is None


@pytest.mark.parametrize("limit", [True, 8.0, "8", np.int64(8)], ids=repr)
def test_a_limit_that_is_no_integer_is_refused(limit: Any) -> None:
    with pytest.raises(TypeError, match="max_seq_len"):
        GenerateInput(sample=Sample(), sampling_params={}, max_seq_len=limit)


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_without_room_for_a_token_is_refused(limit: int) -> None:
    with pytest.raises(ValueError, match="max_seq_len is at least 1"):
        GenerateInput(sample=Sample(), sampling_params={}, max_seq_len=limit)


@pytest.mark.parametrize("n", [0, 2])
def test_another_number_of_completions_a_turn_is_refused(n: int) -> None:
    with pytest.raises(ValueError, match="one completion a turn"):
        GenerateInput(sample=Sample(), sampling_params={"n": n})


@pytest.mark.parametrize(
    "fields",
    [
        {"weight_versions": ["w1"]},
        {"prefix_cache_info": PrefixCacheInfo(cached_tokens=1)},
        {"teacher_log_probs": [0.5]},
        {"metadata": {"opd_student_top_logprobs": []}},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_a_sample_that_carries_what_the_reply_brings_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(TemplateError) as refused:
        GenerateInput(sample=Sample(**fields), sampling_params={})
    assert refused.value.field == next(iter(fields))


def test_something_else_than_a_sample_is_refused() -> None:
    with pytest.raises(TypeError, match="not a dict"):
        GenerateInput(sample={}, sampling_params={})  # type: ignore[type-var]  # what is tested


def test_an_output_holds_a_sample_or_a_list_of_them() -> None:
    one, several = Sample(), [Sample(), Sample()]
    assert_type(GenerateOutput(one).samples, Sample | list[Sample])
    assert GenerateOutput(one).samples is one
    assert GenerateOutput(several).samples is several
