"""A session's sample got in two ways: as the server's payload, and from its records.

The second way is that of a server that only keeps records: all of them are fetched and the
sample is made by the client, here with the same assembly and the fastest readers there are, so
that the two differ in nothing but where the work is done and what crosses the wire.
"""

from __future__ import annotations

import statistics
import time
from typing import Any, Final, NamedTuple

import httpx2
import msgspec

from ..adapters.engines import fast_base64
from ..assembly import RoutingSpec, assemble
from ..codec import decode_samples
from ..sample import Counter, Sample
from ..session import TokenizerAdapter

NUM_ROUNDS: Final = 3


class _Record(msgspec.Struct):
    request: dict[str, Any]
    response: msgspec.Raw
    timestamp: float
    request_timestamp: float


class _Metadata(msgspec.Struct):
    accumulated_token_ids: list[Counter]
    max_trim_tokens: Counter


class _Dump(msgspec.Struct):
    records: list[_Record]
    metadata: _Metadata


class BothWays(NamedTuple):
    """What both ways gave, and cost.

    Attributes:
        payload: the bytes of the samples reply.
        received: the sample in it, laid over the template.
        session_metadata: of the same reply.
        assembled: the sample made of the records; it has no template's fields.
        records_bytes: of the records reply.
        num_turns: records in it.
        payload_s, records_s: from the request to the sample; medians of NUM_ROUNDS.
    """

    payload: bytes
    received: Sample
    session_metadata: dict[str, Any]
    assembled: Sample
    records_bytes: int
    num_turns: int
    payload_s: float
    records_s: float


class TwoWays:
    """Gets sessions' samples in both ways.

    Args:
        http: for all requests.
        tokenizer: the server's: making the sample from records takes one.
        routing: what the server was told of the routing arrays.
    """

    def __init__(
        self, http: httpx2.AsyncClient, tokenizer: TokenizerAdapter, routing: RoutingSpec | None
    ) -> None:
        self._http = http
        self._tokenizer = tokenizer
        self._routing = routing

    async def both(self, session_url: str, template: Sample) -> BothWays:
        """The sample in both ways, in turns, each NUM_ROUNDS times; the session stays.

        Raises:
            httpx2.HTTPError: no answer, or one that is no 2xx.
            SampleWireError: a payload or records that make no sample.
        """
        payload_s, records_s = [], []
        for _ in range(NUM_ROUNDS):
            started = time.perf_counter()
            body = await self._sent("POST", f"{session_url}/samples")
            reply = decode_samples(body, template)
            payload_s.append(time.perf_counter() - started)
            started = time.perf_counter()
            records = await self._sent("GET", session_url)
            num_turns, assembled = assembled_from(records, self._tokenizer, self._routing)
            records_s.append(time.perf_counter() - started)
        return BothWays(
            payload=body,
            received=reply.samples[0],
            session_metadata=reply.session_metadata,
            assembled=assembled,
            records_bytes=len(records),
            num_turns=num_turns,
            payload_s=statistics.median(payload_s),
            records_s=statistics.median(records_s),
        )

    async def _sent(self, method: str, url: str) -> bytes:
        response = await self._http.request(method, url)
        return response.raise_for_status().content


def assembled_from(
    text: bytes | bytearray, tokenizer: TokenizerAdapter, routing: RoutingSpec | None
) -> tuple[int, Sample]:
    """The number of records in a dump, and the sample that the library makes of them.

    Args:
        text: what GET /sessions/{id} answered.
        tokenizer, routing: the server's.

    Raises:
        SampleWireError: they make no sample.
    """
    dump = msgspec.json.decode(text, type=_Dump)
    result = assemble(
        [_as_exchanged(record) for record in dump.records],
        accumulated_token_ids=dump.metadata.accumulated_token_ids,
        max_trim_tokens=dump.metadata.max_trim_tokens,
        decode_text=tokenizer.decode,
        routing=routing,
        decode_base64=fast_base64(),
    )
    sample: Sample = result.samples[0]
    return len(dump.records), sample


def _as_exchanged(record: _Record) -> dict[str, Any]:
    return {
        "request": record.request,
        "response": memoryview(record.response),  # read as bytes: nothing becomes an object twice
        "timestamp": record.timestamp,
        "request_timestamp": record.request_timestamp,
    }
