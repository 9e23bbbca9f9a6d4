"""CASES C28 and C29 from the client's side: limits of time and size that nobody sees coming."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import httpx2
import numpy as np
import pytest

from sample_wire import LimitError, Sample, encode_samples
from sample_wire.adapters.client import ClientLimits
from sample_wire.errors import CollectTimeout

from ._clients import Connect, Kind
from ._samples import make_payload, make_sample
from ._stub import SESSION_ID, Stub, drip, head, sends, silence

ROW_BYTES = 25 * 10 * 4
MIB = 2**20


def payload_of(num_bytes: int) -> memoryview:
    """A payload of one sample whose R3 has about as many bytes."""
    num_tokens = num_bytes // ROW_BYTES
    sample = dataclasses.replace(
        make_sample(num_tokens, 1, 1),
        rollout_routed_experts=np.broadcast_to(
            np.arange(num_tokens - 1, dtype=np.int32)[:, None, None], (num_tokens - 1, 25, 10)
        ),
    )
    return encode_samples([sample]).contiguous()


def test_c28_a_collect_beyond_its_limit_is_a_typed_error_and_deletes(connect: Connect) -> None:
    with Stub(silence) as stub, connect(stub.url) as client:
        with pytest.raises(CollectTimeout) as caught:
            client.collect(Sample(), timeout_s=0.05)
        assert isinstance(caught.value, TimeoutError)
        assert stub.count("delete") == 1


def test_c28_the_limit_is_of_the_whole_exchange(connect: Connect) -> None:
    with (
        Stub(sends(head(length=MIB), then=drip)) as stub,
        connect(stub.url) as client,
        pytest.raises(CollectTimeout),
    ):
        client.collect(Sample(), timeout_s=0.1)


def test_c28_a_timeout_leaves_the_input_sample_as_it_was(connect: Connect) -> None:
    template = Sample(label="x", metadata={"task": 1})
    before = copy.deepcopy(template)
    with (
        Stub(silence) as stub,
        connect(stub.url) as client,
        pytest.raises(CollectTimeout),
    ):
        client.collect(template, timeout_s=0.05)
    assert template.reward is None
    assert dataclasses.asdict(template).keys() == dataclasses.asdict(before).keys()
    assert (template.label, template.metadata, template.status) == (
        before.label,
        before.metadata,
        before.status,
    )


def recording_http(kind: Kind, seen: list[dict[str, Any]]) -> Any:
    """An HTTP client without a network that notes the time limits it is given."""
    payload = make_payload()

    def handle(request: httpx2.Request) -> httpx2.Response:
        seen.append(request.extensions["timeout"])
        if request.method == "DELETE":
            return httpx2.Response(204)
        if request.url.path == "/sessions":
            return httpx2.Response(200, json={"session_id": SESSION_ID})
        headers = {"content-type": "application/octet-stream"}
        return httpx2.Response(200, content=payload, headers=headers)

    make = httpx2.Client if kind == "sync" else httpx2.AsyncClient
    return make(transport=httpx2.MockTransport(handle))


def test_c28_without_limits_the_http_package_has_none_either(connect: Connect, kind: Kind) -> None:
    seen: list[dict[str, Any]] = []
    limits = ClientLimits(create_timeout_s=None, delete_timeout_s=None)
    http = recording_http(kind, seen)
    with connect("http://stub", limits=limits, http=http) as client:
        client.collect(Sample(), timeout_s=None)
    assert [set(item.values()) for item in seen] == [{None}] * 3


@pytest.mark.heavy
@pytest.mark.parametrize("num_mib", [26, 98])
def test_c29_a_large_reply_passes_by_default(connect: Connect, num_mib: int) -> None:
    payload = payload_of(num_mib * MIB)
    slices = (payload[i : i + MIB] for i in range(0, len(payload), MIB))
    with (
        Stub(sends(head(length=len(payload)), *slices)) as stub,
        connect(stub.url) as client,
    ):
        (sample,) = client.collect(Sample()).samples
    routed_TLK = sample.rollout_routed_experts
    assert routed_TLK is not None
    assert routed_TLK.nbytes + ROW_BYTES == num_mib * MIB // ROW_BYTES * ROW_BYTES
    assert bool((routed_TLK == np.arange(len(routed_TLK))[:, None, None]).all())


def test_c29_a_limit_refuses_with_size_and_limit_before_the_body(connect: Connect) -> None:
    limits = ClientLimits(max_reply_bytes=25 * MIB)
    size = 98 * MIB
    with (
        Stub(sends(head(length=size), then=silence)) as stub,
        connect(stub.url, limits=limits) as client,
        pytest.raises(LimitError, match=f"{size} bytes, the limit is {25 * MIB}") as caught,
    ):
        client.collect(Sample())
    assert (caught.value.expected, caught.value.got) == (
        f"at most {25 * MIB} bytes",
        f"{size} bytes",
    )
