"""The row rules: validate, and strip_response, which cuts every field that follows the tokens."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
import pytest
from strategies import same_value

from sample_wire import (
    Computed,
    EncodeError,
    Json,
    Ragged,
    Sample,
    Schema,
    Template,
    Tensor,
    encode_samples,
    strip_response,
    validate,
)

from ._samples import make_sample, refused, round_trip, routed, template_of


def invalid(sample: object, **options: Any) -> EncodeError:
    """The error that validate raises."""
    with pytest.raises(EncodeError) as caught:
        validate(sample, **options)
    return caught.value


def not_called(ids: object) -> str:
    raise AssertionError(f"no text is decoded here, least of all of {ids!r}")


def spelled(ids: Any) -> str:
    """A decoder that spells ids, so that a text tells what it was made of."""
    return "+".join(str(int(one)) for one in ids)


class Wider(Sample):
    """A subclass with a field for each kind of rows."""

    by_response: Annotated[
        Any,
        Computed(codec=Tensor("float32"), rows="response", merge="concat", fill=0.0, null="none"),
    ] = None
    by_token: Annotated[
        Any, Computed(codec=Tensor("int16"), rows="tokens", merge="last", null="none")
    ] = None
    by_transition: Annotated[
        Any, Computed(codec=Tensor("int16", rank=2), rows="transitions", merge="last", null="none")
    ] = None
    runs: Annotated[
        Any, Computed(codec=Ragged("int32"), rows="response", merge="concat", null="none")
    ] = None
    ours: Annotated[Any, Template(rows="response")] = None


def make_wider(**fields: Any) -> Wider:
    """A consistent sample of 5 tokens, 2 of them response tokens."""
    values: dict[str, Any] = {
        "tokens": np.arange(10, 15),
        "response": "13+14",
        "response_length": 2,
        "by_response": [0.5, 1.5],
        "by_token": [1, 2, 3, 4, 5],
        "by_transition": np.arange(8).reshape(4, 2),
        "runs": [[1], [2, 3]],
        "ours": [7, 8],
    }
    return Wider(**(values | fields))


@pytest.mark.parametrize(
    "sample",
    [
        Sample(),
        make_sample(),
        make_sample(2, 0),
        make_sample(1, 0),
        make_sample(1, 1),
        make_sample(5, 5),
        make_sample(5, 0),
        make_wider(),
        template_of(tokens=[1, 2], response_length=1, loss_mask=(1,), teacher_log_probs=[0.5]),
    ],
    ids=lambda sample: f"{type(sample).__name__}-{len(sample.tokens)}-{sample.response_length}",
)
def test_a_consistent_sample_is_valid(sample: Sample) -> None:
    validate(sample)


WRONG_ROWS: dict[str, tuple[int, Any]] = {
    "loss_mask": (2, np.ones(3, np.uint8)),
    "rollout_log_probs": (2, [0.5]),
    "rollout_routed_experts": (4, routed(4)),
    "rollout_indexer_topk": (4, routed(6)),
    "by_response": (2, [0.5]),
    "by_token": (5, [1] * 4),
    "by_transition": (4, np.zeros((5, 2), np.int16)),
    "runs": (2, [[1, 2]]),
    "teacher_log_probs": (2, [0.5]),
    "opd_reverse_kl": (2, np.zeros(3)),
    "ours": (2, [1, 2, 3]),
}
TEMPLATE_ROWS = ("teacher_log_probs", "opd_reverse_kl", "ours")


@pytest.mark.parametrize("name", WRONG_ROWS)
def test_validate_refuses_a_wrong_number_of_rows_with_both_numbers(name: str) -> None:
    needed, value = WRONG_ROWS[name]
    error = invalid(make_wider(**{name: value}))
    assert (error.field, error.expected, error.got) == (name, str(needed), str(len(value)))
    assert f"field {name} has {len(value)} rows" in str(error)


@pytest.mark.parametrize("name", [name for name in WRONG_ROWS if name not in TEMPLATE_ROWS])
def test_encode_refuses_a_wrong_number_of_rows_with_both_numbers(name: str) -> None:
    needed, value = WRONG_ROWS[name]
    error = refused(make_wider(**{name: value}))
    assert (error.field, error.expected, error.got) == (name, str(needed), str(len(value)))
    assert error.sample_index == 0


@pytest.mark.parametrize("name", TEMPLATE_ROWS)
def test_encode_does_not_look_at_template_fields(name: str) -> None:
    round_trip(make_wider(**{name: WRONG_ROWS[name][1]}))


@pytest.mark.parametrize("length", [6, 100, 2**63 - 1, -1, -(2**63)])
def test_a_response_beyond_the_tokens_is_refused(length: int) -> None:
    sample = Sample(tokens=np.arange(5), response_length=length)
    assert invalid(sample).field == "response_length"
    assert refused(sample).field == "response_length"


@pytest.mark.parametrize("shape", [(4, 0, 3), (4, 2, 0), (4, 0, 0)], ids=str)
def test_rows_with_nothing_in_them_are_refused(shape: tuple[int, ...]) -> None:
    sample = make_sample(5, rollout_routed_experts=np.empty(shape, np.int32))
    for error in (invalid(sample), refused(sample)):
        assert error.field == "rollout_routed_experts"
        assert "4 rows of shape" in str(error)


@pytest.mark.parametrize("shape", [(0, 0, 0), (0, 0, 8), (0, 4, 0), (0, 4, 8)], ids=str)
def test_no_rows_may_have_any_shape(shape: tuple[int, ...]) -> None:
    sample = make_sample(1, 0, rollout_routed_experts=np.empty(shape, np.int32))
    validate(sample)
    assert round_trip(sample).rollout_routed_experts.shape == shape  # type: ignore[union-attr]  # not None


def test_validate_needs_the_schema_of_a_foreign_class() -> None:
    with pytest.raises(TypeError, match="declares no schema"):
        validate(object())


def test_stripping_cuts_every_field_that_follows_the_tokens() -> None:
    sample = make_wider(
        loss_mask=np.array([1, 0], np.uint8),
        rollout_log_probs=np.array([-0.5, -1.0]),
        rollout_routed_experts=routed(5),
        rollout_indexer_topk=routed(5, 1, 1),
        teacher_log_probs=[0.1, 0.2],
        opd_reverse_kl=np.array([0.3, 0.4]),
        metadata={"opd_student_top_logprobs": [[1.0], [2.0]], "other": [1, 2]},
    )
    strip_response(sample, 1, decode_text=spelled)
    validate(sample)
    assert sample.tokens.tolist() == [10, 11, 12, 13]
    assert (sample.response, sample.response_length) == ("13", 1)
    assert sample.loss_mask is not None
    assert sample.loss_mask.tolist() == [1]
    assert sample.rollout_log_probs is not None
    assert sample.rollout_log_probs.tolist() == [-0.5]
    assert same_value(sample.rollout_routed_experts, routed(5)[:3])
    assert same_value(sample.rollout_indexer_topk, routed(5, 1, 1)[:3])
    assert sample.teacher_log_probs == [0.1]
    assert sample.opd_reverse_kl.tolist() == [0.3]
    assert sample.metadata == {"opd_student_top_logprobs": [[1.0]], "other": [1, 2]}
    assert sample.by_response == [0.5]
    assert sample.by_token == [1, 2, 3, 4]
    assert sample.by_transition.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert (sample.runs, sample.ours) == ([[1]], [7])


def test_stripping_the_whole_response_leaves_no_text_and_decodes_none() -> None:
    sample = make_wider()
    strip_response(sample, 2, decode_text=not_called)
    validate(sample)
    assert (sample.response, sample.response_length) == ("", 0)
    assert sample.tokens.tolist() == [10, 11, 12]
    assert (sample.by_response, sample.runs, sample.ours) == ([], [], [])


def test_stripping_all_tokens_leaves_no_rows() -> None:
    sample = make_sample(2, 2)
    strip_response(sample, 2, decode_text=not_called)
    validate(sample)
    assert sample.rollout_routed_experts is not None
    assert len(sample.rollout_routed_experts) == 0


@pytest.mark.parametrize("num_tokens", [0, -1, -100])
def test_stripping_nothing_changes_nothing(num_tokens: int) -> None:
    sample = make_wider()
    before = dict(vars(sample))
    strip_response(sample, num_tokens, decode_text=not_called)
    assert all(vars(sample)[name] is value for name, value in before.items())


@pytest.mark.parametrize("num_tokens", [3, 5, 6])
def test_stripping_more_than_the_response_is_refused_and_changes_nothing(num_tokens: int) -> None:
    sample = make_wider()
    before = dict(vars(sample))
    with pytest.raises(EncodeError, match=f"cannot strip {num_tokens} tokens") as caught:
        strip_response(sample, num_tokens, decode_text=not_called)
    assert (caught.value.expected, caught.value.got) == ("at most 2", str(num_tokens))
    assert all(vars(sample)[name] is value for name, value in before.items())


def test_stripping_leaves_nulls_null() -> None:
    sample = Sample(tokens=np.arange(5), response_length=2)
    strip_response(sample, 1, decode_text=spelled)
    assert (sample.loss_mask, sample.rollout_routed_experts) == (None, None)
    assert (sample.response, sample.metadata) == ("3", {})


def test_stripping_does_not_change_the_callers_values() -> None:
    tokens, metadata = np.arange(5), {"opd_student_top_logprobs": [[1.0], [2.0]]}
    before = copy.deepcopy(metadata)
    sample = Sample(tokens=tokens, response_length=2, metadata=metadata)
    strip_response(sample, 2, decode_text=not_called)
    assert len(tokens) == 5
    assert metadata == before


def test_arrays_are_cut_to_views() -> None:
    sample = make_sample()
    before = sample.tokens
    strip_response(sample, 1, decode_text=spelled)
    assert np.shares_memory(sample.tokens, before)


def test_a_decoded_sample_can_be_stripped_and_encoded_again() -> None:
    found = round_trip(make_sample(6, 3))
    strip_response(found, 2, decode_text=spelled)
    again = round_trip(found)
    assert again.tokens.tolist() == [0, 1, 2, 3]
    assert (again.response, again.response_length) == ("3", 1)


def test_stripping_twice_is_stripping_once() -> None:
    once, twice = make_wider(), make_wider()
    strip_response(once, 2, decode_text=spelled)
    strip_response(twice, 1, decode_text=spelled)
    strip_response(twice, 1, decode_text=spelled)
    assert bytes(encode_samples([once])) == bytes(encode_samples([twice]))


def test_a_text_that_cannot_be_decoded_leaves_the_sample_as_it_was() -> None:
    sample = make_wider()
    before = dict(vars(sample))

    def failing(ids: object) -> str:
        raise LookupError(ids)

    with pytest.raises(LookupError):
        strip_response(sample, 1, decode_text=failing)
    assert all(vars(sample)[name] is value for name, value in before.items())


@dataclass
class Foreign:
    """A foreign class with names of its own."""

    ids: list[int] = field(default_factory=list)
    size: int = 0
    text: str = ""
    mask: list[int] | None = None


FOREIGN = Schema.of(
    Foreign,
    {
        "ids": Computed(codec=Tensor("int64"), rows="tokens", sets="tokens", merge="last"),
        "size": Computed(codec=Json(), sets="response", merge="sum"),
        "text": Computed(codec=Json(), merge="text"),
        "mask": Computed(
            codec=Tensor("uint8"), rows="response", merge="concat", fill=0, null="none"
        ),
    },
)


def test_a_foreign_class_is_validated_and_stripped_by_its_schema() -> None:
    sample = Foreign([1, 2, 3, 4], 3, "2+3+4", [1, 0, 1])
    validate(sample, schema=FOREIGN)
    strip_response(sample, 2, decode_text=spelled, schema=FOREIGN)
    assert sample == Foreign([1, 2], 1, "2", [1])
    sample.mask = [1, 1]
    assert invalid(sample, schema=FOREIGN).field == "mask"
