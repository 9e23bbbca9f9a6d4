"""The assembly of a session's records, the slow and plain way, to compare the package with.

Compute one sample a record, truncate, merge pair by pair: each pair copied whole, each
record's routing decoded whole, everything in lists.  Made from the rules alone; it shares
nothing with the package.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from .slow_reading import RefusedError, Routing, Rows, SlowTurn, read_turn

DecodeText = Callable[[list[int]], str]
STATUSES = {"stop": "completed", "tool_calls": "completed", "length": "truncated"}


@dataclass
class SlowSample:
    """One sample in lists; `turn` is the last turn that went into it."""

    turn: SlowTurn
    tokens: list[int]
    num_prompt: int
    response: str
    loss_mask: list[int]
    log_probs: list[float]
    routed: Rows | None
    indexer: Rows | None
    status: str
    weight_versions: list[str]
    cached: int
    prompt_tokens: int
    spec: tuple[int, ...]
    metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def response_length(self) -> int:
        """Response tokens: one for each entry of the mask."""
        return len(self.loss_mask)


@dataclass
class Options:
    """How to assemble; the same facts as the arguments of the package's assemble."""

    accumulated: list[int] | None = None
    max_trim_tokens: int = 0
    decode_text: DecodeText | None = None
    max_seq_len: int | None = None
    routing: Routing | None = None
    speculative: bool = False
    keep_messages: bool = False
    split: bool = False


def slow_assemble(records: list[Any], options: Options) -> tuple[list[SlowSample], str | None]:
    """The samples, or none and why.  RefusedError names the turn at fault."""
    if not records:
        return [], "no_records"
    turns = [read_turn(record, index + 1, options.routing) for index, record in enumerate(records)]
    return slow_assemble_turns(turns, options)


def slow_assemble_turns(
    turns: list[SlowTurn], options: Options
) -> tuple[list[SlowSample], str | None]:
    """The same for turns that are read already."""
    runs = _runs(turns, options.max_trim_tokens)
    if len(runs) > 1 and not options.split:
        raise RefusedError(runs[1][0].number, "its prompt parts from the turns before it")
    samples = []
    for run in runs:
        accumulated = options.accumulated if run is runs[-1] else None
        computed = _compute(turns, run, accumulated, options)
        kept = _truncate(computed, options)
        if kept:
            samples.append(_merged(run, kept, options))
    return samples, None if samples else "all_truncated"


def _runs(turns: list[SlowTurn], max_trim_tokens: int) -> list[list[SlowTurn]]:
    """The turns, cut where a prompt drops more of the turn before it than is allowed."""
    runs: list[list[SlowTurn]] = []
    for turn in turns:
        if runs:
            before = runs[-1][-1]
            dropped = len(before.tokens) - _shared(before.tokens, turn.prompt)
            if dropped <= min(max_trim_tokens, len(before.output)):
                runs[-1].append(turn)
                continue
        runs.append([turn])
    return runs


def _shared(left: list[int], right: list[int]) -> int:
    """How many leading items are equal."""
    count = 0
    while count < min(len(left), len(right)) and left[count] == right[count]:
        count += 1
    return count


def _compute(
    turns: list[SlowTurn], run: list[SlowTurn], accumulated: list[int] | None, options: Options
) -> list[SlowSample]:
    """One sample a record, each trimmed to what the accumulated ids have of its output."""
    ids = run[-1].tokens if accumulated is None else accumulated
    samples = []
    for turn in run:
        cursor = len(turn.prompt)
        matched = _shared(turn.output, ids[cursor:])
        trim = len(turn.output) - matched
        if trim > (0 if turn is run[-1] else options.max_trim_tokens):
            raise RefusedError(turn.number, f"trim_count {trim}")
        sample = _sample_of(turns, turn, options)
        samples.append(_stripped(sample, trim, options))
    if cursor + matched != len(ids):
        raise RefusedError(run[-1].number, f"cursor {cursor + matched} != {len(ids)}")
    return samples


def _sample_of(turns: list[SlowTurn], turn: SlowTurn, options: Options) -> SlowSample:
    incremental = options.routing is not None and options.routing.incremental
    status = STATUSES.get(turn.reason or "", "aborted" if turn.reason == "abort" else "pending")
    metadata: dict[str, Any] = {}
    if turn.timestamp is not None:
        metadata["lifecycle"] = [_lifecycle(turns, turn)]
    if options.keep_messages:
        metadata["messages"] = turn.messages
    return SlowSample(
        turn=turn,
        tokens=turn.tokens,
        num_prompt=len(turn.prompt),
        response=_decoded(turn.output, options),
        loss_mask=[1] * len(turn.output),
        log_probs=turn.log_probs,
        routed=None if incremental else turn.routed,
        indexer=turn.indexer,
        status=status,
        weight_versions=[] if turn.weight_version is None else [turn.weight_version],
        cached=turn.cached,
        prompt_tokens=turn.prompt_tokens,
        spec=turn.spec if options.speculative else (0, 0, 0, 0),
        metadata=metadata,
    )


def _lifecycle(turns: list[SlowTurn], turn: SlowTurn) -> dict[str, Any]:
    assert turn.timestamp is not None
    started = None if turn.latency is None else turn.timestamp - turn.latency
    segment: dict[str, Any] = {"t0": started, "t1": turn.timestamp, "turn": turn.number}
    if turn.request_timestamp is not None:
        segment["req_ts"] = turn.request_timestamp
    if turn.number > 1:
        segment["prev_t1"] = turns[turn.number - 2].timestamp
    return segment


def _decoded(ids: list[int], options: Options) -> str:
    return options.decode_text(ids) if ids and options.decode_text is not None else ""


def _stripped(sample: SlowSample, count: int, options: Options) -> SlowSample:
    """A sample without its last output tokens and all that goes with them."""
    if count <= 0:
        return sample
    tokens = sample.tokens[:-count]
    return replace(
        sample,
        tokens=tokens,
        response=_decoded(tokens[sample.num_prompt :], options),
        loss_mask=sample.loss_mask[:-count],
        log_probs=sample.log_probs[:-count],
        routed=_first_rows(sample.routed, len(tokens) - 1),
        indexer=_first_rows(sample.indexer, len(tokens) - 1),
    )


def _first_rows(rows: Rows | None, count: int) -> Rows | None:
    return None if rows is None else replace(rows, rows=rows.rows[: max(count, 0)])


def _truncate(samples: list[SlowSample], options: Options) -> list[SlowSample]:
    limit = options.max_seq_len
    if limit is None:
        return samples
    kept = []
    for sample in samples:
        overshoot = len(sample.tokens) - limit
        if overshoot <= 0:
            kept.append(sample)
            continue
        if sample.response_length - overshoot > 0:
            kept.append(replace(_stripped(sample, overshoot, options), status="truncated"))
        break
    return kept


def _merged(run: list[SlowTurn], samples: list[SlowSample], options: Options) -> SlowSample:
    """A run's samples folded into one, with the routing of an incremental engine laid in."""
    incremental = options.routing is not None and options.routing.incremental
    required = options.routing is not None and options.routing.required
    merged, count, reason = samples[0], 1, "max_seq_len"
    _check_required(merged, required=required)
    for sample in samples[1:]:
        if merged.status != "completed":
            reason = "status"
            break
        if not incremental:
            _check_required(sample, required=required)
        if _loses(merged.routed, sample.routed) or _loses(merged.indexer, sample.indexer):
            reason = "routing_gap"
            break
        merged = _pair(merged, sample, options)
        count += 1
    if count < len(run):
        merged.metadata["dropped_turns"] = {"count": len(run) - count, "reason": reason}
    if incremental:
        merged.routed = _walked(run, merged.turn, len(merged.tokens) - 1)
    return merged


def _check_required(sample: SlowSample, *, required: bool) -> None:
    if required and sample.turn.routed is None and sample.turn.reason != "abort":
        raise RefusedError(sample.turn.number, "routing is required")


def _loses(first: Rows | None, second: Rows | None) -> bool:
    return first is not None and second is None


def _pair(a: SlowSample, b: SlowSample, options: Options) -> SlowSample:
    """Two samples as one; both are copied."""
    a, b = _copied(a), _copied(b)
    gap = len(b.tokens) - len(a.tokens) - b.response_length
    if b.tokens[: a.num_prompt] != a.tokens[: a.num_prompt]:
        raise RefusedError(b.turn.number, "its prompt does not start with the one before")
    if b.tokens[: len(a.tokens)] != a.tokens:
        raise RefusedError(b.turn.number, "its tokens do not start with those before")
    if gap <= 0:
        raise RefusedError(b.turn.number, "its prompt adds nothing")
    observed = b.tokens[len(a.tokens) : len(a.tokens) + gap]
    lifecycle = [*a.metadata.get("lifecycle", []), *b.metadata.get("lifecycle", [])]
    return replace(
        b,
        num_prompt=a.num_prompt,
        response=a.response + _decoded(observed, options) + b.response,
        loss_mask=a.loss_mask + [0] * gap + b.loss_mask,
        log_probs=a.log_probs + [0.0] * gap + b.log_probs,
        weight_versions=a.weight_versions + b.weight_versions,
        cached=a.cached + b.cached,
        prompt_tokens=a.prompt_tokens + b.prompt_tokens,
        spec=tuple(map(sum, zip(a.spec, b.spec, strict=True))),
        metadata=b.metadata | ({"lifecycle": lifecycle} if lifecycle else {}),
    )


def _copied(sample: SlowSample) -> SlowSample:
    """A sample with lists of its own; what they hold cannot change."""
    return replace(
        sample,
        tokens=[*sample.tokens],
        loss_mask=[*sample.loss_mask],
        log_probs=[*sample.log_probs],
        routed=_first_rows(sample.routed, len(sample.tokens)),
        indexer=_first_rows(sample.indexer, len(sample.tokens)),
        metadata={**sample.metadata},
    )


def _walked(run: list[SlowTurn], last: SlowTurn, required: int) -> Rows | None:
    """The rows of an incremental engine: each record's, in order, up to the last turn's."""
    if all(turn.routed is None for turn in run):
        return None
    chunks: list[Rows] = []
    covered, before = 0, run[0]
    for turn in run[: run.index(last) + 1]:
        if turn.routed is None or turn.start is None or turn.start != covered:
            raise RefusedError(turn.number, "its routing does not continue what is held")
        if chunks and turn.start > _shared(before.tokens, turn.prompt):
            raise RefusedError(turn.number, "rows of dropped tokens would be kept")
        chunks.append(turn.routed)
        covered, before = len(turn.tokens) - 1, turn
    rows = [row for chunk in chunks for row in chunk.rows]
    return replace(chunks[0], rows=rows[: max(required, 0)])
