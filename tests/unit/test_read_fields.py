"""read_fields: some fields of every sample, without a template and without the other arrays."""

from __future__ import annotations

import mmap
import pathlib
from typing import Any

import numpy as np
import pytest
from strategies import same_value

from sample_wire import (
    ContainerError,
    FieldError,
    PrefixCacheInfo,
    Sample,
    SpecInfo,
    Status,
    encode_samples,
    read_container,
    read_fields,
    write_container,
)

from ._samples import make_sample, routed
from ._typed import Typed


def test_each_sample_gives_a_dict_of_the_named_fields() -> None:
    payload = bytes(encode_samples([make_sample(), make_sample(3, 1, status=Status.FAILED)]))
    found = read_fields(payload, ["loss_mask", "status", "response_length"])
    assert [{*fields} for fields in found] == [{"loss_mask", "status", "response_length"}] * 2
    assert [fields["status"] for fields in found] == [Status.PENDING, Status.FAILED]
    assert [fields["response_length"] for fields in found] == [2, 1]
    assert same_value(found[0]["loss_mask"], np.ones(2, np.uint8))


def test_every_computed_field_can_be_read() -> None:
    sample = make_sample(prefix_cache_info=PrefixCacheInfo(1, 2), reward=0.5)
    names = [field.name for field in Sample.__sample_schema__.computed(2)]
    (found,) = read_fields(encode_samples([sample], field_set=2), names, field_set=2)
    assert {*found} == {*names}
    assert same_value({name: found[name] for name in names}, {n: getattr(sample, n) for n in names})


@pytest.mark.parametrize("names", [[], (), set(), frozenset({"tokens"}), {"tokens": 1}], ids=repr)
def test_names_may_be_any_collection(names: Any) -> None:
    (found,) = read_fields(encode_samples([make_sample()]), names)
    assert {*found} == {*names}


def test_no_samples_give_no_dicts() -> None:
    assert read_fields(encode_samples([]), ["tokens"]) == []


def test_arrays_are_read_only_views_of_the_buffer() -> None:
    buffer = np.frombuffer(bytes(encode_samples([make_sample()])), np.uint8)
    (found,) = read_fields(buffer, ["tokens", "rollout_routed_experts"])
    for array in found.values():
        assert np.shares_memory(array, buffer)
        assert not array.flags.writeable


def test_nulls_and_fields_left_out_are_at_their_meaning() -> None:
    (found,) = read_fields(encode_samples([Sample()]), ["loss_mask", "spec_info"])
    assert found == {"loss_mask": None, "spec_info": SpecInfo()}


@pytest.mark.parametrize("name", ["label", "nope", "reward", "nulls", "", "tokens.0"])
def test_a_name_that_is_no_computed_field_is_a_value_error(name: str) -> None:
    with pytest.raises(ValueError, match="no computed field of field set 1"):
        read_fields(encode_samples([make_sample()]), ["tokens", name])


def test_fields_of_a_subclass_are_read_by_its_schema() -> None:
    payload = encode_samples([Typed(tokens=np.arange(2), runs=[[1], [2, 3]], u16=[7])])
    (found,) = read_fields(payload, ["runs", "u16"], schema=Typed.__sample_schema__)
    assert [row.tolist() for row in found["runs"]] == [[1], [2, 3]]
    assert found["u16"].tolist() == [7]


def test_a_mapped_file_is_read(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "payload"
    with path.open("wb") as file:
        encode_samples([make_sample()]).write_to(file)
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    (found,) = read_fields(mapped, ["loss_mask"])
    assert found["loss_mask"].tolist() == [1, 1]


def test_all_that_header_and_json_say_is_checked_for_fields_not_asked_for() -> None:
    tensors = read_container(encode_samples([make_sample()]))
    wrong = bytes(write_container(tensors | {"rollout_routed_experts.0": routed(4)}))
    with pytest.raises(FieldError, match="rollout_routed_experts has 3 rows"):
        read_fields(wrong, ["loss_mask"])


def altered_runs(offsets: list[int]) -> bytes:
    tensors = read_container(encode_samples([Typed(tokens=np.arange(2), runs=[[1], [2, 3]])]))
    return bytes(write_container(tensors | {"runs.offsets.0": np.array(offsets, np.int64)}))


@pytest.mark.parametrize(
    "offsets",
    [[1, 1, 3], [0, 1, 2], [0, 1, 4], [0, 4, 3], [0, -1, 3], [-1, 1, 3], [0, 2**62, 3], [0, 3, 1]],
    ids=str,
)
def test_offsets_that_do_not_cover_the_values_in_order_are_refused(offsets: list[int]) -> None:
    with pytest.raises(FieldError, match="runs has offsets") as caught:
        read_fields(altered_runs(offsets), ["runs"], schema=Typed.__sample_schema__)
    assert (caught.value.field, caught.value.sample_index) == ("runs", 0)


@pytest.mark.parametrize("offsets", [[], [0], [0, 3], [0, 1, 2, 3]], ids=str)
def test_another_number_of_offsets_is_refused(offsets: list[int]) -> None:
    with pytest.raises(FieldError, match="runs has") as caught:
        read_fields(altered_runs(offsets), ["runs"], schema=Typed.__sample_schema__)
    assert caught.value.field == "runs"


def test_a_ragged_field_that_lacks_a_tensor_is_refused() -> None:
    payload = encode_samples([Typed(tokens=np.arange(2), runs=[[1], [2, 3]])])
    for name in ("runs.values.0", "runs.offsets.0"):
        tensors = read_container(payload)
        del tensors[name]
        with pytest.raises(FieldError, match="runs has no tensor"):
            read_fields(bytes(write_container(tensors)), [], schema=Typed.__sample_schema__)


def test_a_bool_tensor_of_other_bytes_is_refused_when_it_is_read() -> None:
    payload = bytes(encode_samples([Typed(flag=[True, False, True])]))
    payload = payload[:-3] + b"\x01\x00\x02" if payload.endswith(b"\x01\x00\x01") else b""
    with pytest.raises(ContainerError, match="BOOL"):
        read_fields(payload, ["flag"], schema=Typed.__sample_schema__)
