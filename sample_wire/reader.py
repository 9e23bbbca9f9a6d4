"""Reads a payload sample by sample, or only the fields that are asked for.

Everything that the header and the JSON say is checked at once for every sample: that exactly
the promised tensors are there, their dtypes, ranks and rows.  The tensors' own bytes are not
touched by that, so that reading a mask from a mapped file costs nothing for the R3 beside it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

import msgspec

from ._compact import MAX_SHARED_BYTES, CompactContainer
from ._container import MAX_HEADER_BYTES, Container, TensorRef
from ._declarations import Rows
from ._json import MAX_JSON_DEPTH
from ._meta import COMPACT, META_TENSOR
from ._plan import Plan, plan_of
from .errors import FieldError, LimitError, MetaError
from .rows import Axes, RowRuleError, check_rows
from .sample import Sample
from .schema import Schema

MAX_SAMPLES: Final = 4096
_UINT8: Final = "U8"
SampleRefs = list[tuple[TensorRef, ...] | None]


class PayloadReader:
    """A checked payload; gives the values of its samples' fields.

    Args:
        buffer, widen, max_samples, max_depth, max_header_bytes, max_shared_bytes: as for
            decode_samples.
        plan: the compiled schema and field set.

    Attributes:
        container: the container, for sizes and raw tensors.
        views: gives arrays of refs; of the compact layout widened, and with shared rows.
        document: the parsed JSON: session_metadata, empty_reason.
        refs: for each of the N samples and each array field, in the plan's order, where its
            tensors lie; None where it is null.

    Raises:
        DecodeError: as for decode_samples, but for what only a tensor's own bytes can show.
    """

    __slots__ = ("_plan", "container", "document", "refs", "views")

    def __init__(
        self,
        buffer: object,
        plan: Plan,
        *,
        widen: bool = True,
        max_samples: int = MAX_SAMPLES,
        max_depth: int = MAX_JSON_DEPTH,
        max_header_bytes: int = MAX_HEADER_BYTES,
        max_shared_bytes: int = MAX_SHARED_BYTES,
    ) -> None:
        self._plan = plan
        self.container = Container(buffer, max_header_bytes=max_header_bytes)
        tensors = self.container.tensors
        meta = tensors.get(META_TENSOR)
        if meta is None or meta.dtype != _UINT8 or len(meta.shape) != 1:
            raise MetaError(f"the payload has no rank-1 uint8 tensor {META_TENSOR}")
        self.document = plan.documents.parse(self.container.text(meta), max_depth)
        samples = self.document.samples
        if len(samples) > max_samples:
            raise LimitError(
                f"the payload has {len(samples)} samples, the limit is {max_samples}",
                expected=f"at most {max_samples}",
                got=str(len(samples)),
            )
        self.views: Container | CompactContainer = self.container
        if self.document.format == COMPACT:
            self.views = CompactContainer(
                self.container,
                self.document.shared,
                self.document.dtypes,
                plan.names,
                plan.transitions,
                widen=widen,
                max_shared_bytes=max_shared_bytes,
            )
        self.refs = _checked_refs(plan, self.views.tensors, samples)

    def named_refs(self, index: int) -> dict[str, tuple[TensorRef, ...]]:
        """Where the tensors of one sample's array fields lie, by field; without null fields."""
        fields = zip(self._plan.arrays, self.refs[index], strict=True)
        return {field.name: refs for field, refs in fields if refs is not None}

    def values(self, index: int, names: Collection[str] | None = None) -> dict[str, Any]:
        """The fields of one sample, or those that are named.

        Returns:
            Arrays as read-only views of the buffer (ragged fields as lists of such), or
            read-only ones of their own where the compact layout stores them otherwise; JSON
            fields as their typed values.  A field that was left out of the JSON is at its
            default.

        Raises:
            FieldError, ContainerError: a tensor's own bytes are wrong.
        """
        plan, views = self._plan, self.views
        sample = self.document.samples[index]
        found = dict(zip(plan.json_names, plan.json_values(sample), strict=True))
        for json_field in plan.omitted_at_default:
            if found[json_field.name] is msgspec.UNSET:
                found[json_field.name] = json_field.new_default()
        if names is not None:
            found = {name: value for name, value in found.items() if name in names}
        for field, refs in zip(plan.arrays, self.refs[index], strict=True):
            name = field.name
            if names is not None and name not in names:
                continue
            if refs is not None:
                found[name] = field.read(views, refs, index)
            else:
                found[name] = field.empty() if field.null_is_empty else None
        return found


def read_fields(
    buffer: object,
    names: Iterable[str],
    *,
    field_set: int = 1,
    widen: bool = True,
    max_shared_bytes: int = MAX_SHARED_BYTES,
    schema: Schema | None = None,
) -> list[dict[str, Any]]:
    """Some fields of every sample of a payload, without a template and without the rest.

    Args:
        buffer: as for decode_samples; with an mmap only the pages that are needed are read.
        names: computed fields of the field set.
        widen, max_shared_bytes: as for decode_samples.
        schema: None takes Sample's own.

    Returns:
        A dict a sample.  Arrays are read-only views of the buffer, or as decode_samples gives
        them of a compact payload.

    Raises:
        DecodeError: as for decode_samples.
        ValueError: a name that is no computed field of the field set.

    Source: SPEC section 9.
    """
    plan = plan_of(schema or Sample.__sample_schema__, field_set)
    names = frozenset(names)
    unknown = names - plan.names
    if unknown:
        raise ValueError(f"no computed field of field set {field_set}: {sorted(unknown)}")
    reader = PayloadReader(buffer, plan, widen=widen, max_shared_bytes=max_shared_bytes)
    return [reader.values(index, names) for index in range(len(reader.refs))]


def _checked_refs(
    plan: Plan, tensors: dict[str, TensorRef], samples: Sequence[Any]
) -> list[SampleRefs]:
    """Where the tensors of every sample lie, once exactly those are there."""
    found = [_check_sample(plan, tensors, index, sample) for index, sample in enumerate(samples)]
    promised = 1
    for sample in found:
        for refs in sample:
            promised += 0 if refs is None else len(refs)
    if promised != len(tensors):
        raise FieldError(
            "the payload holds tensors that no sample refers to",
            expected=f"{promised} tensors",
            got=f"{len(tensors)} tensors",
        )
    return found


def _check_sample(
    plan: Plan, tensors: dict[str, TensorRef], index: int, document: Any
) -> SampleRefs:
    """Checks all that the header and the JSON say of one sample."""
    nulls = document.nulls
    if nulls:
        _check_nulls(plan, index, nulls)
    axes: Axes = {}
    refs: SampleRefs = []
    shapes: list[tuple[str, Rows, Sequence[int]]] = []
    for field in plan.arrays:
        name = field.name
        if name in nulls:
            if field.sets is not None:
                axes[field.sets] = 0
            refs.append(None)
            continue
        found, shape = field.find(tensors, index)
        refs.append(found)
        if field.sets is not None:
            axes[field.sets] = shape[0]
        if field.rows is not None:
            shapes.append((name, field.rows, shape))
    for _, name, axis in plan.json_axes:
        axes[axis] = getattr(document, name)
    try:
        check_rows(axes, shapes, plan.axis_names)
    except RowRuleError as error:
        raise error.of_sample(FieldError, index) from None
    return refs


def _check_nulls(plan: Plan, index: int, listed: list[str]) -> None:
    nulls = frozenset(listed)
    if len(nulls) != len(listed) or not nulls <= plan.null_names:
        raise FieldError(
            f"sample {index}: nulls must list tensor fields that may be null, each once",
            sample_index=index,
        )
