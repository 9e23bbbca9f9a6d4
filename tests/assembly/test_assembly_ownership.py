"""A sample is the caller's own: what is done to it changes neither turns nor records."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import numpy as np
import pytest

from sample_wire import Computed, Json, Schema, Tensor, encode_samples
from sample_wire.adapters.engines import turn_reader
from sample_wire.assembly import Turn, TurnReader, assemble_turns
from sample_wire.assembly.samples import extra_fields

from ._records import Array, Record, both_forms, plain, raw_base64, routed, sglang, spec, spelled
from ._sample_classes import RICH_SCHEMA, RichSample

OPTIONS: dict[str, Any] = {
    "accumulated_token_ids": None,
    "max_trim_tokens": 0,
    "decode_text": spelled,
    "routing": spec(),
    "keep_messages": True,
    "speculative": True,
    "schema": RICH_SCHEMA,
}


def record(prompt: list[int], output: list[int]) -> Record:
    """A turn with a value for every field."""
    num_tokens = len(prompt) + len(output)
    made = sglang(
        prompt,
        output,
        messages=[{"role": "user", "content": ["a"]}],
        routed_experts=raw_base64(routed(num_tokens - 1)),
        weight_version="7",
        cached_tokens=1,
        spec_verify_ct=1,
        entropy=[0.5] * len(output),
        top_ids=[[1]] * len(output),
        segments=[1] * num_tokens,
        tools=["search"],
        usage={"calls": 1},
        facts={"a": [1]},
        histogram=[1, 2],
    )
    return made | {"timestamp": 5.0}


def overwrite(array: Array) -> None:
    """Changes an array, if it lets itself be changed."""
    if array.flags.writeable:
        array[...] = 9


def spoiled(sample: RichSample) -> None:
    """Changes everything in a sample that can be changed."""
    for name in ("tokens", "loss_mask", "rollout_log_probs", "entropy", "segments", "histogram"):
        overwrite(getattr(sample, name))
    for name in ("weight_versions", "tools"):
        getattr(sample, name).append("9")
    assert sample.top_ids is not None
    overwrite(sample.top_ids[0])
    sample.top_ids.append(np.array([9]))
    sample.usage.calls = 9
    sample.prefix_cache_info.cached_tokens = 9
    sample.spec_info.spec_verify_ct = 9
    sample.facts["a"].append(9)
    sample.metadata["lifecycle"][0]["t1"] = 9
    sample.metadata["messages"][0]["content"].append(9)
    sample.metadata["messages"][-1]["content"] = 9


def facts_of(sample: RichSample) -> dict[str, Any]:
    """Every field in plain values."""
    return {field.name: plain(getattr(sample, field.name)) for field in dataclasses.fields(sample)}


@both_forms
@pytest.mark.parametrize("num_turns", [1, 2])
def test_a_changed_sample_changes_neither_turns_nor_records(num_turns: int, sent: Any) -> None:
    records = [*map(sent, [record([1, 2], [3]), record([1, 2, 3, 4], [5])][:num_turns])]
    before = copy.deepcopy(records)
    reader = TurnReader(routing=spec(), decode_text=spelled, extras=extra_fields(RICH_SCHEMA))
    turns: list[Turn] = []
    for item in records:
        turns.append(reader.read(item, turns[-1] if turns else None))
    first = assemble_turns(turns, **OPTIONS).samples[0]
    expected = copy.deepcopy(facts_of(first))
    spoiled(first)
    again = facts_of(assemble_turns(turns, **OPTIONS).samples[0])
    assert {name: plain(value) for name, value in again.items() if name != "top_ids"} == {
        name: value for name, value in expected.items() if name != "top_ids"
    }
    assert [*map(plain, again["top_ids"])] == [*map(plain, expected["top_ids"])]
    assert records == before


def test_a_turn_is_as_it_was_when_its_record_is_changed_later() -> None:
    item = record([1, 2], [3])
    reader = turn_reader(routing=spec(), decode_text=spelled, extras=extra_fields(RICH_SCHEMA))
    turn = reader.read(item, None)
    expected = bytes(encode_samples(assemble_turns([turn], **OPTIONS).samples))
    meta = item["response"]["choices"][0]["meta_info"]
    meta["tools"].append("more")
    meta["output_token_logprobs"][0][0] = -9.0
    item["request"]["input_ids"][0] = 9
    assert bytes(encode_samples(assemble_turns([turn], **OPTIONS).samples)) == expected


@dataclasses.dataclass
class MaskSample:
    """A class whose mask says how long the response is."""

    ids: list[int] = dataclasses.field(default_factory=list)
    tokens: list[int] = dataclasses.field(default_factory=list)
    loss_mask: list[int] = dataclasses.field(default_factory=list)
    answer: str = ""


def test_a_mask_may_say_how_long_the_response_is() -> None:
    schema = Schema.of(
        MaskSample,
        {
            "ids": Computed(codec=Json(), merge="extend"),
            "tokens": Computed(codec=Tensor("int64"), rows="tokens", sets="tokens", merge="last"),
            "loss_mask": Computed(
                codec=Tensor("uint8"), rows="response", sets="response", merge="concat", fill=0
            ),
            "answer": Computed(codec=Json(), merge="text"),
        },
    )
    records = [sglang([1, 2], [3], ids=[5]), sglang([1, 2, 3, 4], [6, 7], ids=[8])]
    options = OPTIONS | {"schema": schema, "routing": None}
    reader = TurnReader(routing=None, decode_text=spelled, extras=extra_fields(schema))
    first = reader.read(records[0], None)
    (found,) = assemble_turns([first, reader.read(records[1], first)], **options).samples
    assert found == MaskSample([5, 8], [1, 2, 3, 4, 6, 7], [1, 0, 1, 1], "<3><4><6,7>")
