"""A schema and field set made ready for the codec: which tensors and JSON a sample has.

Compiled once and kept on the schema.  The codec's loops read plans and know no field names.
"""

from __future__ import annotations

import typing

from ._declarations import Axis, Computed, Json
from ._direct import direct_read
from ._direct_write import direct_write
from ._getters import tuple_getter
from ._json_fields import JsonField
from ._meta import Documents
from ._tensors import DenseField, array_field
from .overlay import Overlay
from .schema import Schema


class Plan:
    """Everything the codec needs of a schema in one field set.

    Attributes:
        sample_type: the class.
        arrays: the array fields, in order of declaration.
        json_fields: the JSON fields, in order of declaration.
        json_names: their names.
        array_values, json_values: read those fields of a sample, as tuples.
        json_axes: place, name and axis of each JSON field that sets an axis.
        axis_names: the name of the field that sets each axis.
        transitions, experts: names of the tensor fields with such rows, and with expert ids.
        names: every computed field of the field set.
        null_names: array fields that a payload may list as null.
        omitted_at_default: JSON fields that may be left out.
        listed: array fields that the class wants as lists.
        updates: names of JSON fields that update the template's mapping.
        keeps: names of JSON fields whose null keeps the template's value.
        documents, overlay: the JSON of all samples; the way onto a template.
        direct_read, direct_write: the short ways of one sample; None where there are none.
    """

    __slots__ = (
        "array_values",
        "arrays",
        "axis_names",
        "direct_read",
        "direct_write",
        "documents",
        "experts",
        "json_axes",
        "json_fields",
        "json_names",
        "json_values",
        "keeps",
        "listed",
        "names",
        "null_names",
        "omitted_at_default",
        "overlay",
        "sample_type",
        "transitions",
        "updates",
    )

    def __init__(self, schema: Schema, field_set: int) -> None:
        computed = schema.computed(field_set)
        owners = {field.name: typing.cast(Computed, field.owner) for field in computed}
        self.sample_type = schema.sample_type
        self.arrays = tuple(
            array_field(field)
            for field in computed
            if not isinstance(field.owner.codec, Json)  # type: ignore[union-attr]  # computed() gives Computed owners only
        )
        self.json_fields = tuple(
            JsonField(field) for field in computed if isinstance(owners[field.name].codec, Json)
        )
        self.json_names = tuple(field.name for field in self.json_fields)
        self.array_values = tuple_getter([field.name for field in self.arrays])
        self.json_values = tuple_getter(list(self.json_names))
        self.json_axes: tuple[tuple[int, str, Axis], ...] = tuple(
            (at, field.name, field.sets)
            for at, field in enumerate(self.json_fields)
            if field.sets is not None
        )
        self.axis_names = schema.axis_names
        self.names = frozenset(owners)
        tensors = [(f.name, f.rows, f.experts) for f in self.arrays if type(f) is DenseField]
        self.transitions = frozenset(name for name, rows, _ in tensors if rows == "transitions")
        self.experts = frozenset(name for name, _, experts in tensors if experts)
        self.null_names = frozenset(
            field.name for field in self.arrays if field.nullable or field.null_is_empty
        )
        self.omitted_at_default = tuple(f for f in self.json_fields if f.omit_default)
        self.listed = tuple(field for field in self.arrays if field.is_list)
        self.updates = tuple(n for n, owner in owners.items() if owner.overlay == "update")
        self.keeps = tuple(n for n, owner in owners.items() if owner.null == "template")
        self.documents = Documents(self.json_fields)
        self.overlay = Overlay(schema, computed)
        parts = self.arrays, self.json_fields, self.documents
        self.direct_read = direct_read(*parts)
        self.direct_write = direct_write(*parts)


def plan_of(schema: Schema, field_set: int) -> Plan:
    """The plan of a schema and field set, compiled at first use.

    Raises:
        ValueError: the schema has no such field set.
    """
    plan: Plan | None = schema.plans.get(field_set)
    if plan is None:
        if field_set not in schema.field_sets:
            raise ValueError(f"field_set must be one of {[*schema.field_sets]}, not {field_set!r}")
        plan = schema.plans[field_set] = Plan(schema, field_set)
    return plan
