"""Parts to a sample: the value that each field has in a turn, and the merge that it declares.

The table TURN_VALUES is the one place that says what a turn gives to which field.  A computed
field that is not in it takes its value from the key of the same name in the reply's meta_info:
a subclass field with rows and a fill so merges, truncates and is validated with no line here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

import msgspec
import numpy as np

from .._arrays import ValueRefusedError, wire_array
from .._declarations import Computed, Field, Json, Ragged, Tensor, wire_of
from ..blocks import RowBlocks
from ..errors import AssemblyError
from ..rows import expected_rows
from ..schema import Schema
from .merge import Part, observation_gaps
from .turns import DecodeText

# What a turn gives to a field.  Per-row values have a row for each kept output token, or are
# those of the whole turn where the rows follow all tokens.
TURN_VALUES: Final[dict[str, Callable[[Part], Any]]] = {
    "tokens": lambda part: part.tokens.to_array(np.int64),
    "loss_mask": lambda part: np.ones(part.num_output, np.uint8),
    "rollout_log_probs": lambda part: part.turn.log_probs[: part.num_output],
    "rollout_routed_experts": lambda part: part.turn.routing,
    "rollout_indexer_topk": lambda part: part.turn.indexer,
    "status": lambda part: part.status,
    "weight_versions": lambda part: (
        [] if part.turn.weight_version is None else [part.turn.weight_version]
    ),
    "prefix_cache_info": lambda part: part.turn.prefix_cache,
    "spec_info": lambda part: part.turn.spec,
    "metadata": lambda part: {},  # noqa: ARG005  # what is said of a sample is said of all turns
    "reward": lambda part: None,  # noqa: ARG005  # given by whoever judges the trajectory
}


def extra_fields(schema: Schema) -> tuple[str, ...]:
    """Computed fields whose values come from the engine's meta_info under their own name."""
    return tuple(
        field.name
        for field in schema.fields
        if isinstance(field.owner, Computed)
        and field.name not in TURN_VALUES
        and field.owner.merge != "text"
        and not (isinstance(field.owner.codec, Json) and field.owner.sets)
    )


class SampleBuilder:
    """Makes samples of one schema from parts.

    Args:
        schema: what the samples' class declares.
        decode_text: ids to text, or None for no text.
        speculative: whether speculative counters are kept.
    """

    __slots__ = ("_decode_text", "_schema", "_skipped")

    def __init__(
        self, schema: Schema, decode_text: DecodeText | None, *, speculative: bool
    ) -> None:
        self._schema = schema
        self._decode_text = decode_text
        self._skipped = () if speculative else ("spec_info",)

    def build(
        self, parts: Sequence[Part], overrides: Mapping[str, Any], notes: dict[str, Any]
    ) -> Any:
        """The sample of these parts.

        Args:
            parts: one or more, each extending the one before.
            overrides: values that take the place of a field's merged ones.
            notes: what goes into the fields that update a template's mapping.

        Raises:
            AssemblyError: a field's turns cannot be merged as it declares.
        """
        axes = {
            "tokens": parts[-1].num_tokens,
            "response": parts[-1].num_tokens - parts[0].turn.num_prompt,
        }
        values = {}
        for field in self._schema.fields:
            if not isinstance(field.owner, Computed) or field.name in self._skipped:
                continue
            merged = (
                overrides[field.name]
                if field.name in overrides
                else notes
                if field.owner.overlay == "update"
                else self._merged(field, field.owner, parts, axes)
            )
            values[field.name] = _as_declared(field, field.owner, merged)
        return self._schema.sample_type(**values)

    def _merged(
        self, field: Field, owner: Computed, parts: Sequence[Part], axes: dict[Any, int]
    ) -> Any:
        if owner.merge == "text":
            return self._text(parts)
        if owner.sets is not None and owner.rows is None:
            return axes[owner.sets]
        if owner.merge == "last":
            last = _turn_value(field, owner, parts[-1])
            if last is None or owner.rows is None:
                return last
            return last[: expected_rows(owner.rows, cast(Any, axes))]
        values = [_turn_value(field, owner, part) for part in parts]
        if owner.rows == "response":
            return _concat_rows(field, owner, values, parts)
        return _fold_values(field, owner, values, parts)

    def _text(self, parts: Sequence[Part]) -> str:
        """The outputs' text with that of the observations between; cut outputs decoded anew."""
        pieces = []
        last: Part | None = None
        for part in parts:
            turn = part.turn
            if last is not None:
                # The shared prefix ends where the part before was trimmed, unless it was not
                # trimmed by this prompt but by the accumulated ids.
                start = last.num_tokens
                shared = start == turn.num_shared
                ids = turn.prompt_and_output(start, turn.num_prompt) if not shared else []
                pieces.append(turn.gap_text if shared else self._decode(ids))
            whole = part.num_output == turn.num_output
            pieces.append(turn.text if whole else self._decode(turn.output_ids(part.num_output)))
            last = part
        return "".join(pieces)

    def _decode(self, ids: list[int]) -> str:
        return self._decode_text(ids) if ids and self._decode_text is not None else ""


def _turn_value(field: Field, owner: Computed, part: Part) -> Any:
    source = TURN_VALUES.get(field.name)
    if source is not None:
        return source(part)
    value = part.turn.extras.get(field.name)
    if value is None or owner.rows != "response":
        return value
    if len(value) != part.turn.num_output:
        raise AssemblyError(
            f"{field.name} has {len(value)} rows, {part.turn.num_output} output tokens",
            turn=part.turn.number,
            field=field.name,
            expected=str(part.turn.num_output),
            got=str(len(value)),
        )
    return value[: part.num_output]


def _concat_rows(
    field: Field, owner: Computed, values: Sequence[Any], parts: Sequence[Part]
) -> Any:
    """Every part's rows, and the declared fill for observation tokens and absent values."""
    if all(value is None for value in values):
        return None
    if callable(owner.merge):
        return functools.reduce(owner.merge, values)
    gaps = [*observation_gaps(parts), 0]
    if isinstance(owner.codec, Ragged):
        rows: list[Any] = []
        for part, value, gap in zip(parts, values, gaps, strict=True):
            rows += [[]] * part.num_output if value is None else value
            rows += [[]] * gap
        return rows
    dtype = wire_of(cast(Tensor, owner.codec)).dtype  # type: ignore[union-attr]  # the guard checked it
    blocks = []
    for part, value, gap in zip(parts, values, gaps, strict=True):
        blocks.append(_rows_of(field, part, value, dtype))
        blocks.append(gap)
    row_shape = next(block.shape[1:] for block in blocks if isinstance(block, np.ndarray))
    fill = functools.partial(np.full, fill_value=owner.fill, dtype=dtype)
    return np.concatenate(
        [fill((block, *row_shape)) if isinstance(block, int) else block for block in blocks]
    )


def _rows_of(field: Field, part: Part, value: Any, dtype: np.dtype[Any]) -> Any:
    """A part's rows as an array, or how many fill rows stand for them."""
    if value is None:
        return part.num_output
    try:
        return wire_array(value, dtype, strict=False)
    except ValueRefusedError as error:
        raise AssemblyError(
            f"{field.name} {error}", turn=part.turn.number, field=field.name
        ) from None


def _fold_values(
    field: Field, owner: Computed, values: Sequence[Any], parts: Sequence[Part]
) -> Any:
    """Values that belong to no row, by the declared rule."""
    if callable(owner.merge):
        return functools.reduce(owner.merge, values)
    if owner.merge == "equal":
        for value, part in zip(values, parts, strict=True):
            if value != values[0]:
                raise AssemblyError(
                    f"{field.name} differs between turns", turn=part.turn.number, field=field.name
                )
        return values[0]
    present = [value for value in values if value is not None]
    if not present:
        return None
    return functools.reduce(_added if owner.merge == "sum" else _extended, present)


def _added(first: Any, second: Any) -> Any:
    """The sum of two numbers, or of two records field by field."""
    if isinstance(first, msgspec.Struct):
        return type(first)(
            **{
                name: getattr(first, name) + getattr(second, name)
                for name in first.__struct_fields__
            }
        )
    return first + second


def _extended(first: Any, second: Any) -> Any:
    return [*first, *second]


def _as_declared(field: Field, owner: Computed, value: Any) -> Any:
    """A merged value in the type that the class declares; null where it allows that."""
    if value is None and owner.null in ("refused", "empty") and field.default is not None:
        return field.default()
    if isinstance(owner.codec, Json) and not isinstance(value, (str, int, float, dict, type(None))):
        return msgspec.convert(msgspec.to_builtins(value), field.annotation)
    if field.is_list and isinstance(value, (np.ndarray, RowBlocks)):
        return np.asarray(value).tolist()
    return value
