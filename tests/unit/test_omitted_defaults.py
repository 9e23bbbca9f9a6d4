"""A field that is left out at its default: left out only where nothing is lost by it."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import pytest
from strategies import MAX_INT_CHARS, same_value

from sample_wire import Computed, Json, SampleBase, SpecInfo, decode_samples, encode_samples

from ._guard import define
from ._samples import make_sample, refused, round_trip

OMITTED = Computed(codec=Json(), merge="last", omit_default=True)


def omitting(annotation: Any, default: Any) -> type[Any]:
    """A class of one field that is left out at its default."""
    return define(Annotated[annotation, OMITTED], default, base=SampleBase)


@pytest.mark.parametrize(
    ("annotation", "default"),
    [
        (int, 7),
        (float, 0.0),
        (str, "a"),
        (str | None, None),
        (Any, None),
        (Any, True),
        (bool, False),
    ],
    ids=str,
)
def test_a_field_at_its_default_is_left_out_and_comes_back(annotation: Any, default: Any) -> None:
    kind = omitting(annotation, default)
    payload = bytes(encode_samples([kind()]))
    assert b'{"samples":[{"nulls":[]}]' in payload
    assert same_value(decode_samples(payload, kind()).samples[0].foo, default)


@pytest.mark.parametrize(
    ("annotation", "default", "value"),
    [
        (float, 0.0, -0.0),
        (float, -0.0, 0.0),
        (Any, 0, False),
        (Any, True, 1),
        (Any, 1, 1.0),
        (Any, None, 0),
        (Any, None, ""),
        (int, 0, 1),
        (str, "", "a"),
    ],
    ids=repr,
)
def test_a_value_that_only_equals_the_default_comes_back_as_it_is(
    annotation: Any, default: Any, value: Any
) -> None:
    kind = omitting(annotation, default)
    assert same_value(round_trip(kind(foo=value)).foo, value)


@pytest.mark.parametrize(
    ("annotation", "default", "value"),
    [
        (int, 0, False),
        (int, 0, 0.0),
        (int, 0, "0"),
        (Any, None, np.arange(3)),
        (Any, 0, np.array(0)),
        (Any, None, object()),
        (str, "a", b"a"),
        (str, "a", "\ud800"),
        (int, 0, 10 ** (MAX_INT_CHARS + 1)),
    ],
    ids=["bool", "float", "text", "array", "0-d", "object", "bytes", "surrogate", "long"],
)
def test_a_value_of_another_type_is_refused_at_the_default_too(
    annotation: Any, default: Any, value: Any
) -> None:
    assert refused(omitting(annotation, default)(foo=value)).field == "foo"


def test_counters_at_zero_are_left_out_of_the_json() -> None:
    assert b"spec_info" not in bytes(encode_samples([make_sample()]))
    assert b"spec_info" in bytes(encode_samples([make_sample(spec_info=SpecInfo(0, 0, 0, 1))]))


def test_a_field_at_its_default_stays_left_out_beside_text_that_looks_like_a_long_number() -> None:
    kind = define(Annotated[Any, OMITTED])
    text = "-" + "9" * MAX_INT_CHARS
    assert round_trip(kind(response=text)).response == text
    assert b'"foo"' not in bytes(encode_samples([kind(response=text)]))


def test_a_default_in_the_json_is_read_too() -> None:
    kind = omitting(int, 7)
    written = define(Annotated[int, Computed(codec=Json(), merge="last")], 7, base=SampleBase)
    payload = encode_samples([written()])
    assert b'"foo":7' in bytes(payload)
    assert decode_samples(payload, kind()).samples[0].foo == 7
