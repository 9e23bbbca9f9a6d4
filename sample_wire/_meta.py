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
import numpy as np

from ._declarations import NULLS_KEY, Axis, Computed, Field
from ._json import MAX_JSON_DEPTH, StrictJsonError, encode_json, exceeds_depth, strict_loads
from ._plain import NotPlainError, check_writable, may_hold_unreadable, plain
from .errors import (
    DecodeError,
    EncodeError,
    FieldError,
    LimitError,
    MetaError,
    SchemaError,
    VersionError,
)

META_TENSOR: Final = "_samples_meta"
FORMAT: Final = 1
_QUOTED_VALUE: Final = re.compile(
    r"^Invalid enum value .*(?= - at `)|^Invalid enum value .*$", re.DOTALL
)
# A sample's object lies two levels deep in the document, a field's value three.
_SAMPLE_DEPTH: Final = MAX_JSON_DEPTH - 2
_MISSING_FIELD: Final = re.compile(r"missing required field `(\w+)`")
_IN_SAMPLE: Final = re.compile(r"`\$\.samples\[(\d+)\](?:\.(\w+))?")


class JsonField:
    """One declared JSON field: how its value is checked, and how a fault in it is named."""

    __slots__ = (
        "_decode",
        "_default",
        "annotation",
        "is_free",
        "is_text",
        "name",
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
        self.is_text = field.annotation is str
        self.record_keys = _record_keys(field.annotation)
        self._default: Any = field.default
        try:
            self._decode: Callable[[bytes], Any] = msgspec.json.Decoder(field.annotation).decode
        except TypeError as error:
            raise SchemaError(
                f"field {field.name} cannot be typed in JSON: {error}", field=field.name
            ) from None

    def new_default(self) -> Any:
        """A new default value; called only for a field with omit_default, which has one."""
        return self._default()

    def plain_free(self, value: Any) -> Any:
        """A free-form value as plain JSON values of the annotated type.

        Raises:
            NotPlainError, msgspec.ValidationError: it is not.
        """
        value = plain(value, _SAMPLE_DEPTH - 1)
        if self.annotation != dict[str, Any]:
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
            if back == value or back == plain(value, _SAMPLE_DEPTH - 1):
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


class Documents:
    """Writes and parses the documents of one field set.

    Args:
        json_fields: the JSON fields of the field set, in order of declaration.
    """

    __slots__ = (
        "_checked",
        "_decode",
        "_decode_checked",
        "_defaults",
        "_fields",
        "_free",
        "_names",
        "_sample",
        "_texts",
        "_typed",
    )

    def __init__(self, json_fields: Sequence[JsonField]) -> None:
        self._fields = tuple(json_fields)
        self._names = [field.name for field in json_fields]
        defaults = [
            (field.name, field.new_default()) for field in json_fields if field.omit_default
        ]
        self._defaults = [(name, (value, encode_json(value))) for name, value in defaults]
        self._texts = [field.name for field in json_fields if field.is_text]
        self._free = [field for field in json_fields if field.is_free]
        typed = [field for field in json_fields if not (field.is_text or field.is_free)]
        self._typed = [field.name for field in typed]
        self._checked = msgspec.defstruct("Checked", [_column(f) for f in typed], kw_only=True)
        self._decode_checked: Callable[[bytes], Any] = msgspec.json.Decoder(self._checked).decode
        self._sample = msgspec.defstruct(
            "Sample", [*map(_column, json_fields), (NULLS_KEY, list[str])], kw_only=True
        )
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

    def write_sample(
        self, values: Sequence[Any], nulls: list[str], sample_index: int
    ) -> tuple[bytes, dict[str, Any]]:
        """The JSON object of one sample, and its values by name as they were written.

        Raises:
            EncodeError: a value is not of its type, or would not come back equal.
        """
        named = dict(zip(self._names, values, strict=True))
        omitted = [name for name, default in self._defaults if _is_same(named[name], *default)]
        for name in omitted:
            named[name] = msgspec.UNSET
        try:
            text = self._write(named, omitted, nulls)
        except (ValueError, TypeError, OverflowError, RecursionError, msgspec.MsgspecError):
            for field in self._fields:
                if field.name not in omitted:
                    named[field.name] = field.plain_value(named[field.name], sample_index)
            text = self._write(named, omitted, nulls)
        if may_hold_unreadable(text):
            for field in self._free:
                if field.name not in omitted:
                    named[field.name] = field.plain_value(named[field.name], sample_index)
        if exceeds_depth(text, _SAMPLE_DEPTH):
            raise EncodeError(
                f"sample {sample_index}: its JSON nests too deep", sample_index=sample_index
            )
        return text, named

    def _write(self, named: dict[str, Any], omitted: list[str], nulls: list[str]) -> bytes:
        """The JSON object; some error, not yet telling, where a value might change in it.

        Text is written as it is and free-form values are walked; all others must come back
        equal from a typed parse.
        """
        for field in self._free:
            if field.name not in omitted:
                named[field.name] = field.plain_free(named[field.name])
        for name in self._texts:
            if type(named[name]) is not str and name not in omitted:
                raise TypeError(name)
        for name, _ in self._defaults:
            if named[name] is msgspec.UNSET and name not in omitted:
                raise TypeError(name)
        checked = self._checked(**{name: named[name] for name in self._typed})
        if self._decode_checked(encode_json(checked)) != checked:
            raise ValueError(self._typed)
        return encode_json(self._sample(**named, nulls=nulls))

    def parse(self, text: bytes, max_depth: int) -> Any:
        """The document: samples with typed fields, session_metadata, empty_reason.

        Raises:
            MetaError, FieldError, VersionError, LimitError: SPEC section 6.
        """
        if exceeds_depth(text, max_depth):
            raise LimitError(f"the JSON nests deeper than {max_depth}", expected=str(max_depth))
        try:
            document = self._decode(text)
            canonical = encode_json(document) == text
        except msgspec.ValidationError as error:
            _refuse_document(text, error)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise MetaError(f"the text in {META_TENSOR} is not JSON") from None
        except RecursionError:
            raise LimitError("the JSON nests deeper than this Python can follow") from None
        _check_format(document.format)
        if not canonical:
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
        session = plain({} if session_metadata is None else session_metadata, MAX_JSON_DEPTH - 1)
        if type(session) is not dict:
            raise NotPlainError(f"is of type {type(session).__name__}, it must be a dict")
        text = encode_json(session)
        if may_hold_unreadable(text):
            check_writable(session)
        return b'{"samples":[%b],"session_metadata":%b,"empty_reason":%b}' % (
            b",".join(samples),
            text,
            encode_json(empty_reason),
        )
    except NotPlainError as error:
        raise EncodeError(f"session_metadata{error.path} {error.rule}") from None
    except ValueError:
        _refuse_unwritable(session_metadata)


def _check_format(found: object) -> None:
    if found is not msgspec.UNSET and found != FORMAT:
        raise VersionError(
            "the payload is of a newer format", expected=f"format {FORMAT}", got="another format"
        )


def _refuse_unwritable(session_metadata: Any) -> NoReturn:
    try:
        check_writable(session_metadata)
    except NotPlainError as error:
        raise EncodeError(f"session_metadata{error.path} {error.rule}") from None
    raise EncodeError("empty_reason holds a lone surrogate, which is no text") from None


class _FormatOnly(msgspec.Struct):
    format: Any = msgspec.UNSET


def _refuse_document(text: bytes, error: msgspec.ValidationError) -> NoReturn:
    """The most telling error for a document that is JSON but not of the right form."""
    try:
        found = msgspec.json.decode(text, type=_FormatOnly).format
    except msgspec.DecodeError:
        found = msgspec.UNSET
    _check_format(found)
    told = _without_content(error)
    place = _IN_SAMPLE.search(told)
    missing = _MISSING_FIELD.search(told)
    kind: type[DecodeError] = FieldError if place else MetaError
    raise kind(
        f"the JSON in {META_TENSOR} is not of the right form: {told}",
        field=missing.group(1) if missing else place.group(2) if place else None,
        sample_index=int(place.group(1)) if place else None,
    ) from None


def _without_content(error: msgspec.ValidationError) -> str:
    """msgspec's message, but for the value that it quotes when that is no member of an enum."""
    return _QUOTED_VALUE.sub("Invalid enum value", str(error))


def _is_same(value: Any, default: Any, text: bytes) -> bool:
    """Whether a value is the default itself, in type and bits; text is the default's JSON."""
    if type(value) is not type(default):
        return False
    try:
        return encode_json(value) == text
    except (ValueError, TypeError, OverflowError, RecursionError, msgspec.MsgspecError):
        return False


def _column(field: JsonField) -> Any:
    if field.omit_default:
        return field.name, field.annotation | msgspec.UnsetType, msgspec.UNSET
    return field.name, field.annotation


def _numpy_scalar(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(type(value).__name__)


_encode_with_numpy: Final = msgspec.json.Encoder(enc_hook=_numpy_scalar).encode


def _mentions_any(annotation: Any) -> bool:
    return annotation in (Any, object) or any(map(_mentions_any, typing.get_args(annotation)))


def _record_keys(annotation: Any) -> frozenset[str]:
    """The keys that a record of this type always has on the wire."""
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return frozenset(info.encode_name for info in msgspec.structs.fields(annotation))
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        return frozenset(field.name for field in dataclasses.fields(annotation))
    return frozenset()
