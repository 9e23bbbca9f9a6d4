"""The JSON in `_samples_meta`: written from fields, and parsed strictly.

SPEC section 6.  Both ways rest on one test: text that a typed parse and a writing again give
back byte for byte says exactly what was parsed (no key twice, none unknown, none missing), and
a value whose text parses to an equal value has lost nothing.  What fails the test is looked at
closely, to name the fault or to find that there is none.

Any stands for values that are free-form by declaration; it does not leave these modules.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn

import msgspec

from ._container import Size
from ._declarations import NULLS_KEY
from ._json import MAX_JSON_DEPTH, StrictJsonError, encode_json, exceeds_depth, strict_loads
from ._json_fields import SAMPLE_DEPTH, JsonField, are_flat
from ._plain import NotPlainError, check_writable, may_hold_unreadable, plain
from .errors import (
    DecodeError,
    EncodeError,
    FieldError,
    LimitError,
    MetaError,
    VersionError,
)

META_TENSOR: Final = "_samples_meta"
EXACT: Final = 1
COMPACT: Final = 2
# How a document of the compact layout begins as writers write it.
_COMPACT_START: Final = b'{"format":'
_QUOTED_VALUE: Final = re.compile(
    r"^Invalid enum value .*(?= - at `)|^Invalid enum value .*$", re.DOTALL
)
# The document, the list of samples, a sample, a field's value.
_SHALLOW_DEPTH: Final = 4
_MISSING_FIELD: Final = re.compile(r"missing required field `(\w+)`")
_IN_SAMPLE: Final = re.compile(r"`\$\.samples\[(\d+)\](?:\.(\w+))?")


class Documents:
    """Writes and parses the documents of one field set.

    Args:
        json_fields: the JSON fields of the field set, in order of declaration.
    """

    __slots__ = (
        "_checked",
        "_decode",
        "_decode_checked",
        "_decode_compact",
        "_defaults",
        "_fields",
        "_free",
        "_free_names",
        "_is_shallow",
        "_sample",
        "_texts",
        "_typed",
    )

    def __init__(self, json_fields: Sequence[JsonField]) -> None:
        self._fields = tuple(json_fields)
        numbered = [*enumerate(json_fields)]
        defaults = [(at, field.new_default()) for at, field in numbered if field.omit_default]
        self._defaults = [(at, value, encode_json(value)) for at, value in defaults]
        self._texts = [at for at, field in numbered if field.is_text]
        self._free = [(at, field) for at, field in numbered if field.is_free]
        self._free_names = [field.name for field in json_fields if field.is_free]
        # Those that may be left out come last, so that all can be given by position.
        typed = [at for at, field in numbered if not (field.is_text or field.is_free)]
        self._typed = sorted(typed, key=lambda at: json_fields[at].omit_default)
        self._is_shallow = all(field.is_shallow for field in json_fields)
        self._checked: Callable[..., Any] = msgspec.defstruct(
            "Checked", [_column(json_fields[at]) for at in self._typed]
        )
        self._decode_checked: Callable[[bytes], Any] = msgspec.json.Decoder(self._checked).decode
        names = [*(field.name for field in json_fields), NULLS_KEY]
        self._sample: Callable[..., Any] = msgspec.defstruct("Sample", names)
        # Written again, a parsed document has its keys in the order of its type.
        exact, compact = _documents(json_fields)
        self._decode: Callable[[bytes], Any] = msgspec.json.Decoder(exact).decode
        self._decode_compact: Callable[[bytes], Any] = msgspec.json.Decoder(compact).decode

    def write_sample(
        self, values: Sequence[Any], nulls: list[str], sample_index: int
    ) -> tuple[bytes, list[Any]]:
        """The JSON object of one sample, and its values as they were written.

        Args:
            values: the fields' values, in order of declaration.

        Raises:
            EncodeError: a value is not of its type, or would not come back equal.
        """
        written = [*values]
        omitted = [at for at, *default in self._defaults if _is_same(written[at], *default)]
        for at in omitted:
            written[at] = msgspec.UNSET
        try:
            text = self._write(written, omitted, nulls)
        except (ValueError, TypeError, OverflowError, RecursionError, msgspec.MsgspecError):
            for at, field in enumerate(self._fields):
                if at not in omitted:
                    written[at] = field.plain_value(written[at], sample_index)
            text = self._write(written, omitted, nulls)
        if may_hold_unreadable(text):
            for at, field in self._free:
                if at not in omitted:
                    written[at] = field.plain_value(written[at], sample_index)
        if not self._is_shallow and exceeds_depth(text, SAMPLE_DEPTH):
            raise EncodeError(
                f"sample {sample_index}: its JSON nests too deep", sample_index=sample_index
            )
        return text, written

    def _write(self, written: list[Any], omitted: list[int], nulls: list[str]) -> bytes:
        """The JSON object; some error, not yet telling, where a value might change in it.

        Text is written as it is and free-form values are walked, which limits their depth; all
        others must come back equal from a typed parse.
        """
        for at, field in self._free:
            if at not in omitted:
                written[at] = field.plain_free(written[at])
        for at in self._texts:
            if type(written[at]) is not str and at not in omitted:
                raise TypeError(at)
        for at, *_ in self._defaults:
            if written[at] is msgspec.UNSET and at not in omitted:
                raise TypeError(at)
        checked = self._checked(*[written[at] for at in self._typed])
        if self._decode_checked(encode_json(checked)) != checked:
            raise ValueError(self._typed)
        return encode_json(self._sample(*written, nulls))

    def parse(self, text: bytes, max_depth: int) -> Any:
        """The document: samples with typed fields, session_metadata, empty_reason, and in
        format 2 shared and dtypes.

        Raises:
            MetaError, FieldError, VersionError, LimitError: SPEC section 6.
        """
        decode = self._decode_compact if text.startswith(_COMPACT_START) else self._decode
        try:
            document = decode(text)
            canonical = encode_json(document) == text
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            _check_depth(text, max_depth)
            _refuse_document(text, error)
        free = [document.session_metadata]
        if document.dtypes is not msgspec.UNSET or document.shared is not msgspec.UNSET:
            notes = document.dtypes, document.shared
            free += [note for note in notes if note is not msgspec.UNSET]
        for sample in document.samples:
            for name in self._free_names:
                free.append(getattr(sample, name))
        # The values tell depth sooner than a search of the text, where a response is large.
        is_shallow = canonical and self._is_shallow and are_flat(free)
        if not is_shallow or max_depth < _SHALLOW_DEPTH:
            _check_depth(text, max_depth)
        if not canonical:
            self._check_unusual(text, max_depth)
        if document.format is not msgspec.UNSET:
            _check_format(document.format)
            if document.format == COMPACT:
                _type_notes(document)
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


def _documents(json_fields: Sequence[JsonField]) -> tuple[type, type]:
    """The types that documents are parsed into: as format 1 is written, and as format 2 is."""
    columns = [*map(_column, json_fields), (NULLS_KEY, list[str])]
    sample = msgspec.defstruct("Sample", columns, kw_only=True)
    required = [
        ("samples", list[sample]),  # type: ignore[valid-type]  # made just now
        ("session_metadata", dict[str, Any]),
        ("empty_reason", str | None),
    ]
    # What they hold is looked at once the format is known: in format 1 nobody knows them.
    notes = [("shared", Any, msgspec.UNSET), ("dtypes", Any, msgspec.UNSET)]
    number = ("format", int | msgspec.UnsetType, msgspec.UNSET)
    exact = msgspec.defstruct("Meta", [*required, number, *notes], kw_only=True)
    compact = msgspec.defstruct("Meta", [number, *required, *notes], kw_only=True)
    return exact, compact


def _type_notes(document: Any) -> None:
    """Gives shared and dtypes of format 2 their types, or refuses them."""
    if document.shared is msgspec.UNSET:
        document.shared = {}
    try:
        document.shared = msgspec.convert(document.shared, dict[str, tuple[Size, Size]])
        document.dtypes = msgspec.convert(document.dtypes, dict[str, str])
    except (msgspec.ValidationError, TypeError):
        raise MetaError(
            f"the JSON in {META_TENSOR} has no dtypes by tensor, or shared rows in another form"
        ) from None


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
        session = {} if session_metadata is None else plain(session_metadata, MAX_JSON_DEPTH - 1)
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


def compact_document(
    document: bytes, shared: Mapping[str, tuple[int, int]], dtypes: Mapping[str, str]
) -> bytes:
    """The document of format 2, from that of format 1 and what the compact layout adds to it."""
    notes = {"shared": shared, "dtypes": dtypes} if shared else {"dtypes": dtypes}
    return b'{"format":%d,%b,%b' % (COMPACT, document[1:-1], encode_json(notes)[1:])


def _check_format(found: object) -> None:
    if found is not msgspec.UNSET and found not in (EXACT, COMPACT):
        raise VersionError(
            "the payload is of a newer format",
            expected=f"format {EXACT} or {COMPACT}",
            got="another format",
        )


def _refuse_unwritable(session_metadata: Any) -> NoReturn:
    try:
        check_writable(session_metadata)
    except NotPlainError as error:
        raise EncodeError(f"session_metadata{error.path} {error.rule}") from None
    raise EncodeError("empty_reason holds a lone surrogate, which is no text") from None


class _FormatOnly(msgspec.Struct):
    format: Any = msgspec.UNSET


def _check_depth(text: bytes, max_depth: int) -> None:
    if exceeds_depth(text, max_depth):
        raise LimitError(f"the JSON nests deeper than {max_depth}", expected=str(max_depth))


def _refuse_document(text: bytes, error: Exception) -> NoReturn:
    """The most telling error for a document that msgspec does not take."""
    if isinstance(error, RecursionError):
        raise LimitError("the JSON nests deeper than this Python can follow") from None
    if not isinstance(error, msgspec.ValidationError):
        raise MetaError(f"the text in {META_TENSOR} is not JSON") from None
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
