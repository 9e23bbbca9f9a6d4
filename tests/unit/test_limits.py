"""The limits of a reader: samples, JSON depth, header bytes."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from strategies import nested

from sample_wire import (
    ContainerError,
    DecodeError,
    LimitError,
    Sample,
    decode_samples,
    encode_samples,
    read_container,
    write_container,
)

from ._samples import decode_refused, document_of, make_sample, with_document


def header_bytes(payload: bytes) -> int:
    return int.from_bytes(payload[:8], "little")


@pytest.mark.parametrize("limit", [0, 1, 2])
def test_more_samples_than_the_limit_are_refused_with_both_numbers(limit: int) -> None:
    payload = bytes(encode_samples([Sample()] * (limit + 1)))
    error = decode_refused(payload, LimitError, max_samples=limit)
    assert (error.expected, error.got) == (f"at most {limit}", str(limit + 1))
    assert error.http_status_hint == 413


@pytest.mark.parametrize("limit", [0, 1, 2])
def test_as_many_samples_as_the_limit_are_read(limit: int) -> None:
    payload = bytes(encode_samples([Sample()] * limit))
    assert len(decode_samples(payload, Sample(), max_samples=limit).samples) == limit


def test_the_default_limit_is_4096_samples() -> None:
    payload = bytes(encode_samples([Sample()] * 4097))
    decode_refused(payload, LimitError)
    assert len(decode_samples(payload, Sample(), max_samples=4097).samples) == 4097
    assert len(decode_samples(bytes(encode_samples([Sample()] * 4096)), Sample()).samples) == 4096


def deep_payload(levels: int) -> bytes:
    """A payload whose document nests so many levels."""
    document = document_of(encode_samples([]))
    value = "[" * (levels - 1) + "]" * (levels - 1)
    return with_document(encode_samples([]), document.replace("{},", f'{{"a":{value[1:-1]}}},'))


@pytest.mark.parametrize("limit", [3, 10, 128, 200])
def test_json_that_nests_deeper_than_the_limit_is_refused(limit: int) -> None:
    reply = decode_samples(deep_payload(limit), Sample(), max_depth=limit)
    assert "a" in reply.session_metadata
    error = decode_refused(deep_payload(limit + 1), LimitError, max_depth=limit)
    assert error.expected == str(limit)


def test_the_default_limit_is_128_levels() -> None:
    assert decode_samples(deep_payload(128), Sample()).samples == []
    decode_refused(deep_payload(129), LimitError)


@pytest.mark.parametrize("levels", [10_000, 1_000_000])
def test_json_of_any_depth_is_refused_at_once(levels: int) -> None:
    decode_refused(deep_payload(levels), LimitError)


@pytest.mark.parametrize("levels", [10_000, 1_000_000])
def test_json_deeper_than_python_can_follow_is_refused_whatever_the_limit(levels: int) -> None:
    decode_refused(deep_payload(levels), max_depth=10**9)


@pytest.mark.parametrize("opened", ["[", '{"a":'], ids=["arrays", "objects"])
def test_json_as_deep_as_python_can_just_follow_is_read_or_refused(opened: str) -> None:
    # The parsers give up at slightly different depths; each of them must do so cleanly.
    closed = "]" if opened == "[" else "}"
    deepest = sys.getrecursionlimit() + 10
    outcomes = set()
    for levels in range(deepest - 200, deepest):
        value = " " + opened * levels + "1" + closed * levels
        document = document_of(encode_samples([])).replace("{}", f'{{"a":{value}}}')
        try:
            decode_samples(with_document(encode_samples([]), document), Sample(), max_depth=10**9)
            outcomes.add("read")
        except DecodeError:
            outcomes.add("refused")
    assert "read" in outcomes


@pytest.mark.parametrize(
    "text",
    ["[" * 1000, "]" * 1000, '\\"[' * 300, "\\\\", '\\\\\\"' + "{" * 500, "{[" * 5000],
    ids=lambda text: text[:6] + str(len(text)),
)
def test_brackets_in_texts_are_no_levels(text: str) -> None:
    metadata: dict[str, Any] = {"a": text, "b": nested(100, text), text: [text]}
    reply = decode_samples(bytes(encode_samples([], metadata)), Sample())
    assert reply.session_metadata == metadata


def test_a_header_longer_than_the_limit_is_refused_with_both_numbers() -> None:
    payload = bytes(encode_samples([make_sample()]))
    size = header_bytes(payload)
    assert len(decode_samples(payload, Sample(), max_header_bytes=size).samples) == 1
    error = decode_refused(payload, ContainerError, max_header_bytes=size - 1)
    assert (error.expected, error.got) == (f"at most {size - 1}", str(size))


def test_read_container_takes_the_same_limit() -> None:
    payload = bytes(write_container({}))
    size = header_bytes(payload)
    assert read_container(payload, max_header_bytes=size) == {}
    with pytest.raises(ContainerError):
        read_container(payload, max_header_bytes=size - 1)


def test_a_header_that_claims_more_than_there_is_is_refused_at_once() -> None:
    for claim in (2**64 - 1, 2**63, 100_000_001, 99_999_999):
        decode_refused(claim.to_bytes(8, "little") + b"{}", ContainerError)
