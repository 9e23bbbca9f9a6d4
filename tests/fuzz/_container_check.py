"""Compares `read_container` with the safetensors package, and explains where they may differ.

A difference is explained only by a rule of SPEC section 4.3 that is stricter than the package,
and only where a look at the header, made here without the library, finds that rule broken.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import safetensors
from vectors._wire import ITEM_BYTES, split

from sample_wire import ContainerError, read_container

from ._container_inputs import OTHER_DTYPES
from ._findings import Finding

BOTH_ACCEPT: Final = "both accept"
BOTH_REFUSE: Final = "both refuse"
_MAX_RANK: Final = 32
_MAX_BYTES: Final = 2**63 - 1


class Header(NamedTuple):
    """A header as Python's JSON reads it, with every key kept, repeated ones too."""

    text: bytes
    pairs: list[tuple[str, Any]]
    body: bytes


class _Object(list[tuple[str, Any]]):
    """The pairs of a JSON object."""


def _repeated_key(header: Header) -> bool:
    """A key is there twice in one object; the package keeps the last tensor or text."""
    return any(len(dict(item)) != len(item) for item in _objects(_Object(header.pairs)))


def _leading_space(header: Header) -> bool:
    """White space before the '{' that the format asks for."""
    return header.text[:1] in (b" ", b"\t", b"\n", b"\r")


def _null_metadata(header: Header) -> bool:
    """`__metadata__` is null; the package takes that as absent."""
    return any(key == "__metadata__" and value is None for key, value in header.pairs)


def _entry_is_an_array(header: Header) -> bool:
    """An entry lists its three values without their keys."""
    return any(type(value) is list for _, value in _entries(header))


def _unknown_entry_key(header: Header) -> bool:
    """An entry has a key that the format does not know."""
    known = {"dtype", "shape", "data_offsets"}
    return any(key not in known for _, value in _entries(header) for key in dict(_pairs(value)))


def _dtype_without_numpy(header: Header) -> bool:
    """A dtype of the format that numpy has no type for."""
    return any(_part(value, "dtype") in OTHER_DTYPES for _, value in _entries(header))


def _bool_byte(header: Header) -> bool:
    """A BOOL item is neither 0 nor 1."""
    return any(
        max(header.body[slice(*_part(value, "data_offsets"))], default=0) > 1
        for _, value in _entries(header)
        if _part(value, "dtype") == "BOOL"
    )


def _rank_beyond_numpy(header: Header) -> bool:
    """More axes than numpy 1.26 can hold."""
    return any(len(_part(value, "shape")) > _MAX_RANK for _, value in _entries(header))


def _size_beyond_numpy(header: Header) -> bool:
    """A zero axis hides that the other axes overflow; numpy refuses to make such an array."""
    return any(
        math.prod(axis or 1 for axis in _part(value, "shape"))
        * ITEM_BYTES.get(_part(value, "dtype"), 1)
        > _MAX_BYTES
        for _, value in _entries(header)
    )


EXPLAINED: Final[dict[str, Callable[[Header], bool]]] = {
    rule.__name__.strip("_"): rule
    for rule in (
        _repeated_key,
        _leading_space,
        _null_metadata,
        _entry_is_an_array,
        _unknown_entry_key,
        _dtype_without_numpy,
        _bool_byte,
        _rank_beyond_numpy,
        _size_beyond_numpy,
    )
}


def check_container(data: bytes) -> str | Finding:
    """Reads the input both ways; names the kind of agreement, or gives the finding."""
    try:
        ours = read_container(data)
    except ContainerError:
        return _compare_refused(data)
    except BaseException as error:  # noqa: BLE001  # any other error at all is the finding
        return Finding(f"read_container raised {error!r}", data)
    theirs = _peer(data)
    if theirs is None:
        return Finding("read_container accepts, safetensors refuses", data)
    same = ours.keys() == theirs.keys() and all(
        _same(array, theirs[name]) for name, array in ours.items()
    )
    return BOTH_ACCEPT if same else Finding("both accept, with different tensors", data)


def _compare_refused(data: bytes) -> str | Finding:
    if _peer(data) is None:
        return BOTH_REFUSE
    header = _header(data)
    for name, rule in EXPLAINED.items():
        if rule(header):
            return name
    return Finding("read_container refuses, safetensors accepts", data)


def _peer(data: bytes) -> dict[str, dict[str, Any]] | None:
    """What the safetensors package reads, before numpy; None where it refuses."""
    try:
        return dict(safetensors.deserialize(data))  # type: ignore[no-untyped-call]  # ships no annotations
    except safetensors.SafetensorError:
        return None


def _same(array: np.ndarray[Any, np.dtype[Any]], peer: dict[str, Any]) -> bool:
    little = array.astype(array.dtype.newbyteorder("<"), order="C", copy=False)
    return (
        list(array.shape) == peer["shape"]
        and little.tobytes() == bytes(peer["data"])
        and _NUMPY_TYPES[peer["dtype"]] == array.dtype
    )


_NUMPY_TYPES: Final[dict[str, np.dtype[Any]]] = {
    "U64": np.dtype("u8"),
    "I64": np.dtype("i8"),
    "F64": np.dtype("f8"),
    "C64": np.dtype("c8"),
    "F32": np.dtype("f4"),
    "U32": np.dtype("u4"),
    "I32": np.dtype("i4"),
    "F16": np.dtype("f2"),
    "U16": np.dtype("u2"),
    "I16": np.dtype("i2"),
    "I8": np.dtype("i1"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}


def _header(data: bytes) -> Header:
    """Of an input that safetensors accepts, so that its header is one JSON object."""
    text, body = split(data)
    pairs = json.loads(text, object_pairs_hook=_Object)
    return Header(text, pairs, body)


def _entries(header: Header) -> list[tuple[str, Any]]:
    return [(key, value) for key, value in header.pairs if key != "__metadata__"]


def _pairs(value: Any) -> list[tuple[str, Any]]:
    return value if isinstance(value, _Object) else []


def _part(entry: Any, key: str) -> Any:
    """One value of an entry, which is an object, or an array in the order of its keys."""
    if isinstance(entry, _Object):
        return dict(entry)[key]
    return entry[("dtype", "shape", "data_offsets").index(key)]


def _objects(value: Any) -> list[_Object]:
    found = [value] if isinstance(value, _Object) else []
    inner = [item for _, item in value] if isinstance(value, _Object) else value
    if isinstance(inner, list):
        for item in inner:
            found += _objects(item)
    return found
