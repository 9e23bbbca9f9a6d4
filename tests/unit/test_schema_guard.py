"""The import-time guard: each declaration that makes no sense is refused, and named."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import pytest

from sample_wire import (
    Computed,
    Json,
    Ragged,
    Sample,
    SampleBase,
    Schema,
    SchemaError,
    Template,
    Tensor,
    encode_samples,
)

from ._guard import MISSING, computed, define, guard_refuses
from ._samples import round_trip

INT64 = Tensor("int64")


def test_a_field_without_an_owner_is_refused() -> None:
    with pytest.raises(SchemaError, match="foo has no owner") as caught:
        define(int, 0)
    assert (caught.value.field, caught.value.got) == ("foo", "no owner")


@pytest.mark.parametrize(
    "annotation", [Annotated[int, "a remark"], Annotated[int, Template()] | None], ids=str
)
def test_a_field_whose_owner_is_not_in_its_own_annotation_has_none(annotation: Any) -> None:
    with pytest.raises(SchemaError, match="foo has no owner"):
        define(annotation)


@pytest.mark.parametrize(
    "owners",
    [
        (Computed(codec=Json(), merge="last"), Template()),
        (Template(), Template()),
        (Computed, Template()),
        (Computed(codec=Json(), merge="last"), Computed(codec=Json(), merge="last")),
    ],
    ids=["both", "template-twice", "bare", "computed-twice"],
)
def test_a_field_with_two_owners_is_refused(owners: tuple[Any, Any]) -> None:
    with pytest.raises(SchemaError, match="foo has two owners") as caught:
        define(Annotated[int, owners[0], owners[1]], 0)
    assert (caught.value.field, caught.value.got) == ("foo", "two owners")


@pytest.mark.parametrize("bare", [Computed, Template])
def test_a_bare_class_is_no_declaration(bare: type) -> None:
    assert "a declaration is Computed(...) or Template()" in str(guard_refuses(bare))


@pytest.mark.parametrize(
    ("declaration", "rule"),
    [
        (Computed(), "a computed field needs a codec"),
        (Computed(merge="last"), "a computed field needs a codec"),
        (Computed(codec="int64", merge="last"), "a computed field needs a codec"),  # type: ignore[arg-type]  # the fault
        (Computed(codec=Json), "a computed field needs a codec"),  # type: ignore[arg-type]  # the fault
        (Computed(codec=Json()), "a computed field needs a merge rule"),
        (Computed(codec=INT64), "a computed field needs a merge rule"),
        (Computed(codec=INT64, merge="join"), "unknown merge rule 'join'"),  # type: ignore[arg-type]  # the fault
        (Computed(codec=INT64, merge="last", rows="turns"), "unknown rows 'turns'"),  # type: ignore[arg-type]  # the fault
        (Computed(codec=Tensor("int"), merge=None), "a computed field needs a merge rule"),
        (Computed(codec=Tensor("bfloat16"), merge="last"), "no wire dtype is called 'bfloat16'"),
        (Computed(codec=Tensor("object"), merge="last"), "no wire dtype is called 'object'"),
        (Computed(codec=Tensor("str"), merge="last"), "no wire dtype is called 'str'"),
        (Computed(codec=Tensor("complex128"), merge="last"), "no wire dtype is called"),
        (Computed(codec=Tensor("M8[s]"), merge="last"), "no wire dtype is called"),
        (Computed(codec=Tensor("int64", 0), rows="tokens", merge="last"), "has no axis for rows"),
        (Computed(codec=Tensor("int64", -1), merge="last"), "has no axis"),
        (Computed(codec=Tensor("float64", experts=True), merge="last"), "expert ids are integers"),
        (Computed(codec=Ragged("int32"), merge="last"), "a ragged field needs rows"),
        (Computed(codec=Ragged("nope"), rows="tokens", merge="last"), "no wire dtype is called"),
        (Computed(codec=Json(), rows="response", merge="concat", fill=0), "has no rows"),
        (Computed(codec=Json(), merge="last", null="none"), "the type of a JSON field says"),
        (Computed(codec=Json(), merge="last", null="empty"), "the type of a JSON field says"),
        (Computed(codec=INT64, merge="last", overlay="update"), "only a JSON field can update"),
        (Computed(codec=INT64, merge="last", omit_default=True), "only a JSON field can be left"),
        (Computed(codec=Json(), merge="last", since=0), "field sets count from 1"),
        (
            Computed(codec=Json(), merge="last", overlay="update", null="template"),
            "a mapping has no null",
        ),
    ],
)
def test_a_declaration_that_makes_no_sense_is_refused(declaration: Computed, rule: str) -> None:
    assert rule in str(guard_refuses(declaration))


@pytest.mark.parametrize("merge", ["concat", "last", "sum", "extend", "equal"])
def test_response_rows_without_a_fill_are_refused(merge: Any) -> None:
    rule = guard_refuses(Computed(codec=INT64, rows="response", merge=merge))
    assert "needs a fill" in str(rule)


@pytest.mark.parametrize("merge", ["last", "sum", "extend", "equal", "text"])
def test_response_rows_that_are_not_concatenated_are_refused(merge: Any) -> None:
    rule = guard_refuses(Computed(codec=INT64, rows="response", merge=merge, fill=0))
    assert "response rows are merged by concat or a function" in str(rule)


@pytest.mark.parametrize("rows", ["tokens", "transitions"])
@pytest.mark.parametrize("fill", [None, 0])
def test_token_rows_that_are_concatenated_are_refused(rows: Any, fill: float | None) -> None:
    rule = guard_refuses(Computed(codec=INT64, rows=rows, merge="concat", fill=fill))
    assert "no concat" in str(rule)


@pytest.mark.parametrize(
    ("dtype", "fill"),
    [("uint8", -1), ("uint8", 256), ("int32", 0.5), ("int64", float("nan")), ("float32", 0.1)],
)
def test_a_fill_that_the_dtype_cannot_hold_is_refused(dtype: str, fill: float) -> None:
    declaration = Computed(codec=Tensor(dtype), rows="response", merge="concat", fill=fill)
    assert f"fill {fill} is no value of the wire dtype" in str(guard_refuses(declaration))


@pytest.mark.parametrize("codec", [INT64, Json(), Ragged("int32")], ids=str)
def test_a_field_without_its_axis_is_refused(codec: Any) -> None:
    declaration = Computed(codec=codec, rows="response", merge="concat", fill=0)
    with pytest.raises(SchemaError, match="no field sets the axis response") as caught:
        define(Annotated[Any, declaration], base=SampleBase)
    assert caught.value.field == "foo"


def test_a_template_field_without_its_axis_is_refused() -> None:
    with pytest.raises(SchemaError, match="no field sets the axis response"):
        define(Annotated[Any, Template(rows="response")], base=SampleBase)


@pytest.mark.parametrize("axis", ["tokens", "response"])
def test_an_axis_that_is_set_twice_is_refused(axis: Any) -> None:
    with pytest.raises(SchemaError, match=f"the axis {axis} is set by ") as caught:
        computed(Computed(codec=Json(), merge="sum", sets=axis), int, 0)
    assert caught.value.field == "foo"


@pytest.mark.parametrize("annotation", [int | None, float, str, Any, bool], ids=str)
def test_a_json_field_that_sets_an_axis_must_be_an_int(annotation: Any) -> None:
    declaration = Computed(codec=Json(), merge="sum", sets="response")
    with pytest.raises(SchemaError, match="a JSON field that sets an axis is an int"):
        define(Annotated[annotation, declaration], 0, base=SampleBase)


@pytest.mark.parametrize("codec", [Tensor("int64", 0), Tensor("int64")], ids=str)
def test_an_array_field_that_sets_an_axis_must_have_rows(codec: Tensor) -> None:
    with pytest.raises(SchemaError) as caught:
        define(Annotated[Any, Computed(codec=codec, merge="last", sets="tokens")], base=SampleBase)
    assert caught.value.field == "foo"


def test_a_field_that_sets_an_axis_cannot_be_left_out() -> None:
    declaration = Computed(codec=Json(), merge="sum", sets="response", omit_default=True)
    with pytest.raises(SchemaError) as caught:
        define(Annotated[int, declaration], 0, base=SampleBase)
    assert caught.value.field == "foo"


def test_a_json_field_named_as_a_key_of_the_format_is_refused() -> None:
    annotation = Annotated[list[str], Computed(codec=Json(), merge="last")]
    with pytest.raises(SchemaError, match="the JSON key nulls is taken") as caught:
        define(annotation, dataclasses.field(default_factory=list), name="nulls")
    assert caught.value.field == "nulls"


def test_a_field_left_out_at_its_default_needs_one() -> None:
    declaration = Computed(codec=Json(), merge="last", omit_default=True)
    rule = guard_refuses(declaration, int, MISSING)
    assert "a field left out at its default needs one" in str(rule)


def test_a_json_field_of_a_type_that_json_lacks_is_refused_when_first_used() -> None:
    odd = computed(Computed(codec=Json(), merge="last"), list[int] | tuple[int, ...])
    with pytest.raises(SchemaError, match="foo cannot be typed in JSON") as caught:
        encode_samples([odd()])
    assert caught.value.field == "foo"


@pytest.mark.parametrize("annotation", ["Nowhere", "np.nowhere", "int |", "list[int"])
def test_an_annotation_that_cannot_be_resolved_is_refused(annotation: str) -> None:
    with pytest.raises(SchemaError, match="cannot be resolved") as caught:
        define(annotation)
    assert caught.value.field == "foo"


def test_the_guard_names_the_first_of_several_faults() -> None:
    annotations = {"good": Annotated[int, Template()], "bad": int, "worse": int}
    with pytest.raises(SchemaError) as caught:
        type("Odd", (Sample,), {"__annotations__": annotations, "good": 0, "bad": 0, "worse": 0})
    assert caught.value.field == "bad"


def test_a_class_that_is_refused_is_not_defined() -> None:
    with pytest.raises(SchemaError):

        class Odd(Sample):
            foo: int = 0

    assert "Odd" not in locals()


def joined(left: Any, right: Any) -> Any:
    return np.concatenate([left, right])


@pytest.mark.parametrize(
    "declaration",
    [
        Template(),
        Template(rows="response"),
        Computed(codec=INT64, merge="last", null="none"),
        Computed(codec=INT64, rows="response", merge="concat", fill=0, null="none"),
        Computed(codec=INT64, rows="response", merge=joined, null="none"),
        Computed(codec=INT64, rows="tokens", merge="last", null="none"),
        Computed(codec=Tensor("float32"), rows="response", merge="concat", fill=0.5, null="none"),
        Computed(codec=Tensor("bool"), rows="response", merge="concat", fill=1, null="none"),
        Computed(codec=Ragged("int32"), rows="response", merge="concat", null="none"),
        Computed(codec=Ragged("int32"), rows="transitions", merge="last", null="none"),
        Computed(codec=Json(), merge="equal"),
        Computed(codec=Json(), merge=joined),
        Computed(codec=Json(), merge="last", omit_default=True),
        Computed(codec=Json(), merge="last", null="template"),
        Computed(codec=Json(), merge="last", since=2),
        Computed(codec=Json(), merge="last", since=7),
    ],
    ids=str,
)
def test_a_sound_declaration_is_taken_and_its_default_round_trips(declaration: Any) -> None:
    assert round_trip(computed(declaration)()).foo is None


class Parent(Sample):
    """A subclass to be subclassed."""

    extra: Annotated[int, Computed(codec=Json(), merge="sum")] = 1


class Child(Parent):
    """Inherits every field, adds one, and overrides two."""

    label: Annotated[int, Computed(codec=Json(), merge="last")] = 3
    extra: Annotated[int, Template()] = 2
    more: Annotated[
        npt.NDArray[np.int16] | None,
        Computed(codec=Tensor("int16"), merge="last", null="none"),
    ] = None


def test_a_subclass_inherits_the_declarations_of_its_parents() -> None:
    names = [field.name for field in Child.__sample_schema__.fields]
    assert names == [*(field.name for field in Parent.__sample_schema__.fields), "more"]
    assert Sample.__sample_schema__.fields[0] in Child.__sample_schema__.fields


def test_a_subclass_can_override_the_owner_of_a_field() -> None:
    owners = {field.name: field.owner for field in Child.__sample_schema__.fields}
    assert type(owners["label"]) is Computed
    assert owners["extra"] == Template()
    found = round_trip(Child(label=5, extra=6), Child(label=0, extra=7))
    assert (found.label, found.extra) == (5, 7)


def test_a_subclass_does_not_change_its_parents_schema() -> None:
    owners = {field.name: field.owner for field in Sample.__sample_schema__.fields}
    assert owners["label"] == Template()
    assert Child.__sample_schema__ is not Parent.__sample_schema__


def test_a_subclass_without_fields_has_a_schema_of_its_own() -> None:
    same: Any = type("Same", (Sample,), {})
    assert same.__sample_schema__.sample_type is same
    assert isinstance(round_trip(same()), same)


def test_a_subclass_takes_keyword_arguments_only() -> None:
    with pytest.raises(TypeError):
        Parent(np.arange(3))  # type: ignore[call-arg]  # the fault under test


def test_two_samples_are_equal_only_if_they_are_one() -> None:
    sample = Parent()
    assert sample == sample  # equality is what is tested
    assert sample != Parent()


def test_the_schema_tells_its_class_and_the_number_of_fields() -> None:
    assert (
        repr(Schema.of(Parent)) == f"Schema(Parent, {len(Parent.__sample_schema__.fields)} fields)"
    )
