"""The worked example of SPEC section 13 in both formats: its bytes, its meaning, the way back."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import numpy as np
import pytest

from sample_wire import (
    PrefixCacheInfo,
    Sample,
    Status,
    decode_samples,
    encode_samples,
    read_fields,
)

from ._meaning import reply_meaning
from ._spec import code_blocks, section
from ._wire import META, split, tensors_of

_DUMP_LINE: Final = re.compile(r"^([0-9a-f]{4})  ((?:[0-9a-f]{2} )*[0-9a-f]{2}) +(\S.*)$")


_FORMATS: Final = pytest.mark.parametrize("number", [1, 2], ids=["format-1", "format-2"])


def _dump(number: int) -> list[tuple[int, bytes, str]]:
    text = code_blocks("13", "text")[number - 1]
    lines = [_DUMP_LINE.match(line) for line in text.splitlines()]
    assert all(lines)
    return [
        (int(line[1], 16), bytes.fromhex(line[2]), line[3]) for line in lines if line is not None
    ]


def _example(number: int) -> tuple[dict[str, Any], bytes]:
    (text,) = code_blocks("13", "json")
    return json.loads(text), b"".join(data for _, data, _ in _dump(number))


@_FORMATS
def test_section_13_counts_its_bytes(number: int) -> None:
    position = 0
    for offset, data, _ in _dump(number):
        assert offset == position
        position += len(data)
    assert re.findall(r"these (\d+) bytes", section("13"))[number - 1] == str(position)


@_FORMATS
def test_section_13_shows_the_text_of_its_json(number: int) -> None:
    _, example = _example(number)
    header, _ = split(example)
    (meta,) = [item.data for item in tensors_of(example) if item.name == META]
    shown = [line for _, line, what in _dump(number) if line == what.encode()]
    assert b"".join(shown) == header.rstrip() + meta


@_FORMATS
def test_section_13_is_read_to_its_meaning(number: int) -> None:
    stated, example = _example(number)
    (found,) = reply_meaning(decode_samples(example, Sample()), 1)["samples"]
    (expected,) = stated["samples"]
    arrays = read_fields(example, ["tokens", "loss_mask", "rollout_log_probs"])[0]
    arrays |= read_fields(example, ["rollout_routed_experts"])[0]
    assert {name: array.tolist() for name, array in arrays.items()} == {
        name: expected[name] for name in arrays
    }
    assert {name: found[name] for name in expected if name not in arrays} == {
        name: value for name, value in expected.items() if name not in arrays
    }


@_FORMATS
def test_section_13_is_what_encode_makes_of_its_meaning(number: int) -> None:
    stated, example = _example(number)
    (fields,) = stated["samples"]
    fields["status"] = Status(fields["status"])
    fields["prefix_cache_info"] = PrefixCacheInfo(**fields["prefix_cache_info"])
    fields["rollout_routed_experts"] = np.array(fields["rollout_routed_experts"], np.int32)
    written = encode_samples(
        [Sample(**fields)], stated["session_metadata"], layout=("exact", "compact")[number - 1]
    )
    assert bytes(written) == example
