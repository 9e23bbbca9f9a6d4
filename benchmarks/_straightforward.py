"""The straightforward way to assemble a session, as the reference system does it.

Records are kept as parsed JSON.  Each is made a sample of its own with its routing decoded, and
the samples are merged pair by pair, both deep-copied first.  It makes the same sample as ours,
without response text, as neither side here has a tokenizer.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import numpy as np

from benchmarks._assembly import Record
from sample_wire import PrefixCacheInfo, Sample, Status, validate


def kept_record(record: Record, reply: Any) -> Record:
    """A record as a server keeps it that parses every reply.

    Args:
        record: a session's, its ids as an array.
        reply: what json.loads made of its reply.
    """
    return {"request": {"input_ids": record["request"]["input_ids"].tolist()}, "response": reply}


def assemble_records(records: Sequence[Record], accumulated: list[int], num_layers: int) -> Sample:
    """The sample of a session whose turns all completed and trim nothing.

    Args:
        records: one or more, as `kept_record` gives them.
        accumulated: the ids that the session ended with.
        num_layers: layers of a routing row.

    Raises:
        ValueError: the turns do not fit together.
    """
    samples = [_sample_of(record, accumulated, num_layers) for record in records]
    if len(samples[-1].tokens) != len(accumulated):
        raise ValueError("the turns do not end where the session does")
    merged = samples[0]
    for sample in samples[1:]:
        merged = _merge(merged, sample)
    return merged


def _sample_of(record: Record, accumulated: list[int], num_layers: int) -> Sample:
    prompt: list[int] = record["request"]["input_ids"]
    meta = record["response"]["choices"][0]["meta_info"]
    output = [entry[1] for entry in meta["output_token_logprobs"]]
    if output != accumulated[len(prompt) : len(prompt) + len(output)]:
        raise ValueError("the accumulated ids part from an output")
    tokens = prompt + output
    data = base64.b64decode(meta["routed_experts"])
    rows = np.frombuffer(data, np.int32).reshape(len(tokens) - 1, num_layers, -1)
    fields: dict[str, Any] = {
        "tokens": tokens,
        "loss_mask": [1] * len(output),
        "rollout_log_probs": [entry[0] for entry in meta["output_token_logprobs"]],
    }
    return Sample(
        **fields,
        response_length=len(output),
        rollout_routed_experts=rows,
        status=Status.COMPLETED,
        weight_versions=[meta["weight_version"]],
        prefix_cache_info=PrefixCacheInfo(meta["cached_tokens"], meta["prompt_tokens"]),
    )


def _merge(first: Any, second: Any) -> Sample:
    """One sample of two, the second of which goes on from the first."""
    a, b = deepcopy(first), deepcopy(second)
    validate(a)
    validate(b)
    num_observed = len(b.tokens) - len(a.tokens) - b.response_length
    if b.tokens[: len(a.tokens)] != a.tokens or num_observed <= 0:
        raise ValueError("a turn does not go on from the one before")
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
        response_length=a.response_length + num_observed + b.response_length,
        rollout_routed_experts=b.rollout_routed_experts,
        status=b.status,
        weight_versions=a.weight_versions + b.weight_versions,
        prefix_cache_info=cache,
    )
