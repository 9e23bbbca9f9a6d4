"""A payload reads the same from whatever buffer it lies in, and after every way of moving it."""

from __future__ import annotations

import io
import mmap
import pickle
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import layouts, same_sample, samples

from sample_wire import Payload, Sample, decode_samples, encode_samples
from sample_wire.codec import LAYOUTS, Layout

# The values are the business of test_roundtrip; here few payloads do.
few = settings(max_examples=max(settings().max_examples // 5, 1))
given_payload = given(
    payload=st.builds(
        lambda given_samples, layout: encode_samples(given_samples, layout=layout),
        st.lists(samples(), max_size=3),
        layouts,
    )
)


def assert_reads_alike(buffer: object, payload: Payload) -> None:
    found = decode_samples(buffer, Sample()).samples
    expected = decode_samples(bytes(payload), Sample()).samples
    assert len(found) == len(expected)
    assert all(map(same_sample, found, expected))


def in_band(payload: Payload, protocol: int) -> Payload:
    again = pickle.loads(pickle.dumps(payload, protocol))
    assert isinstance(again, Payload)
    return again


def out_of_band(payload: Payload) -> Payload:
    buffers: list[pickle.PickleBuffer] = []
    pickled = pickle.dumps(payload, 5, buffer_callback=buffers.append)
    again = pickle.loads(pickled, buffers=buffers)
    assert isinstance(again, Payload)
    return again


def written(payload: Payload) -> bytes:
    file = io.BytesIO()
    assert payload.write_to(file) == payload.nbytes
    return file.getvalue()


FORMS: dict[str, Callable[[Payload], object]] = {
    "payload": lambda payload: payload,
    "bytearray": lambda payload: bytearray(bytes(payload)),
    "memoryview": lambda payload: memoryview(bytes(payload)),
    "memoryview-of-8-byte-items": lambda payload: _wide(bytes(payload)),
    "contiguous": lambda payload: payload.contiguous(),
    "numpy": lambda payload: np.frombuffer(bytes(payload), np.uint8),
    "misaligned": lambda payload: memoryview(b"?" + bytes(payload))[1:],
    "written": written,
    "bytewise": lambda payload: Payload([bytes([byte]) for byte in bytes(payload)]),
    "pickled-2": lambda payload: in_band(payload, 2),
    "pickled-3": lambda payload: in_band(payload, 3),
    "pickled-4": lambda payload: in_band(payload, 4),
    "pickled-5": lambda payload: in_band(payload, 5),
    "pickled-out-of-band": out_of_band,
}


def _wide(raw: bytes) -> memoryview:
    return memoryview(raw).cast("Q") if len(raw) % 8 == 0 else memoryview(raw)


@pytest.mark.parametrize("form", FORMS)
@few
@given_payload
def test_a_payload_reads_the_same_in_every_form(form: str, payload: Payload) -> None:
    assert_reads_alike(FORMS[form](payload), payload)


@few
@given_payload
def test_a_moved_payload_has_the_same_bytes(payload: Payload) -> None:
    raw = bytes(payload)
    assert payload.nbytes == len(raw)
    assert bytes(payload.contiguous()) == raw
    assert written(payload) == raw
    assert bytes(in_band(payload, 4)) == raw
    assert bytes(out_of_band(payload)) == raw


@few
@given_payload
def test_a_payload_reads_the_same_from_a_mapped_file(payload: Payload) -> None:
    with tempfile.TemporaryFile() as file:
        payload.write_to(file)
        file.flush()
        # Not closed: the samples are views of it, and it is freed with the last of them.
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        assert_reads_alike(mapped, payload)


@contextmanager
def shared_memory(payload: Payload) -> Iterator[SharedMemory]:
    """A block of exactly the payload's bytes, unlinked at the end."""
    block = SharedMemory(create=True, size=payload.nbytes)
    try:
        memoryview(block.buf or b"")[:] = payload.contiguous()
        yield block
    finally:
        block.close()
        block.unlink()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_payload_reads_the_same_from_shared_memory(layout: Layout) -> None:
    sample = Sample(
        tokens=np.arange(5),
        response_length=2,
        loss_mask=np.ones(2, np.uint8),
        rollout_routed_experts=np.ones((4, 2, 2), np.int32),
    )
    payload = encode_samples([sample], layout=layout)
    with shared_memory(payload) as block:
        found: Any = decode_samples(block, Sample()).samples
        # Views of the block must be gone before it is closed; Python refuses to close it else.
        copies = decode_samples(block, Sample(), copy=True).samples
        assert same_sample(found[0], copies[0])
        del found
    assert same_sample(copies[0], decode_samples(payload, Sample()).samples[0])
