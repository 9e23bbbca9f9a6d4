"""The vectors that must be refused (n_): one or more for each rule of SPEC sections 4.3 and 9.2."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from ._kit import Meaning, Vector, ints, payload, reply, sample
from ._refused_containers import refused_containers
from ._wire import (
    META,
    WireTensor,
    compact,
    container,
    meta_tensor,
    tensor,
)

_ONE: Final = reply(sample())


def _refused(
    name: str, rule: str, error: str, why: str, data: bytes, *, field_set: int = 1
) -> Vector:
    about = {
        "verdict": "refuse",
        "layer": "sample",
        "rule": rule,
        "error": error,
        "why": why,
        "field_set": field_set,
    }
    return Vector(f"n_{name}", data, about)


def _meta_tensors() -> Iterator[Vector]:
    text = meta_tensor({"samples": [], "session_metadata": {}, "empty_reason": None})
    size = len(text.data)
    cases = {
        "meta_missing": ("no tensor of that name", container([])),
        "meta_named_otherwise": ("the name is exact", container([text._replace(name=f"{META}.0")])),
        "meta_int8": ("another dtype", container([text._replace(dtype="I8")])),
        "meta_rank_2": ("another rank", container([text._replace(shape=(1, size))])),
        "meta_rank_0": ("another rank", container([WireTensor(META, "U8", (), b"1")])),
    }
    for name, (why, data) in cases.items():
        yield _refused(name, "M1", "MetaError", why, data)


def _texts() -> Iterator[Vector]:
    """Documents that are not one strict JSON text."""
    good = '{"samples":[],"session_metadata":{"a":1},"empty_reason":null}'
    cases: dict[str, tuple[str, str | bytes]] = {
        "text_empty": ("no JSON in it", ""),
        "text_cut": ("it ends too early", good[:-1]),
        "text_after_it": ("text after the document", good + "x"),
        "text_twice": ("two documents", good * 2),
        "text_nul_padded": ("NUL is not white space", good + "\x00"),
        "text_byte_order_mark": ("a byte order mark is not JSON", "\ufeff" + good),
        "text_utf16": ("UTF-8 only", good.encode("utf-16-le")),
        "text_not_utf8": ("no UTF-8", good.replace("a", "\xff").encode("latin-1")),
        "text_overlong_utf8": ("no UTF-8", good.encode().replace(b'"a"', b'"\xc0\xaf"')),
        "text_utf8_surrogate": ("no UTF-8", good.encode().replace(b'"a"', b'"\xed\xa0\x80"')),
        "text_lone_surrogate": ("an escaped half of a pair", good.replace('"a"', '"\\ud800"')),
        "text_raw_control": ("it must be escaped", good.replace('"a"', '"\x01"')),
        "text_nan": ("no JSON number", good.replace(":1", ":NaN")),
        "text_infinity": ("no JSON number", good.replace(":1", ":-Infinity")),
        "text_leading_zero": ("no JSON number", good.replace(":1", ":01")),
        "text_trailing_comma": ("no JSON", good.replace(":1", ":1,")),
        "text_comment": ("no JSON", good.replace(":1", ":1/**/")),
    }
    for name, (why, text) in cases.items():
        yield _refused(name, "M3", "MetaError", why, container([meta_tensor(text)]))
    twice = {
        "key_twice_at_the_top": good.replace("{", '{"empty_reason":null,', 1),
        "key_twice_in_session_metadata": good.replace('"a":1', '"a":1,"a":1'),
        "key_twice_by_escape": good.replace('"a":1', '"a":1,"\\u0061":2'),
        "key_twice_deep": good.replace(":1", ':[{"b":{"c":1,"c":2}}]'),
    }
    for name, text in twice.items():
        why = "one key twice in one object"
        yield _refused(name, "M4", "MetaError", why, container([meta_tensor(text)]))
    text = compact({"samples": [], "session_metadata": {}, "empty_reason": None})
    huge = text.replace("{}", '{"a":1e999}')
    why = "a number that no binary64 holds"
    yield _refused("number_overflows", "M7", "MetaError", why, container([meta_tensor(huge)]))
    ignored = text.replace("{", '{"newer":{"a":-1e999},', 1)
    why = "the same under a key that is ignored"
    data = container([meta_tensor(ignored)])
    yield _refused("number_overflows_in_ignored_key", "M7", "MetaError", why, data)


def _envelopes() -> Iterator[Vector]:
    good: dict[str, Any] = {"samples": [], "session_metadata": {}, "empty_reason": None}
    formats = {"zero": (0, "no such format"), "text": ("1", "the number, not the text")}
    for name, (value, why) in formats.items():
        data = container([meta_tensor({**good, "format": value})])
        yield _refused(f"format_{name}", "M5", "VersionError", why, data)
    edits: dict[str, dict[str, Any] | list[Any] | None] = {
        "document_null": None,
        "document_list": [good],
        "samples_missing": {key: good[key] for key in ("session_metadata", "empty_reason")},
        "samples_object": {**good, "samples": {}},
        "session_metadata_missing": {"samples": [], "empty_reason": None},
        "session_metadata_null": {**good, "session_metadata": None},
        "session_metadata_list": {**good, "session_metadata": []},
        "empty_reason_missing": {"samples": [], "session_metadata": {}},
        "empty_reason_number": {**good, "empty_reason": 3},
    }
    for name, document in edits.items():
        text = compact(document)
        why = "a required key is missing, or of a wrong type"
        yield _refused(name, "M6", "MetaError", why, container([meta_tensor(text)]))


def _edited(**changes: Any) -> bytes:
    """A payload of one sample whose JSON object has keys changed, or taken out with None given
    as `...`."""

    def edit(document: dict[str, Any]) -> dict[str, Any]:
        changed = {**document["samples"][0], **changes}
        found = {key: value for key, value in changed.items() if value is not ...}
        return {**document, "samples": [found]}

    return payload(_ONE, document=edit)


def _json_fields() -> Iterator[Vector]:
    wrong: dict[str, tuple[Any, ...]] = {
        "response": (..., None, 5, ["hi!"]),
        "response_length": (..., None, "2", 2.0, True, -1, 2**63),
        "status": (..., None, 1, "COMPLETED", "completed ", "", ["completed"]),
        "weight_versions": (..., None, "7", [7], {"7": 1}, [["7"]]),
        "prefix_cache_info": (..., None, [1, 2], 3),
        "metadata": (..., None, [], "{}", False, [["a", 1]]),
        "spec_info": (None, [], 0),
    }
    for field, values in wrong.items():
        for index, value in enumerate(values):
            kind = "missing" if value is ... else f"wrong_{index}"
            why = f"{field} is missing" if value is ... else f"{field} cannot be {compact(value)}"
            data = _edited(**{field: value})
            yield _refused(f"{field}_{kind}", "F1", "FieldError", why, data)
    why = "field set 2 needs a reward"
    yield _refused("reward_missing", "F1", "FieldError", why, payload(_ONE), field_set=2)
    for index, value in enumerate((True, "1.0", [1.0])):
        why, data = f"reward cannot be {compact(value)}", _edited(reward=value)
        yield _refused(f"reward_wrong_{index}", "F1", "FieldError", why, data, field_set=2)
    whole = payload(_ONE, document=lambda document: {**document, "samples": [None]})
    yield _refused("sample_null", "F1", "FieldError", "a sample is an object", whole)


def _counters() -> Iterator[Vector]:
    good = {"cached_tokens": 2, "total_prompt_tokens": 3}
    for name, record in {
        "missing": {"cached_tokens": 2},
        "negative": {**good, "cached_tokens": -1},
        "too_big": {**good, "cached_tokens": 2**63},
        "float": {**good, "cached_tokens": 2.0},
        "null": {**good, "cached_tokens": None},
    }.items():
        data = _edited(prefix_cache_info=record)
        why = "every counter is an integer of 0..2**63-1"
        yield _refused(f"counter_{name}", "F2", "FieldError", why, data)
    data = _edited(spec_info={"spec_accept_token_num": 1})
    yield _refused("spec_info_lacks_a_counter", "F2", "FieldError", "all four or no record", data)


def _nulls() -> Iterator[Vector]:
    for name, value in {
        "missing": ...,
        "null": None,
        "text": "rollout_indexer_topk",
        "of_numbers": [4],
        "twice": ["rollout_indexer_topk", "rollout_indexer_topk"],
        "of_unknown": ["rollout_indexer_topk", "no_such_field"],
        "of_json_field": ["rollout_indexer_topk", "response"],
        "with_index": ["rollout_indexer_topk.0"],
    }.items():
        why = "nulls lists tensor fields that may be null, each once"
        yield _refused(f"nulls_{name}", "F3", "FieldError", why, _edited(nulls=value))


def _with_tensor(item: WireTensor) -> bytes:
    """A payload of one sample with a tensor added, or put in place of the one of that name."""

    def edit(found: list[WireTensor]) -> list[WireTensor]:
        return [*(other for other in found if other.name != item.name), item]

    return payload(_ONE, tensors=edit)


def _without_tensor(name: str) -> bytes:
    return payload(_ONE, tensors=lambda found: [item for item in found if item.name != name])


def _missing_and_superfluous_tensors() -> Iterator[Vector]:
    why = "neither a tensor nor a null"
    for name in ("tokens", "loss_mask", "rollout_routed_experts"):
        data = _without_tensor(f"{name}.0")
        yield _refused(f"{name}_missing", "F4", "FieldError", why, data)
    two = payload(reply(sample(), sample()), tensors=lambda found: found[:4])
    yield _refused("second_sample_has_no_tensors", "F4", "FieldError", why, two)
    why = "no sample refers to it"
    for index, name in enumerate(
        ("tokens.1", "tokens.00", "tokens", "tokens.0 ", "tokens.+0", "response.0", "x", "")
    ):
        data = _with_tensor(tensor(name, "I64", [5], range(5)))
        yield _refused(f"superfluous_{index}", "F10", "FieldError", why, data)
    null = _with_tensor(tensor("rollout_indexer_topk.0", "I32", [4, 1, 1], range(4)))
    yield _refused("null_and_present", "F10", "FieldError", "it is listed in nulls", null)


def _mistyped_tensors() -> Iterator[Vector]:
    for item in (
        tensor("tokens.0", "I32", [5], range(5)),
        tensor("loss_mask.0", "BOOL", [2], [1, 0]),
        tensor("rollout_log_probs.0", "F32", [2], [-0.5, -2.25]),
        tensor("rollout_routed_experts.0", "U8", [4, 2, 2], range(16)),
    ):
        name = f"{item.name[:-2]}_of_another_dtype"
        yield _refused(name, "F5", "FieldError", "one dtype each", _with_tensor(item))
    for item in (
        tensor("tokens.0", "I64", [5, 1], range(5)),
        tensor("loss_mask.0", "U8", [], [1]),
        tensor("rollout_log_probs.0", "F64", [1, 2], [-0.5, -2.25]),
        tensor("rollout_routed_experts.0", "I32", [4, 4], range(16)),
    ):
        name = f"{item.name[:-2]}_of_another_rank"
        yield _refused(name, "F6", "FieldError", "one rank each", _with_tensor(item))


def _rows() -> Iterator[Vector]:
    def experts(*shape: int) -> Meaning:
        count = shape[0] * shape[1] * shape[2]
        return sample(rollout_routed_experts=ints("int32", shape, range(count)))

    longer = sample(
        response_length=6, loss_mask=ints("uint8", [6], [1] * 6), rollout_log_probs=None
    )
    why = "the response lies within the tokens"
    yield _refused("response_longer_than_tokens", "F7", "FieldError", why, payload(reply(longer)))
    for name, meaning in {
        "loss_mask_short": sample(loss_mask=ints("uint8", [1], [1])),
        "loss_mask_of_every_token": sample(loss_mask=ints("uint8", [5], [1] * 5)),
        "experts_for_every_token": experts(5, 2, 2),
        "experts_one_row_short": experts(3, 2, 2),
        "experts_layers_first": experts(2, 4, 2),
        "response_length_short": sample(response_length=1),
    }.items():
        why = "the wrong number of rows"
        yield _refused(name, "F8", "FieldError", why, payload(reply(meaning)))
    for name, meaning in {"layers": experts(4, 0, 2), "experts": experts(4, 2, 0)}.items():
        why = "rows with nothing in them"
        yield _refused(f"experts_no_{name}", "F9", "FieldError", why, payload(reply(meaning)))


def _limits() -> Iterator[Vector]:
    open_, close = "[" * 200, "]" * 200
    deep = '{"samples":[],"session_metadata":{"a":%s},"empty_reason":null}' % (open_ + close)
    why = "far deeper than the default limit"
    yield _refused("depth_203", "M2", "LimitError", why, container([meta_tensor(deep)]))
    unclosed = "[" * 100_000
    why = "depth is found without recursion"
    yield _refused("depth_100000", "M2", "LimitError", why, container([meta_tensor(unclosed)]))


def refused_vectors() -> list[Vector]:
    """Every n_ vector."""
    return [
        *refused_containers(),
        *_meta_tensors(),
        *_texts(),
        *_envelopes(),
        *_json_fields(),
        *_counters(),
        *_nulls(),
        *_missing_and_superfluous_tensors(),
        *_mistyped_tensors(),
        *_rows(),
        *_limits(),
    ]
