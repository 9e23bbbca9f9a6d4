"""A recording as a sample: against a slow build of the test's own, and what is refused."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import sample_wire as sw
from sample_wire.demo.recorded import bundled_recording
from sample_wire.demo.recording import RecordingError, build_sample, read_recording

ROUTED_KEY = "response.body.choices[0].routed_experts"


def records() -> Any:
    """The bundled recording as plain objects."""
    return json.loads(bundled_recording())


def choice_of(record: Any) -> Any:
    return record["response"]["body"]["choices"][0]


def prompt_of(record: Any) -> Any:
    return record["request"]["body"]["token_ids"]


def build(recording: Any) -> sw.Sample:
    return build_sample(read_recording(json.dumps(recording).encode()))


def npy(array: npt.NDArray[Any]) -> bytes:
    """A .npy file, as numpy writes it."""
    out = io.BytesIO()
    np.save(out, array, allow_pickle=False)
    return out.getvalue()


def rows_of(record: Any) -> npt.NDArray[Any]:
    """A turn's routing as recorded, by numpy's own reader."""
    data = base64.b64decode(choice_of(record)["routed_experts"])
    rows: npt.NDArray[Any] = np.load(io.BytesIO(data), allow_pickle=False)
    return rows


def routing_of(sample: sw.Sample) -> npt.NDArray[np.int32]:
    """The sample's routing as one array."""
    assert sample.rollout_routed_experts is not None
    return np.asarray(sample.rollout_routed_experts)


def set_rows(record: Any, rows: npt.NDArray[Any]) -> None:
    choice_of(record)["routed_experts"] = base64.b64encode(npy(rows)).decode()


def set_start(record: Any, start: int) -> None:
    record["request"]["body"]["sampling_params"]["routed_experts_prompt_start"] = start


@pytest.fixture(scope="module")
def sample() -> sw.Sample:
    return build_sample(read_recording(bundled_recording()))


def test_the_tokens_are_the_last_prompt_and_output(sample: sw.Sample) -> None:
    last = records()["turns"][-1]
    assert sample.tokens.tolist() == prompt_of(last) + choice_of(last)["token_ids"]
    assert sample.tokens.dtype == np.int64


def test_mask_and_log_probs_are_those_of_a_walk_over_every_position(sample: sw.Sample) -> None:
    turns = records()["turns"]
    num_tokens = len(prompt_of(turns[-1])) + len(choice_of(turns[-1])["token_ids"])
    mask, log_probs = [0] * num_tokens, [0.0] * num_tokens
    for record in turns:
        for offset, item in enumerate(choice_of(record)["logprobs"]["content"]):
            position = len(prompt_of(record)) + offset
            mask[position], log_probs[position] = 1, item["logprob"]
            assert item["token"] == f"token_id:{sample.tokens[position]}"
    num_prompt = len(prompt_of(turns[0]))
    assert sample.loss_mask is not None
    assert sample.rollout_log_probs is not None
    assert sample.loss_mask.tolist() == mask[num_prompt:]
    assert sample.rollout_log_probs.tolist() == log_probs[num_prompt:]
    assert sample.response_length == num_tokens - num_prompt


def test_each_routing_row_is_the_one_that_was_recorded_for_its_token(sample: sw.Sample) -> None:
    by_position: dict[int, npt.NDArray[Any]] = {}
    for record in records()["turns"]:
        start = record["request"]["body"]["sampling_params"]["routed_experts_prompt_start"]
        for offset, row in enumerate(rows_of(record)):
            assert by_position.setdefault(start + offset, row) is row  # sent once
    routed_TLK = routing_of(sample)
    assert routed_TLK.dtype == np.int32
    assert len(routed_TLK) == len(by_position) == len(sample.tokens) - 1
    assert all(np.array_equal(routed_TLK[at], row) for at, row in by_position.items())


def test_the_counters_are_summed_over_turns(sample: sw.Sample) -> None:
    usages = [record["response"]["body"]["usage"] for record in records()["turns"]]
    assert sample.prefix_cache_info == sw.PrefixCacheInfo(
        cached_tokens=sum(usage["prompt_tokens_details"]["cached_tokens"] for usage in usages),
        total_prompt_tokens=sum(usage["prompt_tokens"] for usage in usages),
    )
    assert sample.prefix_cache_info.cached_tokens > 0


def test_what_the_recording_does_not_have_is_left_empty(sample: sw.Sample) -> None:
    assert (sample.response, sample.weight_versions) == ("", [])
    assert sample.rollout_indexer_topk is None


def test_the_sample_keeps_every_rule(sample: sw.Sample) -> None:
    sw.validate(sample)


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        ("stop", sw.Status.COMPLETED),
        ("tool_calls", sw.Status.COMPLETED),
        ("length", sw.Status.TRUNCATED),
        ("abort", sw.Status.ABORTED),
        ("repetition", sw.Status.PENDING),
        (None, sw.Status.PENDING),
    ],
)
def test_the_last_finish_reason_gives_the_status(reason: str | None, status: sw.Status) -> None:
    recording = records()
    choice_of(recording["turns"][-1])["finish_reason"] = reason
    assert build(recording).status is status


def test_counters_that_are_not_reported_count_as_zero() -> None:
    recording = records()
    for record, details in zip(
        recording["turns"], [None, {}, {"cached_tokens": None}], strict=False
    ):
        record["response"]["body"]["usage"]["prompt_tokens_details"] = details
    assert build(recording).prefix_cache_info.cached_tokens == 512 + 768


def test_turns_that_send_all_rows_give_the_rows_that_were_sent_last(sample: sw.Sample) -> None:
    routed_TLK = routing_of(sample)
    recording = records()
    for record in recording["turns"]:
        num_rows = len(prompt_of(record)) + len(choice_of(record)["token_ids"]) - 1
        set_start(record, 0)
        set_rows(record, routed_TLK[:num_rows].astype(np.uint8))
    last = routed_TLK.astype(np.uint8)
    last[0] += 1
    set_rows(recording["turns"][-1], last)
    assert np.array_equal(routing_of(build(recording)), last)


def test_a_start_that_the_request_does_not_name_is_0(sample: sw.Sample) -> None:
    recording = records()
    del recording["turns"][0]["request"]["body"]["sampling_params"]["routed_experts_prompt_start"]
    assert np.array_equal(routing_of(build(recording)), routing_of(sample))


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int32], ids=lambda kind: kind.__name__)
def test_rows_of_any_dtype_that_engines_send_are_taken(
    dtype: type[np.generic], sample: sw.Sample
) -> None:
    recording = records()
    for record in recording["turns"]:
        set_rows(record, rows_of(record).astype(dtype))
    assert np.array_equal(routing_of(build(recording)), routing_of(sample))


def test_without_routing_on_any_turn_the_sample_has_none() -> None:
    recording = records()
    for record in recording["turns"]:
        choice_of(record)["routed_experts"] = None
    assert build(recording).rollout_routed_experts is None


def change_token(turns: Any) -> None:
    prompt_of(turns[2])[17] += 1


def shorten_prompt(turns: Any) -> None:
    del prompt_of(turns[2])[200:]


def drop_log_prob(turns: Any) -> None:
    choice_of(turns[3])["logprobs"]["content"].pop()


def drop_routing(turns: Any) -> None:
    del choice_of(turns[2])["routed_experts"]


def drop_first_routing(turns: Any) -> None:
    del choice_of(turns[0])["routed_experts"]


def make_gap(turns: Any) -> None:
    set_start(turns[1], 94)
    set_rows(turns[1], rows_of(turns[1])[1:])


def drop_row(turns: Any) -> None:
    set_rows(turns[1], rows_of(turns[1])[:-1])


def drop_layer(turns: Any) -> None:
    set_rows(turns[1], rows_of(turns[1])[:, :-1])


@pytest.mark.parametrize(
    ("change", "turn", "field"),
    [
        (change_token, 3, "input_ids"),
        (shorten_prompt, 3, "routed_experts"),
        (drop_log_prob, 4, "token_ids"),
        (drop_routing, 3, "routed_experts"),
        (drop_first_routing, 1, "routed_experts"),
        (make_gap, 2, "routed_experts"),
        (drop_row, 2, "routed_experts"),
        (drop_layer, 2, "routed_experts"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_turns_that_do_not_fit_together_are_refused_by_turn_and_field(
    change: Callable[[Any], None], turn: int, field: str
) -> None:
    recording = records()
    change(recording["turns"])
    with pytest.raises(sw.AssemblyError) as refusal:
        build(recording)
    assert (refusal.value.turn, refusal.value.field) == (turn, field)


def test_a_prompt_that_parts_from_the_turns_before_is_told_by_position() -> None:
    recording = records()
    change_token(recording["turns"])
    with pytest.raises(sw.AssemblyError, match=r"turn 3: its prompt parts .* at position 17:"):
        build(recording)


def test_a_turn_after_the_end_of_the_session_is_refused() -> None:
    recording = records()
    choice_of(recording["turns"][1])["finish_reason"] = "length"
    with pytest.raises(RecordingError) as refusal:
        build(recording)
    assert str(refusal.value) == (
        "turns[1].response.body.choices[0].finish_reason ends the session, yet a turn follows"
    )


def spoil_base64(turns: Any) -> None:
    choice_of(turns[0])["routed_experts"] = "!" + choice_of(turns[0])["routed_experts"]


def send_raw_bytes(turns: Any) -> None:
    data = rows_of(turns[0]).astype(np.int32).tobytes()
    choice_of(turns[0])["routed_experts"] = base64.b64encode(data).decode()


def send_rows_of_nothing(turns: Any) -> None:
    prompt_of(turns[0])[1:] = []
    choice_of(turns[0])["token_ids"] = []
    set_rows(turns[0], np.empty((0, 4, 0), np.uint8))


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (spoil_base64, "is no base64 text"),
        (send_raw_bytes, "has no header"),
        (send_rows_of_nothing, "RoutingSpec.top_k is a positive integer"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_routing_that_does_not_tell_its_shape_is_refused_by_its_key(
    change: Callable[[Any], None], error: str
) -> None:
    recording = records()
    change(recording["turns"])
    with pytest.raises(RecordingError) as refusal:
        build(recording)
    assert str(refusal.value).startswith(f"turns[0].{ROUTED_KEY} {error}")


def set_value(turns: Any, path: str, value: object) -> None:
    """Sets a key of turn 1; value is put in place of what is there."""
    *steps, last = path.split(".")
    place = turns[1]
    for step in steps:
        place = place[int(step)] if step.isdigit() else place[step]
    place[last] = value


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("request.body.token_ids", []),
        ("request.body.token_ids", [1, -1]),
        ("request.body.token_ids", [1.5]),
        ("request.body.sampling_params.routed_experts_prompt_start", -1),
        ("response.status", "200"),
        ("response.status", 400),
        ("response.body.choices", []),
        ("response.body.model", None),
        ("response.body.usage.prompt_tokens", -1),
        ("response.body.choices.0.token_ids", None),
        ("response.body.choices.0.logprobs", None),
        ("response.body.choices.0.logprobs.content", [{"logprob": None}]),
        ("response.body.choices.0.routed_experts", [[1]]),
    ],
    ids=str,
)
def test_a_value_of_another_type_is_refused_by_its_place(path: str, value: object) -> None:
    recording = records()
    set_value(recording["turns"], path, value)
    with pytest.raises(RecordingError, match=r"`\$\.turns\[\d*\.*\]\." + path.split(".")[0]):
        build(recording)
