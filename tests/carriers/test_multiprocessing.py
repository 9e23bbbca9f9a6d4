"""Payloads and samples through multiprocessing's queues and pipes."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from strategies import same_sample

from sample_wire import Payload, Sample, SamplesReply, decode_samples, encode_samples

from ._queue_worker import answer, answer_bytes
from ._samples import digest, large_sample

CONTEXT = multiprocessing.get_context("spawn")
Exchange = Callable[[object], Any]


@pytest.fixture(scope="module")
def exchange() -> Iterator[Exchange]:
    """Sends something to another process by one queue; gives what comes back by another."""
    outbox: Any = CONTEXT.Queue()
    inbox: Any = CONTEXT.Queue()
    process = CONTEXT.Process(target=answer, args=(outbox, inbox))
    process.start()

    def there_and_back(item: object) -> Any:
        outbox.put(item)
        return inbox.get()

    yield there_and_back
    outbox.put(None)
    process.join()
    for queue in (outbox, inbox):
        queue.close()
        queue.join_thread()
    assert process.exitcode == 0


def test_a_payload_crosses_a_queue_with_every_byte(exchange: Exchange) -> None:
    sample = large_sample()
    payload = encode_samples([sample, sample], {"a": 1})
    seen, back = exchange(payload)
    assert seen == [digest(sample)] * 2
    assert type(back) is Payload
    assert bytes(back) == bytes(payload)


def test_a_decoded_reply_crosses_a_queue(exchange: Exchange) -> None:
    sample = large_sample()
    reply = decode_samples(encode_samples([sample], {"a": 1}), Sample(label="kept"))
    seen, back = exchange(reply)
    assert seen == [digest(sample)]
    assert type(back) is SamplesReply
    assert back.session_metadata == {"a": 1}
    assert same_sample(back.samples[0], reply.samples[0])


def test_a_sample_crosses_a_queue_and_may_be_written_on_the_other_side(exchange: Exchange) -> None:
    (sample,) = decode_samples(encode_samples([large_sample()]), Sample()).samples
    seen, back = exchange(sample)
    assert seen == [digest(sample)]
    back.tokens[0] = -1  # in-band pickling has made a copy
    assert sample.tokens[0] != -1


def test_a_payload_crosses_a_pipe_as_bytes() -> None:
    sample = large_sample()
    ours, theirs = CONTEXT.Pipe()
    process = CONTEXT.Process(target=answer_bytes, args=(theirs,))
    process.start()
    ours.send_bytes(encode_samples([sample]).contiguous())
    assert ours.recv() == [digest(sample)]
    process.join()
    assert process.exitcode == 0
    ours.close()
    theirs.close()
