"""The trainer: collects sessions, as samples or as records that it makes the samples of itself."""

from __future__ import annotations

import dataclasses
import itertools
import time
from typing import Final, NamedTuple

import msgspec

from ..adapters.tokenizer import ByteChatML
from ..assembly import RoutingSpec
from ..codec import decode_samples, encode_samples
from ..demo.equality import differences
from ..demo.two_ways import assembled_from
from ..sample import Sample
from .errors import BenchError
from .exchanges import Server, Span, connected, timed
from .straightforward import assemble_records
from .workers import Told

# The two paths, and the ways that a sample is made: one by the first path, two by the second.
SAMPLES: Final = "samples"
RECORDS: Final = "records"
STRAIGHTFORWARD: Final = "records, straightforward"
LIBRARY: Final = "records, library"
_TEMPLATE: Final = Sample(index=7, prompt="question", label="answer", metadata={"task": "bench"})
_TOKENIZER: Final = ByteChatML()


class Collect(NamedTuple):
    """A session that was collected.

    Attributes:
        sent: from the request to the last byte of the reply.
        reply_bytes: its size.
        seconds: from the request to the sample, by the way that it was made; what only one way
            does is not counted for another.
    """

    sent: Span
    reply_bytes: int
    seconds: dict[str, float]


def collect_samples(told: Told, url: str, session_ids: list[str]) -> list[Collect]:
    """Collects the sessions one after another, and again and again until it is told to end.

    Every one is collected once; the sessions stay.

    Args:
        url: of the session server.
    """
    collects: list[Collect] = []
    with connected(url) as server:
        for session_id in itertools.cycle(session_ids):
            collects.append(_collected(server, session_id))
            if len(collects) >= len(session_ids) and told(0):
                return collects
    raise BenchError("there is no session to collect")


def collect_records(
    _told: Told, url: str, session_ids: list[str], routing: RoutingSpec
) -> list[Collect]:
    """Gets the records of the sessions, one after another, and makes the samples of them.

    They are made by the library's own code and in the straightforward way, of the same reply.

    Args:
        url: of the session server.
        routing: what it was told of the engine's routing arrays.

    Raises:
        BenchError: a sample is not, bit for bit, the one that the server makes.
    """
    with connected(url) as server:
        return [_from_records(server, session_id, routing) for session_id in session_ids]


def _collected(server: Server, session_id: str) -> Collect:
    began = time.monotonic()
    body = server.ask("POST", f"/sessions/{session_id}/samples")
    sent = timed(began)
    [_] = decode_samples(body, _TEMPLATE).samples
    return Collect(sent, len(body), {SAMPLES: timed(began).length_s})


def _from_records(server: Server, session_id: str, routing: RoutingSpec) -> Collect:
    began = time.monotonic()
    dump = server.ask("GET", f"/sessions/{session_id}")
    sent, size = timed(began), len(dump)

    began = time.monotonic()
    _, sample = assembled_from(dump, _TOKENIZER, routing)
    library = timed(began)
    wanted = _sample_of(server, session_id)
    check_equal(sample, wanted, _TEMPLATE, "the library")
    del sample

    began = time.monotonic()
    found = msgspec.json.decode(dump)
    del dump
    ids = found["metadata"]["accumulated_token_ids"]
    merged = assemble_records(found["records"], ids, routing.num_layers, _TOKENIZER.decode)
    straightforward = timed(began)
    check_equal(_as_sent(merged, wanted), wanted, _TEMPLATE, "the straightforward way")
    return Collect(
        sent,
        size,
        {
            LIBRARY: sent.length_s + library.length_s,
            STRAIGHTFORWARD: sent.length_s + straightforward.length_s,
        },
    )


def _sample_of(server: Server, session_id: str) -> Sample:
    """What the server makes."""
    body = server.ask("POST", f"/sessions/{session_id}/samples")
    sample: Sample = decode_samples(body, _TEMPLATE).samples[0]
    return sample


def _as_sent(merged: Sample, wanted: Sample) -> Sample:
    """The sample with arrays for lists; its metadata, which that way does not make, as wanted."""
    wire = encode_samples([dataclasses.replace(merged, metadata=wanted.metadata)]).contiguous()
    [sample] = decode_samples(wire, Sample()).samples
    return sample


def check_equal(made: Sample, wanted: Sample, template: Sample, who: str) -> None:
    """Whether two ways give a trainer the same.

    Args:
        made: by one of them.
        wanted: the other's, laid over the template.
        who: the one, for the error's text.

    Raises:
        BenchError: they are not equal, bit for bit.
    """
    faults = differences(made, wanted, template)
    if faults:
        raise BenchError(f"{who} makes another sample of the records: {', '.join(faults)}")
