"""Schema.of for classes that cannot be edited, and the fingerprint of what crosses the wire."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec
import numpy as np
import pytest

from sample_wire import (
    Computed,
    EncodeError,
    FieldError,
    Json,
    Ragged,
    Sample,
    Schema,
    SchemaError,
    Template,
    TemplateError,
    Tensor,
    decode_samples,
    encode_samples,
    read_container,
    read_fields,
    write_container,
)

from ._samples import document_of, with_document

TOKENS = Computed(codec=Tensor("int64"), rows="tokens", sets="tokens", merge="last")
LENGTH = Computed(codec=Json(), sets="response", merge="sum")
MASK = Computed(codec=Tensor("uint8"), rows="response", merge="concat", fill=0, null="none")


@dataclass
class Theirs:
    """A class that cannot be edited."""

    tokens: list[int] = field(default_factory=list)
    size: int = 0
    mask: list[int] | None = None
    label: str = ""


DECLARED: dict[str, Computed | Template] = {
    "tokens": TOKENS,
    "size": LENGTH,
    "mask": MASK,
    "label": Template(),
}


def test_every_field_of_a_foreign_class_must_be_declared() -> None:
    declared = {name: DECLARED[name] for name in DECLARED if name != "mask"}
    with pytest.raises(SchemaError, match=r"Theirs\.mask has no owner") as caught:
        Schema.of(Theirs, declared)
    assert caught.value.field == "mask"


def test_a_declaration_for_no_field_is_refused() -> None:
    with pytest.raises(
        SchemaError, match="Theirs has no field masks, yet it is declared"
    ) as caught:
        Schema.of(Theirs, {**DECLARED, "masks": MASK})
    assert caught.value.field == "masks"


def test_the_guard_checks_the_declarations_of_a_foreign_class() -> None:
    with pytest.raises(SchemaError, match=r"Theirs\.mask: a computed field needs a merge rule"):
        Schema.of(Theirs, {**DECLARED, "mask": Computed(codec=Tensor("uint8"))})


@pytest.mark.parametrize("bare", [Computed, "computed", object()], ids=["class", "text", "object"])
def test_a_declaration_of_another_kind_is_refused(bare: Any) -> None:
    with pytest.raises(SchemaError) as caught:
        Schema.of(Theirs, {**DECLARED, "mask": bare})
    assert caught.value.field == "mask"


@pytest.mark.parametrize("kind", [int, dict, type("Plain", (), {})], ids=lambda kind: kind.__name__)
def test_a_class_without_fields_of_its_own_is_a_type_error(kind: type) -> None:
    with pytest.raises(TypeError, match="is neither a dataclass nor a msgspec Struct"):
        Schema.of(kind, {})


def test_the_schema_of_a_sample_class_is_the_one_it_declares() -> None:
    assert Schema.of(Sample) is Sample.__sample_schema__


def test_a_field_of_a_sample_class_cannot_be_declared_again() -> None:
    with pytest.raises(SchemaError, match=r"Sample\.label has two owners"):
        Schema.of(Sample, {"label": Template()})


@dataclass
class HalfDeclared:
    """Carries one owner in its annotation."""

    tokens: Annotated[list[int], TOKENS] = field(default_factory=list)
    label: str = ""


def test_owners_in_annotations_and_in_declarations_are_joined() -> None:
    schema = Schema.of(HalfDeclared, {"label": Template()})
    assert [one.owner for one in schema.fields] == [TOKENS, Template()]


def test_a_foreign_class_needs_its_schema_in_every_call() -> None:
    with pytest.raises(TypeError, match="Theirs declares no schema"):
        encode_samples([Theirs()])
    payload = encode_samples([Theirs()], schema=Schema.of(Theirs, DECLARED))
    with pytest.raises(TypeError, match="Theirs declares no schema"):
        decode_samples(payload, Theirs())


def test_lists_of_a_foreign_class_decode_to_lists() -> None:
    schema = Schema.of(Theirs, DECLARED)
    payload = encode_samples([Theirs([1, 2, 3], 2, [1, 0])], schema=schema)
    (found,) = decode_samples(payload, Theirs(label="kept"), schema=schema).samples
    assert found == Theirs([1, 2, 3], 2, [1, 0], "kept")


class TheirStruct(msgspec.Struct):
    """Of no default for one field, and of a default for the other."""

    tokens: list[int]
    size: int = 0


def test_a_struct_is_taken_like_a_dataclass() -> None:
    schema = Schema.of(TheirStruct, {"tokens": TOKENS, "size": LENGTH})
    payload = encode_samples([TheirStruct([1, 2], 1)], schema=schema)
    assert decode_samples(payload, TheirStruct([]), schema=schema).samples == [
        TheirStruct([1, 2], 1)
    ]


@dataclass
class NullTokens:
    """Of tokens that may be null, and of rows that follow them."""

    tokens: list[int] | None = None
    size: int = 0
    routed: Any = None


NULL_TOKENS = Schema.of(
    NullTokens,
    {
        "tokens": dataclasses.replace(TOKENS, null="none"),
        "size": LENGTH,
        "routed": Computed(
            codec=Tensor("int32", rank=3), rows="transitions", merge="last", null="none"
        ),
    },
)


def test_a_null_that_sets_an_axis_sets_it_to_zero() -> None:
    sent = NullTokens(None, 0, np.zeros((0, 2, 2), np.int32))
    (found,) = decode_samples(
        encode_samples([sent], schema=NULL_TOKENS), NullTokens(), schema=NULL_TOKENS
    ).samples
    assert found.tokens is None
    assert found.routed.shape == (0, 2, 2)


@pytest.mark.parametrize(
    ("sample", "name"),
    [
        (NullTokens(None, 3), "size"),
        (NullTokens([1], -1), "size"),
        (NullTokens(None, 0, np.zeros((2, 1, 1), np.int32)), "routed"),
        (NullTokens([1, 2], 0, np.zeros((2, 1, 1), np.int32)), "routed"),
    ],
    ids=["beyond-null", "negative", "rows-of-null", "rows"],
)
def test_row_rules_of_a_foreign_class_name_its_own_fields(sample: NullTokens, name: str) -> None:
    with pytest.raises(ValueError, match=f"field {name} ") as caught:
        encode_samples([sample], schema=NULL_TOKENS)
    assert caught.value.field == name  # type: ignore[attr-defined]  # an EncodeError


def test_a_payload_with_a_negative_length_is_refused() -> None:
    payload = encode_samples([NullTokens([1], 1)], schema=NULL_TOKENS)
    altered = with_document(payload, document_of(payload).replace('"size":1', '"size":-1'))
    with pytest.raises(FieldError, match="field size ") as caught:
        decode_samples(altered, NullTokens(), schema=NULL_TOKENS)
    assert (caught.value.field, caught.value.sample_index) == ("size", 0)


def test_a_null_that_means_empty_is_an_empty_list_of_rows() -> None:
    runs = Computed(codec=Ragged("int32"), rows="tokens", merge="last", null="empty")
    schema = Schema.of(RaggedLists, {"tokens": TOKENS, "runs": runs})
    payload = encode_samples([RaggedLists([], [])], schema=schema)
    document = document_of(payload).replace('"nulls":[]', '"nulls":["runs"]')
    tensors = read_container(payload) | {"_samples_meta": np.frombuffer(document.encode(), "u1")}
    for name in ("runs.values.0", "runs.offsets.0"):
        del tensors[name]
    (found,) = decode_samples(write_container(tensors), RaggedLists(), schema=schema).samples
    assert found.runs == []
    with pytest.raises(EncodeError, match="runs is None"):
        encode_samples([RaggedLists([], None)], schema=schema)


@dataclass
class Tally:
    """A counter record that is a dataclass."""

    seen: int = 0
    kept: list[int] = field(default_factory=list)


@dataclass
class Counted:
    tally: Tally = field(default_factory=Tally)


def test_a_record_that_is_a_dataclass_adds_to_a_neutral_template_only() -> None:
    schema = Schema.of(Counted, {"tally": Computed(codec=Json(), merge="sum")})
    payload = encode_samples([Counted(Tally(3, [1]))], schema=schema)
    assert decode_samples(payload, Counted(), schema=schema).samples == [Counted(Tally(3, [1]))]
    for tally in (Tally(1), Tally(0, [1])):
        with pytest.raises(TemplateError, match="template field tally must be empty"):
            decode_samples(payload, Counted(tally), schema=schema)


@dataclass
class Unresolved:
    inherited: "Nowhere"  # type: ignore[name-defined]  # noqa: F821, UP037  # the fault


@dataclass
class Heir(Unresolved):
    own: int = 0


def test_an_inherited_annotation_that_cannot_be_resolved_is_refused() -> None:
    with pytest.raises(SchemaError, match="an annotation of Heir cannot be resolved"):
        Schema.of(Heir, {"inherited": Template(), "own": Template()})


@dataclass
class RaggedLists:
    tokens: list[int] = field(default_factory=list)
    runs: list[list[int]] | None = None


@dataclass
class RaggedArrays:
    tokens: list[int] = field(default_factory=list)
    runs: list[np.ndarray[Any, np.dtype[np.int32]]] | None = None


RUNS = Computed(codec=Ragged("int32"), rows="tokens", merge="last", null="none")


@pytest.mark.parametrize("kind", [RaggedLists, RaggedArrays])
@pytest.mark.parametrize("copy", [False, True])
def test_rows_of_a_ragged_field_are_what_the_annotation_says(kind: Any, copy: bool) -> None:
    schema = Schema.of(kind, {"tokens": TOKENS, "runs": RUNS})
    payload = encode_samples([kind([1, 2, 3], [[5, 6], [], (7,)])], schema=schema)
    (found,) = decode_samples(payload, kind(), schema=schema, copy=copy).samples
    rows = found.runs
    assert {type(row) for row in rows} == {list if kind is RaggedLists else np.ndarray}
    assert [list(row) for row in rows] == [[5, 6], [], [7]]
    if kind is RaggedArrays:
        assert {row.dtype for row in rows} == {np.dtype(np.int32)}
        assert all(row.flags.writeable == copy for row in rows)


FINGERPRINTS = {1: "dad8ab48de944a55", 2: "c6997f00f0430fa5"}


@pytest.mark.parametrize("field_set", FINGERPRINTS)
def test_the_fingerprint_of_sample_is_pinned(field_set: int) -> None:
    assert Sample.__sample_schema__.fingerprint(field_set) == FINGERPRINTS[field_set]


def test_the_fingerprint_is_of_field_set_1_by_default() -> None:
    assert Sample.__sample_schema__.fingerprint() == FINGERPRINTS[1]


@pytest.mark.parametrize(
    "change",
    [
        {"tokens": dataclasses.replace(TOKENS, codec=Tensor("int32"))},
        {"tokens": dataclasses.replace(TOKENS, null="none")},
        {"tokens": dataclasses.replace(TOKENS, codec=Tensor("int64", rank=2))},
        {"mask": dataclasses.replace(MASK, rows=None)},
        {"mask": dataclasses.replace(MASK, codec=Ragged("uint8"))},
        {"mask": Template()},
        {"label": Computed(codec=Json(), merge="last")},
    ],
    ids=["dtype", "null", "rank", "rows", "codec", "no-longer", "one-more"],
)
def test_the_fingerprint_changes_with_what_crosses_the_wire(change: Any) -> None:
    before = Schema.of(Theirs, DECLARED).fingerprint()
    assert Schema.of(Theirs, {**DECLARED, **change}).fingerprint() != before


@pytest.mark.parametrize(
    "change",
    [
        {"mask": dataclasses.replace(MASK, fill=1)},
        {"mask": dataclasses.replace(MASK, merge=lambda left, right: left + right)},
        {"label": Template(rows="response")},
    ],
    ids=["fill", "merge", "template"],
)
def test_the_fingerprint_does_not_change_with_what_stays_on_one_side(change: Any) -> None:
    before = Schema.of(Theirs, DECLARED).fingerprint()
    assert Schema.of(Theirs, {**DECLARED, **change}).fingerprint() == before


def test_field_sets_reach_as_far_as_the_newest_field() -> None:
    later = dataclasses.replace(MASK, since=4)
    schema = Schema.of(Theirs, {**DECLARED, "mask": later})
    assert [*schema.field_sets] == [1, 2, 3, 4]
    assert [one.name for one in schema.computed(3)] == ["tokens", "size"]
    payload = encode_samples([Theirs([1], 1, [1])], schema=schema, field_set=4)
    assert read_fields(payload, ["mask"], schema=schema, field_set=4)[0]["mask"].tolist() == [1]


@pytest.mark.parametrize("field_set", [0, 3, -1, "1", None, 1.5])
def test_an_unknown_field_set_is_a_value_error(field_set: Any) -> None:
    with pytest.raises(ValueError, match=r"field_set must be one of \[1, 2\]"):
        encode_samples([Sample()], field_set=field_set)
    with pytest.raises(ValueError, match=r"field_set must be one of \[1, 2\]"):
        decode_samples(encode_samples([]), Sample(), field_set=field_set)
