"""Payloads in shared memory, between processes: nothing is copied, and it is known who closes."""

from __future__ import annotations

import json
import os
import pathlib
import pickle
import subprocess
import sys
from collections.abc import Iterator
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import pytest

from sample_wire import Sample, decode_samples, encode_samples

from ._samples import digest, large_sample

SCRIPT = pathlib.Path(__file__).with_name("_shared_memory_script.py")
TESTS = SCRIPT.parents[1]


@pytest.fixture(scope="module")
def told() -> Any:
    """What two processes saw that shared a block.  They end well and without a word."""
    path = os.pathsep.join([str(TESTS.parent), str(TESTS)])
    done = subprocess.run(
        [sys.executable, "-W", "error", str(SCRIPT)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
        check=False,
    )
    # Also no word of the resource tracker's, of a leaked block or one that was not there.
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_a_trainer_process_reads_the_payload_where_it_lies(told: Any) -> None:
    assert told["seen"]["digest"] == told["sent"]
    assert told["seen"]["shared"]
    assert told["seen"]["label"] == "kept"


def test_the_owner_may_close_and_unlink_while_the_trainer_still_reads(told: Any) -> None:
    assert told["seen"]["after"] == told["sent"]


def test_a_trainer_that_closes_under_its_arrays_is_told_and_may_close_later(told: Any) -> None:
    assert told["seen"]["early"] == "BufferError"


@pytest.fixture
def block() -> Iterator[SharedMemory]:
    """A block with a payload of exactly its size."""
    payload = encode_samples([large_sample()])
    found = SharedMemory(create=True, size=payload.nbytes)
    payload.copy_into(found)
    yield found
    found.close()
    found.unlink()


def test_a_copied_sample_outlives_its_block() -> None:
    sample = large_sample()
    payload = encode_samples([sample])
    block = SharedMemory(create=True, size=payload.nbytes)
    payload.copy_into(block)
    (found,) = decode_samples(block, Sample(), copy=True).samples
    block.close()
    block.unlink()
    assert digest(found) == digest(sample)


def test_a_sample_that_is_pickled_out_of_a_block_takes_its_bytes_along(
    block: SharedMemory,
) -> None:
    (found,) = decode_samples(block, Sample()).samples
    again = pickle.loads(pickle.dumps(found))
    again.tokens[0] = -1
    assert found.tokens[0] != -1


def test_a_block_that_is_larger_than_the_payload_is_read_by_its_size() -> None:
    sample = large_sample()
    payload = encode_samples([sample])
    block = SharedMemory(create=True, size=payload.nbytes + 4096)
    nbytes = payload.copy_into(block)
    assert block.buf is not None
    (found,) = decode_samples(block.buf[:nbytes], Sample()).samples
    assert digest(found) == digest(sample)
    del found
    block.close()
    block.unlink()
