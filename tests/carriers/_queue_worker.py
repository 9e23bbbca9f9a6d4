"""What the other process of a queue does; nothing of pytest is imported there."""

from __future__ import annotations

from multiprocessing.connection import Connection
from multiprocessing.queues import Queue
from typing import Any

from carriers._samples import digest

from sample_wire import Payload, Sample, SamplesReply, decode_samples


def answer(inbox: Queue[Any], outbox: Queue[Any]) -> None:
    """Digests of the samples of whatever comes, and the same thing back, until None comes."""
    while (item := inbox.get()) is not None:
        outbox.put((digests(item), item))


def digests(item: Any) -> list[str]:
    """Of the samples in a payload, a reply, a list, or a sample."""
    if isinstance(item, Payload):
        item = decode_samples(item, Sample())
    if isinstance(item, SamplesReply):
        item = item.samples
    return [digest(sample) for sample in (item if isinstance(item, list) else [item])]


def answer_bytes(pipe: Connection) -> None:
    """Digests of the samples of one payload that comes as bytes."""
    pipe.send(digests(decode_samples(pipe.recv_bytes(), Sample())))
