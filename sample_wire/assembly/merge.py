"""Turns to one sample: cut at the right places, then merged field by field.

Three steps, all on indices; rows and ids are not touched before the end.  `chains` checks that
each prompt extends the turn before it and counts the trailing tokens that the next prompt
dropped.  `truncate` cuts at a total length, by turns.  `fold` stops at a turn that did not
complete, or before one that has no routing although those before it have.  What is left is
merged as the schema declares; the loop knows no field names.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ..blocks import RowBlocks
from ..errors import AssemblyError
from ..sample import Status
from .turns import Turn

DropReason = Literal["status", "routing_gap", "max_seq_len"]


@dataclass(frozen=True, slots=True)
class Part:
    """A turn as it goes into a sample: with how many of its output tokens, and how it ended.

    Attributes:
        turn: the turn.
        num_output: output tokens that are kept.
        status: the turn's, or truncated where it was cut.
    """

    turn: Turn
    num_output: int
    status: Status

    @property
    def num_tokens(self) -> int:
        """Prompt and kept output."""
        return self.turn.num_prompt + self.num_output

    @property
    def tokens(self) -> RowBlocks:
        """Ids of prompt and kept output."""
        return self.turn.tokens[: self.num_tokens]


def chains(turns: Sequence[Turn], max_trim_tokens: int) -> list[list[Turn]]:
    """The turns in runs, each prompt of a run extending the turn before it.

    A prompt may drop up to max_trim_tokens trailing output tokens of that turn.
    """
    runs: list[list[Turn]] = []
    for turn in turns:
        if runs and _extends(runs[-1][-1], turn, max_trim_tokens):
            runs[-1].append(turn)
        else:
            runs.append([turn])
    return runs


def discontinuity(previous: Turn, turn: Turn, max_trim_tokens: int) -> AssemblyError:
    """The error that says where a prompt parts from the turn before it."""
    dropped = _dropped(previous, turn)
    return _parting(previous, turn, f"trim_count {dropped} exceeds {max_trim_tokens}")


def parts_of(run: Sequence[Turn], accumulated: Any, max_trim_tokens: int) -> list[Part]:
    """The turns of a run, each trimmed to what the accumulated ids have of its output.

    Args:
        run: turns of one chain.
        accumulated: int64 ids that the run ended with.

    Raises:
        AssemblyError: a turn drops more than max_trim_tokens, the last turn any, or the ids
            do not end with it.
    """
    parts = []
    for turn, following in zip(run, [*run[1:], None], strict=True):
        kept = turn.tokens[turn.num_prompt :].common_prefix(accumulated[turn.num_prompt :])
        trim, allowed = turn.num_output - kept, 0 if following is None else max_trim_tokens
        if trim > allowed:
            raise AssemblyError(
                f"trim_count {trim} exceeds {allowed}: the accumulated ids part from its output",
                turn=turn.number,
                field="accumulated_token_ids",
                expected=f"at most {allowed}",
                got=str(trim),
            )
        parts.append(Part(turn, kept, turn.status))
    if parts[-1].num_tokens != len(accumulated):
        raise AssemblyError(
            f"cursor {parts[-1].num_tokens} != len(accumulated_token_ids) {len(accumulated)}",
            turn=run[-1].number,
            field="accumulated_token_ids",
            expected=str(parts[-1].num_tokens),
            got=str(len(accumulated)),
        )
    return parts


def truncate(parts: Sequence[Part], max_seq_len: int | None) -> list[Part]:
    """The parts that fit into max_seq_len tokens; the last may be cut and is then truncated."""
    if max_seq_len is None:
        return list(parts)
    kept: list[Part] = []
    for part in parts:
        overshoot = part.num_tokens - max_seq_len
        if overshoot > 0:
            if part.num_output > overshoot:
                left = part.num_output - overshoot
                kept.append(replace(part, num_output=left, status=Status.TRUNCATED))
            break
        kept.append(part)
    return kept


def fold(
    parts: Sequence[Part], *, incremental: bool, required: bool
) -> tuple[list[Part], DropReason | None]:
    """The leading parts that become one sample, and why it ends before the last, if it does.

    Raises:
        AssemblyError: a prompt that adds no token to the turn before it, or a turn without
            routing where routing is required.
    """
    kept = [parts[0]]
    _check_routing(parts[0], required)
    for part in parts[1:]:
        last = kept[-1]
        if last.status is not Status.COMPLETED:
            return kept, "status"
        if not incremental:
            _check_routing(part, required)
        if _loses_rows(last.turn, part.turn, incremental):
            return kept, "routing_gap"
        if part.turn.num_shared < last.num_tokens:
            raise _parting(last.turn, part.turn, "which the accumulated ids keep")
        if part.turn.num_prompt <= last.num_tokens:
            raise AssemblyError(
                f"its prompt adds no token to turn {last.turn.number}", turn=part.turn.number
            )
        kept.append(part)
    return kept, None


def routing_of(
    part: Part, all_turns: Sequence[Turn], *, incremental: bool, required: bool
) -> RowBlocks | None:
    """The routing rows of a sample that ends with this part; faults are told here.

    Raises:
        AssemblyError: the rows are needed and missing, or cannot be placed.
    """
    turn = part.turn
    wanted = (required and turn.status is not Status.ABORTED) or (
        incremental and any(other.has_routing for other in all_turns)
    )
    if turn.routing_fault is not None and (wanted or turn.has_routing):
        number, rule = turn.routing_fault
        raise AssemblyError(rule, turn=number, field="routed_experts")
    if turn.routing is None:
        if wanted:
            raise _missing_routing(turn)
        return None
    return turn.routing[: max(part.num_tokens - 1, 0)]


def _parting(previous: Turn, turn: Turn, why: str) -> AssemblyError:
    return AssemblyError(
        f"its prompt parts from the tokens of turn {previous.number} at position "
        f"{turn.num_shared}: {why}",
        turn=turn.number,
        field="input_ids",
        got=f"position {turn.num_shared}",
    )


def _extends(previous: Turn, turn: Turn, max_trim_tokens: int) -> bool:
    return _dropped(previous, turn) <= min(max_trim_tokens, previous.num_output)


def _dropped(previous: Turn, turn: Turn) -> int:
    return max(previous.num_tokens - turn.num_shared, 0)


def _check_routing(part: Part, required: bool) -> None:
    if required and not part.turn.has_routing and part.turn.status is not Status.ABORTED:
        raise _missing_routing(part.turn)


def _missing_routing(turn: Turn) -> AssemblyError:
    return AssemblyError(
        "the reply has no routed_experts", turn=turn.number, field="routed_experts"
    )


def _loses_rows(last: Turn, turn: Turn, incremental: bool) -> bool:
    loses_routing = last.has_routing and not turn.has_routing and not incremental
    return loses_routing or (last.indexer is not None and turn.indexer is None)


def observation_gaps(parts: Sequence[Part]) -> list[int]:
    """Prompt tokens between each part's end and the next part's output; one fewer than parts."""
    return [
        later.turn.num_prompt - earlier.num_tokens for earlier, later in itertools.pairwise(parts)
    ]
