"""One Ray cluster on this machine for all tests."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

# Loopback too; for 127.0.0.1 Ray would take the machine's own address.
NODE_ADDRESS = "127.0.0.2"
STORE_BYTES = 512 << 20


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    """A cluster of one node, on loopback; its workers run in processes of their own."""
    import ray

    ray.init(
        num_cpus=4,
        object_store_memory=STORE_BYTES,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        _node_ip_address=NODE_ADDRESS,
    )
    yield
    ray.shutdown()
