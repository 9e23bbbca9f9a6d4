"""Records to turns, the slow and plain way: lists, and every routing array decoded in full.

Made from the documents that say what engines send, not from the package's code: it shares
nothing with it.  It knows the malformed records that the property tests make, no others.

Shape letters: L routed layers, K experts per token.
"""

from __future__ import annotations

import ast
import base64
import binascii
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

CODES = {"|u1": "B", "|i1": "b", "<u2": "H", "<i2": "h", "<i4": "i"}
NAMES = {"uint8": "|u1", "int8": "|i1", "uint16": "<u2", "int16": "<i2", "int32": "<i4"}


class RefusedError(Exception):
    """A record that cannot be used, or that does not fit those before it."""

    def __init__(self, turn: int, rule: str) -> None:
        super().__init__(f"turn {turn}: {rule}")
        self.turn = turn


@dataclass
class Routing:
    """What is known of a model's routing; the same facts as the package's RoutingSpec."""

    num_layers: int
    top_k: int
    num_experts: int | None = None
    required: bool = False
    incremental: bool = False


@dataclass
class Rows:
    """Rows of L*K numbers each."""

    num_layers: int
    width: int
    rows: list[tuple[int, ...]]


@dataclass
class SlowTurn:
    """One record, read."""

    number: int
    prompt: list[int]
    output: list[int]
    log_probs: list[float]
    reason: str | None
    start: int | None
    routed: Rows | None
    indexer: Rows | None
    weight_version: str | None
    cached: int
    prompt_tokens: int
    spec: tuple[int, int, int, int]
    latency: float | None
    timestamp: float | None
    request_timestamp: float | None
    messages: list[Any]

    @property
    def tokens(self) -> list[int]:
        """Prompt and output."""
        return self.prompt + self.output


def read_turn(record: dict[str, Any], number: int, routing: Routing | None) -> SlowTurn:
    """The turn of a record whose reply is a Python object."""
    request, reply = _body(record.get("request")), _body(record.get("response"))
    if isinstance(reply, dict) and "sse" in reply:
        reply = _joined(reply["sse"])
    if not isinstance(request, dict) or not isinstance(reply, dict):
        raise RefusedError(number, "no request or no response")
    choice = (reply.get("choices") or [{}])[0]
    meta = reply.get("meta_info") or choice.get("meta_info")
    output, log_probs = _outputs(reply, choice, meta, number)
    prompt = _prompt(request, reply, choice, number)
    source = meta if meta is not None else {}
    usage = reply.get("usage") or {}
    start = _start(request)
    num_tokens = len(prompt) + len(output)
    latency, timestamp = source.get("e2e_latency"), record.get("timestamp")
    message = [choice["message"]] if choice.get("message") else []
    if not reply.get("choices") and reply.get("text") is not None:
        message = [{"role": "assistant", "content": reply["text"]}]
    return SlowTurn(
        number=number,
        prompt=prompt,
        output=output,
        log_probs=log_probs,
        reason=_reason(choice, meta),
        start=start,
        routed=_routed(choice, meta, reply, num_tokens, start, routing, number),
        indexer=_indexer(source, num_tokens, number),
        weight_version=source.get("weight_version"),
        cached=_cached(meta, usage),
        prompt_tokens=(usage if meta is None else source).get("prompt_tokens") or 0,
        spec=_spec(source),
        latency=latency,
        timestamp=timestamp,
        request_timestamp=record.get("request_timestamp"),
        messages=[*(request.get("messages") or []), *message],
    )


def _body(side: Any) -> Any:
    return side["body"] if isinstance(side, dict) and "body" in side else side


def _joined(events: list[Any]) -> dict[str, Any]:
    """The reply that a stream of vLLM's token-in endpoint adds up to."""
    whole: dict[str, Any] = {}
    ids: list[int] = []
    content: list[Any] = []
    last: dict[str, Any] = {}
    for event in events:
        if not isinstance(event, dict):
            continue
        whole |= {key: value for key, value in event.items() if value}
        for choice in event.get("choices", []):
            ids += choice["token_ids"]
            content += choice["logprobs"]["content"]
            last |= {key: value for key, value in choice.items() if value is not None}
    return whole | {"choices": [last | {"token_ids": ids, "logprobs": {"content": content}}]}


def _outputs(reply: Any, choice: Any, meta: Any, number: int) -> tuple[list[int], list[float]]:
    if meta is not None:
        pairs = meta.get("output_token_logprobs")
        if pairs is None or meta.get("completion_tokens") != len(pairs):
            raise RefusedError(number, "log-probs missing, or not one for each token")
        ids, values = [pair[1] for pair in pairs], [pair[0] for pair in pairs]
        if reply.get("output_ids") not in (None, ids):
            raise RefusedError(number, "two accounts of the output ids")
    else:
        ids, content = choice.get("token_ids"), (choice.get("logprobs") or {}).get("content")
        counted = (reply.get("usage") or {}).get("completion_tokens")
        if ids is None or content is None or len(ids) != len(content):
            raise RefusedError(number, "log-probs missing, or not one for each token")
        if counted not in (None, len(ids)):
            raise RefusedError(number, "another count of tokens")
        values = [entry["logprob"] for entry in content]
    for value in values:
        if type(value) not in (int, float) or math.isnan(value) or value == math.inf:
            raise RefusedError(number, "a log-prob is no number")
    return _integers(ids, number), [float(value) for value in values]


def _prompt(request: Any, reply: Any, choice: Any, number: int) -> list[int]:
    for holder, key in (
        (request, "input_ids"),
        (request, "token_ids"),
        (reply, "prompt_token_ids"),
        (choice, "prompt_token_ids"),
    ):
        if holder.get(key) is not None:
            return _integers(holder[key], number)
    raise RefusedError(number, "no prompt ids")


def _integers(ids: Any, number: int) -> list[int]:
    if not isinstance(ids, list) or any(type(item) is not int for item in ids):
        raise RefusedError(number, "ids that are no integers")
    return ids


def _reason(choice: Any, meta: Any) -> str | None:
    reason = (meta or {}).get("finish_reason") or choice.get("finish_reason")
    found = reason.get("type") if isinstance(reason, dict) else reason
    return None if found is None else str(found)


def _cached(meta: Any, usage: Any) -> int:
    if meta is not None:
        return int(meta.get("cached_tokens") or 0)
    return int((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0)


def _spec(source: Any) -> tuple[int, int, int, int]:
    keys = ("spec_accept_token_num", "spec_draft_token_num", "spec_verify_ct", "completion_tokens")
    accepted, drafted, verified, completed = (source.get(key) or 0 for key in keys)
    return accepted, drafted, verified, completed


def _start(request: Any) -> int | None:
    for holder in (request, request.get("sampling_params") or {}):
        for key in ("routed_experts_start_len", "routed_experts_prompt_start"):
            if key in holder:
                return int(holder[key])
    return None


def _routed(
    choice: Any,
    meta: Any,
    reply: Any,
    num_tokens: int,
    start: int | None,
    routing: Routing | None,
    number: int,
) -> Rows | None:
    holders = [meta or {}, choice, reply.get("sglext") or {}]
    values = [found for holder in holders if (found := holder.get("routed_experts")) is not None]
    if not values:
        return None
    if isinstance(values[0], dict) and start is None:
        start = values[0].get("start", 0)
    num_rows = max(num_tokens - 1 - (start or 0), 0)
    layers, width = (routing.num_layers, routing.top_k) if routing else (None, None)
    found = _refusing(number, decode_rows, values[0], num_rows, layers, width)
    if routing is not None and routing.num_experts is not None:
        for row in found.rows:
            if min(row) < -1 or max(row) >= routing.num_experts:
                raise RefusedError(number, "an id that is none of an expert")
            if -1 in row and set(row) != {-1}:
                raise RefusedError(number, "a row of which some is captured")
    return found


def _indexer(source: Any, num_tokens: int, number: int) -> Rows | None:
    if source.get("indexer_topk") is None:
        return None
    layers = source.get("indexer_topk_num_layers")
    if layers is None:
        raise RefusedError(number, "an indexer array of unknown layers")
    num_rows = max(num_tokens - 1, 0)
    return _refusing(number, decode_rows, source["indexer_topk"], num_rows, layers, None)


def _refusing(number: int, decode: Callable[..., Rows], *args: Any) -> Rows:
    try:
        return decode(*args)
    except (ValueError, TypeError, KeyError, struct.error) as error:
        raise RefusedError(number, str(error)) from None


def decode_rows(value: Any, num_rows: int, num_layers: int | None, width: int | None) -> Rows:
    """The rows of one routing value, each as a tuple; ValueError where it cannot be read."""
    if isinstance(value, dict):
        descr, shape, data = NAMES[value["dtype"]], tuple(value["shape"]), _bytes(value["data"])
    elif isinstance(value, str):
        data = _bytes(value)
        descr, shape = "<i4", ()
        if data.startswith(b"\x93NUMPY\x01\x00"):
            descr, shape, data = _npy(data)
    else:
        raise TypeError("a form that is not known")
    size = struct.calcsize(CODES[descr])
    if not shape:
        shape = _raw_shape(len(data) // size, num_rows, num_layers, width)
    wanted = (num_rows, num_layers or shape[1], width or shape[2])
    if shape != wanted and not (num_rows == 0 and shape == (0, wanted[1], 0)):
        raise ValueError(f"shape {shape}, not {wanted}")
    count = math.prod(shape)
    numbers = struct.unpack(f"<{count}{CODES[descr]}", data)
    per_row = count // num_rows if num_rows else 0
    rows = [numbers[first : first + per_row] for first in range(0, count, max(per_row, 1))]
    return Rows(wanted[1], wanted[2], rows)


def _raw_shape(
    count: int, num_rows: int, num_layers: int | None, width: int | None
) -> tuple[int, int, int]:
    """The shape of numbers without a header; a width that is not known is derived."""
    if num_layers is None:
        raise ValueError("raw rows of unknown layers")
    if width is not None:
        return count // (num_layers * width), num_layers, width
    if num_rows == 0:
        return 0, num_layers, 0
    if count == 0:
        raise ValueError("rows with nothing in them")
    return num_rows, num_layers, count // (num_rows * num_layers)


def _bytes(text: str) -> bytes:
    if len(text) % 4:
        raise ValueError("no whole groups of base64")
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError("no base64") from None


def _npy(data: bytes) -> tuple[str, tuple[int, ...], bytes]:
    (size,) = struct.unpack("<H", data[8:10])
    header = ast.literal_eval(data[10 : 10 + size].decode("latin-1"))
    if header["fortran_order"]:
        raise ValueError("Fortran order")
    return header["descr"], header["shape"], data[10 + size :]
