"""Decoded fields laid over a copy of the caller's template sample.

The template is never changed.  Of a template field the sample gets its own containers; its
numpy arrays are shared as read-only views, so that a large one is not copied for every sample.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
import numpy as np

from ._declarations import Computed, Field
from .errors import TemplateError
from .schema import SampleBase, Schema

_SHARED: Final = frozenset({str, int, float, bool, bytes, complex, type(None)})
_Setter = Callable[[Any, str, Any], None]


class Overlay:
    """Makes samples from a template for one schema and field set.

    Args:
        schema: the class's schema.
        computed: the fields of the field set; all others are kept from the template.
    """

    __slots__ = (
        "_accumulators",
        "_kept",
        "_names",
        "_reserved",
        "_response_rows",
        "_set",
    )

    def __init__(self, schema: Schema, computed: tuple[Field, ...]) -> None:
        owners = [(field, field.owner) for field in schema.fields]
        self._names = frozenset(field.name for field in schema.fields)
        self._kept = [field.name for field in schema.fields if field not in computed]
        self._set = field_setter(schema.sample_type)
        self._accumulators = [
            (field.name, _comparable(field.default))
            for field, owner in owners
            if isinstance(owner, Computed) and owner.merge in ("sum", "extend") and not owner.sets
        ]
        self._response_rows = [
            field.name for field, owner in owners if not isinstance(owner, Computed) and owner.rows
        ]
        self._reserved = [
            (field.name, key)
            for field, owner in owners
            if isinstance(owner, Computed)
            for key in owner.response_keys
        ]

    def check_template(self, template: Any) -> None:
        """Refuses a template that already carries what the reply is about to bring.

        Raises:
            TypeError: the template is not an instance of the schema's class.
            TemplateError: a counter or list that turns add to is not empty, or something is
                aligned to response tokens of its own.

        Source: SPEC section 8.
        """
        for name, default in self._accumulators:
            value = getattr(template, name)
            if type(value) is type(default) and value == default:
                continue  # the usual case, decided at C speed
            if not _is_neutral(value):
                raise TemplateError(
                    f"template field {name} must be empty: the reply brings its own", field=name
                )
        for name in self._response_rows:
            value = getattr(template, name)
            if value is not None and not (hasattr(value, "__len__") and len(value) == 0):
                raise TemplateError(
                    f"template field {name} must be None: it is aligned to a response", field=name
                )
        for name, key in self._reserved:
            value = getattr(template, name)
            if key in (value if type(value) is dict else _mapping(name, value)):
                raise TemplateError(
                    f"template field {name} must not hold {key}: it is aligned to a response",
                    field=name,
                )

    def apply(self, template: Any, values: Mapping[str, Any], *, copy_arrays: bool) -> Any:
        """A new sample: the template's fields, own containers, with the values laid over."""
        if not isinstance(template, SampleBase):
            return self._apply_to_foreign(template, values, copy_arrays)
        # An instance of our own base class is its `__dict__`.
        sample = object.__new__(type(template))
        state: dict[str, Any] = {**template.__dict__, **values}
        kept = self._kept
        if len(state) != len(self._names):  # there is more, or less, than the fields
            for name in self._derived(template):
                del state[name]
            kept = [name for name in state if name not in values]
        for name in kept:
            value = state.get(name)
            if value is not None and type(value) not in _SHARED:
                state[name] = independent(value, copy_arrays)
        sample.__dict__ = state
        return sample

    def _apply_to_foreign(self, template: Any, values: Mapping[str, Any], copy_arrays: bool) -> Any:
        sample = copy.copy(template)
        derived = self._derived(template)
        for name in derived:
            sample.__dict__.pop(name, None)  # a Struct's copy leaves its `__dict__` behind
        beside = set(getattr(template, "__dict__", ())) - self._names - derived
        for name in (*self._kept, *beside):
            self._set(sample, name, independent(getattr(template, name), copy_arrays))
        for name, value in values.items():
            self._set(sample, name, value)
        return sample

    def _derived(self, template: Any) -> set[str]:
        """Cached properties of an instance: made from fields, which are others in a sample."""
        beside = set(getattr(template, "__dict__", ())) - self._names
        kind = functools.cached_property
        return {name for name in beside if isinstance(getattr(type(template), name, None), kind)}


def updated(field: str, old: object, new: dict[str, Any], copy_arrays: bool) -> dict[str, Any]:
    """A copy of the template's mapping with the reply's keys over it; None counts as empty."""
    if type(old) is not dict:
        old = _mapping(field, old)
    if not old:
        return new
    merged: dict[str, Any] = independent(old, copy_arrays)
    merged.update(new)
    return merged


def _mapping(field: str, value: object) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise TemplateError(
            f"template field {field} must be a dict or None",
            field=field,
            expected="dict or None",
            got=type(value).__name__,
        )
    return value


def independent(value: Any, copy_arrays: bool) -> Any:
    """A value that shares no mutable state with the original.

    Containers are new.  Arrays are read-only views of the original's memory, or with
    copy_arrays writable copies.  What is neither is deep-copied by its own rules.
    """
    try:
        return _independent(value, copy_arrays)
    except RecursionError:
        pass
    return _deep_copy(value)  # holds itself: only a memo can follow that


def _deep_copy(value: Any) -> Any:
    try:
        return copy.deepcopy(value)
    except RecursionError:
        raise TemplateError("the template nests deeper than this Python can follow") from None
    except TypeError as error:
        raise TemplateError(f"the template holds what cannot be copied: {error}") from None


def _independent(value: Any, copy_arrays: bool) -> Any:
    # Plain loops: for the few items of a template they beat sets and maps of their types.
    kind = type(value)
    if kind is dict:
        fields = value.copy()
        for key, item in value.items():
            if type(item) not in _SHARED:
                fields[key] = _independent(item, copy_arrays)
        return fields
    if kind is list:
        items = []
        for item in value:
            items.append(item if type(item) in _SHARED else _independent(item, copy_arrays))
        return items
    if kind in _SHARED:
        return value
    if kind is tuple:
        return tuple(_independent(item, copy_arrays) for item in value)
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        if copy_arrays:
            return value.copy()
        shared = value.view()
        shared.flags.writeable = False
        return shared
    return _deep_copy(value)


def _comparable(default: Callable[[], Any] | None) -> Any:
    """A field's default if it is neutral and can be compared by ==, else None."""
    value = default() if default is not None else None
    return value if isinstance(value, (list, msgspec.Struct)) and _is_neutral(value) else None


def _is_neutral(value: Any) -> bool:
    """Whether adding to the value is the same as starting anew: None, zero, empty, all zero."""
    if isinstance(value, msgspec.Struct):
        return all(_is_neutral(getattr(value, name)) for name in value.__struct_fields__)
    if dataclasses.is_dataclass(value):
        return all(_is_neutral(getattr(value, item.name)) for item in dataclasses.fields(value))
    if isinstance(value, np.ndarray):
        return not value.any()
    return value is None or (len(value) == 0 if hasattr(value, "__len__") else value == 0)


def field_setter(sample_type: type) -> _Setter:
    """Sets a field of an instance of this class, frozen or not."""
    if issubclass(sample_type, msgspec.Struct):
        return msgspec.structs.force_setattr
    if dataclasses.is_dataclass(sample_type) and sample_type.__dataclass_params__.frozen:  # type: ignore[attr-defined]  # typeshed leaves the parameters out
        return object.__setattr__
    return setattr


def detach(sample: Any, *names: str) -> None:
    """Gives a sample its own writable copies of some array fields, in place.

    A decoded array is a view that keeps the whole payload alive; a kept loss mask would keep
    100 MB.  After detaching every array that is kept, the payload can be freed.

    Args:
        sample: a decoded sample.
        names: the fields; a field that is None or a list stays as it is.

    Cost: one copy of each named array.
    """
    setter = field_setter(type(sample))
    for name in names:
        value = getattr(sample, name)
        if isinstance(value, np.ndarray):
            setter(sample, name, value.copy())
        elif isinstance(value, list) and any(isinstance(item, np.ndarray) for item in value):
            setter(sample, name, [np.array(item) for item in value])
