"""The straightforward way to make a session's sample of its records, as the reference system does.

All records are parsed.  Each is made a sample of its own with its routing decoded, and the
samples are merged pair by pair, both deep-copied first.  Where turns bring new routing rows only,
these are joined in the end.  It makes what the library makes, but for the sample's metadata.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import numpy.typing as npt

from ..rows import validate
from ..sample import PrefixCacheInfo, Sample, Status

Record = dict[str, Any]
DecodeText = Callable[[Sequence[int]], str]
_START = "routed_experts_start_len"


def assemble_records(
    records: Sequence[Record],
    accumulated: list[int],
    num_layers: int,
    decode_text: DecodeText = lambda _ids: "",
) -> Sample:
    """The sample of a session whose turns all completed and trim nothing.

    Args:
        records: one or more, as a server keeps them that parses every reply.
        accumulated: the ids that the session ended with.
        num_layers: layers of a routing row.
        decode_text: the text of ids; without it there is none.

    Raises:
        ValueError: the turns do not fit together.
    """
    samples = [_sample_of(record, accumulated, num_layers, decode_text) for record in records]
    if len(samples[-1].tokens) != len(accumulated):
        raise ValueError("the turns do not end where the session does")
    merged = samples[0]
    for sample in samples[1:]:
        merged = _merge(merged, sample, decode_text)
    if merged.rollout_routed_experts is None:
        merged.rollout_routed_experts = _joined_rows(records, num_layers)
    return merged


def _sample_of(
    record: Record, accumulated: list[int], num_layers: int, decode_text: DecodeText
) -> Sample:
    prompt: list[int] = record["request"]["input_ids"]
    meta = _meta_of(record)
    output = [entry[1] for entry in meta["output_token_logprobs"]]
    if output != accumulated[len(prompt) : len(prompt) + len(output)]:
        raise ValueError("the accumulated ids part from an output")
    fields: dict[str, Any] = {
        "tokens": prompt + output,
        "loss_mask": [1] * len(output),
        "rollout_log_probs": [entry[0] for entry in meta["output_token_logprobs"]],
    }
    return Sample(
        **fields,
        response=decode_text(output),
        response_length=len(output),
        rollout_routed_experts=None if _START in record["request"] else _rows(record, num_layers),
        status=Status.COMPLETED,
        weight_versions=[meta["weight_version"]],
        prefix_cache_info=PrefixCacheInfo(meta["cached_tokens"], meta["prompt_tokens"]),
    )


def _meta_of(record: Record) -> dict[str, Any]:
    meta: dict[str, Any] = record["response"]["choices"][0]["meta_info"]
    return meta


def _rows(record: Record, num_layers: int) -> npt.NDArray[np.int32]:
    meta, request = _meta_of(record), record["request"]
    num_tokens = len(request["input_ids"]) + len(meta["output_token_logprobs"])
    values = np.frombuffer(base64.b64decode(meta["routed_experts"]), np.int32)
    return values.reshape(num_tokens - 1 - request.get(_START, 0), num_layers, -1)


def _joined_rows(records: Sequence[Record], num_layers: int) -> npt.NDArray[np.int32]:
    parts: list[npt.NDArray[np.int32]] = []
    for record in records:
        if record["request"][_START] != sum(map(len, parts)):
            raise ValueError("a turn's rows do not go on from those before it")
        parts.append(_rows(record, num_layers))
    return np.concatenate(parts)


def _merge(first: Any, second: Any, decode_text: DecodeText) -> Sample:
    """One sample of two, the second of which goes on from the first."""
    a, b = deepcopy(first), deepcopy(second)
    validate(a)
    validate(b)
    num_observed = len(b.tokens) - len(a.tokens) - b.response_length
    if b.tokens[: len(a.tokens)] != a.tokens or num_observed <= 0:
        raise ValueError("a turn does not go on from the one before")
    observed = b.tokens[len(a.tokens) : len(a.tokens) + num_observed]
    cache = PrefixCacheInfo(
        a.prefix_cache_info.cached_tokens + b.prefix_cache_info.cached_tokens,
        a.prefix_cache_info.total_prompt_tokens + b.prefix_cache_info.total_prompt_tokens,
    )
    fields: dict[str, Any] = {
        "tokens": b.tokens,
        "loss_mask": a.loss_mask + [0] * num_observed + b.loss_mask,
        "rollout_log_probs": a.rollout_log_probs + [0.0] * num_observed + b.rollout_log_probs,
    }
    return Sample(
        **fields,
        response=a.response + decode_text(observed) + b.response,
        response_length=a.response_length + num_observed + b.response_length,
        rollout_routed_experts=b.rollout_routed_experts,
        status=b.status,
        weight_versions=a.weight_versions + b.weight_versions,
        prefix_cache_info=cache,
    )
