"""Replies in SGLang's form, key by key as SGLang 0.5.23 was seen to send them."""

from __future__ import annotations

import functools
import secrets
import time
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import numpy as np

from ...adapters.engines import fast_base64_encoder
from ...adapters.tokenizer.chatml import IM_END, IM_START
from ...session.tool_calls import parse_hermes
from .generation import Generation, RoutingRows
from .grammar import TOKENIZER
from .requests import ChatRequest, Job
from .settings import ModelSettings

Reply = dict[str, Any]

_ROW_DTYPE: Final = np.dtype("<i4")
# Of rows in one piece of base64; making it takes a tenth of a millisecond.
_PIECE_BYTES: Final = 3 << 16


class RoutingText:
    """The value of a reply's routed_experts: base64 of little-endian int32, C order, no header.

    It is made piece by piece, each from its rows: a whole one may be larger than all else that
    the engine holds.

    Args:
        rows_NLK: all rows.
        start: the first one that is told.
        settings: how large a row is.
    """

    def __init__(self, rows_NLK: RoutingRows, start: int, settings: ModelSettings) -> None:
        self._rows_NLK = rows_NLK
        self._start = start
        self._row_bytes = settings.num_layers * settings.top_k * _ROW_DTYPE.itemsize

    @property
    def nbytes(self) -> int:
        """Length of the text."""
        num_rows = max(len(self._rows_NLK) - self._start, 0)
        return 4 * (-(-num_rows * self._row_bytes // 3))

    def __iter__(self) -> Iterator[bytes]:
        encode = fast_base64_encoder()
        # Three bytes are four characters: only the last piece may end between them.
        step = max(_PIECE_BYTES // self._row_bytes // 3, 1) * 3
        for first in range(self._start, len(self._rows_NLK), step):
            rows = self._rows_NLK[first : first + step]
            yield encode(rows.astype(_ROW_DTYPE, order="C", copy=False).tobytes())


class ReplyText:
    """A reply as JSON text, in pieces; it can be iterated more than once.

    Args:
        reply: RoutingText may stand in it for a string.

    Attributes:
        nbytes: length of the text.
    """

    def __init__(self, reply: Reply | list[Reply]) -> None:
        mark = secrets.token_hex(16)
        self._routing: list[RoutingText] = []

        def marked(found: Any) -> str:
            assert isinstance(found, RoutingText)
            self._routing.append(found)
            return mark

        text = msgspec.json.encode(reply, enc_hook=marked)
        self._first, *self._others = text.split(mark.encode())
        parts = [self._first, *self._others]
        self.nbytes = sum(map(len, parts)) + sum(one.nbytes for one in self._routing)

    def __iter__(self) -> Iterator[bytes]:
        yield self._first
        for routing, text in zip(self._routing, self._others, strict=True):
            yield from routing
            yield text


class Replies:
    """Makes the replies of one request.

    Args:
        settings: the engine's.
        job: what was asked.
        received: when the request came, in seconds since the epoch, as all times here.
        dispatched: when it was handed on.
    """

    def __init__(
        self, settings: ModelSettings, job: Job, *, received: float, dispatched: float
    ) -> None:
        self._settings = settings
        self._job = job
        self._received = received
        self._dispatched = dispatched

    def generate(self, outputs: list[Generation]) -> Reply | list[Reply]:
        """The reply of /generate: an object, or a list where several outputs were asked for."""
        replies = [
            {
                "text": self._text(made),
                "output_ids": made.ids,
                "meta_info": self._meta_info(made, made.finish_reason, with_text=False),
            }
            for made in outputs
        ]
        return replies if self._job.params.n > 1 else replies[0]

    def chat(self, request: ChatRequest, outputs: list[Generation]) -> Reply:
        """The reply of /v1/chat/completions."""
        num_prompt = len(self._job.prompt)
        num_output = sum(len(made.ids) for made in outputs)
        reply: Reply = {
            "id": self._job.rid,
            "object": "chat.completion",
            "created": int(self._received),
            "model": request.model or self._settings.model,
            "choices": [self._choice(request, number, made) for number, made in enumerate(outputs)],
            "usage": {
                "prompt_tokens": num_prompt,
                "total_tokens": num_prompt + num_output,
                "completion_tokens": num_output,
                "prompt_tokens_details": None,
                "reasoning_tokens": 0,
                "completion_tokens_details": None,
            },
            "metadata": {
                "weight_version": self._settings.weight_version,
                "weight_versions": self._weight_versions(outputs[0]),
            },
        }
        if self._job.start is not None and not request.return_meta_info:
            reply["sglext"] = {"routed_experts": self._routed_experts(outputs[0], self._job.start)}
        return reply

    def _choice(self, request: ChatRequest, number: int, made: Generation) -> Reply:
        text = self._text(made)
        content, calls = parse_hermes(text) if self._job.tag is not None else (text, [])
        reason = made.finish_reason
        if calls and reason["type"] == "stop":
            reason = {"type": "tool_calls", "matched": None}
        message: Reply = {"role": "assistant", "content": content, "reasoning_content": None}
        if calls:
            message["tool_calls"] = [
                {"id": call["id"], "index": at, "type": "function", "function": call["function"]}
                for at, call in enumerate(calls)
            ]
        choice: Reply = {
            "index": number,
            "message": message,
            "logprobs": {"content": _token_log_probs(made)} if self._job.log_probs else None,
            "finish_reason": reason["type"],
            "matched_stop": reason.get("matched"),
        }
        if request.return_prompt_token_ids:
            choice["prompt_token_ids"] = made.prompt
        if request.return_meta_info:
            choice["meta_info"] = self._meta_info(made, reason, with_text=True)
        return choice

    def _meta_info(self, made: Generation, reason: Reply, *, with_text: bool) -> Reply:
        """Times as they were; what the embedded engine has none of is 0 or None."""
        now = time.time()
        meta: Reply = {
            "id": self._job.rid,
            "finish_reason": reason,
            "prompt_tokens": len(made.prompt),
            "weight_version": self._settings.weight_version,
            "num_retractions": 0,
            "storage_prefetch_wait": 0.0,
            "storage_staging_wait": 0.0,
            "forward_entry_time": made.started,
            "prefill_finished_time": made.first_token,
            "queue_time": max(made.started - self._dispatched, 0.0),
        }
        if self._job.log_probs:
            meta |= _log_prob_entries(made, with_text=with_text)
        cached = {"device": made.num_cached, "host": 0} if made.num_cached else None
        meta |= {
            "reasoning_tokens": 0,
            "completion_tokens": len(made.ids),
            "cached_tokens": made.num_cached,
            "weight_versions": self._weight_versions(made),
            "cached_tokens_details": cached,
        }
        if self._job.start is not None:
            meta["routed_experts"] = self._routed_experts(made, self._job.start)
        meta |= {
            "dp_rank": None,
            "e2e_latency": now - self._received,
            "request_received_ts": self._received,
            "first_token_latency": made.first_token - self._received,
            "api_server_dispatch_finish_ts": self._dispatched,
            "request_finished_ts": made.ended,
        }
        if len(made.ids) > 1:
            spent = max(made.ended - made.first_token, 1e-9)
            meta["decode_throughput"] = (len(made.ids) - 1) / spent
        return meta | {"response_sent_to_client_ts": now}

    def _weight_versions(self, made: Generation) -> list[Reply]:
        return [{"version": self._settings.weight_version, "start": 0, "end": len(made.ids)}]

    def _routed_experts(self, made: Generation, start: int) -> RoutingText:
        return RoutingText(made.routed_NLK, start, self._settings)

    def _text(self, made: Generation) -> str:
        """The output's text, without what stopped it unless it is asked for."""
        params, ids = self._job.params, made.ids
        matched = made.finish_reason.get("matched")
        if matched is not None and not params.no_stop_trim:
            size = 1 if isinstance(matched, int) else len(TOKENIZER.encode(matched))
            ids = ids[: len(ids) - size]
        if params.skip_special_tokens:
            ids = [token_id for token_id in ids if token_id not in (IM_START, IM_END)]
        return TOKENIZER.decode(ids)


def _log_prob_entries(made: Generation, *, with_text: bool) -> Reply:
    """The log-probs as meta_info has them: [nats, id, text or None] for each output token."""
    pairs = zip(made.log_probs, made.ids, strict=True)
    return {
        "input_token_logprobs": [],
        "output_token_logprobs": [
            [log_prob, token_id, _text_of(token_id) if with_text else None]
            for log_prob, token_id in pairs
        ],
        "output_token_logprobs_length": len(made.ids),
    }


def _token_log_probs(made: Generation) -> list[Reply]:
    texts = map(_text_of, made.ids)
    return [
        {"token": text, "bytes": [*text.encode()], "logprob": log_prob, "top_logprobs": []}
        for text, log_prob in zip(texts, made.log_probs, strict=True)
    ]


@functools.cache
def _text_of(token_id: int) -> str:
    return TOKENIZER.decode([token_id])
