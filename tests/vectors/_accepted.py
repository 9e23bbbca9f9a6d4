"""The vectors that must be accepted (y_) and those that may go either way (i_)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

from ._kit import (
    MINUS_HALF,
    NO_SPEC,
    Meaning,
    Vector,
    document_of,
    empty_sample,
    floats,
    ints,
    payload,
    reply,
    sample,
    wire_tensors,
)
from ._wire import (
    WireTensor,
    compact,
    container,
    entries,
    framed,
    laid_out,
    meta_tensor,
    padded,
    tensor,
)

_COUNTER_MAX: Final = 2**63 - 1


def _accepted(
    name: str,
    why: str,
    meaning: Meaning,
    data: bytes | None = None,
    *,
    field_set: int = 1,
) -> Vector:
    """A y_ vector; with no data given, the bytes that a writer makes of the meaning."""
    about = {
        "verdict": "accept",
        "layer": "sample",
        "why": why,
        "field_set": field_set,
        "canonical": data is None,
        "meaning": meaning,
    }
    return Vector(f"y_{name}", data or payload(meaning), about)


def _plain_replies() -> Iterator[Vector]:
    reason = reply(session_metadata={"max_trim_tokens": 1}, empty_reason="all_truncated")
    yield _accepted("no_samples_with_reason", "an empty reply says why", reason)
    yield _accepted("no_samples_no_reason", "a reason is not required", reply())
    yield _accepted("one_sample", "the plain reply", reply(sample()))
    three = [
        sample(),
        sample(
            tokens=ints("int64", [3], [5, 6, 7]),
            response="",
            response_length=0,
            loss_mask=None,
            rollout_log_probs=None,
            rollout_routed_experts=None,
            status="aborted",
            weight_versions=[],
        ),
        sample(status="truncated", weight_versions=["7", "8"], metadata={}),
    ]
    yield _accepted("three_samples", "every sample has its own tensors", reply(*three))
    eleven = [empty_sample(tokens=ints("int64", [0], [])) for _ in range(11)]
    yield _accepted("eleven_samples", "tokens.10 lies before tokens.2", reply(*eleven))
    statuses = ("pending", "completed", "truncated", "aborted", "failed")
    every = [empty_sample(status=status) for status in statuses]
    yield _accepted(
        "every_status",
        "the five statuses; tokens null as well",
        reply(*every),
        payload(reply(*every)),
    )
    cached = {"cached_tokens": _COUNTER_MAX, "total_prompt_tokens": _COUNTER_MAX}
    most = reply(sample(prefix_cache_info=cached))
    yield _accepted("counters_at_their_limit", "counters go up to 2**63 - 1", most)


def _nulls_and_sizes() -> Iterator[Vector]:
    nulls: dict[str, Any] = {"loss_mask": None, "rollout_log_probs": None}
    yield _accepted(
        "nulls",
        "every tensor that may be null but tokens",
        reply(sample(rollout_routed_experts=None, **nulls)),
    )
    no_tokens = reply(empty_sample())
    yield _accepted(
        "tokens_null",
        "a null tokens reads as no tokens; writers do not send it",
        no_tokens,
        payload(no_tokens),
    )
    one_token = sample(
        tokens=ints("int64", [1], [7]),
        response_length=0,
        response="",
        loss_mask=ints("uint8", [0], []),
        rollout_log_probs=floats(),
        rollout_routed_experts=ints("int32", [0, 25, 10], []),
        rollout_indexer_topk=ints("int32", [0, 0, 0], []),
    )
    yield _accepted("empty_is_not_null", "one token has no transitions", reply(one_token))
    no_token = {**one_token, "tokens": ints("int64", [0], [])}
    yield _accepted("no_tokens", "no tokens have no transitions either", reply(no_token))
    whole = sample(
        response_length=5,
        loss_mask=ints("uint8", [5], [1] * 5),
        rollout_log_probs=floats(*[MINUS_HALF] * 5),
    )
    yield _accepted("response_is_every_token", "R may equal T", reply(whole))
    both = sample(rollout_indexer_topk=ints("int32", [4, 1, 3], range(12)))
    yield _accepted("both_replay_arrays", "each with a shape of its own", reply(both))


def _values() -> Iterator[Vector]:
    odd = floats("7ff8000000000001", "fff4deadbeef0001")
    yield _accepted("nan_bits", "NaN payloads are kept", reply(sample(rollout_log_probs=odd)))
    odd = floats("fff0000000000000", "8000000000000000")
    yield _accepted(
        "infinity_and_minus_zero", "bits are kept", reply(sample(rollout_log_probs=odd))
    )
    mask = ints("uint8", [2], [2, 255])
    yield _accepted("mask_values", "any uint8 is a mask value", reply(sample(loss_mask=mask)))
    extreme = ints("int64", [5], [-(2**63), -1, 0, 1, _COUNTER_MAX])
    yield _accepted("token_extremes", "any int64 is an id", reply(sample(tokens=extreme)))
    experts = ints("int32", [4, 1, 1], [-(2**31), -1, 2**31 - 1, 300])
    yield _accepted(
        "expert_extremes", "any int32 is an id", reply(sample(rollout_routed_experts=experts))
    )
    text = 'e\u0301 \u4e2d \U0001f600 \u2028 \x00 \x1f \x7f \x08\x0c\n\r\t " \\ /'
    yield _accepted(
        "non_ascii",
        "text is UTF-8; only what JSON must escape is escaped",
        reply(sample(response=text, weight_versions=["\u4e2d"], metadata={"\u00e9": text})),
    )
    numbers = {
        "u64": 2**64 - 1,
        "i64": -(2**63),
        "zero": 0,
        "floats": [0.5, -0.25, 1.0, -0.0],
        "others": [True, False, None, "", [], {}],
    }
    yield _accepted("metadata_values", "JSON values stay", reply(sample(metadata=numbers)))
    keys = {"": 1, "__class__": 2, "a.b": 3, "$ref": 4, "\u00e9": 5, "e\u0301": 6, "nulls": 7}
    yield _accepted("metadata_keys", "any text is a key", reply(sample(metadata=keys)))
    deep: Any = {}
    for _ in range(123):
        deep = [deep]
    yield _accepted(
        "depth_128", "128 levels are within the limit", reply(sample(metadata={"deep": deep}))
    )
    spec = {key: count for count, key in enumerate(NO_SPEC, 5)}
    yield _accepted("spec_info", "written unless all zero", reply(sample(spec_info=spec)))


def _field_sets() -> Iterator[Vector]:
    rewards: dict[str, Any] = {
        "null": None,
        "zero": 0.0,
        "number": 0.75,
        "object": {"score": 1, "parts": [0.5, None]},
    }
    for name, reward in rewards.items():
        meaning = reply(_with_reward(sample(), reward))
        why = "null keeps the template's reward" if reward is None else "it replaces the template's"
        yield _accepted(f"reward_{name}", why, meaning, field_set=2)
    for name, number in {"integer": 3, "big_integer": 2**53 + 1}.items():
        meaning = reply(_with_reward(sample(), number))
        yield _accepted(f"reward_{name}", "an integer stays one", meaning, field_set=2)
    ignored = payload(reply(_with_reward(sample(), 3.0)))
    yield _accepted(
        "reward_in_field_set_1", "field set 1 ignores the key", reply(sample()), ignored
    )


def _with_reward(meaning: Meaning, reward: Any) -> Meaning:
    """The meaning with a reward; it is the last field, as in the JSON."""
    return {**meaning, "reward": reward}


def _spellings() -> Iterator[Vector]:
    """Documents that mean the same as a writer's, spelled in another way."""
    meaning = reply(sample(response="\u00e9"), session_metadata={"a": 1})
    edits: dict[str, tuple[str, Callable[[dict[str, Any]], Any]]] = {
        "json_white_space": (
            "white space in the JSON means nothing",
            lambda doc: " \t\r\n" + json.dumps(doc, indent=1) + "\n ",
        ),
        "json_escapes": (
            "an escaped character is that character, in keys as well",
            lambda doc: json.dumps(doc).replace('"status"', '"st\\u0061tus"').replace("/", "\\/"),
        ),
        "json_key_order": (
            "keys come in any order",
            lambda doc: {
                "empty_reason": None,
                "session_metadata": {"a": 1},
                "samples": [dict(reversed(doc["samples"][0].items()))],
            },
        ),
        "json_unknown_keys": ("unknown keys are ignored at every level", _with_unknown_keys),
        "json_format_1": ("format may be said", lambda doc: {"format": 1, **doc}),
        "json_spec_info_of_zeros": (
            "what writers leave out may be there",
            lambda doc: {**doc, "samples": [{**doc["samples"][0], "spec_info": NO_SPEC}]},
        ),
    }
    for name, (why, edit) in edits.items():
        yield _accepted(name, why, meaning, payload(meaning, document=edit))
    nulls = reply(sample(loss_mask=None, rollout_routed_experts=None))
    yield _accepted(
        "nulls_in_another_order",
        "nulls is a set",
        nulls,
        payload(nulls, document=_with_reversed_nulls),
    )


def _with_reversed_nulls(document: dict[str, Any]) -> dict[str, Any]:
    (found,) = document["samples"]
    return {**document, "samples": [{**found, "nulls": found["nulls"][::-1]}]}


def _with_unknown_keys(document: dict[str, Any]) -> dict[str, Any]:
    (found,) = document["samples"]
    cache = {**found["prefix_cache_info"], "newer": 1}
    newer = {**found, "prefix_cache_info": cache, "newer": {"a": [1]}, "group_index": 3}
    return {**document, "samples": [newer], "newer": None}


def _layouts() -> Iterator[Vector]:
    """Containers that hold the same as a writer's, laid out in another way."""
    meaning = reply(sample())
    tensors = [*wire_tensors(meaning["samples"]), meta_tensor(document_of(meaning))]
    ordered = laid_out(tensors)
    body = b"".join(item.data for item in ordered)
    in_order = entries(ordered)
    any_order = compact(dict(sorted(in_order.items(), reverse=True)))
    yield _accepted(
        "header_order",
        "entries come in any order, whatever the order of the data",
        meaning,
        framed(padded(any_order), body),
    )
    backwards = ordered[::-1]
    data = framed(padded(compact(entries(backwards))), b"".join(item.data for item in backwards))
    yield _accepted("data_order", "the data too; R3 lies at an odd offset", meaning, data)
    header = compact(in_order).encode()
    odd = framed(header + b" " * (1 + -len(header) % 8), body)
    yield _accepted("misaligned_header", "padding is a habit: all data is misaligned", meaning, odd)
    spaced = json.dumps(in_order, indent=1) + " \t\r\n"
    yield _accepted("header_white_space", "JSON white space", meaning, framed(spaced, body))
    escaped = compact(in_order).replace('"tokens.0"', '"\\u0074okens.0"').replace("dt", "\\u0064t")
    yield _accepted("header_escapes", "escapes in header keys", meaning, framed(escaped, body))
    keys = {name: dict(reversed(item.items())) for name, item in in_order.items()}
    yield _accepted(
        "header_entry_order", "an entry's keys too", meaning, framed(compact(keys), body)
    )
    text = {"__metadata__": {"writer": "\u4e2d", "": ""}, **in_order}
    yield _accepted(
        "header_metadata", "string metadata is ignored", meaning, framed(compact(text), body)
    )


def _container(name: str, why: str, tensors: list[WireTensor], data: bytes | None = None) -> Vector:
    about = {
        "verdict": "accept",
        "layer": "container",
        "why": why,
        "canonical": data is None,
        "meaning": {
            item.name: {
                "dtype": item.dtype,
                "shape": list(item.shape),
                "hex": item.data.hex(),
            }
            for item in tensors
        },
    }
    return Vector(f"y_container_{name}", data or container(tensors), about)


def _containers() -> Iterator[Vector]:
    halves = [0.5, -1.5]
    numbers: dict[str, list[Any]] = {"F64": halves, "F32": halves, "F16": halves, "BOOL": [1, 0]}
    every = [
        tensor(f"x{dtype}", dtype, [2], numbers.get(dtype, [1, 2]))
        for dtype in ("BOOL", "U8", "I8", "I16", "U16", "F16", "I32", "U32", "F32", "F64", "I64")
    ]
    every += [tensor("xU64", "U64", [2], [2**64 - 1, 0]), WireTensor("xC64", "C64", (1,), bytes(8))]
    yield _container("every_dtype", "the dtypes, and their layout order", every)
    yield _container("no_tensors", "no tensors at all", [])
    yield _container("no_tensors_unpadded", "the shortest container", [], framed("{}"))
    sizes = [
        tensor("a", "U8", [0], ()),
        tensor("b", "U8", [], [9]),
        tensor("c", "I32", [2, 0, 3], ()),
        tensor("d", "I64", [1] * 32, [-5]),
        tensor("e", "U8", [0, 2**63 - 1], ()),
    ]
    yield _container("shapes", "rank 0 is one item; empty shapes stay; rank 32", sizes)
    giant = [tensor("a", "BOOL", [0, 1, 0, 2**63 - 1], ())]
    yield _container("empty_bool_of_a_giant_axis", "as large as a shape can be", giant)
    names = ["", ".", "a/b", "__x__", 'q"\\', "\u4e2d", "\U0001f600", "e\u0301", "\u00e9", "\x01"]
    yield _container(
        "names",
        "any text is a name",
        [tensor(name, "U8", [1], [index]) for index, name in enumerate(names)],
    )
    between = [tensor("a", "U8", [2], [1, 2]), tensor("z", "U8", [0], ())]
    header = '{"z":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},'
    header += '"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}'
    yield _container(
        "empty_range_at_an_edge",
        "an empty range may lie between others",
        between,
        framed(header, b"\x01\x02"),
    )


def _either(name: str, why: str, ours: str, data: bytes) -> Vector:
    about = {
        "verdict": "either",
        "layer": "sample",
        "why": why,
        "field_set": 1,
        "this_package": ours,
    }
    return Vector(f"i_{name}", data, about)


def _undecided() -> Iterator[Vector]:
    deep: Any = {}
    for _ in range(124):
        deep = [deep]
    data = payload(reply(sample(metadata={"deep": deep})))
    yield _either("depth_129", "the depth limit is the reader's own", "LimitError", data)
    data = payload(reply(sample(metadata={"big": 10**30})))
    yield _either("metadata_big_integer", "exact or refused, never rounded", "accept", data)
    data = _with_number("7" + "0" * 5000)
    yield _either("metadata_giant_integer", "exact or refused, never rounded", "FieldError", data)
    data = _with_number("1e-999")
    yield _either("metadata_number_underflows", "0.0 or refused", "accept", data)


def _with_number(digits: str) -> bytes:
    """A payload whose metadata holds a number spelled like this."""
    spelled = f'"turns":{digits}'
    return payload(reply(sample()), document=lambda doc: compact(doc).replace('"turns":1', spelled))


def accepted_vectors() -> list[Vector]:
    """Every y_ and i_ vector."""
    return [
        *_plain_replies(),
        *_nulls_and_sizes(),
        *_values(),
        *_field_sets(),
        *_spellings(),
        *_layouts(),
        *_containers(),
        *_undecided(),
    ]
