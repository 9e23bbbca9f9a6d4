"""Rows that samples have in common travel once, and every sample gets all of its own."""

from __future__ import annotations

import tracemalloc
from typing import Annotated, Any

import numpy as np
import pytest

from sample_wire import (
    Computed,
    EncodeError,
    FieldError,
    LimitError,
    Sample,
    Tensor,
    decode_samples,
    encode_samples,
    read_fields,
)
from sample_wire._shared_rows import Rows, shared_rows
from sample_wire.blocks import RowBlocks, Segment
from sample_wire.inspection import inspect_payload

from ._samples import (
    R3,
    Array,
    compact_bytes,
    decoded_routing,
    document,
    routed_sample,
    rows,
    stored,
)


def _leaves(*num_shared: int) -> list[Array]:
    """Arrays of 40 rows, each of which begins with rows of the one before."""
    found = [rows(40, seed=0)]
    for seed, number in enumerate(num_shared, 1):
        leaf = rows(40, seed=seed)
        leaf[:number] = found[-1][:number]
        found.append(leaf)
    return found


def test_leaves_of_a_tree_send_their_prefix_once() -> None:
    leaves = _leaves(30, 10, 40)
    payload = compact_bytes([routed_sample(leaf) for leaf in leaves])
    assert document(payload)["shared"] == {
        f"{R3}.1": [0, 30],
        f"{R3}.2": [1, 10],
        f"{R3}.3": [2, 40],
    }
    assert [len(stored(payload)[f"{R3}.{at}"]) for at in range(4)] == [40, 10, 30, 0]
    for widen in (True, False):
        for leaf, found in zip(leaves, decoded_routing(payload, widen=widen), strict=True):
            assert np.array_equal(found, leaf)
            assert not found.flags.writeable
            assert found.dtype == (np.int32 if widen else np.uint8)


def test_the_sample_with_the_longest_common_start_is_taken() -> None:
    trunk, other = rows(40, seed=1), rows(40, seed=2)
    near = trunk.copy()
    near[35:] = rows(5, seed=3)
    payload = compact_bytes([routed_sample(array) for array in (trunk, other, near)])
    assert document(payload)["shared"] == {f"{R3}.2": [0, 35]}


def test_few_rows_in_common_are_sent_again() -> None:
    payload = compact_bytes([routed_sample(leaf) for leaf in _leaves(4)])
    assert "shared" not in document(payload)
    assert np.shares_memory(
        decoded_routing(payload, widen=False)[1], np.frombuffer(payload, np.uint8)
    )


def test_arrays_of_other_shapes_share_nothing() -> None:
    one, other = np.zeros((8, 2, 3), np.int32), np.zeros((8, 3, 2), np.int32)
    payload = compact_bytes([routed_sample(one), routed_sample(other)])
    assert "shared" not in document(payload)


def test_a_shorter_array_may_be_the_beginning_of_a_longer_one_and_the_other_way_round() -> None:
    whole = rows(20)
    payload = compact_bytes([routed_sample(array) for array in (whole[:9], whole, whole[:4])])
    assert document(payload)["shared"] == {f"{R3}.1": [0, 9], f"{R3}.2": [1, 4]}
    found = decoded_routing(payload)
    assert [np.array_equal(array, whole[: len(array)]) for array in found] == [True] * 3
    assert [len(array) for array in found] == [9, 20, 4]


def test_samples_without_rows_share_nothing() -> None:
    samples = [routed_sample(np.zeros((0, 2, 3), np.int32), response_length=0) for _ in range(3)]
    samples[1].rollout_routed_experts = None
    payload = compact_bytes(samples)
    assert "shared" not in document(payload)
    found = decode_samples(payload, Sample()).samples
    assert found[1].rollout_routed_experts is None
    assert np.asarray(found[2].rollout_routed_experts).shape == (0, 2, 3)


def test_rows_in_blocks_are_compared_across_their_boundaries() -> None:
    whole = rows(40).astype(np.uint8)
    other = whole.astype(np.int16)
    other[33] = -1
    mine = RowBlocks(tuple(Segment(whole, at, at + 8) for at in range(0, 40, 8)), (2, 3))
    theirs = RowBlocks((Segment(whole, 0, 20), Segment(other, 20, 40)), (2, 3))
    payload = compact_bytes([routed_sample(mine), routed_sample(theirs)])  # type: ignore[arg-type]  # blocks stand for arrays
    assert document(payload)["shared"] == {f"{R3}.1": [0, 33]}
    found = decoded_routing(payload)
    assert np.array_equal(found[0], whole)
    assert np.array_equal(found[1], other)


def test_rows_in_the_same_memory_are_not_compared() -> None:
    class Untouchable(np.ndarray):
        def __ne__(self, other: object) -> bool:
            raise AssertionError("these rows are the same memory")

    whole = rows(3000).reshape(-1).view(Untouchable)
    arrays = [Rows(at, (3000, 2, 3), (whole,)) for at in range(2)]
    assert shared_rows(arrays) == {1: (0, 3000)}


def test_a_chain_longer_than_the_stack_is_read_without_recursion() -> None:
    trunk = rows(1200)
    samples = [routed_sample(trunk[: length + 1]) for length in range(1200)]
    payload = compact_bytes(samples)
    assert len(document(payload)["shared"]) == 1199
    found = decoded_routing(payload)
    assert all(np.array_equal(array, trunk[: len(array)]) for array in found)


def test_arrays_of_shared_rows_beyond_the_limit_are_refused_before_they_are_made() -> None:
    payload = compact_bytes([routed_sample(leaf) for leaf in _leaves(30, 10)])
    size = 2 * 40 * 2 * 3 * 4
    assert len(decode_samples(payload, Sample(), max_shared_bytes=size).samples) == 3
    for widen in (True, False):
        with pytest.raises(LimitError, match=f"more than {size - 1} bytes"):
            decode_samples(payload, Sample(), max_shared_bytes=size - 1, widen=widen)


def test_a_small_payload_cannot_ask_for_gigabytes() -> None:
    one = RowBlocks((Segment(np.zeros((1, 2000, 1000), np.uint8), 0, 1),), (2000, 1000))
    payload = compact_bytes([routed_sample(one)] * 600)  # type: ignore[arg-type]  # blocks stand for arrays
    assert len(payload) < 2_500_000
    with pytest.raises(LimitError, match="more than 4294967296 bytes"):
        decode_samples(payload, Sample())


def test_rows_are_compared_where_one_lies_in_two_pieces() -> None:
    ids = np.arange(24, dtype=np.uint8)
    arrays = [
        Rows(0, (4, 2, 3), [ids]),
        Rows(1, (4, 2, 3), [ids[:2].copy(), ids[2:4].copy(), ids[4:9].copy(), ids[9:].copy()]),
        Rows(2, (4, 2, 3), [ids[:14].copy(), ids[14:15] + 1, ids[15:].copy()]),
    ]
    assert shared_rows(arrays) == {1: (0, 4), 2: (1, 2)}


def test_blocks_that_are_sent_in_another_dtype_share_their_rows_too() -> None:
    whole = rows(40).astype(np.uint8)
    marked = np.full((10, 2, 3), -1, np.int16)
    blocks = [
        RowBlocks((Segment(whole, 0, 16), Segment(whole, 16, 40), Segment(marked, 0, 10)), (2, 3)),
        RowBlocks((Segment(whole, 0, 30), Segment(marked, 0, 10)), (2, 3)),
        RowBlocks((Segment(whole, 0, 20), Segment(whole, 0, 20)), (2, 3)),
    ]
    payload = compact_bytes([routed_sample(one) for one in blocks])  # type: ignore[arg-type]  # blocks stand for arrays
    assert document(payload)["shared"] == {f"{R3}.1": [0, 30], f"{R3}.2": [1, 20]}
    assert stored(payload)[f"{R3}.2"].dtype == np.int16
    for one, found in zip(blocks, decoded_routing(payload), strict=True):
        assert np.array_equal(found, one)


def test_an_id_beyond_the_number_of_experts_is_found_in_any_block() -> None:
    good, bad = rows(4).astype(np.uint8), np.full((4, 2, 3), 300, np.uint16)
    sample = routed_sample(RowBlocks((Segment(good, 0, 4), Segment(bad, 0, 4)), (2, 3)))  # type: ignore[arg-type]  # blocks stand for arrays
    with pytest.raises(EncodeError, match=r"holds id 300 at position \(4, 0, 0\)"):
        encode_samples([sample], layout="compact", num_experts=256)


@pytest.mark.parametrize("dtype", [">i2", ">i4", "<u2"])
def test_blocks_of_either_byte_order_are_sent_by_value(dtype: str) -> None:
    block = np.full((4, 2, 3), 256, dtype)
    block[2] = 1
    sample = routed_sample(RowBlocks((Segment(block, 0, 4),), (2, 3)))  # type: ignore[arg-type]  # blocks stand for arrays
    for payload in (compact_bytes([sample]), bytes(encode_samples([sample]))):
        assert np.array_equal(decoded_routing(payload)[0], block)


@pytest.mark.parametrize("layout", ["exact", "compact"])
@pytest.mark.parametrize("dtype", [np.bool_, np.float32, np.int64])
def test_blocks_of_other_kinds_are_refused_by_name(layout: Any, dtype: type[Any]) -> None:
    block = np.ones((4, 2, 3), dtype)
    sample = routed_sample(RowBlocks((Segment(block, 0, 4),), (2, 3)))  # type: ignore[arg-type]  # blocks stand for arrays
    with pytest.raises(EncodeError, match=f"sample 0, field {R3} holds {np.dtype(dtype)} rows"):
        encode_samples([sample], layout=layout)


def test_arrays_that_nobody_takes_rows_of_any_more_are_let_go() -> None:
    one = RowBlocks((Segment(np.zeros((1, 500, 400), np.uint8), 0, 1),), (500, 400))
    payload = compact_bytes([routed_sample(one)] * 200)  # type: ignore[arg-type]  # blocks stand for arrays
    tracemalloc.start()
    inspect_payload(payload)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4_000_000
    with pytest.raises(LimitError):
        read_fields(payload, [R3], max_shared_bytes=1_000_000)


def test_floats_that_are_equal_but_not_the_same_bits_are_not_shared() -> None:
    class Scored(Sample):
        scores: Annotated[
            Any,
            Computed(codec=Tensor("float64"), rows="transitions", merge="last", null="none"),
        ] = None

    samples = [
        Scored(tokens=np.arange(4), response="", response_length=0, scores=np.array(values))
        for values in ([0.0, 1.0, np.nan], [-0.0, 1.0, np.nan])
    ]
    found = decode_samples(compact_bytes(samples), Scored()).samples
    assert [one.scores.tobytes() for one in found] == [one.scores.tobytes() for one in samples]


def test_the_exact_layout_sends_every_row_of_every_sample() -> None:
    leaves = _leaves(40)
    payload = bytes(encode_samples([routed_sample(leaf) for leaf in leaves]))
    assert [len(stored(payload)[f"{R3}.{at}"]) for at in range(2)] == [40, 40]


def test_a_payload_that_shares_rows_it_does_not_have_is_refused_by_name() -> None:
    payload = compact_bytes([routed_sample(leaf) for leaf in _leaves(30)])
    broken = payload.replace(b'"%s.1":[0,30]' % R3.encode(), b'"%s.1":[0,41]' % R3.encode())
    with pytest.raises(FieldError) as raised:
        decode_samples(broken, Sample())
    assert (raised.value.field, raised.value.sample_index) == (R3, 1)
