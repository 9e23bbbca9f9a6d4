"""What SPEC.md asks of a writer (section 7), of the overlay (8) and of a reader's values (9.1)."""

from __future__ import annotations

import json
import pickle
from typing import Any, Final

import numpy as np
import pytest

from sample_wire import (
    EncodeError,
    LimitError,
    PrefixCacheInfo,
    Sample,
    SpecInfo,
    TemplateError,
    decode_samples,
    encode_samples,
    read_container,
)

from ._kit import empty_sample, payload, reply, sample
from ._wire import META, container, meta_tensor, tensors_of

_ONE: Final = payload(reply(sample()))


def _sample(**fields: Any) -> Sample:
    return Sample(tokens=np.arange(4), response_length=2, **fields)


def _encoded(**fields: Any) -> dict[str, Any]:
    return read_container(bytes(encode_samples([_sample(**fields)])))


def _document(data: object) -> Any:
    return json.loads(read_container(data)[META].tobytes())


@pytest.mark.parametrize(
    "mask", [[0.5, 1], [-1, 1], [256, 1], [float("nan"), 1], ["1", "1"]], ids=str
)
def test_section_7_1_a_value_that_would_change_is_refused(mask: Any) -> None:
    with pytest.raises(EncodeError, match="loss_mask"):
        _encoded(loss_mask=mask)


@pytest.mark.parametrize("mask", [[True, False], [1.0, 0.0], (1, 0), np.array([1, 0])], ids=str)
def test_section_7_2_a_value_that_the_dtype_holds_is_taken(mask: Any) -> None:
    assert _encoded(loss_mask=mask)["loss_mask.0"].tolist() == [1, 0]


def test_section_7_2_the_fields_of_rank_3_take_int32_arrays_of_either_byte_order() -> None:
    experts = np.arange(6).reshape(3, 2, 1)
    for dtype in ("<i4", ">i4"):
        found = _encoded(rollout_routed_experts=experts.astype(dtype))
        assert (found["rollout_routed_experts.0"] == experts).all()


@pytest.mark.parametrize("dtype", [np.int64, np.uint32, np.uint8, np.float32])
def test_section_7_2_the_fields_of_rank_3_take_no_other_arrays(dtype: Any) -> None:
    with pytest.raises(EncodeError, match="rollout_routed_experts"):
        _encoded(rollout_routed_experts=np.zeros((3, 2, 1), dtype))


def test_section_7_3_a_view_is_sent_by_value() -> None:
    experts = np.arange(6, dtype=np.int32).reshape(1, 2, 3).T
    found = _encoded(rollout_routed_experts=experts)["rollout_routed_experts.0"]
    assert found.tolist() == experts.tolist()


def test_section_7_4_a_null_field_is_listed_and_has_no_tensor() -> None:
    written = bytes(encode_samples([_sample()]))
    (document,) = _document(written)["samples"]
    assert document["nulls"] == [
        "loss_mask",
        "rollout_log_probs",
        "rollout_routed_experts",
        "rollout_indexer_topk",
    ]
    assert {item.name for item in tensors_of(written)} == {META, "tokens.0"}


def test_section_7_4_tokens_is_never_null() -> None:
    with pytest.raises(EncodeError, match="tokens"):
        encode_samples([Sample(tokens=None)])  # type: ignore[arg-type]  # that is the point


@pytest.mark.parametrize(
    "fields",
    [
        {"loss_mask": [1]},
        {"rollout_routed_experts": np.zeros((4, 1, 1), np.int32)},
        {"rollout_routed_experts": np.zeros((3, 0, 1), np.int32)},
    ],
    ids=["response", "transitions", "nothing"],
)
def test_section_7_5_the_row_rules_hold(fields: dict[str, Any]) -> None:
    with pytest.raises(EncodeError, match=next(iter(fields))):
        _encoded(**fields)


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), {1: 2}, "\ud800", {"\ud800": 1}, {1, 2}, b"x", object()],
    ids=["nan", "inf", "key", "surrogate", "surrogate-key", "set", "bytes", "object"],
)
def test_section_7_6_what_json_does_not_have_is_refused(value: Any) -> None:
    with pytest.raises(EncodeError, match="metadata"):
        _encoded(metadata={"a": value})
    with pytest.raises(EncodeError, match="session_metadata"):
        encode_samples([], {"a": value})


def test_section_7_6_json_is_not_deeper_than_128() -> None:
    deep: Any = {}
    for _ in range(123):
        deep = [deep]
    encode_samples([_sample(metadata={"deep": deep})])
    with pytest.raises(EncodeError):
        encode_samples([_sample(metadata={"deep": [deep]})])


def test_section_7_6_tuples_and_numpy_scalars_are_converted() -> None:
    found = encode_samples([], {"a": (1, 2), "b": np.int8(3), "c": np.bool_(True)})
    assert _document(found)["session_metadata"] == {"a": [1, 2], "b": 3, "c": True}


def test_section_7_7_string_metadata_is_not_written() -> None:
    assert b"__metadata__" not in bytes(encode_samples([_sample()]))


def test_section_8_the_template_does_not_change() -> None:
    template = Sample(metadata={"a": [1]}, label={"b": np.arange(2)})
    before = pickle.dumps(template)
    decode_samples(_ONE, template).samples[0].metadata["a"].append(2)
    assert pickle.dumps(template) == before


@pytest.mark.parametrize(
    "fields",
    [
        {"weight_versions": ["1"]},
        {"prefix_cache_info": PrefixCacheInfo(cached_tokens=1)},
        {"spec_info": SpecInfo(spec_verify_ct=1)},
        {"teacher_log_probs": [0.5]},
        {"opd_reverse_kl": np.zeros(1)},
        {"metadata": ["a"]},
        {"metadata": {"opd_student_top_logprobs": []}},
    ],
    ids=["versions", "cache", "spec", "teacher", "opd", "no-mapping", "reserved-key"],
)
def test_section_8_a_template_with_computed_state_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(TemplateError, match=next(iter(fields))):
        decode_samples(_ONE, Sample(**fields))


def test_section_8_a_template_is_not_looked_at_where_there_are_no_samples() -> None:
    template = Sample(weight_versions=["1"])
    assert decode_samples(payload(reply()), template).samples == []


def test_section_8_computed_fields_are_the_payloads_and_others_the_templates() -> None:
    template = Sample(response="old", reward=0.5, group_index=3, prompt="p", metadata={"old": 1})
    (found,) = decode_samples(_ONE, template).samples
    assert found.response == "hi!"
    assert (found.reward, found.group_index, found.prompt) == (0.5, 3, "p")
    assert found.metadata == {"old": 1, "turns": 1}


def test_section_8_the_payloads_metadata_keys_win() -> None:
    (found,) = decode_samples(_ONE, Sample(metadata={"turns": 9})).samples
    assert found.metadata == {"turns": 1}


@pytest.mark.parametrize(("reward", "expected"), [(None, 0.5), (0, 0), (0.0, 0.0), (2, 2)])
def test_section_8_a_null_reward_keeps_the_templates_and_zero_does_not(
    reward: Any, expected: float
) -> None:
    data = payload(reply({**sample(), "reward": reward}))
    (found,) = decode_samples(data, Sample(reward=0.5), field_set=2).samples
    assert found.reward == expected


def test_section_8_samples_share_no_mutable_state() -> None:
    two = payload(reply(sample(), sample()))
    first, second = decode_samples(two, Sample(label={"a": []}, metadata={"b": []})).samples
    first.label["a"].append(1)
    first.metadata["b"].append(1)
    assert (second.label, second.metadata["b"]) == ({"a": []}, [])


def test_section_9_1_views_are_read_only() -> None:
    (found,) = decode_samples(bytearray(_ONE), Sample()).samples
    for array in (found.tokens, found.loss_mask, found.rollout_routed_experts):
        assert array is not None
        assert not array.flags.writeable


def test_section_9_1_samples_come_in_order() -> None:
    replies = payload(reply(*[empty_sample(response=str(index)) for index in range(12)]))
    found = decode_samples(replies, Sample()).samples
    assert [item.response for item in found] == [str(index) for index in range(12)]


def test_section_9_4_a_caller_may_raise_the_depth() -> None:
    text = '{"samples":[],"session_metadata":{"a":%s},"empty_reason":null}'
    deep = container([meta_tensor(text % ("[" * 200 + "]" * 200))])
    assert decode_samples(deep, Sample(), max_depth=202).samples == []
    with pytest.raises(LimitError):
        decode_samples(deep, Sample(), max_depth=201)
