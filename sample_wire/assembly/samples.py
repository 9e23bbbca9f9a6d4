"""Parts to a sample: the value that each field has in a turn, and the merge that it declares.

The table TURN_VALUES is the one place that says what a turn gives to which field.  A computed
field that is not in it takes its value from the key of the same name in the reply's meta_info:
a subclass field with rows and a fill so merges, truncates and is validated with no line here.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

import msgspec
import numpy as np

from .._arrays import wire_array
from .._declarations import Computed, Field, Json, Ragged, Tensor, wire_of
from .._dtypes import WireDtype
from ..blocks import RowBlocks
from ..errors import AssemblyError
from ..overlay import independent
from ..rows import expected_rows
from ..schema import Schema
from .merge import Part, observation_gaps
from .turns import DecodeText, text_of

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
    "reward": lambda part: None,  # noqa: ARG005  # given by whoever judges the trajectory
}


# The mapping that takes what assembly has to say of a sample as a whole.
NOTES_FIELD: Final = "metadata"
ROUTING_FIELD: Final = "rollout_routed_experts"


def extra_fields(schema: Schema) -> tuple[Field, ...]:
    """Computed fields whose values come from the engine's meta_info under their own name."""
    return tuple(
        field
        for field in schema.fields
        if isinstance(field.owner, Computed)
        and field.name not in TURN_VALUES
        and field.name != NOTES_FIELD
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

    def build(self, parts: Sequence[Part], given: Mapping[str, Any]) -> Any:
        """The sample of these parts.

        Args:
            parts: one or more, each extending the one before.
            given: values of fields that belong to the sample and not to its turns.

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
                given[field.name]
                if field.name in given
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
        return text_of(ids, self._decode_text)


def _turn_value(field: Field, owner: Computed, part: Part) -> Any:
    source = TURN_VALUES.get(field.name)
    if source is not None:
        return source(part)
    value = independent(part.turn.extras.get(field.name), copy_arrays=False)
    return value[: part.num_output] if value is not None and owner.rows == "response" else value


def _concat_rows(
    field: Field, owner: Computed, values: Sequence[Any], parts: Sequence[Part]
) -> Any:
    """Every part's rows, and the declared fill for observation tokens and absent values."""
    present = [value for value in values if value is not None]
    if not present and owner.null == "none":
        return None
    if callable(owner.merge):
        return _own_rows(field, owner.merge, present, parts)
    gaps = [*observation_gaps(parts), 0]
    if isinstance(owner.codec, Ragged):
        rows: list[Any] = []
        for part, value, gap in zip(parts, values, gaps, strict=True):
            rows += [[]] * part.num_output if value is None else value
            rows += [[]] * gap
        return rows
    codec = cast(Tensor, owner.codec)
    row_shape = _row_shape(field, codec, values, parts)
    fill = functools.partial(
        np.full, fill_value=owner.fill, dtype=cast(WireDtype, wire_of(codec)).dtype
    )
    blocks = []
    for part, value, gap in zip(parts, values, gaps, strict=True):
        blocks.append(fill((part.num_output, *row_shape)) if value is None else value)
        blocks.append(fill((gap, *row_shape)))
    return np.concatenate([block for block in blocks if len(block)] or blocks[-1:])


def _own_rows(
    field: Field, merge: Callable[[Any, Any], Any], present: list[Any], parts: Sequence[Part]
) -> Any:
    """Rows by the field's own function, which must give one for each response token."""
    merged = functools.reduce(merge, present) if present else []
    needed = parts[-1].num_tokens - parts[0].turn.num_prompt
    if len(merged) != needed:
        raise AssemblyError(
            f"{field.name} is merged to {len(merged)} rows, the response has {needed} tokens",
            turn=parts[-1].turn.number,
            field=field.name,
        )
    return merged if present else None


def _row_shape(
    field: Field, codec: Tensor, values: Sequence[Any], parts: Sequence[Part]
) -> tuple[int, ...]:
    """The one shape that every turn's rows have; a turn without rows tells none."""
    shape: tuple[int, ...] | None = None
    for part, value in zip(parts, values, strict=True):
        if value is None or not len(value):
            continue
        if shape is not None and value.shape[1:] != shape:
            raise AssemblyError(
                f"{field.name} has rows of shape {value.shape[1:]} after rows of {shape}",
                turn=part.turn.number,
                field=field.name,
            )
        shape = value.shape[1:]
    return (0,) * (codec.rank - 1) if shape is None else shape


def _fold_values(
    field: Field, owner: Computed, values: Sequence[Any], parts: Sequence[Part]
) -> Any:
    """Values that belong to no row, by the declared rule; absent ones are passed over."""
    if owner.merge == "equal":
        for value, part in zip(values, parts, strict=True):
            if not _are_equal(value, values[0]):
                raise AssemblyError(
                    f"{field.name} differs between turns", turn=part.turn.number, field=field.name
                )
        return values[0]
    present = [value for value in values if value is not None]
    if not present:
        return None
    named = {"sum": _added, "extend": _extended, "concat": _extended}
    if callable(owner.merge):
        return functools.reduce(owner.merge, present)
    try:
        return functools.reduce(named[cast(str, owner.merge)], present)
    except (TypeError, ValueError):
        raise AssemblyError(
            f"{field.name} cannot be merged by {owner.merge}", field=field.name
        ) from None


def _are_equal(first: Any, second: Any) -> bool:
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        return np.array_equal(first, second, equal_nan=first.dtype.kind == "f")
    return bool(first == second)


def _added(first: Any, second: Any) -> Any:
    """The sum of two numbers or arrays, or of two records field by field."""
    if isinstance(first, np.ndarray):
        return _added_arrays(first, second)
    if isinstance(first, msgspec.Struct):
        names: Sequence[str] = first.__struct_fields__
    elif dataclasses.is_dataclass(first):
        names = [field.name for field in dataclasses.fields(first)]
    else:
        return first + second
    return type(first)(**{name: getattr(first, name) + getattr(second, name) for name in names})


def _added_arrays(first: Any, second: Any) -> Any:
    """The sum in the same dtype, exact or refused; a TypeError where the shapes differ."""
    if first.shape != second.shape:
        raise TypeError("shapes differ")
    if first.dtype.kind == "f":
        return first + second
    total = (first.astype(object) + second.astype(object)).tolist()
    return wire_array(total, first.dtype, strict=False)


def _extended(first: Any, second: Any) -> Any:
    if isinstance(first, np.ndarray):
        return np.concatenate([first, second])
    return [*first, *second]


def _as_declared(field: Field, owner: Computed, value: Any) -> Any:
    """A merged value in the type that the class declares; null where it allows that."""
    if value is None and owner.null in ("refused", "empty") and field.default is not None:
        return field.default()
    if isinstance(owner.codec, Json) and not isinstance(value, (str, int, float, dict, type(None))):
        try:
            return msgspec.convert(msgspec.to_builtins(value), field.annotation)
        except msgspec.ValidationError as error:
            raise AssemblyError(
                f"{field.name} cannot be merged: {error}", field=field.name
            ) from None
    if field.is_list and isinstance(value, list) and isinstance(owner.codec, Ragged):
        return [np.asarray(row).tolist() for row in value]
    if field.is_list and isinstance(value, (np.ndarray, RowBlocks)):
        return np.asarray(value).tolist()
    return value
