"""Field sets 1 and 2: reward crosses the wire in the second one only."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from sample_wire import (
    FieldError,
    MetaError,
    Sample,
    SpecInfo,
    VersionError,
    decode_samples,
    encode_samples,
    write_container,
)

from ._samples import decode_refused, document_of, make_sample, round_trip, with_document

KEYS = [
    "response",
    "response_length",
    "status",
    "weight_versions",
    "prefix_cache_info",
    "metadata",
    "nulls",
]


def sample_keys(**options: Any) -> list[str]:
    """The keys of the first sample's JSON object, in order."""
    sample = options.pop("sample", None) or make_sample()
    return [*json.loads(document_of(encode_samples([sample], **options)))["samples"][0]]


def test_field_set_1_has_its_keys_in_the_order_of_declaration() -> None:
    assert sample_keys() == KEYS


def test_field_set_2_has_reward_before_the_nulls() -> None:
    assert sample_keys(field_set=2) == [*KEYS[:-1], "reward", "nulls"]


def test_counters_that_are_not_zero_are_written() -> None:
    sample = make_sample(spec_info=SpecInfo(spec_verify_ct=1))
    assert sample_keys(sample=sample) == [*KEYS[:-1], "spec_info", "nulls"]
    assert sample_keys(sample=sample, field_set=2) == [*KEYS[:-1], "spec_info", "reward", "nulls"]
    assert round_trip(sample).spec_info == SpecInfo(spec_verify_ct=1)


def test_the_document_has_its_keys_in_order_and_no_spaces() -> None:
    document = document_of(encode_samples([]))
    assert document == '{"samples":[],"session_metadata":{},"empty_reason":null}'


def test_nulls_are_listed_in_the_order_of_declaration() -> None:
    payload = encode_samples([Sample()])
    assert json.loads(document_of(payload))["samples"][0]["nulls"] == [
        "loss_mask",
        "rollout_log_probs",
        "rollout_routed_experts",
        "rollout_indexer_topk",
    ]


def test_field_set_2_refuses_a_payload_without_reward() -> None:
    error = decode_refused(bytes(encode_samples([make_sample()])), FieldError, field_set=2)
    assert (error.field, error.sample_index) == ("reward", 0)


def test_field_set_1_ignores_reward() -> None:
    payload = bytes(encode_samples([make_sample(reward=3.0)], field_set=2))
    (found,) = decode_samples(payload, Sample(reward=1.0)).samples
    assert found.reward == 1.0


@pytest.mark.parametrize("reward", ['"text"', "[1]", "true"])
def test_field_set_1_ignores_a_reward_of_any_type(reward: str) -> None:
    payload = encode_samples([make_sample(reward=3.0)], field_set=2)
    altered = document_of(payload).replace('"reward":3.0', f'"reward":{reward}')
    assert len(decode_samples(with_document(payload, altered), Sample()).samples) == 1
    decode_refused(with_document(payload, altered), FieldError, field_set=2)


def test_an_empty_payload_reads_in_every_field_set() -> None:
    for sent in (1, 2):
        for asked in (1, 2):
            payload = encode_samples([], field_set=sent)
            assert decode_samples(payload, Sample(), field_set=asked).samples == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('{"samples"', '{"later":{"a":1},"samples"'),
        ('"nulls":[', '"later":[1],"nulls":['),
        ('"cached_tokens":0', '"cached_tokens":0,"later":null'),
        ('"empty_reason":null}', '"empty_reason":null,"later":"x"}'),
    ],
    ids=["document", "sample", "record", "end"],
)
def test_unknown_keys_are_ignored_at_every_level(old: str, new: str) -> None:
    payload = encode_samples([make_sample()])
    altered = document_of(payload).replace(old, new)
    assert altered != document_of(payload)
    assert len(decode_samples(with_document(payload, altered), Sample()).samples) == 1


def with_format(spelling: str) -> bytes:
    payload = encode_samples([make_sample()])
    document = document_of(payload).replace('{"samples"', f'{{"format":{spelling},"samples"')
    return with_document(payload, document)


@pytest.mark.parametrize("spelling", ["3", "99", "0", "-1", '"1"', "null", "[1]", "1.5"])
def test_an_unknown_format_is_a_version_error(spelling: str) -> None:
    decode_refused(with_format(spelling), VersionError)


def test_a_newer_format_is_a_version_error_even_where_nothing_else_fits() -> None:
    payload = encode_samples([])
    decode_refused(with_document(payload, '{"format":99,"anything":[1]}'), VersionError)


def test_format_1_may_be_written() -> None:
    assert len(decode_samples(with_format("1"), Sample()).samples) == 1


@pytest.mark.parametrize("key", ["cached_tokens", "total_prompt_tokens"])
def test_a_record_that_lacks_one_of_its_keys_is_refused(key: str) -> None:
    payload = encode_samples([make_sample(), make_sample()])
    head, _, tail = document_of(payload).rpartition(f'"{key}":0')
    altered = f'{head}"later":0{tail}'
    error = decode_refused(with_document(payload, altered), FieldError)
    assert (error.field, error.sample_index) == ("prefix_cache_info", 1)


@pytest.mark.parametrize(
    "document",
    [
        "",
        "null",
        "[]",
        '"text"',
        "{}",
        '{"samples":[]}',
        '{"samples":5,"format":',
        '{"samples":[],"session_metadata":{},"empty_reason":null',
        '{"samples":[],"session_metadata":{},"empty_reason":null}}',
        '{"samples":[],"samples":[],"session_metadata":{},"empty_reason":null}',
        '{"samples":[],"session_metadata":{"a":1,"a":1},"empty_reason":null}',
        '{"samples":[],"session_metadata":{"a":NaN},"empty_reason":null}',
        '{"samples":[],"session_metadata":{"a":"\\ud800"},"empty_reason":null}',
        '{"samples":[],"session_metadata":null,"empty_reason":null}',
        '{"samples":[],"session_metadata":{},"empty_reason":5}',
        b'{"samples":[],"session_metadata":{"\xff":1},"empty_reason":null}',
    ],
    ids=lambda document: repr(document)[:60],
)
def test_a_document_that_breaks_a_rule_is_a_meta_error(document: str | bytes) -> None:
    decode_refused(with_document(encode_samples([]), document), MetaError)


@pytest.mark.parametrize(
    "meta",
    [None, np.zeros((1, 2), np.uint8), np.zeros(2, np.int8), np.zeros((), np.uint8)],
    ids=["absent", "rank-2", "int8", "rank-0"],
)
def test_a_payload_without_a_document_is_a_meta_error(meta: Any) -> None:
    tensors = {} if meta is None else {"_samples_meta": meta}
    decode_refused(bytes(write_container(tensors)), MetaError)


@pytest.mark.parametrize(
    "nulls",
    ['["loss_mask","loss_mask"]', '["status"]', '["nope"]', '["label"]', "[1]", "null", "{}"],
)
def test_nulls_that_name_no_array_field_once_are_refused(nulls: str) -> None:
    payload = encode_samples([make_sample(loss_mask=None, rollout_indexer_topk=None)])
    before = '"nulls":["loss_mask","rollout_indexer_topk"]'
    altered = document_of(payload).replace(before, f'"nulls":{nulls}')
    assert altered != document_of(payload)
    assert decode_refused(with_document(payload, altered), FieldError).sample_index == 0
