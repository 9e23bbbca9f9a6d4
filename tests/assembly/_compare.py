"""Whether what the package assembled is what the slow reference says, field by field."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from sample_wire import AssemblyError, Sample
from sample_wire.assembly import AssemblyResult, RoutingSpec, Turn, assemble, assemble_turns

from .slow_reading import RefusedError, Routing, Rows
from .slow_reference import Options, SlowSample, slow_assemble


def arguments(options: Options) -> dict[str, Any]:
    """The arguments of assemble that say what the options say."""
    return {
        "accumulated_token_ids": options.accumulated,
        "max_trim_tokens": options.max_trim_tokens,
        "decode_text": options.decode_text,
        "max_seq_len": options.max_seq_len,
        "routing": spec_of(options.routing),
        "speculative": options.speculative,
        "keep_messages": options.keep_messages,
        "on_discontinuity": "split" if options.split else "refuse",
    }


def spec_of(routing: Routing | None) -> RoutingSpec | None:
    """The package's form of the same facts."""
    return None if routing is None else RoutingSpec(**asdict(routing))


def check_against_slow(
    records: Sequence[Any], options: Options, sent: Sequence[Any] | None = None
) -> AssemblyResult | None:
    """Assembles both ways: the same samples, or both refuse and name the same turn.

    Args:
        records: for the reference, with replies as Python objects.
        options: for both.
        sent: the records for the package; None takes the same.
    """
    expected = _slow_outcome([*records], options)
    sent = records if sent is None else sent
    if isinstance(expected, RefusedError):
        assert refused_turn(sent, options) == expected.turn, expected
        return None
    found = assemble(sent, **arguments(options))
    check_result(found, *expected)
    return found


def _slow_outcome(
    records: list[Any], options: Options
) -> tuple[list[SlowSample], str | None] | RefusedError:
    try:
        return slow_assemble(records, options)
    except RefusedError as refusal:
        return refusal


def refused_turn(records: Sequence[Any], options: Options) -> int | None:
    """The turn that assemble refuses; None where it refuses nothing."""
    try:
        assemble(records, **arguments(options))
    except AssemblyError as error:
        return error.turn
    return None


def check_turns(
    turns: Sequence[Turn], options: Options, expected: list[SlowSample], reason: str | None
) -> None:
    """Assembles turns that were read already, and compares."""
    check_result(assemble_turns(turns, **arguments(options)), expected, reason)


def check_result(found: AssemblyResult, expected: list[SlowSample], reason: str | None) -> None:
    """Fails where a field of a sample is not what is expected."""
    assert found.empty_reason == reason
    assert len(found.samples) == len(expected)
    for sample, slow in zip(found.samples, expected, strict=True):
        check_sample(sample, slow)


def check_sample(sample: Sample, slow: SlowSample) -> None:
    """Fails where a field is not what is expected: values, dtypes, and order of keys."""
    assert sample.loss_mask is not None
    assert sample.rollout_log_probs is not None
    assert np.asarray(sample.tokens).tolist() == slow.tokens
    assert sample.tokens.dtype == np.int64
    assert sample.loss_mask.tolist() == slow.loss_mask
    assert sample.loss_mask.dtype == np.uint8
    assert sample.rollout_log_probs.dtype == np.float64
    assert sample.rollout_log_probs.tobytes() == np.array(slow.log_probs, np.float64).tobytes()
    assert sample.response == slow.response
    assert sample.response_length == slow.response_length
    check_rows(sample.rollout_routed_experts, slow.routed)
    check_rows(sample.rollout_indexer_topk, slow.indexer)
    assert sample.status.value == slow.status
    assert sample.weight_versions == slow.weight_versions
    cache = sample.prefix_cache_info
    assert (cache.cached_tokens, cache.total_prompt_tokens) == (slow.cached, slow.prompt_tokens)
    counters = sample.spec_info
    assert (
        counters.spec_accept_token_num,
        counters.spec_draft_token_num,
        counters.spec_verify_ct,
        counters.completion_token_num,
    ) == slow.spec
    assert json.dumps(sample.metadata, sort_keys=True) == json.dumps(slow.metadata, sort_keys=True)


def check_rows(found: Any, expected: Rows | None) -> None:
    """Fails where rows have another shape or other numbers."""
    if expected is None:
        assert found is None
        return
    rows = np.asarray(found)
    assert rows.dtype == np.int32
    assert rows.shape == (len(expected.rows), expected.num_layers, expected.width)
    flat = [number for row in expected.rows for number in row]
    assert rows.tobytes() == np.array(flat, np.int32).tobytes()
