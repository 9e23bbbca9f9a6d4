"""Payload.copy_into: the whole payload in memory of the caller's."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np
import pytest

from sample_wire import Payload, encode_samples
from sample_wire.assembly import RowLedger

from ._samples import make_sample, routed

PAYLOAD = encode_samples([make_sample()], {"a": 1})
SIZE = PAYLOAD.nbytes


@pytest.mark.parametrize("spare", [0, 1, 4096])
@pytest.mark.parametrize(
    "make",
    [
        bytearray,
        lambda size: memoryview(bytearray(size)),
        lambda size: np.zeros(size, np.uint8),
        lambda size: np.zeros((size // 8 + 1, 1)),
        lambda size: mmap.mmap(-1, size),
    ],
    ids=["bytearray", "memoryview", "uint8", "float64", "mmap"],
)
def test_the_bytes_stand_at_the_start_of_the_buffer(make: Callable[[int], Any], spare: int) -> None:
    buffer = make(SIZE + spare)
    assert PAYLOAD.copy_into(buffer) == SIZE
    whole = bytes(memoryview(buffer).cast("B"))
    assert whole[:SIZE] == bytes(PAYLOAD)
    assert not any(whole[SIZE:])


def test_shared_memory_can_be_closed_after_it() -> None:
    block = SharedMemory(create=True, size=SIZE)
    try:
        assert PAYLOAD.copy_into(block) == SIZE
        assert block.buf is not None
        assert bytes(block.buf[:SIZE]) == bytes(PAYLOAD)
    finally:
        block.close()
        block.unlink()


def test_rows_that_are_kept_narrow_are_widened_on_the_way() -> None:
    ledger = RowLedger((2, 3))
    rows = ledger.extend(ledger.empty(), 0, [routed(5)])
    assert rows.blocks[0].dtype != np.int32
    payload = encode_samples([make_sample(rollout_routed_experts=rows)])
    buffer = bytearray(payload.nbytes)
    payload.copy_into(buffer)
    assert buffer == bytes(encode_samples([make_sample()]))


def test_an_empty_payload_fits_everywhere() -> None:
    assert Payload([]).copy_into(bytearray()) == 0


def test_a_buffer_that_is_too_small_is_refused_untouched() -> None:
    buffer = bytearray(SIZE - 1)
    with pytest.raises(ValueError, match=f"has {SIZE - 1} bytes, the payload {SIZE}"):
        PAYLOAD.copy_into(buffer)
    assert not any(buffer)


@pytest.mark.parametrize(
    "buffer",
    [
        bytes(SIZE),
        memoryview(bytearray(SIZE)).toreadonly(),
        np.zeros((SIZE, 2), np.uint8)[:, 0],
        "text",
        None,
    ],
    ids=["bytes", "read-only", "strided", "text", "None"],
)
def test_what_cannot_be_written_to_is_a_type_error(buffer: Any) -> None:
    with pytest.raises(TypeError):
        PAYLOAD.copy_into(buffer)
