"""What users do with their own sample classes: mix, pickle by value, decorate, cache."""

from __future__ import annotations

import dataclasses
import functools
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Annotated, Any

import cloudpickle  # type: ignore[import-untyped]  # it has no types
import numpy as np
import numpy.typing as npt
import pytest

from sample_wire import (
    Computed,
    EncodeError,
    Sample,
    Schema,
    SchemaError,
    Template,
    TemplateError,
    Tensor,
    decode_samples,
    encode_samples,
    strip_response,
    validate,
)
from sample_wire.schema import schema_of

VALUES = Computed(codec=Tensor("float32"), rows="response", merge="concat", fill=0.0, null="none")


class ValueSample(Sample):
    values: Annotated[npt.NDArray[np.float32] | None, VALUES] = None


@dataclasses.dataclass
class Plain:
    tokens: list[int] = dataclasses.field(default_factory=list)


DECLARED = {"tokens": Computed(codec=Tensor("int64"), rows="tokens", sets="tokens", merge="last")}


def test_a_list_of_mixed_classes_is_refused_and_loses_no_field() -> None:
    with pytest.raises(TypeError, match="sample 1 is a ValueSample, not a Sample"):
        encode_samples([Sample(), ValueSample(values=np.ones(0, np.float32))])


def test_subclasses_go_together_where_the_schema_is_given() -> None:
    schema = Sample.__sample_schema__
    payload = encode_samples([Sample(), ValueSample()], schema=schema)
    assert len(decode_samples(payload, Sample()).samples) == 2


SCRIPT = """
import sys
from typing import Annotated, Any
import cloudpickle, numpy as np
from sample_wire import Computed, Sample, Tensor, encode_samples
class Scripted(Sample):
    values: Annotated[Any, Computed(
        codec=Tensor("float32"), rows="response", merge="concat", fill=0.0, null="none")] = None
sample = Scripted(tokens=[1], response_length=1, values=np.ones(1, np.float32))
if sys.argv[2] == "used":
    encode_samples([sample])
with open(sys.argv[1], "wb") as file:
    file.write(cloudpickle.dumps(sample))
"""
WORKER = """
import pickle, sys
from sample_wire import decode_samples, encode_samples
with open(sys.argv[1], "rb") as file:
    sample = pickle.load(file)
print(decode_samples(encode_samples([sample]), type(sample)()).samples[0].values)
"""


@pytest.mark.parametrize("used", ["fresh", "used"])
@pytest.mark.parametrize("head", ["", "from __future__ import annotations"], ids=["types", "text"])
def test_a_class_of_a_script_works_in_a_worker(tmp_path: Path, head: str, used: str) -> None:
    """As Ray does it: pickled by value in one process, used in another."""
    pickled = str(tmp_path / "pickled")
    run = functools.partial(subprocess.run, check=True, capture_output=True, text=True)
    run([sys.executable, "-c", head + SCRIPT, pickled, used])
    assert run([sys.executable, "-c", WORKER, pickled]).stdout == "[1.]\n"


def test_a_class_that_was_used_is_pickled_without_its_compiled_plans() -> None:
    class Local(Sample):
        note: Annotated[str, Template()] = ""

    encode_samples([Local()])
    # Compiled plans hold decoders, which cannot be pickled at all.
    assert pickle.loads(cloudpickle.dumps(Local)) is Local


def test_a_schema_can_be_pickled_for_a_worker() -> None:
    schema = Schema.of(Plain, DECLARED)
    encode_samples([Plain([1])], schema=schema)
    copied = pickle.loads(pickle.dumps(schema))
    assert copied.fingerprint() == schema.fingerprint()
    assert decode_samples(
        encode_samples([Plain([1, 2])], schema=copied), Plain(), schema=copied
    ).samples == [Plain([1, 2])]


def test_a_subclass_with_slots_is_refused_by_name() -> None:
    with pytest.raises(SchemaError, match="Slotted: a sample class cannot have __slots__"):

        @dataclasses.dataclass(slots=True, kw_only=True)
        class Slotted(Sample):
            note: Annotated[str, Template()] = ""


def test_an_annotation_of_a_plain_base_is_refused_by_name() -> None:
    class Mixin:
        foo: int = 0

    with pytest.raises(SchemaError, match=r"Mixed\.foo") as caught:

        class Mixed(Mixin, Sample):
            pass

    assert caught.value.field == "foo"


def test_a_cached_property_of_the_template_is_not_carried_over() -> None:
    class Cached(Sample):
        @functools.cached_property
        def num_tokens(self) -> int:
            return len(self.tokens)

    template = Cached()
    assert template.num_tokens == 0
    decoded = decode_samples(encode_samples([Cached(tokens=np.arange(2))]), template).samples[0]
    assert decoded.num_tokens == 2


def test_a_field_that_the_constructor_does_not_take_keeps_its_value() -> None:
    class Fixed(Sample):
        version: Annotated[int, Template()] = dataclasses.field(default=3, init=False)

    assert decode_samples(encode_samples([Fixed()]), Fixed()).samples[0].version == 3


def test_what_cannot_be_copied_is_a_template_error() -> None:
    template = Sample(label=threading.Lock())
    with pytest.raises(TemplateError, match="cannot be copied"):
        decode_samples(encode_samples([Sample()]), template)


def test_arrays_in_a_template_are_shared_read_only_wherever_they_are() -> None:
    pixels = np.zeros(4)
    template = Sample(multimodal_inputs={"a": (pixels, [pixels])})
    found = decode_samples(encode_samples([Sample()]), template).samples[0].multimodal_inputs
    assert found is not None
    for array in (found["a"][0], found["a"][1][0]):
        assert np.shares_memory(array, pixels)
        assert not array.flags.writeable


@pytest.mark.parametrize(
    ("declared", "rule"),
    [
        (Computed(codec=Tensor("int64"), merge="last", null="bogus"), "null is one of"),  # type: ignore[arg-type]  # what a type checker would refuse
        (Computed(codec=Tensor("int64"), merge="last", overlay="bogus"), "overlay one of"),  # type: ignore[arg-type]  # the same
        (Computed(codec=Tensor("int64"), merge="last", response_keys="abc"), "response_keys"),  # type: ignore[arg-type]  # the same
        (Computed(codec=Tensor(None), merge="last"), "dtype is a name"),  # type: ignore[arg-type]  # the same
        (Computed(codec=Tensor("int64", rank="1"), merge="last"), "rank an integer"),  # type: ignore[arg-type]  # the same
        (Computed(codec=Tensor("int64", rank=33), merge="last"), "at most 32 axes"),
        (Computed(codec=Tensor("int64"), merge="last", since="2"), "field sets count"),  # type: ignore[arg-type]  # the same
        (Template(rows="tokens"), "rows are the response's"),  # type: ignore[arg-type]  # the same
    ],
    ids=lambda item: item if isinstance(item, str) else "",
)
def test_a_declaration_of_wrong_types_is_refused_by_name(declared: Any, rule: str) -> None:
    others = {"tokens": DECLARED["tokens"]}

    @dataclasses.dataclass
    class Wide:
        tokens: list[int]
        field: Any = None

    with pytest.raises(SchemaError, match=rule) as caught:
        Schema.of(Wide, {**others, "field": declared})
    assert caught.value.field == "field"


@pytest.mark.parametrize("samples", [{"a": Sample()}, iter([Sample()]), Sample()], ids=str)
def test_samples_that_are_no_list_are_a_type_error(samples: Any) -> None:
    with pytest.raises(TypeError, match="samples are a list or tuple"):
        encode_samples(samples)


def test_a_cached_property_of_a_foreign_template_is_not_carried_over() -> None:
    @dataclasses.dataclass
    class Cached:
        tokens: list[int]

        @functools.cached_property
        def num_tokens(self) -> int:
            return len(self.tokens)

    schema = Schema.of(Cached, DECLARED)
    template = Cached([])
    assert template.num_tokens == 0
    body = encode_samples([Cached([1, 2])], schema=schema)
    decoded = decode_samples(body, template, schema=schema).samples[0]
    assert (decoded.num_tokens, template.num_tokens) == (2, 0)


def test_tokens_that_are_none_count_as_no_tokens_for_the_row_rules() -> None:
    validate(Sample(tokens=None))  # type: ignore[arg-type]  # as a trainer may build one


def test_nothing_is_stripped_where_the_schema_has_no_response() -> None:
    sample, schema = Plain([1, 2]), Schema.of(Plain, DECLARED)
    with pytest.raises(EncodeError, match="no axis of tokens, or none of response tokens"):
        strip_response(sample, 1, decode_text=str, schema=schema)
    assert sample.tokens == [1, 2]


def test_the_schema_is_made_anew_for_fields_that_a_class_got_later() -> None:
    class Late(Sample):
        pass

    early = schema_of(Late)
    assert schema_of(Late) is early
    Late.__dataclass_fields__ = dict(Late.__dataclass_fields__)
    assert schema_of(Late) is not early
