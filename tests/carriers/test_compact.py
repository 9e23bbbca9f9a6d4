"""A compact payload lies where its carrier put it, in the dtypes that were sent."""

from __future__ import annotations

import mmap
import pathlib
import pickle
from collections.abc import Iterator
from multiprocessing.shared_memory import SharedMemory

import numpy as np
import pytest

from sample_wire import Payload, Sample, decode_samples, encode_samples

from ._samples import arrays_of, digest, large_sample


@pytest.fixture
def payload() -> Payload:
    """Of one sample."""
    return encode_samples([large_sample()], layout="compact", num_experts=256)


@pytest.fixture
def block(payload: Payload) -> Iterator[SharedMemory]:
    """Shared memory with the payload."""
    found = SharedMemory(create=True, size=payload.nbytes)
    payload.copy_into(found)
    yield found
    found.close()
    found.unlink()


def test_narrow_arrays_are_views_of_shared_memory_and_wide_ones_are_not(
    payload: Payload, block: SharedMemory
) -> None:
    assert block.buf is not None
    view = block.buf[: payload.nbytes]
    memory = np.frombuffer(view, np.uint8)
    for widen in (True, False):
        (found,) = decode_samples(view, Sample(), widen=widen).samples
        shared = [np.shares_memory(memory, array) for array in arrays_of(found).values()]
        # The mask is uint8 and these log-probs are float64 in either layout.
        assert shared == [not widen, True, True, not widen]
        if widen:
            assert digest(found) == digest(large_sample())
        del found
    del memory
    view.release()


def test_narrow_arrays_are_views_of_a_mapped_file(payload: Payload, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "payload.safetensors"
    with path.open("wb") as file:
        payload.write_to(file)
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    (found,) = decode_samples(mapped, Sample(), widen=False).samples
    routed = np.asarray(found.rollout_routed_experts)
    assert np.shares_memory(np.frombuffer(mapped, np.uint8), routed)
    assert np.array_equal(routed, np.asarray(large_sample().rollout_routed_experts))


@pytest.mark.parametrize("protocol", [4, 5])
def test_a_pickled_payload_and_its_samples_are_the_same(payload: Payload, protocol: int) -> None:
    again = pickle.loads(pickle.dumps(payload, protocol))
    assert bytes(again) == bytes(payload)
    reply = pickle.loads(pickle.dumps(decode_samples(again, Sample()), protocol))
    assert digest(reply.samples[0]) == digest(large_sample())
