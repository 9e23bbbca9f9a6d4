"""Which dtypes the compact layout stores: SPEC section 5.4, writer's rules 1 to 3."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import pytest

from sample_wire import (
    Computed,
    EncodeError,
    Ragged,
    Sample,
    Tensor,
    decode_samples,
    encode_samples,
    read_container,
)

from ._samples import R3, compact_bytes, decoded_routing, document, routed_sample, rows, stored


class Wide(Sample):
    """A sample with a field of every dtype that has a narrower one, and some that have none."""

    u64: Annotated[Any, Computed(codec=Tensor("uint64"), merge="last", null="none")] = None
    i64: Annotated[Any, Computed(codec=Tensor("int64"), merge="last", null="none")] = None
    u32: Annotated[Any, Computed(codec=Tensor("uint32"), merge="last", null="none")] = None
    i32: Annotated[Any, Computed(codec=Tensor("int32"), merge="last", null="none")] = None
    u16: Annotated[Any, Computed(codec=Tensor("uint16"), merge="last", null="none")] = None
    i16: Annotated[Any, Computed(codec=Tensor("int16"), merge="last", null="none")] = None
    i8: Annotated[Any, Computed(codec=Tensor("int8"), merge="last", null="none")] = None
    f64: Annotated[Any, Computed(codec=Tensor("float64"), merge="last", null="none")] = None
    f32: Annotated[Any, Computed(codec=Tensor("float32"), merge="last", null="none")] = None
    c64: Annotated[Any, Computed(codec=Tensor("complex64"), merge="last", null="none")] = None
    flags: Annotated[Any, Computed(codec=Tensor("bool"), merge="last", null="none")] = None
    runs: Annotated[
        list[npt.NDArray[np.int32]] | None,
        Computed(codec=Ragged("int32"), rows="tokens", merge="last", null="none"),
    ] = None


def _wide(**fields: Any) -> Wide:
    return Wide(tokens=np.arange(2), response="", response_length=0, **fields)


@pytest.mark.parametrize(
    ("field", "values", "dtype"),
    [
        ("u64", [0, 255], "uint8"),
        ("u64", [0, 256], "uint16"),
        ("u64", [0, 2**16], "uint32"),
        ("u64", [0, 2**32], "uint64"),
        ("i64", [], "uint8"),
        ("i64", [0, 255], "uint8"),
        ("i64", [-1, 127], "int8"),
        ("i64", [-1, 128], "int16"),
        ("i64", [-129, 0], "int16"),
        ("i64", [0, 2**16 - 1], "uint16"),
        ("i64", [-1, 2**15], "int32"),
        ("i64", [0, 2**32 - 1], "uint32"),
        ("i64", [-1, 2**31], "int64"),
        ("i64", [-(2**63), 2**63 - 1], "int64"),
        ("u32", [2**16 - 1], "uint16"),
        ("u32", [2**16], "uint32"),
        ("i32", [2**16 - 1], "uint16"),
        ("i32", [2**16], "int32"),
        ("i32", [-(2**15)], "int16"),
        ("i32", [-(2**15) - 1], "int32"),
        ("u16", [255], "uint8"),
        ("u16", [256], "uint16"),
        ("i16", [-128], "int8"),
        ("i16", [255], "uint8"),
        ("i16", [256], "int16"),
        ("i8", [5], "int8"),
        ("f32", [0.5], "float32"),
        ("c64", [1j], "complex64"),
        ("flags", [True], "bool"),
    ],
    ids=lambda value: str(value).replace(" ", ""),
)
def test_a_tensor_is_stored_in_the_first_dtype_that_holds_it(
    field: str, values: list[Any], dtype: str
) -> None:
    given = np.array(values, _declared(field))
    payload = compact_bytes([_wide(**{field: given})])
    assert stored(payload)[f"{field}.0"].dtype == dtype
    assert document(payload)["dtypes"][f"{field}.0"] == _declared(field)
    found = getattr(decode_samples(payload, Wide()).samples[0], field)
    assert found.dtype == _declared(field)
    assert found.tobytes() == given.tobytes()


def _declared(field: str) -> str:
    kinds = {"u": "uint", "i": "int", "f": "float", "c": "complex"}
    return "bool" if field == "flags" else kinds[field[0]] + field[1:]


def test_values_and_offsets_of_a_ragged_field_are_narrowed_each_for_itself() -> None:
    payload = compact_bytes([_wide(runs=[np.array([1, -1], np.int32), np.array([300], np.int32)])])
    assert stored(payload)["runs.values.0"].dtype == np.int16
    assert stored(payload)["runs.offsets.0"].dtype == np.uint8
    assert document(payload)["dtypes"]["runs.offsets.0"] == "int64"
    for widen, dtype in ((True, np.int32), (False, np.int16)):
        (found,) = decode_samples(payload, Wide(), widen=widen).samples
        assert [row.tolist() for row in found.runs or ()] == [[1, -1], [300]]
        assert {row.dtype for row in found.runs or ()} == {np.dtype(dtype)}


@pytest.mark.parametrize(
    ("bits", "dtype"),
    [
        (0x3FE0000000000000, "float32"),
        (0x8000000000000000, "float32"),
        (0x7FF0000000000000, "float32"),
        (0xFFF0000000000000, "float32"),
        (0x7FF8000000000000, "float32"),
        (0xFFFA000020000000, "float32"),
        (0x7FF8000000000001, "float64"),
        (0x7FF4000000000000, "float64"),
        (0x3FB999999999999A, "float64"),
        (0x0000000000000001, "float64"),
        (0x7FEFFFFFFFFFFFFF, "float64"),
        (0x36A0000000000000, "float64"),
        (0xB80FFFFFE0000000, "float64"),
        (0x3810000000000000, "float32"),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{value:016x}",
)
def test_log_probs_are_float32_only_where_every_bit_comes_back(bits: int, dtype: str) -> None:
    given = np.array([0x3FE0000000000000, bits], np.uint64).view(np.float64)
    sample = Sample(tokens=np.arange(3), response="r", response_length=2, rollout_log_probs=given)
    payload = compact_bytes([sample])
    assert stored(payload)["rollout_log_probs.0"].dtype == dtype
    found = decode_samples(payload, Sample()).samples[0].rollout_log_probs
    assert np.asarray(found).dtype == np.float64
    assert np.asarray(found).tobytes() == given.tobytes()


def test_one_inexact_log_prob_keeps_those_of_every_sample_wide() -> None:
    samples = [
        Sample(
            tokens=np.arange(3),
            response="r",
            response_length=1,
            rollout_log_probs=np.array([value]),
        )
        for value in (-0.5, -0.1, -0.25)
    ]
    payload = compact_bytes(samples)
    assert {array.dtype for name, array in stored(payload).items() if "log" in name} == {
        np.dtype(np.float64)
    }
    found = decode_samples(payload, Sample()).samples
    assert [np.asarray(one.rollout_log_probs).tolist() for one in found] == [
        [-0.5],
        [-0.1],
        [-0.25],
    ]


@pytest.mark.parametrize(
    ("num_experts", "marked", "declared", "dtype"),
    [
        (256, False, None, "uint8"),
        (257, False, None, "uint16"),
        (128, True, None, "int8"),
        (129, True, None, "int16"),
        (256, True, 256, "int16"),
        (128, False, 256, "uint8"),
        (128, True, 256, "int16"),
        (5, False, 257, "uint16"),
        (5, True, 128, "int8"),
        (5, False, 2**16 + 1, "int32"),
    ],
)
def test_expert_ids_take_the_width_of_the_declared_number_or_of_the_largest_id(
    num_experts: int, marked: bool, declared: int | None, dtype: str
) -> None:
    routed = rows(6, num_experts)
    if marked:
        routed[2] = -1
    payload = compact_bytes([routed_sample(routed)], num_experts=declared)
    assert stored(payload)[f"{R3}.0"].dtype == dtype
    assert decoded_routing(payload)[0].tobytes() == routed.tobytes()


def test_only_expert_ids_take_the_declared_number() -> None:
    indexer = np.full((4, 2, 3), 7, np.int32)
    sample = routed_sample(rows(4, 8), rollout_indexer_topk=indexer)
    found = stored(compact_bytes([sample], num_experts=1000))
    assert found[f"{R3}.0"].dtype == np.uint16
    assert found["rollout_indexer_topk.0"].dtype == np.uint8
    assert found["tokens.0"].dtype == np.uint8


def test_all_samples_of_a_payload_take_one_dtype() -> None:
    given = [rows(5, 100), rows(6, 300), rows(3, 20)]
    given[0][1] = -1
    payload = compact_bytes([routed_sample(routed) for routed in given])
    assert {stored(payload)[f"{R3}.{at}"].dtype for at in range(3)} == {np.dtype(np.int16)}
    for routed, found in zip(given, decoded_routing(payload), strict=True):
        assert found.tobytes() == routed.tobytes()


@pytest.mark.parametrize(("wrong", "place"), [(256, (2, 1, 0)), (-2, (0, 0, 1))])
def test_an_id_beyond_the_declared_number_is_refused_with_its_place(
    wrong: int, place: tuple[int, int, int]
) -> None:
    good, bad = routed_sample(rows(3)), routed_sample(rows(4))
    np.asarray(bad.rollout_routed_experts)[place] = wrong
    with pytest.raises(EncodeError) as raised:
        encode_samples([good, bad], layout="compact", num_experts=256)
    error = raised.value
    assert (error.field, error.sample_index, error.got) == (R3, 1, str(wrong))
    assert f"at position {place}" in str(error)


@pytest.mark.parametrize("place", [0, 2**18, 2**18 + 1, 600_000, 5_999_999])
@pytest.mark.parametrize("value", [-1, 300, 70_000])
def test_a_value_anywhere_in_a_large_array_widens_all_of_it(place: int, value: int) -> None:
    routed = np.zeros((1_000_000, 2, 3), np.int32)
    routed.reshape(-1)[place] = value
    sample = routed_sample(routed)
    payload = compact_bytes([sample])
    expected = {-1: np.int8, 300: np.uint16, 70_000: np.int32}[value]
    assert read_container(payload)[f"{R3}.0"].dtype == expected
    assert np.array_equal(decoded_routing(payload)[0], routed)


def test_the_exact_layout_does_not_look_at_the_number_of_experts() -> None:
    sample = routed_sample(rows(3, 300))
    assert bytes(encode_samples([sample], num_experts=2)) == bytes(encode_samples([sample]))


@pytest.mark.parametrize("number", [True, 2.5, float("nan"), "256"], ids=str)
def test_a_number_of_experts_that_is_no_integer_is_refused(number: Any) -> None:
    with pytest.raises(TypeError, match="num_experts is an integer"):
        encode_samples([], layout="compact", num_experts=number)


class Ranks(Sample):
    """Tensors of other ranks than a sample's own."""

    scalar: Annotated[Any, Computed(codec=Tensor("int64", 0), merge="last", null="none")] = None
    score: Annotated[Any, Computed(codec=Tensor("float64", 0), merge="last", null="none")] = None
    image: Annotated[Any, Computed(codec=Tensor("int32", 4), merge="last", null="none")] = None


@pytest.mark.parametrize("widen", [True, False])
@pytest.mark.parametrize("copy", [True, False])
def test_tensors_of_every_rank_come_back(widen: bool, copy: bool) -> None:
    given = Ranks(
        tokens=np.arange(1),
        response="",
        response_length=0,
        scalar=np.array(-5),
        score=np.array(0.5),
        image=np.arange(16, dtype=np.int32).reshape(2, 2, 1, 4),
    )
    (found,) = decode_samples(compact_bytes([given]), Ranks(), widen=widen, copy=copy).samples
    for name in ("scalar", "score", "image"):
        left, right = getattr(given, name), getattr(found, name)
        assert np.array_equal(left, right)
        assert left.shape == right.shape
        assert (left.dtype == right.dtype) == widen
        assert right.flags.writeable == copy


@pytest.mark.parametrize("options", [{"layout": "narrow"}, {"num_experts": 0}], ids=str)
def test_options_that_are_none_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"layout is one of|num_experts is at least"):
        encode_samples([], **options)
