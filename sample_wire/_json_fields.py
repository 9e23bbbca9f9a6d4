"""The JSON fields of a sample: how a value is checked, and how a fault in it is named.

Any stands for values that are free-form by declaration; it does not leave these modules.
"""

from __future__ import annotations

import dataclasses
import enum
import typing
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec
import numpy as np

from ._declarations import Axis, Computed, Field, union_options
from ._json import MAX_JSON_DEPTH
from ._plain import NotPlainError, check_writable, plain
from .errors import EncodeError, SchemaError

# A sample's object lies two levels deep in the document, a field's value three.
SAMPLE_DEPTH: Final = MAX_JSON_DEPTH - 2
_MAPPING: Final = dict[str, Any]
_SCALARS: Final = frozenset({str, int, float, bool, type(None)})


class JsonField:
    """One declared JSON field: how its value is checked, and how a fault in it is named."""

    __slots__ = (
        "_decode",
        "_is_mapping",
        "annotation",
        "is_free",
        "is_shallow",
        "is_text",
        "name",
        "new_default",
        "omit_default",
        "record_keys",
        "sets",
    )

    def __init__(self, field: Field) -> None:
        owner = typing.cast(Computed, field.owner)
        self.name = field.name
        self.annotation: Any = field.annotation
        self.sets: Axis | None = owner.sets
        self.omit_default = owner.omit_default
        self.is_free = _mentions_any(field.annotation)
        self.is_shallow = all(map(_is_shallow, union_options(field.annotation)))
        self._is_mapping = field.annotation == _MAPPING
        self.is_text = field.annotation is str
        self.record_keys = _record_keys(field.annotation)
        # Makes a new default value; every field with omit_default has one.
        self.new_default: Any = field.default
        try:
            self._decode: Callable[[bytes], Any] = msgspec.json.Decoder(field.annotation).decode
        except TypeError as error:
            raise SchemaError(
                f"field {field.name} cannot be typed in JSON: {error}", field=field.name
            ) from None

    def plain_free(self, value: Any) -> Any:
        """A free-form value as plain JSON values of the annotated type.

        Raises:
            NotPlainError, msgspec.ValidationError: it is not.
        """
        value = plain(value, SAMPLE_DEPTH - 1)
        if not self._is_mapping:
            return msgspec.convert(value, self.annotation)
        if type(value) is not dict:
            raise NotPlainError(f"is of type {type(value).__name__}, it must be a dict")
        return value

    def plain_value(self, value: Any, sample_index: int) -> Any:
        """An equal value that is written unchanged, or an error that says what cannot be.

        Raises:
            EncodeError: it is not of the annotated type, or would not come back equal.
        """
        path = ""
        try:
            if self.is_free:
                return check_writable(self.plain_free(value))
            check_writable(value)
            back = self._decode(_encode_with_numpy(value))
            if back == value or back == plain(value, SAMPLE_DEPTH - 1):
                return back
            rule = "would not come back equal"
        except NotPlainError as error:
            path, rule = error.path, error.rule
        except msgspec.ValidationError as error:
            rule = f"is not of its type: {error}"
        except (ValueError, TypeError, OverflowError, RecursionError, msgspec.MsgspecError):
            rule = f"of type {type(value).__name__} cannot be written as JSON"
        raise EncodeError(
            f"sample {sample_index}, field {self.name}{path} {rule}",
            field=self.name,
            sample_index=sample_index,
            got=type(value).__name__,
        )


def are_flat(values: Iterable[Any]) -> bool:
    """Whether parsed values have no arrays or objects in them."""
    for value in values:
        if type(value) is not dict:
            if type(value) not in _SCALARS:
                return False
            continue
        for item in value.values():
            if type(item) not in _SCALARS:
                return False
    return True


def _numpy_scalar(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(type(value).__name__)


_encode_with_numpy: Final = msgspec.json.Encoder(enc_hook=_numpy_scalar).encode


def _mentions_any(annotation: Any) -> bool:
    return annotation in (Any, object) or any(map(_mentions_any, typing.get_args(annotation)))


def _is_shallow(annotation: Any) -> bool:
    """Whether JSON of the type nests one level at most, but for what is in a dict[str, Any]."""
    if annotation == _MAPPING or _is_scalar(annotation):
        return True
    if typing.get_origin(annotation) is list:
        return _is_scalar(typing.get_args(annotation)[0])
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return all(_is_scalar(info.type) for info in msgspec.structs.fields(annotation))
    return False


def _is_scalar(annotation: Any) -> bool:
    return all(
        any(option is kind for kind in _SCALARS)
        or (isinstance(option, type) and issubclass(option, enum.Enum))
        for option in union_options(annotation)
    )


def _record_keys(annotation: Any) -> frozenset[str]:
    """The keys that a record of this type always has on the wire."""
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return frozenset(info.encode_name for info in msgspec.structs.fields(annotation))
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        return frozenset(field.name for field in dataclasses.fields(annotation))
    return frozenset()
