"""A template that already carries computed state is refused (the reply would be added to it)."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import pytest

from sample_wire import (
    Computed,
    PrefixCacheInfo,
    Sample,
    SpecInfo,
    TemplateError,
    Tensor,
    decode_samples,
    encode_samples,
)

from ._samples import make_sample, template_of

CARRIED: dict[str, tuple[str, Any]] = {
    "weight-versions": ("weight_versions", ["7"]),
    "weight-versions-tuple": ("weight_versions", ("7",)),
    "cached-tokens": ("prefix_cache_info", PrefixCacheInfo(cached_tokens=1)),
    "prompt-tokens": ("prefix_cache_info", PrefixCacheInfo(total_prompt_tokens=1)),
    "prefix-cache-dict": ("prefix_cache_info", {"cached_tokens": 1}),
    "accepted": ("spec_info", SpecInfo(spec_accept_token_num=1)),
    "drafted": ("spec_info", SpecInfo(spec_draft_token_num=1)),
    "verified": ("spec_info", SpecInfo(spec_verify_ct=1)),
    "completed": ("spec_info", SpecInfo(completion_token_num=1)),
    "teacher-list": ("teacher_log_probs", [-0.5]),
    "teacher-array": ("teacher_log_probs", np.zeros(2)),
    "teacher-number": ("teacher_log_probs", 5),
    "reverse-kl": ("opd_reverse_kl", [0.0]),
    "student": ("metadata", {"opd_student_top_logprobs": []}),
    "student-none": ("metadata", {"opd_student_top_logprobs": None}),
}


@pytest.mark.parametrize("case", CARRIED)
@pytest.mark.parametrize("field_set", [1, 2])
def test_a_template_that_carries_computed_state_is_refused(case: str, field_set: int) -> None:
    name, value = CARRIED[case]
    payload = encode_samples([make_sample()], field_set=field_set)
    with pytest.raises(TemplateError, match=f"template field {name} must ") as caught:
        decode_samples(payload, template_of(**{name: value}), field_set=field_set)
    assert caught.value.field == name


@pytest.mark.parametrize("case", CARRIED)
def test_the_guard_does_not_look_when_there_are_no_samples(case: str) -> None:
    name, value = CARRIED[case]
    reply = decode_samples(encode_samples([]), template_of(**{name: value}))
    assert reply.samples == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("weight_versions", []),
        ("weight_versions", None),
        ("weight_versions", ()),
        ("prefix_cache_info", PrefixCacheInfo()),
        ("prefix_cache_info", None),
        ("spec_info", SpecInfo()),
        ("teacher_log_probs", None),
        ("teacher_log_probs", []),
        ("opd_reverse_kl", np.empty(0)),
        ("metadata", {"other": 1}),
    ],
    ids=lambda value: repr(value)[:24],
)
def test_a_neutral_template_is_taken(name: str, value: Any) -> None:
    (found,) = decode_samples(
        encode_samples([make_sample(weight_versions=["3"])]), template_of(**{name: value})
    ).samples
    assert found.weight_versions == ["3"]


@pytest.mark.parametrize("name", ["tokens", "response", "response_length", "loss_mask", "status"])
def test_other_computed_fields_of_the_template_are_replaced_unseen(name: str) -> None:
    template = template_of(**{name: object()})
    (found,) = decode_samples(encode_samples([make_sample()]), template).samples
    assert found.tokens.tolist() == [0, 1, 2, 3, 4]


class Histogram(Sample):
    """Turns add to an array."""

    counts: Annotated[Any, Computed(codec=Tensor("int64"), merge="sum", null="none")] = None


@pytest.mark.parametrize("value", [None, np.zeros(3, np.int64), np.zeros(0), [], 0], ids=repr)
def test_an_array_of_zeros_is_neutral(value: Any) -> None:
    payload = encode_samples([Histogram(counts=[1, 2])])
    (found,) = decode_samples(payload, Histogram(counts=value)).samples
    assert found.counts.tolist() == [1, 2]


@pytest.mark.parametrize("value", [np.array([0, 1]), [1], 5], ids=str)
def test_an_array_that_is_not_zero_is_refused(value: Any) -> None:
    payload = encode_samples([Histogram(counts=[1, 2])])
    with pytest.raises(TemplateError, match="template field counts must be empty"):
        decode_samples(payload, Histogram(counts=value))


def test_a_payload_that_is_refused_is_so_before_the_template() -> None:
    payload = bytes(encode_samples([make_sample()]))
    with pytest.raises(ValueError, match="bytes") as caught:
        decode_samples(payload[:-1], Sample(weight_versions=["7"]))
    assert not isinstance(caught.value, TemplateError)
