"""Session server on an actor, client, object store, trainer process, torch: two copies in all."""

from __future__ import annotations

from typing import Any

import httpx2
import numpy as np
import pytest
from strategies import same_sample

from sample_wire import Sample
from sample_wire.adapters.client import SyncSessionClient
from sample_wire.adapters.server import ServerSettings
from sample_wire.codec import Layout
from sample_wire.demo.engine import EngineSettings, serve_engine

pytest.importorskip("ray")
pytest.importorskip("torch")
import ray

from sample_wire.adapters.ray import start_session_servers

from ._memory import lies_in_the_store, owner
from ._trainer import ARRAYS, arrays_of, digests, to_tensors

pytestmark = [pytest.mark.ray, pytest.mark.torch, pytest.mark.usefixtures("cluster")]
ENGINE = EngineSettings(num_layers=8, num_experts=32, top_k=8)
PATIENCE_S = 60.0


def collected(layout: Layout) -> Sample:
    """A sample of one session on an actor, in the dtypes that the layout sends.

    Its prompt makes it too large to travel inline.
    """
    with serve_engine(ENGINE) as url:
        settings = ServerSettings(
            engine_url=url, tokenizer="chatml", port=0, routing=ENGINE.routing_spec()
        )
        with (
            start_session_servers(settings, 1, actor_options={"num_cpus": 0}) as servers,
            SyncSessionClient(servers.urls, layout=layout, widen=False) as client,
        ):
            body = {"messages": [{"role": "user", "content": "hi " * 300}], "max_tokens": 32}
            chat_url = f"{client.chat_base_url}/chat/completions"
            response = httpx2.post(chat_url, json=body, timeout=PATIENCE_S, trust_env=False)
            response.raise_for_status()
            (sample,) = client.collect(Sample(label="kept")).samples
            return sample


def owners(sample: Sample) -> set[int]:
    """The memory that the arrays are views of: one for each copy that was made of the bytes."""
    return {id(owner(array)) for array in arrays_of(sample).values()}


@pytest.mark.parametrize("layout", ["exact", "compact"])
def test_the_bytes_are_copied_from_the_socket_and_into_the_store_and_no_more(
    layout: Layout,
) -> None:
    sample = collected(layout)
    routed = np.asarray(sample.rollout_routed_experts)
    assert routed.dtype == (np.uint8 if layout == "compact" else np.int32)
    # The first copy: the client receives into one buffer, and every array is a view of it.
    assert len(owners(sample)) == 1
    assert owner(sample.tokens).nbytes > sum(one.nbytes for one in arrays_of(sample).values())
    assert not any(map(lies_in_the_store, arrays_of(sample).values()))
    # The second: into the store.
    ref = ray.put([sample])
    (again,) = ray.get(ref)
    assert all(map(lies_in_the_store, arrays_of(again).values()))
    assert same_sample(again, sample)
    # None: the trainer's arrays are the store's own memory, and so are tensors, but for those that
    # torch widens: for a device that happens there, on the host it is the one copy.
    (seen,) = ray.get(ray.remote(to_tensors).remote(ref))
    assert seen == expected(sample, ["loss_mask"] if layout == "compact" else [*ARRAYS])


def expected(sample: Sample, same: list[str]) -> dict[str, Any]:
    return {
        "digests": digests(sample),
        "in_store": True,
        "writable": False,
        "label": "kept",
        "same": same,
        "declared": True,
        "sum": int(np.sum(sample.tokens)),
        "last_row": [-1],
    }
