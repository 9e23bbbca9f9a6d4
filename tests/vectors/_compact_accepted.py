"""The vectors of format 2 that must be accepted (y_) or may be (i_); SPEC section 5.4."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ._compact import compact_payload
from ._kit import (
    MINUS_2_25,
    MINUS_HALF,
    Meaning,
    Vector,
    empty_sample,
    floats,
    ints,
    payload,
    reply,
    sample,
)
from ._wire import compact, entries, framed, laid_out, tensors_of

_EXPERTS: Final = "rollout_routed_experts"


def _accepted(
    name: str,
    why: str,
    meaning: Meaning,
    data: bytes | None = None,
    *,
    field_set: int = 1,
    num_experts: int | None = None,
) -> Vector:
    """A y_ vector; with no data given, the bytes that a writer makes of the meaning."""
    about: dict[str, Any] = {
        "verdict": "accept",
        "layer": "sample",
        "format": 2,
        "why": why,
        "field_set": field_set,
        "canonical": data is None,
        "meaning": meaning,
    }
    if num_experts is not None:
        about["num_experts"] = num_experts
    written = data or compact_payload(meaning, num_experts=num_experts)
    return Vector(f"y_compact_{name}", written, about)


def _plain_replies() -> Iterator[Vector]:
    reason = reply(session_metadata={"max_trim_tokens": 1}, empty_reason="all_truncated")
    yield _accepted("no_samples", "no tensors, no dtypes", reason)
    yield _accepted("one_sample", "the plain reply", reply(sample()))
    wider = sample(
        tokens=ints("int64", [2], [70_000, 1]),
        response_length=0,
        response="",
        loss_mask=None,
        rollout_log_probs=None,
        rollout_routed_experts=ints("int32", [1, 2, 2], [256, 0, 1, 2]),
        rollout_indexer_topk=ints("int32", [1, 1, 2], [70_000, 7]),
    )
    why = "one stored dtype for a field, over all samples that have it"
    yield _accepted("two_samples", why, reply(sample(), wider))
    rewarded = reply({**sample(), "reward": 0.75})
    yield _accepted("reward", "field sets are as in format 1", rewarded, field_set=2)
    no_tokens = reply(empty_sample())
    yield _accepted("tokens_null", "null tokens", no_tokens, compact_payload(no_tokens))
    one_token = sample(
        tokens=ints("int64", [1], [300]),
        response_length=0,
        response="",
        loss_mask=ints("uint8", [0], []),
        rollout_log_probs=floats(),
        rollout_routed_experts=ints("int32", [0, 25, 10], []),
        rollout_indexer_topk=ints("int32", [0, 0, 0], []),
    )
    yield _accepted("empty", "no items take the first dtype of the row", reply(one_token))


def _integers() -> Iterator[Vector]:
    """Each stored dtype of int64 and int32, at its ends."""
    edges: dict[str, tuple[list[int], list[int]]] = {
        "u8": ([0, 255], [0, 255]),
        "i8": ([-128, 127], [-128, 127]),
        "u16": ([256, 65535], [255, 256]),
        "i16": ([-1, 128], [-1, 128]),
        "u32_i32": ([0, 2**32 - 1], [0, 65536]),
        "i32": ([-1, 2**31 - 1], [-1, 32768]),
        "i64": ([0, 2**32], [0]),
        "i64_by_sign": ([-1, 2**31], [0]),
        "i64_extremes": ([-(2**63), 2**63 - 1], [0]),
    }
    for name, (tokens, experts) in edges.items():
        meaning = sample(
            tokens=ints("int64", [5], [*tokens, *[0] * 3][:5]),
            rollout_routed_experts=ints("int32", [4, 1, 1], [*experts, *[0] * 3][:4]),
        )
        why = "the first dtype of the row that holds every item"
        yield _accepted(f"integers_{name}", why, reply(meaning))
    above_zero = sample(tokens=ints("int64", [5], [300] * 5))
    why = "low is 0 where no item is less"
    yield _accepted("integers_all_above_zero", why, reply(above_zero))
    below_zero = sample(tokens=ints("int64", [5], [-300] * 5))
    why = "high is 0 where no item is greater"
    yield _accepted("integers_all_below_zero", why, reply(below_zero))


def _expert_counts() -> Iterator[Vector]:
    """What a writer does that was told the number of experts."""
    small, marked = list(range(16)), [*range(15), -1]
    for name, num_experts, ids in (
        ("255", 255, small),
        ("256", 256, [*range(15), 255]),
        ("257", 257, small),
        ("128_marked", 128, marked),
        ("129_marked", 129, marked),
        ("256_marked", 256, [*range(14), 255, -1]),
        ("65537", 65537, small),
    ):
        meaning = sample(rollout_routed_experts=ints("int32", [4, 2, 2], ids))
        why = "the number of experts chooses the dtype, whatever the ids; -1 marks what is unknown"
        yield _accepted(f"experts_{name}", why, reply(meaning), num_experts=num_experts)


def _floats() -> Iterator[Vector]:
    single = {
        "specials": (
            "zeros keep their signs; infinities; the least normal and the greatest float32",
            [
                "8000000000000000",
                "0000000000000000",
                "fff0000000000000",
                "7ff0000000000000",
                "3810000000000000",
                "b810000000000000",
                "47efffffe0000000",
            ],
        ),
        "nan": (
            "NaNs keep sign and fraction",
            ["7ff8000000000000", "fff8000020000000", "7fffffffe0000000"],
        ),
    }
    for name, (why, bits) in single.items():
        yield _accepted(f"float32_{name}", why, reply(_with_log_probs(bits)))
    least = reply(_with_log_probs(["36a0000000000000", "b80fffffc0000000"]))
    why = "subnormal float32 are read, though a writer does not send them"
    data = compact_payload(least, stored={"rollout_log_probs": "F32"})
    yield _accepted("float32_subnormal", why, least, data)
    double = {
        "nan": ("a fraction too long", "7ff8000000000001"),
        "signalling_nan": ("it would not stay one everywhere", "7ff0000020000000"),
        "precise": ("0.1", "3fb999999999999a"),
        "subnormal": ("a subnormal float32", "36a0000000000000"),
        "small": ("half of the least float32", "3690000000000000"),
        "great": ("the first above float32", "47f0000000000000"),
        "rounds_to_great": ("it would round to infinity", "47effffff0000000"),
    }
    for name, (why, odd) in double.items():
        yield _accepted(f"float64_{name}", why, reply(_with_log_probs([MINUS_HALF, odd])))


def _with_log_probs(bits: Sequence[str]) -> Meaning:
    size = len(bits)
    return sample(
        tokens=ints("int64", [size], range(size)),
        response_length=size,
        loss_mask=None,
        rollout_log_probs=floats(*bits),
        rollout_routed_experts=None,
    )


def _other_dtypes() -> Iterator[Vector]:
    """Stored dtypes that the table allows and a writer would not choose."""
    two = reply(sample(), sample())
    for name, stored in {
        "not_narrowed": {
            "tokens": "I64",
            "rollout_log_probs": "F64",
            _EXPERTS: "I32",
        },
        "wider_than_needed": {"tokens": "U32", _EXPERTS: "I16"},
        "one_for_each_sample": {"tokens.1": "I16", "rollout_log_probs.0": "F64"},
    }.items():
        why = "a reader takes every dtype of the table"
        yield _accepted(f"dtypes_{name}", why, two, compact_payload(two, stored=stored))


def _shared(name: str, why: str, meaning: Meaning, shared: Mapping[str, Sequence[int]]) -> Vector:
    return _accepted(f"shared_{name}", why, meaning, compact_payload(meaning, shared=shared))


def leaves(*rows: Sequence[int]) -> Meaning:
    """Samples whose routing of one layer and one expert has these rows, and nothing else."""
    return reply(
        *[
            sample(
                tokens=ints("int64", [len(row) + 1], range(len(row) + 1)),
                response="",
                response_length=0,
                loss_mask=None,
                rollout_log_probs=None,
                rollout_routed_experts=ints("int32", [len(row), 1, 1], row),
            )
            for row in rows
        ]
    )


def _shared_rows() -> Iterator[Vector]:
    first = f"{_EXPERTS}.1"
    second = f"{_EXPERTS}.2"
    two = leaves([1, 2, 3], [1, 2, 4, 5])
    yield _shared("two_rows", "the first two rows of sample 0", two, {first: [0, 2]})
    yield _shared("fewer_than_could_be", "one row of two", two, {first: [0, 1]})
    same = leaves([1, 2, 3], [1, 2, 3])
    yield _shared("every_row", "a tensor without rows of its own", same, {first: [0, 3]})
    prefix = leaves([1, 2, 3], [1, 2])
    yield _shared("a_prefix", "the same, of some rows of sample 0", prefix, {first: [0, 2]})
    three = leaves([1, 2, 3], [1, 2, 4, 5], [1, 2, 4, 6, 7])
    chain = {second: [1, 3], first: [0, 2]}
    yield _shared("chain", "rows that are shared by another that shares them", three, chain)
    inner = {first: [0, 2], second: [1, 1]}
    yield _shared("chain_within", "rows that sample 1 has from sample 0 alone", three, inner)
    yield _shared("not_the_next", "any earlier sample", three, {second: [0, 2]})
    marked = leaves([-1, 255, 3], [-1, 255, 4])
    yield _shared("marked", "a stored dtype that is widened", marked, {first: [0, 2]})
    wide = compact_payload(two, shared={first: [0, 2]}, stored={_EXPERTS: "I32"})
    yield _accepted("shared_not_narrowed", "one stored as it is", two, wide)
    index = {
        f"{field}.1": [0, 3] if field == _EXPERTS else [0, 4]
        for field in (_EXPERTS, "rollout_indexer_topk")
    }
    both = sample(rollout_indexer_topk=ints("int32", [4, 1, 3], range(500, 512)))
    yield _shared("both_fields", "each on its own", reply(both, both), index)
    nothing = compact_payload(two, document=lambda document: {**document, "shared": {}})
    yield _accepted("shared_none", "no name in shared", two, nothing)


def _spellings() -> Iterator[Vector]:
    meaning = leaves([1, 2, 3], [1, 2, 4, 5])
    shared = {f"{_EXPERTS}.1": [0, 2]}
    for name, (why, edit) in {
        "format_last": ("keys come in any order", lambda doc: dict(reversed(doc.items()))),
        "dtypes_order": (
            "in dtypes too",
            lambda doc: {**doc, "dtypes": dict(reversed(doc["dtypes"].items()))},
        ),
        "unknown_keys": ("they are ignored", lambda doc: {"newer": {"a": [1]}, **doc}),
        "white_space": ("it means nothing", lambda doc: json.dumps(doc, indent=1)),
    }.items():
        data = compact_payload(meaning, shared=shared, document=edit)
        yield _accepted(f"json_{name}", why, meaning, data)
    one = reply(sample(rollout_log_probs=floats(MINUS_HALF, MINUS_2_25)))
    backwards = laid_out(tensors_of(compact_payload(one)))[::-1]
    body = b"".join(item.data for item in backwards)
    data = framed(compact(entries(backwards)), body)
    yield _accepted("data_order", "misaligned data is widened right", one, data)


def _format_1() -> Iterator[Vector]:
    meaning = reply(sample())
    data = payload(
        meaning, document=lambda doc: {"format": 1, "dtypes": 3, "shared": [None], **doc}
    )
    about = {
        "verdict": "accept",
        "layer": "sample",
        "why": "in format 1 these keys are unknown ones",
        "field_set": 1,
        "canonical": False,
        "meaning": meaning,
    }
    yield Vector("y_json_format_1_with_keys_of_format_2", data, about)


def _undecided() -> Iterator[Vector]:
    meaning = reply(_with_log_probs([MINUS_HALF, "7ff0000020000000"]))
    about = {
        "verdict": "either",
        "layer": "sample",
        "format": 2,
        "why": "a reader may make a signalling NaN a quiet one",
        "field_set": 1,
        "this_package": "accept",
    }
    data = compact_payload(meaning, stored={"rollout_log_probs": "F32"})
    yield Vector("i_compact_float32_signalling_nan", data, about)


def accepted_compact_vectors() -> list[Vector]:
    """Every y_ and i_ vector of format 2."""
    return [
        *_plain_replies(),
        *_integers(),
        *_expert_counts(),
        *_floats(),
        *_other_dtypes(),
        *_shared_rows(),
        *_spellings(),
        *_format_1(),
        *_undecided(),
    ]
