"""Decoded samples: computed fields of the payload over a copy of the template, never over it."""

from __future__ import annotations

import collections
import copy
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec
import numpy as np
import pytest
from strategies import same_value

from sample_wire import (
    Computed,
    DecodeError,
    Json,
    Sample,
    SampleBase,
    Schema,
    Status,
    Template,
    TemplateError,
    Tensor,
    decode_samples,
    encode_samples,
)

from ._samples import make_sample, template_of


def laid_over(template: Any, *sent: Sample, **options: Any) -> list[Any]:
    """The samples, decoded onto a template; an empty one by default."""
    payload = bytes(encode_samples(sent or (Sample(),), field_set=options.get("field_set", 1)))
    return decode_samples(payload, template, **options).samples


TEMPLATE_FIELDS = {
    "group_index": 3,
    "index": 4,
    "rollout_id": "r-1",
    "prompt": [{"role": "user", "content": "hi"}],
    "multimodal_inputs": {"images": [b"png"]},
    "multimodal_train_inputs": {"pixels": [1.5]},
    "label": {"answer": 42},
    "remove_sample": True,
    "generate_function_path": "a.b",
    "train_metadata": {"k": [1]},
    "adapter": "lora",
    "reward_spec": {"kind": "exact"},
    "routing_key": "key",
    "non_generation_time": 1.5,
}


@pytest.mark.parametrize("name", TEMPLATE_FIELDS)
def test_a_template_field_is_kept(name: str) -> None:
    (found,) = laid_over(template_of(**{name: TEMPLATE_FIELDS[name]}), make_sample())
    assert same_value(getattr(found, name), TEMPLATE_FIELDS[name])


def test_every_template_field_is_tested() -> None:
    declared = {one.name for one in Sample.__sample_schema__.fields if one.owner == Template()}
    assert declared == {*TEMPLATE_FIELDS}


def test_computed_fields_of_the_template_are_replaced() -> None:
    template = make_sample(3, 1, response="old", status=Status.FAILED, spec_info=None)
    (found,) = laid_over(template, Sample(status=Status.ABORTED))
    assert found.tokens.tolist() == []
    assert (found.response, found.response_length, found.loss_mask) == ("", 0, None)
    assert found.status is Status.ABORTED


def test_the_samples_are_of_the_templates_class() -> None:
    kind: Any = type("Mine", (Sample,), {})
    assert [type(sample) for sample in laid_over(kind(), Sample(), Sample())] == [kind, kind]


def test_metadata_is_updated_and_the_servers_keys_win() -> None:
    template = Sample(metadata={"ours": 1, "both": {"a": 1}, "last": 2})
    (found,) = laid_over(template, Sample(metadata={"both": {"b": 2}, "theirs": 3}))
    assert found.metadata == {"ours": 1, "both": {"b": 2}, "last": 2, "theirs": 3}


def test_metadata_keeps_the_templates_order_and_appends_the_servers() -> None:
    template = Sample(metadata={"z": 1, "both": 1, "a": 1})
    (found,) = laid_over(template, Sample(metadata={"y": 2, "both": 2, "b": 2}))
    assert [*found.metadata] == ["z", "both", "a", "y", "b"]


@pytest.mark.parametrize("metadata", [None, {}], ids=str)
def test_a_template_without_metadata_gets_the_servers(metadata: Any) -> None:
    (found,) = laid_over(Sample(metadata=metadata), Sample(metadata={"a": 1}))
    assert found.metadata == {"a": 1}


@pytest.mark.parametrize("metadata", [[1], "text", 5, object()], ids=lambda m: type(m).__name__)
def test_template_metadata_that_is_no_dict_is_refused(metadata: Any) -> None:
    with pytest.raises(TemplateError, match="template field metadata must be a dict") as caught:
        laid_over(Sample(metadata=metadata))
    assert caught.value.field == "metadata"


def test_a_null_reward_keeps_the_templates_and_zero_does_not() -> None:
    template = Sample(reward=2.5)
    found = laid_over(template, Sample(), Sample(reward=0.0), Sample(reward={}), field_set=2)
    assert [sample.reward for sample in found] == [2.5, 0.0, {}]


def test_a_kept_reward_is_independent_of_the_template() -> None:
    template = Sample(reward={"parts": [1.0]})
    (found,) = laid_over(template, Sample(), field_set=2)
    found.reward["parts"].append(2.0)
    assert template.reward == {"parts": [1.0]}


def test_field_set_1_keeps_the_templates_reward() -> None:
    (found,) = laid_over(Sample(reward=2.5), Sample(reward=7.0))
    assert found.reward == 2.5


class TensorLike:
    """An object that this library knows nothing of and copies by its own rules."""

    def __init__(self, values: list[int]) -> None:
        self.values = values

    def __deepcopy__(self, memo: dict[int, Any]) -> TensorLike:
        return TensorLike(list(self.values))


MUTABLE: dict[str, Any] = {
    "list": [1, [2, [3]]],
    "dict": {"a": {"b": [1]}},
    "tuple": ([1], {"a": [2]}),
    "set": {1, 2},
    "ordered": collections.OrderedDict(a=[1]),
    "bytearray": bytearray(b"abc"),
    "array": np.arange(3),
    "object-array": np.array([[1], {"a": 2}], object),
    "list-of-arrays": [np.arange(3), {"a": np.arange(2)}],
    "struct": msgspec.defstruct("Inner", ["items"])([1]),
    "tensor": TensorLike([1, 2]),
    "list-of-tensors": [TensorLike([1])],
}


def mutable_parts(value: Any) -> list[object]:
    """Everything in a value that could be changed."""
    if isinstance(value, (str, int, float, bytes, type(None))):
        return []
    inner: list[Any] = []
    if isinstance(value, dict):
        inner = list(value.values())
    elif isinstance(value, (list, tuple, set)):
        inner = list(value)
    elif isinstance(value, np.ndarray) and value.dtype == object:
        inner = value.tolist()
    elif isinstance(value, (TensorLike, msgspec.Struct)):
        inner = [value.values] if isinstance(value, TensorLike) else [value.items]  # type: ignore[attr-defined]  # Inner has it
    own = [] if isinstance(value, tuple) else [value]
    return own + [part for item in inner for part in mutable_parts(item)]


@pytest.mark.parametrize("copy_arrays", [False, True], ids=["views", "copies"])
@pytest.mark.parametrize("where", ["label", "metadata", "adhoc"])
@pytest.mark.parametrize("name", MUTABLE)
def test_nothing_mutable_is_shared_with_the_template_or_another_sample(
    name: str, where: str, copy_arrays: bool
) -> None:
    value = copy.deepcopy(MUTABLE[name])
    template = Sample()
    setattr(template, where, {"in": value} if where == "metadata" else value)
    found = laid_over(template, Sample(), Sample(), copy=copy_arrays)
    parts = [mutable_parts(getattr(sample, where)) for sample in (template, *found)]
    assert len({len(of_one) for of_one in parts}) == 1
    identities = [id(part) for of_one in parts for part in of_one]
    assert len(set(identities)) == len(identities)


def test_an_array_of_the_template_is_shared_read_only() -> None:
    label = np.arange(5)
    (found,) = laid_over(Sample(label=label, train_metadata={"a": [label]}))
    for shared in (found.label, found.train_metadata["a"][0]):
        assert np.shares_memory(shared, label)
        assert not shared.flags.writeable
    label[0] = 9
    assert label.flags.writeable


def test_with_copy_an_array_of_the_template_is_a_writable_copy() -> None:
    label = np.arange(5)
    (found,) = laid_over(Sample(label=label, metadata={"a": [label]}), copy=True)
    for own in (found.label, found.metadata["a"][0]):
        own[0] = 9
    assert label[0] == 0


def test_a_template_value_that_holds_itself_is_copied() -> None:
    cycle: dict[str, Any] = {"x": [1]}
    cycle["self"] = cycle
    (found,) = laid_over(Sample(label=cycle))
    assert found.label["self"] is found.label
    assert found.label is not cycle
    assert found.label["x"] is not cycle["x"]


def test_a_template_value_that_nests_too_deep_is_refused() -> None:
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(TemplateError, match="nests deeper"):
        laid_over(Sample(label=deep))


def test_attributes_beside_the_fields_are_kept() -> None:
    template = Sample()
    template.note = {"a": [1]}  # type: ignore[attr-defined]  # what is tested
    found = laid_over(template, Sample(), Sample())
    assert [sample.note for sample in found] == [{"a": [1]}] * 2


@dataclass
class Plain:
    """A foreign class."""

    tokens: list[int] = field(default_factory=list)
    label: Any = None


class Boxed(msgspec.Struct, dict=True):
    """A foreign Struct that may carry more attributes."""

    tokens: list[int] = []
    label: Any = None


@dataclass(frozen=True)
class Frozen:
    """A foreign class that cannot be assigned to."""

    tokens: list[int] = field(default_factory=list)
    label: Any = None


TOKENS = Computed(codec=Tensor("int64"), rows="tokens", sets="tokens", merge="last")
FOREIGN: dict[Any, Schema] = {
    kind: Schema.of(kind, {"tokens": TOKENS, "label": Template()})
    for kind in (Plain, Boxed, Frozen)
}


@pytest.mark.parametrize("kind", FOREIGN)
@pytest.mark.parametrize("copy_arrays", [False, True], ids=["views", "copies"])
def test_a_foreign_template_is_independent_and_unchanged(kind: Any, copy_arrays: bool) -> None:
    schema = FOREIGN[kind]
    template = kind(tokens=[9], label={"a": [1]})
    payload = encode_samples([kind(tokens=[1]), kind(tokens=[2])], schema=schema)
    found = decode_samples(payload, template, schema=schema, copy=copy_arrays).samples
    assert [sample.tokens for sample in found] == [[1], [2]]
    assert len({id(sample.label["a"]) for sample in (template, *found)}) == 3
    assert (template.tokens, template.label) == ([9], {"a": [1]})


@pytest.mark.parametrize("kind", [Plain, Boxed])
def test_attributes_beside_the_fields_of_a_foreign_template_are_independent(kind: Any) -> None:
    template = kind()
    template.note = [1]
    payload = encode_samples([kind(), kind()], schema=FOREIGN[kind])
    found = decode_samples(payload, template, schema=FOREIGN[kind]).samples
    assert [sample.note for sample in found] == [[1], [1]]
    assert len({id(sample.note) for sample in (template, *found)}) == 3


def test_a_field_that_was_left_out_is_at_its_default_and_not_the_templates() -> None:
    kind: Any = type(
        "Counting",
        (SampleBase,),
        {
            "__annotations__": {
                "count": Annotated[int, Computed(codec=Json(), merge="last", omit_default=True)]
            },
            "count": 7,
        },
    )
    payload = encode_samples([kind(count=7)])
    assert b'"count"' not in bytes(payload)
    assert decode_samples(payload, kind(count=1)).samples[0].count == 7


def test_each_sample_gets_a_default_of_its_own() -> None:
    found = laid_over(Sample(), Sample(), Sample())
    assert found[0].spec_info is not found[1].spec_info


def test_the_session_metadata_is_no_ones_but_the_replys() -> None:
    payload = bytes(encode_samples([], {"a": [1]}))
    first, second = (decode_samples(payload, Sample()) for _ in range(2))
    first.session_metadata["a"].append(2)
    assert second.session_metadata == {"a": [1]}


def test_a_reply_cannot_be_assigned_to() -> None:
    reply = decode_samples(bytes(encode_samples([])), Sample())
    with pytest.raises(AttributeError):
        reply.samples = []  # type: ignore[misc]  # the fault under test


def snapshot(template: Sample) -> dict[str, Any]:
    return copy.deepcopy(vars(template))


@pytest.mark.parametrize("fault", ["bytes", "field", "template"])
def test_a_refusal_leaves_the_template_unchanged(fault: str) -> None:
    template = Sample(metadata={"a": [1]}, label=[np.arange(2)], reward={"x": 1})
    payload = bytes(encode_samples([make_sample(), make_sample()], field_set=2))
    if fault == "bytes":
        payload = payload[:-1]
    elif fault == "field":
        payload = payload.replace(b'"status":"pending"', b'"status":"unknown"')
    else:
        template.weight_versions = ["1"]
    before = snapshot(template)
    with pytest.raises((DecodeError, TemplateError)):
        decode_samples(payload, template, field_set=2)
    assert same_value(vars(template), before)


def test_a_decode_leaves_the_template_unchanged() -> None:
    template = make_sample(metadata={"a": {"b": 1}}, label=[np.arange(2)], reward={"x": [1]})
    before = snapshot(template)
    for sample in laid_over(template, make_sample(metadata={"a": 2}), field_set=2, copy=True):
        sample.label[0][0] = 7
        sample.reward["x"].append(2)
        sample.metadata["c"] = 1
    assert same_value(vars(template), before)


def test_a_templates_mapping_may_be_of_a_kind_of_dict() -> None:
    template = template_of(metadata=collections.OrderedDict(kept=1, won=2))
    (sample,) = laid_over(template, Sample(metadata={"won": 3}))
    assert sample.metadata == {"kept": 1, "won": 3}
    assert template.metadata == {"kept": 1, "won": 2}
