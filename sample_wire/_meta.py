"""The JSON in `_samples_meta`: written from fields, and parsed strictly.

SPEC section 6.  Both ways rest on one test: text that a typed parse and a writing again give
back byte for byte says exactly what was parsed (no key twice, none unknown, none missing), and
a value whose text parses to an equal value has lost nothing.  What fails the test is looked at
closely, to name the fault or to find that there is none.

Any stands for values that are free-form by declaration; it does not leave this module.
"""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn

import msgspec

from ._json import MAX_JSON_DEPTH, StrictJsonError, encode_json, exceeds_depth, strict_loads
from ._plain import NotPlainError, plain
from .errors import (
    DecodeError,
    EncodeError,
    FieldError,
    LimitError,
    MetaError,
    SchemaError,
    VersionError,
)
from .schema import Axis, Computed, Field

META_TENSOR: Final = "_samples_meta"
NULLS_KEY: Final = "nulls"
FORMAT: Final = 1
# A sample's object lies two levels deep in the document, a field's value three.
_SAMPLE_DEPTH: Final = MAX_JSON_DEPTH - 2
_MISSING_FIELD: Final = re.compile(r"missing required field `(\w+)`")
_IN_SAMPLE: Final = re.compile(r"`\$\.samples\[(\d+)\](?:\.(\w+))?")


class JsonField:
    """One declared JSON field: how its value is checked, and how a fault in it is named."""

    __slots__ = ("_default", "annotation", "is_free", "name", "omit_default", "record_keys", "sets")

    def __init__(self, field: Field) -> None:
        owner = typing.cast(Computed, field.owner)
        self.name = field.name
        self.annotation: Any = field.annotation
        self.sets: Axis | None = owner.sets
        self.omit_default = owner.omit_default
        self._default = field.default
        self.is_free = _mentions_any(field.annotation)
        self.record_keys = _record_keys(field.annotation)
        try:
            msgspec.json.Decoder(field.annotation)
        except TypeError as error:
            raise SchemaError(
                f"field {field.name} cannot be typed in JSON: {error}", field=field.name
            ) from None

    def new_default(self) -> Any:
        """A new default value; called only for a field with omit_default, which has one."""
        return typing.cast(Callable[[], Any], self._default)()

    def plain_value(self, value: Any, sample_index: int) -> Any:
        """An equal value that can be written, or an error that says what cannot.

        Raises:
            EncodeError: it is not of the annotated type, or would not come back equal.
        """
        try:
            if type(value) is not self.annotation or self.is_free:
                value = self._normal(value)
            text = encode_json(value)
            if msgspec.json.decode(text, type=self.annotation) == value:
                return value
            place, rule = self.name, "would not come back equal"
        except NotPlainError as error:
            place, rule = self.name + error.path, error.rule
        except msgspec.ValidationError as error:
            place, rule = self.name, f"is not of its type: {error}"
        except UnicodeEncodeError:
            place, rule = self.name, "holds a lone surrogate, which is no text"
        except (ValueError, TypeError, OverflowError, RecursionError):
            place, rule = self.name, f"of type {type(value).__name__} cannot be written as JSON"
        raise EncodeError(
            f"sample {sample_index}, field {place} {rule}",
            field=self.name,
            sample_index=sample_index,
            got=type(value).__name__,
        )

    def _normal(self, value: Any) -> Any:
        """Free-form values through `plain`; typed ones as they are where the type writes them."""
        if self.is_free:
            return plain(value, _SAMPLE_DEPTH - 1)
        try:
            msgspec.json.decode(encode_json(value), type=self.annotation)
            return value
        except (TypeError, msgspec.ValidationError):
            return plain(value, _SAMPLE_DEPTH - 1)


class Documents:
    """Writes and parses the documents of one field set.

    Args:
        json_fields: the JSON fields of the field set, in order of declaration.
    """

    __slots__ = ("_decode", "_decode_sample", "_defaults", "_fields", "_names", "_sample")

    def __init__(self, json_fields: Sequence[JsonField]) -> None:
        self._fields = tuple(json_fields)
        self._defaults = [
            (position, field.new_default())
            for position, field in enumerate(json_fields)
            if field.omit_default
        ]
        self._names = [field.name for field in json_fields]
        columns: list[Any] = [
            (field.name, field.annotation | msgspec.UnsetType, msgspec.UNSET)
            if field.omit_default
            else (field.name, field.annotation)
            for field in json_fields
        ]
        self._sample = msgspec.defstruct("Sample", [*columns, (NULLS_KEY, list[str])], kw_only=True)
        document = msgspec.defstruct(
            "Meta",
            [
                ("samples", list[self._sample]),  # type: ignore[name-defined]  # made just now
                ("session_metadata", dict[str, Any]),
                ("empty_reason", str | None),
                ("format", int | msgspec.UnsetType, msgspec.UNSET),
            ],
        )
        self._decode: Callable[[bytes], Any] = msgspec.json.Decoder(document).decode
        self._decode_sample: Callable[[bytes], Any] = msgspec.json.Decoder(self._sample).decode

    def write_sample(
        self, values: Sequence[Any], nulls: list[str], sample_index: int
    ) -> tuple[bytes, tuple[Any, ...]]:
        """The JSON object of one sample, and its values as they were written.

        Raises:
            EncodeError: a value is not of its type, or would not come back equal.
        """
        values = self._without_defaults(values)
        try:
            sample = self._sample(**dict(zip(self._names, values, strict=True)), nulls=nulls)
            text = encode_json(sample)
            if self._decode_sample(text) == sample and not exceeds_depth(text, _SAMPLE_DEPTH):
                return text, tuple(values)
        except (ValueError, TypeError, OverflowError, RecursionError):
            pass
        values = tuple(
            value if value is msgspec.UNSET else field.plain_value(value, sample_index)
            for field, value in zip(self._fields, values, strict=True)
        )
        text = encode_json(self._sample(**dict(zip(self._names, values, strict=True)), nulls=nulls))
        if exceeds_depth(text, _SAMPLE_DEPTH):
            raise EncodeError(
                f"sample {sample_index}: its JSON nests too deep", sample_index=sample_index
            )
        return text, values

    def _without_defaults(self, values: Sequence[Any]) -> Sequence[Any]:
        for position, default in self._defaults:
            if values[position] == default:
                values = [*values[:position], msgspec.UNSET, *values[position + 1 :]]
        return values

    def parse(self, text: bytes, max_depth: int) -> Any:
        """The document: samples with typed fields, session_metadata, empty_reason.

        Raises:
            MetaError, FieldError, VersionError, LimitError: SPEC section 6.
        """
        if exceeds_depth(text, max_depth):
            raise LimitError(f"the JSON nests deeper than {max_depth}", expected=str(max_depth))
        try:
            document = self._decode(text)
        except msgspec.ValidationError as error:
            _refuse_document(text, error)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise MetaError(f"the text in {META_TENSOR} is not JSON") from None
        _check_format(document.format)
        if encode_json(document) != text:
            self._check_unusual(text, max_depth)
        return document

    def _check_unusual(self, text: bytes, max_depth: int) -> None:
        """A document that is not spelled as ours: refuses repeated keys and lacking ones."""
        try:
            document = typing.cast(dict[str, Any], strict_loads(text, max_depth))
        except StrictJsonError as error:
            raise MetaError(f"the JSON in {META_TENSOR} {error}") from None
        for field in self._fields:
            for index, sample in enumerate(document["samples"] if field.record_keys else ()):
                found = sample.get(field.name)
                if isinstance(found, dict) and not found.keys() >= field.record_keys:
                    raise FieldError(
                        f"sample {index}, field {field.name} lacks one of its keys",
                        field=field.name,
                        sample_index=index,
                    )


def write_document(
    samples: Sequence[bytes], session_metadata: Any, empty_reason: str | None
) -> bytes:
    """The document of a reply; `samples` are the samples' JSON objects.

    Raises:
        EncodeError: session_metadata is no plain JSON object, or empty_reason no text.
    """
    if empty_reason is not None and not isinstance(empty_reason, str):
        raise EncodeError(f"empty_reason is text or None, not {type(empty_reason).__name__}")
    try:
        session = plain(session_metadata or {}, MAX_JSON_DEPTH - 1)
        if type(session) is not dict:
            raise NotPlainError(f"is of type {type(session).__name__}, it must be a dict")
        return b'{"samples":[%b],"session_metadata":%b,"empty_reason":%b}' % (
            b",".join(samples),
            encode_json(session),
            encode_json(empty_reason),
        )
    except NotPlainError as error:
        raise EncodeError(f"session_metadata{error.path} {error.rule}") from None
    except ValueError:
        raise EncodeError("session_metadata or empty_reason cannot be written as JSON") from None


def _check_format(found: object) -> None:
    if found is not msgspec.UNSET and found != FORMAT:
        raise VersionError(
            "the payload is of a newer format", expected=f"format {FORMAT}", got="another format"
        )


class _FormatOnly(msgspec.Struct):
    format: Any = msgspec.UNSET


def _refuse_document(text: bytes, error: msgspec.ValidationError) -> NoReturn:
    """The most telling error for a document that is JSON but not of the right form."""
    try:
        found = msgspec.json.decode(text, type=_FormatOnly).format
    except msgspec.DecodeError:
        found = msgspec.UNSET
    _check_format(found)
    place = _IN_SAMPLE.search(str(error))
    missing = _MISSING_FIELD.search(str(error))
    kind: type[DecodeError] = FieldError if place else MetaError
    raise kind(
        f"the JSON in {META_TENSOR} is not of the right form: {error}",
        field=missing.group(1) if missing else place.group(2) if place else None,
        sample_index=int(place.group(1)) if place else None,
    ) from None


def _mentions_any(annotation: Any) -> bool:
    return annotation in (Any, object) or any(map(_mentions_any, typing.get_args(annotation)))


def _record_keys(annotation: Any) -> frozenset[str]:
    """The keys that a record of this type always has on the wire."""
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return frozenset(info.encode_name for info in msgspec.structs.fields(annotation))
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        return frozenset(field.name for field in dataclasses.fields(annotation))
    return frozenset()
