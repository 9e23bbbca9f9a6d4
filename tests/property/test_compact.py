"""The compact layout: nothing is lost by it, and no more is sent than its rules say.

Shape letters: T tokens, L routed layers, K experts per token.
"""

from __future__ import annotations

import copy
import json
from collections import defaultdict
from typing import Annotated, Any, Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import (
    SPECIAL_FLOAT64_BITS,
    Array,
    routed_arrays,
    same_sample,
    samples,
)
from vectors._compact import stored_dtype
from vectors._meaning import reply_meaning
from vectors.independent_decoder import DTYPES, decode_reply

from sample_wire import (
    Computed,
    EncodeError,
    Payload,
    Sample,
    Tensor,
    decode_samples,
    encode_samples,
    read_container,
)

from ._classes import wider_samples

ROUTED: Final = ("rollout_routed_experts", "rollout_indexer_topk")
META: Final = "_samples_meta"
WIRE_NAMES: Final = {numpy: wire for wire, (_, _, numpy) in DTYPES.items()}
# Here few examples do: each is several samples, or is read item by item.
fewer = settings(max_examples=max(settings().max_examples // 2, 1))


@st.composite
def leaves(draw: st.DrawFn) -> list[Sample]:
    """Samples whose routing begins as that of an earlier one, or is one's whole, or is new."""
    trunk = draw(routed_arrays(draw(st.integers(1, 30))))
    arrays = [trunk]
    for _ in range(draw(st.integers(1, 5))):
        before = draw(st.sampled_from(arrays))
        num_shared = draw(st.integers(0, len(before)))
        own = draw(st.integers(0, 10))
        rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        rows = rng.integers(-1, 300, (own, *trunk.shape[1:]), np.int32)
        arrays.append(np.concatenate([before[:num_shared], rows]))
    field = draw(st.sampled_from(ROUTED))
    family = [Sample(tokens=np.arange(len(array) + 1)) for array in arrays]
    for sample, array in zip(family, arrays, strict=True):
        setattr(sample, field, array)
    return family


families = leaves() | st.lists(samples(), max_size=4)


def stored_tensors(payload: Payload) -> dict[str, Array]:
    """The tensors as they are stored."""
    found = read_container(bytes(payload))
    del found[META]
    return found


def document_of(payload: Payload) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(read_container(bytes(payload))[META].tobytes())
    return found


@fewer
@given(family=families)
def test_widened_it_is_the_exact_layout_bit_for_bit(family: list[Sample]) -> None:
    compact = decode_samples(encode_samples(family, layout="compact"), Sample()).samples
    exact = decode_samples(encode_samples(family), Sample()).samples
    assert len(compact) == len(exact) == len(family)
    assert all(map(same_sample, compact, exact))


@fewer
@given(family=families, copies=st.booleans())
def test_not_widened_it_has_the_stored_dtypes_and_equal_values(
    family: list[Sample], copies: bool
) -> None:
    payload = encode_samples(family, layout="compact")
    stored = stored_tensors(payload)
    found = decode_samples(payload, Sample(), widen=False, copy=copies).samples
    for index, (narrow, sample) in enumerate(zip(found, family, strict=True)):
        for name in ("tokens", "loss_mask", "rollout_log_probs", *ROUTED):
            array, expected = getattr(narrow, name), getattr(sample, name)
            if expected is None:
                assert array is None
                continue
            assert array.dtype == stored[f"{name}.{index}"].dtype
            assert np.array_equal(array, expected, equal_nan=expected.dtype.kind == "f")
            assert array.flags.writeable == copies


def logical_tensors(family: list[Any]) -> dict[str, dict[str, Array]]:
    """The tensors of the exact layout, by field."""
    fields: dict[str, dict[str, Array]] = defaultdict(dict)
    for name, array in stored_tensors(encode_samples(family)).items():
        fields[name.rpartition(".")[0]][name] = array
    return fields


def numbers_of(array: Array) -> list[int]:
    """Integers as they are, float64 as bits."""
    bits = array.view(np.uint64) if array.dtype == np.float64 else array
    found: list[int] = bits.ravel().tolist()
    return found


@fewer
@given(family=families | st.lists(wider_samples(), min_size=1, max_size=3))
def test_a_field_takes_the_first_dtype_that_holds_all_of_it(family: list[Any]) -> None:
    payload = encode_samples(family, layout="compact")
    stored, dtypes = stored_tensors(payload), document_of(payload)["dtypes"]
    for tensors in logical_tensors(family).values():
        logical = {array.dtype.name for array in tensors.values()}
        (wire,) = {WIRE_NAMES[name] for name in logical}
        expected = stored_dtype(wire, [n for array in tensors.values() for n in numbers_of(array)])
        assert {WIRE_NAMES[stored[name].dtype.name] for name in tensors} == {expected}
        assert {dtypes[name] for name in tensors} == logical


@given(array=st.integers(0, 6).flatmap(routed_arrays), num_experts=st.integers(1, 2**20))
def test_the_number_of_experts_chooses_their_dtype_and_refuses_other_ids(
    array: Array, num_experts: int
) -> None:
    sample = Sample(tokens=np.arange(max(len(array) + 1, 1)), rollout_routed_experts=array)
    ids = array.ravel().tolist()
    if all(-1 <= number < num_experts for number in ids):
        payload = encode_samples([sample], layout="compact", num_experts=num_experts)
        stored = stored_tensors(payload)["rollout_routed_experts.0"].dtype.name
        assert WIRE_NAMES[stored] == stored_dtype("I32", ids, num_experts)
        assert same_sample(decode_samples(payload, Sample()).samples[0], sample)
    else:
        with pytest.raises(EncodeError, match="rollout_routed_experts"):
            encode_samples([sample], layout="compact", num_experts=num_experts)


def common_rows(left: Array, right: Array) -> int:
    """How many first rows are the same, by a slow rule."""
    size = min(len(left), len(right))
    return next((row for row in range(size) if (left[row] != right[row]).any()), size)


@given(family=leaves())
def test_rows_that_samples_have_in_common_travel_once(family: list[Sample]) -> None:
    payload = encode_samples(family, layout="compact")
    stored, shared = stored_tensors(payload), document_of(payload).get("shared", {})
    for field, tensors in logical_tensors(family).items():
        arrays = list(tensors.values()) if field in ROUTED else []
        for index, array in enumerate(arrays):
            longest = max((common_rows(array, other) for other in arrays[:index]), default=0)
            num_shared = shared.get(f"{field}.{index}", (0, 0))[1]
            # A few rows of many are not worth it; from a half on they always are.
            assert num_shared == longest if 2 * longest >= len(array) else num_shared <= longest
            assert len(stored[f"{field}.{index}"]) == len(array) - num_shared


@fewer
@given(family=families)
def test_its_tensors_are_never_larger_than_those_of_the_exact_layout(family: list[Sample]) -> None:
    exact, compact = [
        stored_tensors(encode_samples(family, layout=layout)) for layout in ("exact", "compact")
    ]
    assert exact.keys() == compact.keys()
    assert all(compact[name].nbytes <= array.nbytes for name, array in exact.items())


@fewer
@given(family=families, widen=st.booleans())
def test_the_samples_are_not_written_to(family: list[Sample], widen: bool) -> None:
    before = copy.deepcopy(family)
    payload = encode_samples(family, layout="compact")
    for found in decode_samples(payload, Sample(), widen=widen, copy=True).samples:
        for name in ("tokens", *ROUTED):
            array = getattr(found, name)
            if array is not None:
                array[...] = 77
    assert all(map(same_sample, family, before))
    assert all(map(same_sample, decode_samples(payload, Sample()).samples, before))


@fewer
@given(family=families)
def test_the_decoder_made_from_the_specification_reads_the_same(family: list[Sample]) -> None:
    payload = bytes(encode_samples(family, layout="compact"))
    found = reply_meaning(decode_samples(payload, Sample()), 1)
    assert json.dumps(found) == json.dumps(decode_reply(payload))


class OtherRows(Sample):
    """A sample with more fields whose first rows may be shared."""

    scores: Annotated[
        Any, Computed(codec=Tensor("float64", 2), rows="transitions", merge="last", null="none")
    ] = None
    halves: Annotated[
        Any, Computed(codec=Tensor("float16", 1), rows="transitions", merge="last", null="none")
    ] = None
    large: Annotated[
        Any, Computed(codec=Tensor("uint64", 1), rows="transitions", merge="last", null="none")
    ] = None
    small: Annotated[
        Any, Computed(codec=Tensor("int8", 2), rows="transitions", merge="last", null="none")
    ] = None


@st.composite
def other_rows(draw: st.DrawFn, rows: int) -> OtherRows:
    """A sample with rows of few different values, which differ in bits or in size alone."""

    def array(bits: list[int], unsigned: str) -> Array:
        found = draw(st.lists(st.sampled_from(bits), min_size=rows, max_size=rows))
        return np.array(found, unsigned)

    return OtherRows(
        tokens=np.arange(rows + 1),
        scores=array([*SPECIAL_FLOAT64_BITS[:4], 0, 0, 1 << 63], "u8").view("f8").reshape(-1, 1),
        halves=array([0x7E00, 0x7E01, 0x7C00, 0, 0, 1 << 15], "u2").view("f2"),
        large=array([0, 1, draw(st.sampled_from([255, 2**16, 2**32, 2**64 - 1]))], "u8"),
        small=array([0, 1, 255], "u1").view("i1").reshape(-1, 1),
    )


@given(
    family=st.integers(1, 3).flatmap(
        lambda rows: st.lists(other_rows(rows), min_size=2, max_size=4)
    )
)
def test_rows_of_other_fields_keep_every_bit(family: list[OtherRows]) -> None:
    found = decode_samples(encode_samples(family, layout="compact"), OtherRows()).samples
    assert all(map(same_sample, found, family))
