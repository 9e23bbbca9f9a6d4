"""to_torch: dtypes, values, whose memory it is, and what is copied."""

from __future__ import annotations

import dataclasses
import gc
import mmap
import pathlib
import weakref
from typing import Annotated, Any

import numpy as np
import pytest
from hypothesis import given
from strategies import VIEWS, same_value, samples
from unit._samples import make_sample, round_trip, routed
from unit._typed import Typed

from sample_wire import (
    Computed,
    EncodeError,
    Sample,
    Schema,
    Tensor,
    decode_samples,
    encode_samples,
    read_container,
)

pytest.importorskip("torch")
import torch

from sample_wire.adapters.torch import to_torch

from ._spy import moves

pytestmark = pytest.mark.torch
ARRAYS = {
    "tokens": "int64",
    "loss_mask": "uint8",
    "rollout_log_probs": "float64",
    "rollout_routed_experts": "int32",
    "rollout_indexer_topk": "int32",
}


def address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


@given(sample=samples())
def test_every_array_field_is_a_tensor_of_the_declared_dtype_with_the_same_bits(
    sample: Sample,
) -> None:
    sample = round_trip(sample)
    found: Any = to_torch(sample)
    assert [*found] == [*ARRAYS]
    for name, dtype in ARRAYS.items():
        array = getattr(sample, name)
        if array is None:
            assert found[name] is None
        else:
            assert same_value(found[name].numpy(), array)
            assert array.dtype == dtype


def test_a_reply_gives_the_tensors_of_each_sample() -> None:
    reply = decode_samples(encode_samples([make_sample(5), make_sample(3, 1)]), Sample())
    first, second = to_torch(reply)
    assert isinstance(first["tokens"], torch.Tensor)
    assert isinstance(second["tokens"], torch.Tensor)
    assert (first["tokens"].tolist(), second["tokens"].tolist()) == ([0, 1, 2, 3, 4], [0, 1, 2])


def test_a_reply_without_samples_gives_none() -> None:
    assert to_torch(decode_samples(encode_samples([]), Sample())) == []


def test_tensors_lie_in_the_payload_itself() -> None:
    whole = encode_samples([make_sample(rollout_indexer_topk=routed(5))]).contiguous()
    arrays = read_container(whole)
    found: Any = to_torch(decode_samples(whole, Sample()).samples[0])
    for name in ARRAYS:
        assert found[name].data_ptr() == address(arrays[f"{name}.0"])


def test_nothing_is_moved_or_cast_on_the_host() -> None:
    sample = round_trip(make_sample())
    with moves() as seen:
        to_torch(sample)
    assert seen == []


def test_a_tensor_keeps_a_mapped_file_open(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "payload"
    with path.open("wb") as file:
        encode_samples([make_sample()]).write_to(file)
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    found: Any = to_torch(decode_samples(mapped, Sample()).samples[0])["tokens"]
    with pytest.raises(BufferError):
        mapped.close()
    assert found.tolist() == [0, 1, 2, 3, 4]
    del found
    gc.collect()
    mapped.close()


def test_a_payload_is_freed_with_its_last_tensor() -> None:
    whole = np.frombuffer(encode_samples([make_sample()]).contiguous(), np.uint8)
    alive = weakref.ref(whole)
    found = to_torch(decode_samples(whole, Sample()).samples[0])
    del whole
    gc.collect()
    assert alive() is not None
    del found
    gc.collect()
    assert alive() is None


def test_c07_the_sample_stays_read_only_beside_its_tensors() -> None:
    sample = round_trip(make_sample())
    to_torch(sample)
    with pytest.raises(ValueError, match="read-only"):
        sample.tokens[0] = 5


def test_c07_tensors_of_a_copied_sample_may_be_written() -> None:
    whole = encode_samples([make_sample()]).contiguous()
    before = bytes(whole)
    sample = decode_samples(whole, Sample(), copy=True).samples[0]
    found: Any = to_torch(sample)["rollout_routed_experts"]
    found[0, 0, 0] = 77
    assert sample.rollout_routed_experts is not None
    assert sample.rollout_routed_experts[0, 0, 0] == 77
    assert bytes(whole) == before


@pytest.mark.parametrize("view", [name for name in VIEWS if name != "broadcast"])
def test_arrays_of_any_memory_order_become_tensors_by_value(view: str) -> None:
    array = VIEWS[view](np.arange(24, dtype=np.int32).reshape(4, 2, 3))
    found: Any = to_torch(make_sample(rollout_routed_experts=array))["rollout_routed_experts"]
    assert same_value(found.numpy(), np.arange(24, dtype=np.int32).reshape(4, 2, 3))
    assert found.data_ptr() % 4 == 0


@pytest.mark.parametrize("skew", range(8))
def test_a_payload_at_any_address_becomes_tensors_by_value(skew: int) -> None:
    payload = bytes(encode_samples([make_sample()]))
    sample = decode_samples(memoryview(bytes(skew) + payload)[skew:], Sample()).samples[0]
    found: Any = to_torch(sample)
    assert same_value(found["rollout_log_probs"].numpy(), np.full(2, -0.5))
    assert same_value(found["rollout_routed_experts"].numpy(), routed(5))


NARROW = pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16"])


@NARROW
def test_narrow_routing_is_widened_to_the_declared_dtype(dtype: str) -> None:
    narrow = np.array([[[0, 1]], [[100, 127]]], dtype)
    found: Any = to_torch(make_sample(3, 1, rollout_routed_experts=narrow))
    assert same_value(found["rollout_routed_experts"].numpy(), narrow.astype(np.int32))


@NARROW
def test_narrow_routing_is_moved_first_and_widened_on_the_device(dtype: str) -> None:
    narrow = np.zeros((2, 1, 2), dtype)
    sample = Sample(tokens=np.arange(3), rollout_routed_experts=narrow)
    with moves() as seen:
        found: Any = to_torch(sample, "meta")
    assert found["rollout_routed_experts"].device.type == "meta"
    assert found["rollout_routed_experts"].dtype == torch.int32
    assert seen == [("int64", "meta"), (dtype, "meta"), ("int32", "meta")]


def test_ids_above_those_of_a_signed_type_are_widened_unchanged() -> None:
    high = np.array([[[255, 128]]], np.uint8), np.array([[[65535, 32768]]], np.uint16)
    for narrow in high:
        found: Any = to_torch(make_sample(2, 1, rollout_routed_experts=narrow))
        assert found["rollout_routed_experts"].tolist() == narrow.tolist()


def test_c06_float32_log_probs_are_widened_without_loss() -> None:
    narrow = np.array([-0.0157, -2.3456, -17.89], np.float32)
    found: Any = to_torch(make_sample(4, 3, loss_mask=None, rollout_log_probs=narrow))
    assert same_value(found["rollout_log_probs"].numpy(), narrow.astype(np.float64))


@pytest.mark.parametrize("mask", [[1, -1], np.array([1, -1]), np.array([1, -1], np.int8)])
def test_c04_a_value_that_the_declared_dtype_does_not_hold_is_refused(mask: Any) -> None:
    with pytest.raises(EncodeError) as caught:
        to_torch(make_sample(loss_mask=mask))
    assert (caught.value.field, caught.value.sample_index) == ("loss_mask", None)
    assert "-1 at position 1" in str(caught.value)


def test_a_refused_value_in_a_reply_names_the_sample() -> None:
    reply = decode_samples(encode_samples([make_sample(), make_sample()]), Sample())
    reply.samples[1].loss_mask = [300, 0]  # type: ignore[assignment]  # what is refused
    with pytest.raises(EncodeError, match="sample 1, field loss_mask"):
        to_torch(reply)


@pytest.mark.parametrize(
    "name",
    ["u64", "i64", "f64", "c64", "f32", "u32", "i32", "f16", "u16", "i16", "i8", "u8", "flag"],
)
def test_every_dtype_of_the_wire_has_its_tensor(name: str) -> None:
    values: dict[str, Any] = {
        name: {"flag": [False, True], "c64": np.array([0, 1j], "c8")}.get(name, [0, 1])
    }
    sample = round_trip(Typed(**values))
    found: Any = to_torch(sample)[name]
    assert same_value(found.numpy(), getattr(sample, name))


def test_a_ragged_field_is_a_list_of_tensors() -> None:
    found: Any = to_torch(round_trip(Typed(tokens=np.arange(3), runs=[[1], [2, 3], []])))["runs"]
    assert [row.tolist() for row in found] == [[1], [2, 3], []]


@dataclasses.dataclass
class Foreign:
    """A class of somebody else's, with lists."""

    ids: list[int] = dataclasses.field(default_factory=list)


FOREIGN = Schema.of(
    Foreign,
    {"ids": Computed(codec=Tensor("int64"), rows="tokens", sets="tokens", merge="last")},
)


def test_lists_of_a_foreign_class_become_tensors_of_the_declared_dtype() -> None:
    found: Any = to_torch(Foreign([3, 2**40]), schema=FOREIGN)["ids"]
    assert same_value(found.numpy(), np.array([3, 2**40], np.int64))


class Newer(Sample):
    """A tensor that a later field set brings."""

    values: Annotated[
        Any,
        Computed(
            codec=Tensor("float32"),
            rows="response",
            merge="concat",
            fill=0.0,
            null="none",
            since=3,
        ),
    ] = None


def test_fields_of_every_field_set_are_there() -> None:
    found: Any = to_torch(Newer(values=np.ones(2, np.float32)))
    assert found["values"].tolist() == [1.0, 1.0]
