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
import inspect
import sys
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

import msgspec

from ._declarations import (
    NEWEST_FIELD_SET,
    Axis,
    Computed,
    Declaration,
    Field,
    Json,
    Ragged,
    Template,
    Tensor,
    wire_of,
)
from ._guard import check_field
from ._json import encode_json
from .errors import SchemaError

__all__ = ["Computed", "Json", "Ragged", "SampleBase", "Schema", "Template", "Tensor", "schema_of"]


class Schema:
    """The declared fields of one sample class, checked; made by `Schema.of`.

    Attributes:
        sample_type: the class.
        fields: every field, in the order of declaration.
        axis_fields, axis_names: the field that sets each axis, and its name.
        field_sets: the field sets that can be asked for.
        plans: what the codec compiled for a field set, kept here.
    """

    __slots__ = (
        "_declarations",
        "axis_fields",
        "axis_names",
        "field_sets",
        "fields",
        "plans",
        "sample_type",
    )

    def __init__(
        self,
        sample_type: type,
        fields: tuple[Field, ...],
        declarations: Mapping[str, Declaration] | None = None,
    ) -> None:
        self.sample_type = sample_type
        self._declarations = declarations
        self.fields = fields
        self.axis_fields: dict[Axis, Field] = _axis_fields(sample_type, fields)
        self.axis_names = {axis: field.name for axis, field in self.axis_fields.items()}
        for field in fields:
            check_field(sample_type.__name__, field, self.axis_fields)
        newest = max((f.owner.since for f in fields if isinstance(f.owner, Computed)), default=1)
        self.field_sets = range(1, max(newest, NEWEST_FIELD_SET) + 1)
        self.plans: dict[int, Any] = {}

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
        if not declarations and issubclass(sample_type, SampleBase):
            return sample_type.__sample_schema__
        return cls._made(sample_type, declarations)

    @classmethod
    def _made(cls, sample_type: type, declarations: Mapping[str, Declaration] | None) -> Schema:
        given = dict(declarations or {})
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
        return cls(sample_type, fields, declarations)

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

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as what it was made from: the class and the declarations."""
        return Schema.of, (self.sample_type, self._declarations)

    def __repr__(self) -> str:
        return f"Schema({self.sample_type.__qualname__}, {len(self.fields)} fields)"


_KEPT: Final = "__kept_sample_schema__"


class _Kept:
    """A class's schema, and the fields that it was made for.

    A class that is pickled by value, as Ray does with those of a script, must not take compiled
    plans along: this is pickled empty.
    """

    __slots__ = ("fields", "schema")

    def __init__(self, fields: object = None, schema: Schema | None = None) -> None:
        self.fields = fields
        self.schema: Any = schema

    def __reduce__(self) -> tuple[type[_Kept], tuple[()]]:
        return _Kept, ()


class _OwnSchema:
    """The schema of the class that it is read from, made when that is first done.

    A class that was pickled by value gets its fields after it was made, so what is kept counts
    only for the fields that it was made for.
    """

    def __get__(self, instance: object, owner: type) -> Schema:
        fields = owner.__dataclass_fields__  # type: ignore[attr-defined]  # every owner is a dataclass
        kept = owner.__dict__.get(_KEPT)
        if kept is None or kept.fields is not fields:
            kept = _Kept(fields, Schema._made(owner, None))
            setattr(owner, _KEPT, kept)
        schema: Schema = kept.schema
        return schema


@typing.dataclass_transform(kw_only_default=True, field_specifiers=(dataclasses.field,))
class SampleBase:
    """Base of sample classes that declare their own fields.

    A subclass is made a dataclass with keyword-only arguments, and its schema is checked at
    once.  Equality is identity: fields hold arrays.

    Raises:
        SchemaError: when the subclass is defined, by the rules of `Schema.of`.
    """

    __sample_schema__: ClassVar[_OwnSchema] = _OwnSchema()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "__slots__" in cls.__dict__:
            raise SchemaError(f"{cls.__name__}: a sample class cannot have __slots__")
        dataclasses.dataclass(kw_only=True, eq=False)(cls)
        hints = _check_annotations(cls)
        # Resolved: where the class is pickled by value, its module's names are not at hand.
        cls.__annotations__ = {name: hints[name] for name in inspect.get_annotations(cls)}
        _ = cls.__sample_schema__


def schema_of(sample_type: type) -> Schema:
    """The schema that a class declares on itself.

    Raises:
        TypeError: it declares none, so that a schema must be given.
    """
    kept = sample_type.__dict__.get(_KEPT)
    if kept is not None and kept.fields is sample_type.__dataclass_fields__:  # type: ignore[attr-defined]  # only dataclasses keep one
        schema: Schema = kept.schema
        return schema
    if not issubclass(sample_type, SampleBase):
        raise TypeError(
            f"{sample_type.__name__} declares no schema: derive it from Sample, "
            "or pass schema=Schema.of(...)"
        )
    return sample_type.__sample_schema__


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
    # By type, not by identity: a class that was pickled by value has a copy of the marker.
    if not isinstance(default, type(missing)):
        return lambda: default
    if not isinstance(factory, type(missing)):
        return typing.cast(Callable[[], Any], factory)
    return None


def _hints(sample_type: type) -> dict[str, Any]:
    try:
        return typing.get_type_hints(sample_type, include_extras=True)
    except (NameError, AttributeError, SyntaxError, TypeError) as error:
        raise SchemaError(
            f"an annotation of {sample_type.__name__} cannot be resolved: {error}",
            field=_unresolved(sample_type),
        ) from None


def _check_annotations(sample_type: type) -> dict[str, Any]:
    """The annotations, refusing a name that is no field, as one in a base that is no dataclass."""
    fields, hints = _defaults(sample_type), _hints(sample_type)
    for name, hint in hints.items():
        is_class_level = typing.get_origin(hint) is ClassVar or hint is ClassVar
        if name not in fields and not is_class_level:
            raise SchemaError(
                f"{sample_type.__name__}.{name} is annotated in a base that is no sample class",
                field=name,
            )
    return hints


def _unresolved(sample_type: type) -> str | None:
    """The first of the class's own fields whose annotation cannot be resolved alone."""
    scope = vars(sys.modules[sample_type.__module__])
    for name, annotation in getattr(sample_type, "__annotations__", {}).items():
        alone = types.SimpleNamespace(__annotations__={name: annotation})
        try:
            typing.get_type_hints(alone, globalns=scope)
        except (NameError, AttributeError, SyntaxError, TypeError):
            return str(name)
    return None


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


def _wire_facts(field: Field) -> list[Any]:
    owner = typing.cast(Computed, field.owner)
    codec = owner.codec
    wire = wire_of(codec) if isinstance(codec, Tensor | Ragged) else None
    dtype = None if wire is None else wire.dtype.name
    rank = codec.rank if isinstance(codec, Tensor) else None
    return [field.name, type(codec).__name__, dtype, rank, owner.rows, owner.null]
