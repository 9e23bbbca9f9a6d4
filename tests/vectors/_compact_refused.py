"""The vectors of format 2 that must be refused (n_); SPEC sections 5.4 and 9.2."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from ._compact import Document, compact_payload
from ._compact_accepted import leaves
from ._kit import Vector, reply, sample
from ._wire import META, WireTensor, container, meta_tensor, tensor

_EXPERTS: Final = "rollout_routed_experts"
_ONE: Final = reply(sample())
_TWO: Final = leaves([1, 2, 3], [1, 2, 4, 5])


def _refused(name: str, rule: str, error: str, why: str, data: bytes) -> Vector:
    about = {
        "verdict": "refuse",
        "layer": "sample",
        "rule": rule,
        "error": error,
        "why": why,
        "field_set": 1,
    }
    return Vector(f"n_compact_{name}", data, about)


def _with_keys(**changes: Any) -> bytes:
    """A payload of two samples with keys of its document changed, or taken out if given `...`."""

    def edit(document: Document) -> Document:
        changed = {**document, **changes}
        return {key: value for key, value in changed.items() if value is not ...}

    return compact_payload(_TWO, document=edit)


def _types() -> Iterator[Vector]:
    why = "dtypes is an object of text"
    wrong: dict[str, Any] = {
        "missing": ...,
        "null": None,
        "list": ["tokens.0"],
        "of_numbers": {"tokens.0": 8},
    }
    for name, dtypes in wrong.items():
        yield _refused(f"dtypes_{name}", "M8", "MetaError", why, _with_keys(dtypes=dtypes))
    why = "shared is an object of pairs of counters"
    pairs: dict[str, Any] = {
        "one_number": [0],
        "three_numbers": [0, 1, 1],
        "text": "01",
        "pair_null": None,
        "float": [0, 2.0],
        "true": [0, True],
        "negative": [-1, 2],
        "too_big": [0, 2**63],
    }
    objects: dict[str, Any] = {"null": None, "list": []}
    objects |= {name: {f"{_EXPERTS}.1": pair} for name, pair in pairs.items()}
    for name, value in objects.items():
        yield _refused(f"shared_{name}", "M8", "MetaError", why, _with_keys(shared=value))
    why = "the document has its keys in format 2 too"
    yield _refused("samples_object", "M6", "MetaError", why, _with_keys(samples={}))


def _declared(**changes: str) -> bytes:
    """One sample, with the dtype that it declares for a field's tensor changed."""
    return _with_dtypes({f"{field}.0": dtype for field, dtype in changes.items()})


def _declared_dtypes() -> Iterator[Vector]:
    for field, dtype in (
        ("tokens", "int32"),
        ("loss_mask", "uint16"),
        ("rollout_log_probs", "float32"),
        (_EXPERTS, "int64"),
        (_EXPERTS, "uint8"),
    ):
        name = f"{field}_declared_{dtype}"
        why = "another logical dtype, which could be stored so"
        yield _refused(name, "F5", "FieldError", why, _declared(**{field: dtype}))
    why = "dtypes names each tensor but _samples_meta, and nothing else"
    edits: dict[str, dict[str, Any]] = {
        "one_missing": {"loss_mask.0": ...},
        "of_no_tensor": {"tokens.1": "int64"},
        "of_meta": {META: "uint8"},
    }
    for name, edit in edits.items():
        yield _refused(f"dtypes_{name}", "F12", "FieldError", why, _with_dtypes(edit))
    why = "none of section 4.2, by numpy's name"
    for name, dtype in {
        "wire_name": "I64",
        "unknown": "bfloat16",
    }.items():
        yield _refused(f"dtype_{name}", "F12", "FieldError", why, _declared(tokens=dtype))


def _with_dtypes(changes: dict[str, Any]) -> bytes:
    """One sample, with names in dtypes added, or taken out if given `...`."""

    def edit(document: Document) -> Document:
        dtypes = {**document["dtypes"], **changes}
        return {
            **document,
            "dtypes": {name: dtype for name, dtype in dtypes.items() if dtype is not ...},
        }

    return compact_payload(_ONE, document=edit)


def _stored(item: WireTensor) -> bytes:
    """One sample, with a tensor put in the place of the one of that name."""
    return compact_payload(_ONE, tensors=_with(item))


def _stored_dtypes() -> Iterator[Vector]:
    why = "not a dtype that the logical one is stored in"
    for item in (
        tensor("tokens.0", "U64", [5], range(5)),
        tensor("tokens.0", "F64", [5], range(5)),
        tensor("loss_mask.0", "I8", [2], [1, 0]),
        tensor("loss_mask.0", "BOOL", [2], [1, 0]),
        tensor("rollout_log_probs.0", "F16", [2], [-0.5, -2.25]),
        tensor(f"{_EXPERTS}.0", "U32", [4, 2, 2], range(16)),
        tensor(f"{_EXPERTS}.0", "I64", [4, 2, 2], range(16)),
    ):
        name = f"{item.name[:-2]}_stored_as_{item.dtype.lower()}"
        yield _refused(name, "F13", "FieldError", why, _stored(item))


def _missing_and_misshapen() -> Iterator[Vector]:
    """What the other rules refuse in format 2 as in format 1."""

    def without_tokens(document: Document) -> Document:
        del document["dtypes"]["tokens.0"]
        return document

    data = compact_payload(_ONE, document=without_tokens, tensors=lambda found: found[1:])
    yield _refused("tokens_missing", "F4", "FieldError", "neither a tensor nor a null", data)
    data = compact_payload(
        _ONE,
        document=lambda doc: {**doc, "dtypes": {**doc["dtypes"], "x.0": "uint8"}},
        tensors=lambda found: [*found, tensor("x.0", "U8", [1], [1])],
    )
    yield _refused("superfluous", "F10", "FieldError", "no sample refers to it", data)
    flat = _stored(tensor(f"{_EXPERTS}.0", "U8", [16], range(16)))
    yield _refused("another_rank", "F6", "FieldError", "one rank each", flat)
    short = _stored(tensor(f"{_EXPERTS}.0", "U8", [3, 2, 2], range(12)))
    yield _refused("rows_short", "F8", "FieldError", "the wrong number of rows", short)


def _sharing(name: str, why: str, shared: dict[str, list[int]], rule: str = "F14") -> Vector:
    """Two samples with this in shared and no rows taken away."""
    return _refused(f"shared_{name}", rule, "FieldError", why, _with_keys(shared=shared))


def _shared_rows() -> Iterator[Vector]:
    first = f"{_EXPERTS}.1"
    why = "only tensors of fields with a row for each transition have shared rows"
    for name, other in {
        "by_no_tensor": "rollout_indexer_topk.1",
        "by_no_sample": f"{_EXPERTS}.2",
        "by_field": _EXPERTS,
        "by_another_name": f"{_EXPERTS}.01",
    }.items():
        yield _sharing(name, why, {other: [0, 1]})
    yield _sharing("of_no_rows", "n is not 0", {first: [0, 0]})
    yield _sharing("rows_counted_twice", "its own rows are all", {first: [0, 2]}, "F8")
    why = "n is at most the rows that sample j has"
    for name, (reason, shared) in {
        "by_tokens": (why, {"tokens.1": [0, 1]}),
        "of_itself": ("j is below i", {first: [1, 2]}),
        "of_a_later_one": ("j is below i", {f"{_EXPERTS}.0": [1, 2]}),
    }.items():
        # The rows add up, so that no other rule is broken.
        data = compact_payload(_TWO, shared=shared)
        yield _refused(f"shared_{name}", "F14", "FieldError", reason, data)
    one_more = leaves([1, 2, 3], [1, 2, 3, 4])
    data = compact_payload(
        one_more,
        tensors=_with(tensor(first, "U8", [0, 1, 1])),
        document=lambda doc: {**doc, "shared": {first: [0, 4]}},
    )
    yield _refused("shared_more_rows_than_there_are", "F14", "FieldError", why, data)
    data = compact_payload(_TWO, shared={first: [0, 2]}, tensors=_with(_own("U8", 1, 1, 1)))
    yield _refused("shared_rows_short", "F8", "FieldError", "one row too few", data)
    for name, own in {
        "stored_otherwise": _own("I16", 2, 1, 1),
        "with_more_layers": _own("U8", 2, 2, 1),
        "with_more_experts": _own("U8", 2, 1, 2),
    }.items():
        data = compact_payload(_TWO, shared={first: [0, 2]}, tensors=_with(own))
        why = "one stored dtype, and the same axes but the first"
        yield _refused(f"shared_{name}", "F14", "FieldError", why, data)
    yield _null_source()


def _own(dtype: str, *shape: int) -> WireTensor:
    """The routing of sample 1, of zeros."""
    return tensor(f"{_EXPERTS}.1", dtype, shape)


def _with(item: WireTensor) -> Callable[[list[WireTensor]], list[WireTensor]]:
    """Puts a tensor in the place of the one of that name, or adds it."""
    return lambda found: [*(other for other in found if other.name != item.name), item]


def _null_source() -> Vector:
    """Sample 1 has its rows from sample 0, where the field is null."""
    first, second = sample(rollout_routed_experts=None), sample()
    own = _own("U8", 2, 2, 2)
    data = compact_payload(
        reply(first, second),
        tensors=_with(own),
        document=lambda doc: {**doc, "shared": {own.name: [0, 2]}},
    )
    return _refused("shared_of_a_null", "F14", "FieldError", "tensor j is not there", data)


def _versions() -> Iterator[Vector]:
    good: dict[str, Any] = {"samples": [], "session_metadata": {}, "empty_reason": None}
    data = container([meta_tensor({"format": 3, **good, "dtypes": {}})])
    about = _refused("", "M5", "VersionError", "a newer format", data).about
    yield Vector("n_format_three", data, about)
    newer = container([meta_tensor({"format": 3, "samples": {}, "dtypes": [1]})])
    why = "a newer format may differ in all the rest"
    about = _refused("", "M5", "VersionError", why, newer).about
    yield Vector("n_format_three_of_other_form", newer, about)


def refused_compact_vectors() -> list[Vector]:
    """Every n_ vector of format 2, and of formats after it."""
    return [
        *_types(),
        *_declared_dtypes(),
        *_stored_dtypes(),
        *_missing_and_misshapen(),
        *_shared_rows(),
        *_versions(),
    ]
