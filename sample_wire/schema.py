"""Field declarations, the import-time guard, and Schema: what every other layer reads.

A field is declared once, on the class, by an annotation:

    tokens: Annotated[npt.NDArray[np.int64], Computed(Tensor("int64"), merge="last", ...)]
    label: Annotated[str | None, Template()] = None

The guard runs when the class is defined.  It refuses, naming the field: a field with no owner
or with two, a computed field that could not be merged or checked, a per-row field whose rows
cannot be counted.  Validating, stripping, merging, encoding and decoding loop over the
declarations and know no field names; a field that is not declared cannot be lost silently.

Shape letters: T tokens, R response tokens.
"""

from __future__ import annotations

import dataclasses
import hashlib
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, Literal

import msgspec
import numpy as np

from ._dtypes import WireDtype, wire_dtype
from ._json import encode_json
from .errors import SchemaError

Axis = Literal["tokens", "response"]
Rows = Literal["tokens", "transitions", "response"]
MergeName = Literal["concat", "last", "sum", "extend", "equal", "text"]
Merge = MergeName | Callable[[Any, Any], Any]
Null = Literal["refused", "none", "empty", "template"]

AXIS_OF_ROWS: Final[dict[str, Axis]] = {
    "tokens": "tokens",
    "transitions": "tokens",
    "response": "response",
}
NEWEST_FIELD_SET: Final = 2
_MERGES: Final = typing.get_args(MergeName)


@dataclasses.dataclass(frozen=True, slots=True)
class Tensor:
    """Codec: one tensor a sample.

    Args:
        dtype: wire dtype, by numpy name.
        rank: number of axes.
        strict: take arrays of this dtype only.  Otherwise any array-like whose values the
            dtype holds exactly.
    """

    dtype: str
    rank: int = 1
    strict: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Json:
    """Codec: a value in the JSON of the payload, of the field's annotated type."""


@dataclasses.dataclass(frozen=True, slots=True)
class Ragged:
    """Codec: one flat run of values a row, of any length; two tensors on the wire.

    Args:
        dtype: wire dtype of the values, by numpy name.
    """

    dtype: str


Codec = Tensor | Json | Ragged


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Computed:
    """Declares a field that the server makes and that crosses the wire.

    Args:
        codec: how the value travels.
        merge: how two turns' values become one: "concat" (observation rows get `fill`),
            "last", "sum", "extend", "equal" (or refused), "text" (observation tokens are
            decoded in between), or a function of both values.
        rows: what the first axis follows: "tokens" (T rows), "transitions" (T-1, never below
            0), "response" (R), or None.
        fill: the value of a row that no turn computed; needed with merge "concat" over rows.
        null: what None means.  "refused": it is no value.  "none": it travels as null.
            "empty": it cannot be encoded; a null that is read becomes an empty array.
            "template": a null keeps the template's value.
        sets: the axis whose length this field gives: its own rows, or its value if a number.
        overlay: "replace" the template's value, or "update" a mapping with it.
        omit_default: leave the field out of the JSON while it is at its default.
        since: the wire field set that first carries it; before, it is the template's.
        response_keys: keys of a mapping that hold one item for each response token.
    """

    codec: Codec | None = None
    merge: Merge | None = None
    rows: Rows | None = None
    fill: float | None = None
    null: Null = "refused"
    sets: Axis | None = None
    overlay: Literal["replace", "update"] = "replace"
    omit_default: bool = False
    since: int = 1
    response_keys: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """Declares a field that stays the trainer's own and never crosses the wire.

    Args:
        rows: "response" where it holds one item for each response token.  Such a field must
            be empty in a template, and is stripped with the tokens.
    """

    rows: Literal["response"] | None = None


Declaration = Computed | Template


@dataclasses.dataclass(frozen=True, slots=True)
class Field:
    """One field of a schema: its name, declaration, type, and default factory if it has one."""

    name: str
    owner: Declaration
    annotation: Any
    default: Callable[[], Any] | None

    @property
    def is_list(self) -> bool:
        """Whether the annotation asks for lists where the codec would give arrays."""
        return any(
            typing.get_origin(option) is list or option is list
            for option in _union_options(self.annotation)
        )


class Schema:
    """The declared fields of one sample class, checked; made by `Schema.of`.

    Attributes:
        sample_type: the class.
        fields: every field, in the order of declaration.
        axis_fields: the field that sets each axis.
        field_sets: the field sets that can be asked for.
        plans: what the codec compiled for a field set, kept here.
    """

    __slots__ = ("axis_fields", "field_sets", "fields", "plans", "sample_type")

    def __init__(self, sample_type: type, fields: tuple[Field, ...]) -> None:
        self.sample_type = sample_type
        self.fields = fields
        self.axis_fields: dict[Axis, Field] = _axis_fields(sample_type, fields)
        newest = max((f.owner.since for f in fields if isinstance(f.owner, Computed)), default=1)
        self.field_sets = range(1, max(newest, NEWEST_FIELD_SET) + 1)
        self.plans: dict[int, Any] = {}
        for field in fields:
            _check_field(self, field)

    @classmethod
    def of(cls, sample_type: type, declarations: Mapping[str, Declaration] | None = None) -> Schema:
        """The schema of a class, all of whose fields are declared.

        Args:
            sample_type: a dataclass or msgspec Struct.  It need not know this library.
            declarations: the owner of each field that carries none in its own annotation.

        Raises:
            SchemaError: a field with no owner or with two, a declaration that breaks a rule,
                or one for a field that the class does not have.
            TypeError: sample_type is neither a dataclass nor a Struct.

        Source: SPEC section 5.
        """
        given = dict(declarations or {})
        known = sample_type.__dict__.get("__sample_schema__")
        if known is not None and not given:
            return typing.cast(Schema, known)
        hints = _hints(sample_type)
        fields = tuple(
            Field(
                name,
                _one_owner(sample_type, name, hints[name], given.pop(name, None)),
                _bare(hints[name]),
                default,
            )
            for name, default in _defaults(sample_type).items()
        )
        for name in given:
            raise SchemaError(
                f"{sample_type.__name__} has no field {name}, yet it is declared", field=name
            )
        return cls(sample_type, fields)

    def computed(self, field_set: int) -> tuple[Field, ...]:
        """The fields that cross the wire in a field set, in the order of declaration."""
        return tuple(
            field
            for field in self.fields
            if isinstance(field.owner, Computed) and field.owner.since <= field_set
        )

    def fingerprint(self, field_set: int = 1) -> str:
        """16 hex digits that are equal where two sides agree on what crosses the wire.

        Covers name, codec, dtype, rank, rows, and null rule of each computed field of the
        field set, in whatever order they are declared.

        Source: SPEC section 10.
        """
        rows = sorted(_wire_facts(field) for field in self.computed(field_set))
        return hashlib.sha256(encode_json([field_set, rows])).hexdigest()[:16]

    def __repr__(self) -> str:
        return f"Schema({self.sample_type.__qualname__}, {len(self.fields)} fields)"


@typing.dataclass_transform(kw_only_default=True, field_specifiers=(dataclasses.field,))
class SampleBase:
    """Base of sample classes that declare their own fields.

    A subclass is made a dataclass with keyword-only arguments, and its schema is checked at
    once.  Equality is identity: fields hold arrays.

    Raises:
        SchemaError: when the subclass is defined, by the rules of `Schema.of`.
    """

    __sample_schema__: ClassVar[Schema]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        dataclasses.dataclass(kw_only=True, eq=False)(cls)
        cls.__sample_schema__ = Schema.of(cls)


def schema_of(sample_type: type) -> Schema:
    """The schema that a class declares on itself.

    Raises:
        TypeError: it declares none, so that a schema must be given.
    """
    schema = getattr(sample_type, "__sample_schema__", None)
    if not isinstance(schema, Schema):
        raise TypeError(
            f"{sample_type.__name__} declares no schema: derive it from Sample, "
            "or pass schema=Schema.of(...)"
        )
    return schema


def _defaults(sample_type: type) -> dict[str, Callable[[], Any] | None]:
    if dataclasses.is_dataclass(sample_type):
        return {
            field.name: _factory(field.default, field.default_factory, dataclasses.MISSING)
            for field in dataclasses.fields(sample_type)
        }
    if issubclass(sample_type, msgspec.Struct):
        return {
            info.name: _factory(info.default, info.default_factory, msgspec.NODEFAULT)
            for info in msgspec.structs.fields(sample_type)
        }
    raise TypeError(f"{sample_type.__name__} is neither a dataclass nor a msgspec Struct")


def _factory(default: Any, factory: Any, missing: Any) -> Callable[[], Any] | None:
    if default is not missing:
        return lambda: default
    if factory is not missing:
        return typing.cast(Callable[[], Any], factory)
    return None


def _hints(sample_type: type) -> dict[str, Any]:
    try:
        return typing.get_type_hints(sample_type, include_extras=True)
    except NameError as error:
        raise SchemaError(
            f"an annotation of {sample_type.__name__} cannot be resolved: {error}"
        ) from None


def _bare(hint: Any) -> Any:
    """The annotation without our declarations, other extras of Annotated kept."""
    if typing.get_origin(hint) is not typing.Annotated:
        return hint
    inner, *extras = typing.get_args(hint)
    extras = [extra for extra in extras if not isinstance(extra, Declaration)]
    return typing.Annotated[inner, *extras] if extras else inner


def _one_owner(sample_type: type, name: str, hint: Any, given: object) -> Declaration:
    owners = [extra for extra in getattr(hint, "__metadata__", ()) if _is_declaration(extra)]
    if given is not None:
        owners.append(given)
    if len(owners) != 1:
        count = "no owner" if not owners else "two owners"
        raise SchemaError(
            f"{sample_type.__name__}.{name} has {count}: declare it Computed or Template, once",
            field=name,
            expected="one of Computed, Template",
            got=count,
        )
    if not isinstance(owners[0], Declaration):
        raise SchemaError(
            f"{sample_type.__name__}.{name}: a declaration is Computed(...) or Template()",
            field=name,
        )
    return owners[0]


def _is_declaration(extra: object) -> bool:
    return isinstance(extra, Declaration) or extra is Computed or extra is Template


def _union_options(annotation: Any) -> tuple[Any, ...]:
    if typing.get_origin(annotation) is typing.Annotated:
        annotation = typing.get_args(annotation)[0]
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return typing.get_args(annotation)
    return (annotation,)


def _axis_fields(sample_type: type, fields: tuple[Field, ...]) -> dict[Axis, Field]:
    found: dict[Axis, Field] = {}
    for field in fields:
        if isinstance(field.owner, Computed) and field.owner.sets is not None:
            if field.owner.sets in found:
                raise SchemaError(
                    f"{sample_type.__name__}.{field.name}: the axis {field.owner.sets} is set by "
                    f"{found[field.owner.sets].name} already",
                    field=field.name,
                )
            found[field.owner.sets] = field
    return found


def _check_field(schema: Schema, field: Field) -> None:
    """The guard's rules for one field that has its owner."""
    for broken, rule in _broken_rules(schema, field):
        if broken:
            raise SchemaError(
                f"{schema.sample_type.__name__}.{field.name}: {rule}", field=field.name
            )


def _broken_rules(schema: Schema, field: Field) -> list[tuple[bool, str]]:
    owner = field.owner
    axis = AXIS_OF_ROWS.get(owner.rows) if owner.rows is not None else None
    rules = [
        (owner.rows is not None and axis is None, f"unknown rows {owner.rows!r}"),
        (axis is not None and axis not in schema.axis_fields, f"no field sets the axis {axis}"),
    ]
    if isinstance(owner, Computed):
        rules += _broken_codec_rules(owner) + _broken_merge_rules(owner, field.default)
    return rules


def _broken_codec_rules(owner: Computed) -> list[tuple[bool, str]]:
    codec = owner.codec
    if not isinstance(codec, Codec):
        return [(True, "a computed field needs a codec")]
    if isinstance(codec, Json):
        return [
            (owner.rows is not None, "a JSON field has no rows"),
            (owner.null in ("none", "empty"), "the type of a JSON field says whether it is None"),
            (owner.overlay == "update" and owner.null == "template", "a mapping has no null"),
        ]
    too_flat = isinstance(codec, Tensor) and codec.rank < (1 if owner.rows else 0)
    return [
        (wire_of(codec) is None, f"no wire dtype is called {codec.dtype!r}"),
        (too_flat, f"rank {getattr(codec, 'rank', None)} has no axis for rows"),
        (isinstance(codec, Ragged) and owner.rows is None, "a ragged field needs rows"),
        (owner.overlay == "update", "only a JSON field can update the template's value"),
        (owner.omit_default, "only a JSON field can be left out"),
    ]


def _broken_merge_rules(
    owner: Computed, default: Callable[[], Any] | None
) -> list[tuple[bool, str]]:
    merge = owner.merge
    if merge is None:
        return [(True, "a computed field needs a merge rule")]
    fills = owner.fill is not None or isinstance(owner.codec, Ragged) or callable(merge)
    by_response = owner.rows == "response"
    return [
        (not callable(merge) and merge not in _MERGES, f"unknown merge rule {merge!r}"),
        (by_response and not fills, "a field with a row for each response token needs a fill"),
        (
            by_response and merge != "concat" and not callable(merge),
            "response rows are merged by concat",
        ),
        (owner.since < 1, "field sets count from 1"),
        (owner.omit_default and default is None, "a field left out at its default needs one"),
    ]


def wire_of(codec: Tensor | Ragged) -> WireDtype | None:
    """The wire dtype of a tensor codec, or None where the format has no such dtype."""
    try:
        return wire_dtype(np.dtype(codec.dtype))
    except TypeError:
        return None


def _wire_facts(field: Field) -> list[Any]:
    owner = typing.cast(Computed, field.owner)
    codec = owner.codec
    dtype = codec.dtype if isinstance(codec, Tensor | Ragged) else None
    rank = codec.rank if isinstance(codec, Tensor) else None
    return [field.name, type(codec).__name__, dtype, rank, owner.rows, owner.null]
