"""What a session cuts out of an engine's reply, since its ledgers hold it already.

The routing text of a reply is up to 131 MB.  Its place in the reply's bytes is found without
parsing it, it is cut out, and what is left is parsed.  From a turn's rows the text is made
again on demand, byte for byte.  The same is done with prompt ids that the engine echoes, which
would make the replies of a session grow with the square of its turns.
"""

from __future__ import annotations

import json
import mmap
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from .._json import encode_json

# A reply as it was received; a large one may lie in memory of its own.
ReplyBytes = bytes | bytearray | mmap.mmap
Path = tuple[str | int, ...]
ROUTING: Final = "routed_experts"
INDEXER: Final = "indexer_topk"
PROMPT: Final = "prompt_token_ids"
_CHOICE: Final[Path] = ("choices", 0)
_META: Final[Path] = (*_CHOICE, "meta_info")
_SGLEXT: Final[Path] = ("sglext",)
# Where these may lie; of two places for one thing, the one that is read comes first.
_PATHS: Final[tuple[Path, ...]] = (
    (*_META, ROUTING),
    (*_CHOICE, ROUTING),
    (*_SGLEXT, ROUTING),
    (*_META, INDEXER),
    (*_SGLEXT, INDEXER),
    (*_CHOICE, PROMPT),
    (PROMPT,),
)
# Of a reply without its arrays.  Four values tell a token, and so many are parsed in half a second.
MAX_TEXT_BYTES: Final = 1 << 25
MAX_VALUES: Final = 1 << 22
_BLOCK_BYTES: Final = 1 << 20
_ABSENT: Final = msgspec.Raw(b"")
_BLANKS: Final = b" \t\n\r"
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_OPENING: Final = re.compile(rb'[ \t\n\r]*:[ \t\n\r]*"')


class _Arrays(msgspec.Struct):
    routed_experts: msgspec.Raw = _ABSENT
    indexer_topk: msgspec.Raw = _ABSENT


class _Choice(msgspec.Struct):
    meta_info: _Arrays | None = None
    routed_experts: msgspec.Raw = _ABSENT
    prompt_token_ids: msgspec.Raw = _ABSENT


class _Reply(msgspec.Struct):
    choices: list[_Choice] | None = None
    meta_info: msgspec.Raw = _ABSENT
    id: msgspec.Raw = _ABSENT
    sglext: _Arrays | None = None
    prompt_token_ids: msgspec.Raw = _ABSENT


_decode_spans: Final = msgspec.json.Decoder(_Reply).decode


class Place(NamedTuple):
    """Something in a reply that is to be cut out.

    Attributes:
        path: where its value lies.
        value: the value's JSON text.
        emptied: what stays of that.
        text_path, text: where the base64 lies, and its characters; for ids the path alone.
        dtype: as the value states it, or None.
    """

    path: Path
    value: memoryview
    emptied: bytes
    text_path: Path
    text: memoryview
    dtype: str | None

    @property
    def kind(self) -> str:
        """ROUTING, INDEXER or PROMPT."""
        return str(self.path[-1])

    @property
    def is_wrapped(self) -> bool:
        """Whether the base64 lies in an object."""
        return self.text_path != self.path


def loaded(text: ReplyBytes) -> Any:
    """The value of a JSON text; NaN and -Infinity are no JSON, yet engines send them.

    Raises:
        ValueError, RecursionError: no JSON, or nested too deeply.
    """
    try:
        return msgspec.json.decode(text)  # in a third of the lenient parser's time
    except msgspec.DecodeError:
        return json.loads(bytes(text))


def cut_found(reply: ReplyBytes) -> tuple[list[Place], bytes, str] | None:
    """What `cut_out` gives, and the reply's id or "": where each array is one plain string.

    None for any other reply.

    Such a string is found by its key and ends at the next quote, which takes a sixth of the
    time of a parser that looks at each of 131 million characters.  What is left is JSON that
    can be written again, with one choice that has a meta_info; none of it is parsed here.
    """
    text: ReplyBytes = reply
    strings: dict[str, memoryview] = {}
    for kind in (ROUTING, INDEXER):
        span = _string_span(text, kind)
        if span is None:
            return None
        start, stop = span
        if start < stop:
            strings[kind] = memoryview(text)[start:stop]
            text = text[:start] + b'""' + text[stop:]
    rest = bytes(text)
    if len(rest) > MAX_TEXT_BYTES or has_many_values(rest):
        return None
    typed = None if _quoted(PROMPT) in rest or not _is_writable(rest) else _spans_or_none(rest)
    if typed is None or not typed.choices or typed.choices[0].meta_info is None:
        return None
    if len(typed.choices) > 1 or bytes(typed.meta_info):
        return None
    places = []
    for path, raw in _values(typed):
        if not bytes(raw):
            continue
        value = strings.pop(str(path[-1]), None) if bytes(raw) == b'""' else None
        if value is None:  # its key is spelled with escapes
            return None
        places.append(Place(path, value, b'""', path, value[1:-1], None))
    return None if strings else (places, rest, _text_or_empty(bytes(typed.id)))


def has_many_values(text: ReplyBytes) -> bool:
    """Whether a JSON text has more than MAX_VALUES commas and opening brackets; base64 has none.

    Before it is parsed: a few bytes of an object become fifty.
    """
    found = 0
    for start in range(0, len(text), _BLOCK_BYTES):
        block = text[start : start + _BLOCK_BYTES]
        found += block.count(b",") + block.count(b"[") + block.count(b"{")
    return found > MAX_VALUES


def _text_or_empty(value: bytes) -> str:
    found = loaded(value) if value else None
    return found if isinstance(found, str) else ""


def _is_writable(text: bytes) -> bool:
    """Whether a JSON text is UTF-8 without a lone surrogate; for what a parser only skips."""
    if _SURROGATE.search(text):
        return False
    try:
        text.decode()
    except UnicodeError:
        return False
    return True


def _spans_or_none(text: bytes) -> _Reply | None:
    try:
        return _decode_spans(text)
    except (msgspec.DecodeError, RecursionError):
        return None


def without_member(text: bytes, key: str) -> bytes:
    """An object's text without the one member of this name, whose value is ""."""
    at = text.index(_quoted(key))
    value = _OPENING.match(text, at + len(_quoted(key)))
    assert value is not None
    head, tail = text[:at].rstrip(_BLANKS), text[value.end() + 1 :].lstrip(_BLANKS)
    if head.endswith(b","):
        return head[:-1] + tail
    return head + tail.removeprefix(b",")


def _string_span(text: ReplyBytes, key: str) -> tuple[int, int] | None:
    """Where the string lies that is the value of a key, its quotes included.

    (0, 0) where the key is not there; None where it is there twice, or its value is another,
    or may have escapes.
    """
    name = _quoted(key)
    at = text.find(name, 0)  # without the 0 a mapped reply is searched from where it was written
    if at < 0:
        return 0, 0
    head = _OPENING.match(text, at + len(name))
    if head is None:
        return None
    stop = text.find(b'"', head.end()) + 1
    if not stop or text[stop - 2 : stop - 1] == b"\\" or text.find(name, stop) >= 0:
        return None
    return head.end() - 1, stop


def _quoted(key: str) -> bytes:
    return b'"%b"' % key.encode()


def cut_out(reply: ReplyBytes, prompt_ids: npt.NDArray[np.int64]) -> tuple[list[Place], bytes]:
    """What is to be cut out of a reply, and the reply's text without it.

    Args:
        reply: the reply.
        prompt_ids: those that were sent; an echo of them is cut out, other ids are not.

    Raises:
        ValueError, RecursionError: as `loaded`.
    """
    try:
        typed = _decode_spans(reply)
    except msgspec.ValidationError:
        return [], bytes(reply)  # the checks will say what is wrong
    except (msgspec.DecodeError, RecursionError):
        return _cut_parsed(loaded(reply), prompt_ids)
    places = list(_places(typed, prompt_ids))
    origin = _address(memoryview(reply))
    pieces, position = [], 0
    for place in sorted(places, key=lambda place: _address(place.value)):
        start = _address(place.value) - origin
        pieces += [reply[position:start], place.emptied]
        position = start + len(place.value)
    return places, b"".join([*pieces, reply[position:]])


def put(body: Any, path: Path, value: Any) -> None:
    """Puts a value into a reply."""
    _at(body, path[:-1])[path[-1]] = value


def _at(body: Any, path: Path) -> Any:
    for key in path:
        body = body[key]
    return body


def _address(view: memoryview) -> int:
    """Where a view's bytes lie in memory: msgspec's raw values are views of what it decodes."""
    return int(np.frombuffer(view, np.uint8).ctypes.data)


def _values(typed: _Reply) -> Iterator[tuple[Path, msgspec.Raw]]:
    """Each path with the value that lies there."""
    choice = typed.choices[0] if typed.choices else None
    holders = {
        _META: choice and choice.meta_info,
        _CHOICE: choice,
        _SGLEXT: typed.sglext,
        (): typed,
    }
    for path in _PATHS:
        yield path, getattr(holders[path[:-1]], str(path[-1]), _ABSENT)


def _places(typed: _Reply, prompt_ids: npt.NDArray[np.int64]) -> Iterator[Place]:
    for path, raw in _values(typed):
        place = _place(path, memoryview(raw), prompt_ids)
        if place is not None:
            yield place


def _cut_parsed(body: Any, prompt_ids: npt.NDArray[np.int64]) -> tuple[list[Place], bytes]:
    """The same for a reply that only the lenient parser reads."""
    places = []
    for path in _PATHS:
        try:
            value = encode_json(_at(body, path))
        except (LookupError, TypeError, ValueError):
            continue
        place = _place(path, memoryview(value), prompt_ids)
        if place is not None:
            put(body, path, json.loads(place.emptied))
            places.append(place)
    return places, json.dumps(body).encode()


def _place(path: Path, value: memoryview, prompt_ids: npt.NDArray[np.int64]) -> Place | None:
    """What is to be cut out at a path; None for a value that stays."""
    opening = bytes(value[:1])
    if path[-1] == PROMPT:
        # As texts: 1.0 and true are not the 1 that was sent.
        if opening != b"[":
            return None
        if encode_json(loaded(bytes(value))) != encode_json(prompt_ids.tolist()):
            return None
        return Place(path, value, b"[]", path, value[:0], None)
    if opening == b'"':
        return Place(path, value, b'""', path, value[1:-1], None)
    if opening != b"{":
        return None
    found = json.loads(bytes(value))
    text = found.get("data")
    if not isinstance(text, str) or not text.isascii():
        return None
    emptied = json.dumps(found | {"data": ""}).encode()
    characters = memoryview(text.encode())
    return Place(path, value, emptied, (*path, "data"), characters, found.get("dtype"))
