"""JSON fields are checked by their types, and come back equal or are refused by name."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec
import numpy as np
import pytest
from strategies import MAX_INT_CHARS, MAX_METADATA_LEVELS, same_sample, same_value

from sample_wire import (
    Computed,
    Json,
    PrefixCacheInfo,
    Sample,
    SpecInfo,
    decode_samples,
    encode_samples,
)

from ._samples import refused, round_trip, template_of


class Kind(enum.StrEnum):
    """Equal to a text, and yet none in JSON."""

    A = "a"


class Record(msgspec.Struct):
    """An object that msgspec would write without a word."""

    x: int = 1


@dataclass
class Plain:
    """Another one."""

    x: int = 1


TYPED: dict[str, tuple[str, Any]] = {
    "response-bytes": ("response", b"x"),
    "response-none": ("response", None),
    "response-list": ("response", ["x"]),
    "response-surrogate": ("response", "a\ud800"),
    "length-float": ("response_length", 1.0),
    "length-bool": ("response_length", True),
    "length-text": ("response_length", "1"),
    "length-none": ("response_length", None),
    "length-huge": ("response_length", 2**63),
    "status-text": ("status", "completed"),
    "status-none": ("status", None),
    "status-other": ("status", Kind.A),
    "versions-none": ("weight_versions", None),
    "versions-text": ("weight_versions", "12"),
    "versions-ints": ("weight_versions", [1]),
    "versions-surrogate": ("weight_versions", ["\ud800"]),
    "versions-dict": ("weight_versions", {"1": 2}),
    "versions-set": ("weight_versions", {"1"}),
    "cache-dict": ("prefix_cache_info", {"cached_tokens": 1, "total_prompt_tokens": 2}),
    "cache-none": ("prefix_cache_info", None),
    "cache-negative": ("prefix_cache_info", PrefixCacheInfo(-1, 0)),
    "cache-huge": ("prefix_cache_info", PrefixCacheInfo(2**63, 0)),
    "cache-float": ("prefix_cache_info", PrefixCacheInfo(1.5, 0)),  # type: ignore[arg-type]  # the fault
    "spec-other": ("spec_info", PrefixCacheInfo(1, 2)),
    "spec-negative": ("spec_info", SpecInfo(spec_verify_ct=-1)),
    "spec-none": ("spec_info", None),
}


@pytest.mark.parametrize("case", TYPED)
def test_a_json_field_of_another_type_is_refused_by_name(case: str) -> None:
    name, value = TYPED[case]
    error = refused(template_of(**{"tokens": [1], name: value}))
    assert (error.field, error.sample_index) == (name, 0)
    assert f"field {name}" in str(error)


JSON_FIELDS = (
    "response",
    "response_length",
    "status",
    "weight_versions",
    "prefix_cache_info",
    "metadata",
    "spec_info",
    "reward",
)


@pytest.mark.parametrize("value", [msgspec.UNSET, msgspec.NODEFAULT, object], ids=repr)
@pytest.mark.parametrize("name", JSON_FIELDS)
def test_a_marker_is_no_value_of_a_json_field(name: str, value: object) -> None:
    assert refused(template_of(**{name: value}), field_set=2).field == name


@pytest.mark.parametrize("reward", ["text", [1], True, (1,)], ids=repr)
def test_a_reward_of_another_type_is_refused(reward: Any) -> None:
    assert refused(template_of(reward=reward), field_set=2).field == "reward"


@pytest.mark.parametrize("reward", [0.0, -1.5, None, {}, {"a": {"b": [1]}}], ids=repr)
def test_a_reward_comes_back(reward: Any) -> None:
    found = round_trip(template_of(reward=reward), field_set=2)
    assert same_value(found.reward, reward)


@pytest.mark.parametrize(
    ("name", "value", "back"),
    [
        ("weight_versions", ("1", "2"), ["1", "2"]),
        ("weight_versions", [np.str_("1")], ["1"]),
        ("response", np.str_("x"), "x"),
        ("response_length", np.int64(1), 1),
    ],
    ids=lambda value: repr(value)[:24],
)
def test_tuples_and_numpy_scalars_become_what_the_type_says(
    name: str, value: Any, back: Any
) -> None:
    found = round_trip(template_of(**{"tokens": [1], name: value}))
    assert same_value(getattr(found, name), back)


class Node(msgspec.Struct):
    """A record that nests."""

    next: Node | None = None


class Scored(Sample):
    """JSON fields of several types."""

    chain: Annotated[Node | None, Computed(codec=Json(), merge="last")] = None
    plain: Annotated[Plain | None, Computed(codec=Json(), merge="last")] = None

    score: Annotated[float | None, Computed(codec=Json(), merge="last")] = None
    tags: Annotated[dict[str, list[int]], Computed(codec=Json(), merge="last")] = field(
        default_factory=dict
    )
    record: Annotated[Record | None, Computed(codec=Json(), merge="last")] = None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("score", float("nan")),
        ("score", float("inf")),
        ("score", "1"),
        ("tags", {1: [1]}),
        ("tags", {"a": ["1"]}),
        ("tags", {"a": {1}}),
        ("record", {"x": 1}),
        ("record", Plain()),
    ],
    ids=lambda value: repr(value)[:24],
)
def test_a_json_field_of_a_subclass_is_checked_by_its_type(name: str, value: Any) -> None:
    sample = Scored()
    setattr(sample, name, value)
    assert refused(sample).field == name


def test_json_fields_of_a_subclass_come_back() -> None:
    sent = Scored(score=-0.0, tags={"a": [1]}, record=Record(5), plain=Plain(6))
    assert same_sample(round_trip(sent), sent)


def test_a_record_that_nests_too_deep_is_refused() -> None:
    chain = None
    for _ in range(MAX_METADATA_LEVELS):
        chain = Node(chain)
    found = round_trip(Scored(chain=chain))
    assert same_value(found.chain, chain)
    assert "nests too deep" in str(refused(Scored(chain=Node(chain))))


@pytest.mark.parametrize("digits", [MAX_INT_CHARS - 1, MAX_INT_CHARS, 2 * MAX_INT_CHARS])
def test_text_that_looks_like_a_long_integer_comes_back(digits: int) -> None:
    metadata = {"a": "-" + "9" * digits, "b": "[-" + "9" * digits}
    assert round_trip(Sample(metadata=metadata)).metadata == metadata
    assert decode_samples(encode_samples([], metadata), Sample()).session_metadata == metadata
