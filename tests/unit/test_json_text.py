"""What is told of a JSON text before it is parsed: how deep it nests, how many values it has."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sample_wire._json import exceeds_depth, exceeds_values

# Texts are looked through in blocks of 65,536 bytes.
BORDER = 1 << 16
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.integers() | st.text('[]{},:"\\ax'),
    lambda inner: st.lists(inner) | st.dictionaries(st.text('[]{},:"\\ax'), inner),
    max_leaves=20,
)


def depth_of(value: Any) -> int:
    """Levels of arrays and objects."""
    if not isinstance(value, dict | list):
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max(map(depth_of, inner), default=0)


def num_values(value: Any) -> int:
    """Arrays, objects, and commas between their members."""
    if not isinstance(value, dict | list):
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max(len(value) - 1, 0) + sum(map(num_values, inner))


@given(VALUES)
def test_depth_is_that_of_the_value(value: Any) -> None:
    text = json.dumps(value).encode()
    depth = depth_of(value)
    assert not exceeds_depth(text, depth)
    assert depth == 0 or exceeds_depth(text, depth - 1)


@given(VALUES)
def test_values_are_counted_outside_strings_alone(value: Any) -> None:
    text = json.dumps(value).encode()
    count = num_values(value)
    assert not exceeds_values(text, count)
    assert count == 0 or exceeds_values(text, count - 1)


@pytest.mark.parametrize("before", range(BORDER - 4, BORDER + 1))
@pytest.mark.parametrize("string", [r"[[", r"\"[[", r"\\\"[[", r"\\"], ids=repr)
def test_a_string_that_crosses_two_blocks_is_one(before: int, string: str) -> None:
    text = b'["%b","%b",[0]]' % (b"x" * (before - 4), string.encode())
    assert not exceeds_depth(text, 2)
    assert exceeds_depth(text, 1)
    assert not exceeds_values(text, 4)
    assert exceeds_values(text, 3)


@pytest.mark.parametrize("text", [b'"', b'["', b'"' + b"[" * 200, b'["' + b"x" * BORDER + b"["])
def test_what_follows_an_open_quote_is_a_string(text: bytes) -> None:
    assert not exceeds_depth(text, 1)
    assert not exceeds_values(text, 1)
