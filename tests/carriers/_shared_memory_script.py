"""A rollout process hands payloads to a trainer process in shared memory.  Prints what was seen.

The rule that it follows: whoever created a block unlinks it, each process closes its own mapping,
and a mapping is closed when the last array in it is gone.
"""

from __future__ import annotations

import json
import multiprocessing
from multiprocessing.connection import Connection
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np
from carriers._samples import arrays_of, digest, large_sample

from sample_wire import Sample, decode_samples, encode_samples


def train(pipe: Connection) -> None:
    """The trainer: reads, is told that it closes too early, and closes."""
    name, nbytes = pipe.recv()
    block = SharedMemory(name)
    assert block.buf is not None
    whole = np.frombuffer(block.buf, np.uint8)
    (sample,) = decode_samples(block.buf[:nbytes], Sample(label="kept")).samples
    shared = all(np.shares_memory(array, whole) for array in arrays_of(sample).values())
    pipe.send(None)
    pipe.recv()  # the owner has closed and unlinked its own by now
    seen: dict[str, Any] = {"digest": digest(sample), "shared": shared, "label": sample.label}
    try:
        block.close()
    except BufferError:
        seen["early"] = "BufferError"
    seen["after"] = digest(sample)
    del whole, sample
    block.close()
    pipe.send(seen)


def main() -> None:
    """The rollout side: owns the block."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=train, args=(theirs,))
    process.start()
    sample = large_sample()
    payload = encode_samples([sample])
    block = SharedMemory(create=True, size=payload.nbytes)
    payload.copy_into(block)
    ours.send((block.name, payload.nbytes))
    ours.recv()  # mapped over there
    block.close()
    block.unlink()
    ours.send(None)
    print(json.dumps({"sent": digest(sample), "seen": ours.recv()}))
    process.join()


if __name__ == "__main__":
    main()
