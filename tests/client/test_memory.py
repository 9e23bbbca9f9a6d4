"""The body is written once, and the arrays lie in it; counted by addresses and allocations."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest

from sample_wire import Sample, decode_samples, encode_samples, read_container
from sample_wire.adapters._client_answer import Answer

from ._clients import Connect
from ._samples import make_sample
from ._stub import Reply, Stub, answer, chunked, head, sends

SLICE_BYTES = 2**16
ARRAYS = ("tokens", "loss_mask", "rollout_log_probs", "rollout_routed_experts")
# 8 MiB of R3: far above what an exchange allocates beside the body.
LARGE = encode_samples([make_sample(8 * 2**20 // 1000, num_layers=25, top_k=10)]).contiguous()
CHUNKED = "Transfer-Encoding: chunked"


def address(array: npt.NDArray[np.generic]) -> int:
    return int(array.__array_interface__["data"][0])


def slices(payload: memoryview) -> Iterator[memoryview]:
    return (payload[i : i + SLICE_BYTES] for i in range(0, len(payload), SLICE_BYTES))


def with_length() -> Reply:
    return sends(head(length=len(LARGE)), *slices(LARGE))


def in_chunks() -> Reply:
    return sends(
        head(200, "application/octet-stream", None, CHUNKED),
        *(chunked([bytes(piece)], whole=False) for piece in slices(LARGE)),
        chunked([]),
    )


ways = pytest.mark.parametrize("reply", [with_length(), in_chunks()], ids=["length", "chunks"])


@ways
def test_every_array_lies_in_the_one_buffer_where_the_container_has_it(
    connect: Connect, reply: Reply
) -> None:
    with Stub(reply) as stub, connect(stub.url) as client:
        (sample,) = client.collect(Sample()).samples
    sent = read_container(LARGE)
    moved = {address(getattr(sample, name)) - address(sent[f"{name}.0"]) for name in ARRAYS}
    assert len(moved) == 1


@ways
def test_the_arrays_are_read_only_views(connect: Connect, reply: Reply) -> None:
    with Stub(reply) as stub, connect(stub.url) as client:
        (sample,) = client.collect(Sample()).samples
    assert [getattr(sample, name).flags.writeable for name in ARRAYS] == [False] * len(ARRAYS)


@ways
def test_collecting_allocates_no_second_body(connect: Connect, reply: Reply) -> None:
    with Stub(reply) as stub, connect(stub.url) as client:
        tracemalloc.start()
        try:
            tracemalloc.reset_peak()
            client.collect(Sample())
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak <= 1.35 * len(LARGE)


def test_a_body_of_known_length_is_copied_once_into_memory_of_its_size() -> None:
    body = Answer(200, {"content-length": str(len(LARGE))}, media_types=(), max_bytes=None)
    start = address(np.frombuffer(body.body, np.uint8))
    for piece in slices(LARGE):
        body.add(bytes(piece))
    assert (len(body.body), address(np.frombuffer(body.body, np.uint8))) == (len(LARGE), start)
    (sample,) = decode_samples(body.body, Sample()).samples
    for name in ARRAYS:
        assert start <= address(getattr(sample, name)) < start + len(LARGE)


def test_the_samples_keep_the_buffer_alive_after_the_client(connect: Connect) -> None:
    sent = make_sample()
    with Stub(answer(bytes(encode_samples([sent])))) as stub, connect(stub.url) as client:
        (sample,) = client.collect(Sample()).samples
    del client
    np.testing.assert_array_equal(sample.rollout_routed_experts, sent.rollout_routed_experts)
