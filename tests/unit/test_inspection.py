"""inspect_payload: what it says of payloads whose content the test made."""

from __future__ import annotations

import json
import math
import mmap
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import numpy as np
import numpy.typing as npt
import pytest

import sample_wire as sw
from sample_wire.inspection import (
    PayloadSummary,
    SampleSummary,
    inspect_payload,
    summary_json,
)

NAN, INF = math.nan, math.inf


def make_sample(num_tokens: int = 5, **fields: Any) -> sw.Sample:
    """A sample of 5 tokens, the last 3 of them response, unless told otherwise."""
    response_length = fields.setdefault("response_length", 3)
    fields.setdefault("loss_mask", np.ones(response_length, np.uint8))
    fields.setdefault("rollout_log_probs", np.full(response_length, -0.5))
    return sw.Sample(tokens=np.arange(num_tokens), **fields)


def routing(*shape: int) -> npt.NDArray[np.int32]:
    """Expert ids that count up from 0."""
    return np.arange(math.prod(shape), dtype=np.int32).reshape(shape)


def inspect_one(sample: sw.Sample, **options: Any) -> SampleSummary:
    """The summary of a payload's only sample."""
    return inspect_payload(bytes(sw.encode_samples([sample])), **options).samples[0]


def masked(mask: list[int], log_probs: list[float] | None = None) -> sw.Sample:
    """A sample whose response is as long as its mask."""
    return make_sample(
        len(mask) + 1,
        response_length=len(mask),
        loss_mask=np.array(mask, np.uint8),
        rollout_log_probs=None if log_probs is None else np.array(log_probs),
    )


@pytest.mark.parametrize(
    ("mask", "num_trained", "num_turns"),
    [
        pytest.param([], 0, 0, id="empty"),
        pytest.param([0, 0], 0, 0, id="none_trained"),
        pytest.param([1], 1, 1, id="one"),
        pytest.param([1, 1, 1], 3, 1, id="one_run"),
        pytest.param([1, 1, 0, 1], 3, 2, id="run_at_each_end"),
        pytest.param([0, 1, 0, 1, 1, 0], 3, 2, id="runs_within"),
        pytest.param([2, 255, 0, 7], 3, 2, id="other_values_than_1"),
    ],
)
def test_trained_tokens_and_turns_are_counted_by_the_mask(
    mask: list[int], num_trained: int, num_turns: int
) -> None:
    summary = inspect_one(masked(mask))
    assert (summary.num_trained, summary.num_turns) == (num_trained, num_turns)


def test_without_a_mask_what_is_trained_is_unknown() -> None:
    summary = inspect_one(make_sample(loss_mask=None))
    assert (summary.num_trained, summary.num_turns, summary.log_probs) == (None, None, None)


def test_tokens_and_response_are_counted() -> None:
    summary = inspect_one(make_sample(9, response_length=4))
    assert (summary.num_tokens, summary.response_length) == (9, 4)


def test_null_tokens_count_as_none_at_all() -> None:
    payload = sw.encode_samples([make_sample(0, response_length=0)])
    tensors = sw.read_container(payload)
    meta = bytes(tensors["_samples_meta"]).replace(b'"nulls":[', b'"nulls":["tokens",')
    del tensors["tokens.0"]
    tensors["_samples_meta"] = np.frombuffer(meta, np.uint8)
    summary = inspect_payload(sw.write_container(tensors)).samples[0]
    assert (summary.num_tokens, summary.nulls[0]) == (0, "tokens")


@pytest.mark.parametrize("status", list(sw.Status), ids=lambda status: status.value)
def test_the_status_is_spelled_as_on_the_wire(status: sw.Status) -> None:
    assert inspect_one(make_sample(status=status)).status == status.value


def test_log_probs_are_summed_up_over_trained_tokens_only() -> None:
    summary = inspect_one(masked([1, 0, 1, 0], [-1.0, -100.0, -3.0, NAN])).log_probs
    assert summary is not None
    assert (summary.mean, summary.min, summary.num_non_finite) == (-2.0, -3.0, 0)


@pytest.mark.parametrize(
    ("log_probs", "mean", "smallest", "num_non_finite"),
    [
        pytest.param([-1.0, NAN, -2.0], "NaN", "NaN", 1, id="nan"),
        pytest.param([-1.0, -INF, -2.0], "-Infinity", "-Infinity", 1, id="minus_infinity"),
        pytest.param([INF, -1.0, INF], "Infinity", -1.0, 2, id="infinity"),
        pytest.param([INF, -INF, -1.0], "NaN", "-Infinity", 2, id="both_infinities"),
    ],
)
def test_non_finite_log_probs_are_shown_as_text(
    log_probs: list[float], mean: str, smallest: str | float, num_non_finite: int
) -> None:
    summary = inspect_one(masked([1, 1, 1], log_probs)).log_probs
    assert summary is not None
    assert summary.mean == mean
    assert summary.min == smallest
    assert summary.num_non_finite == num_non_finite


@pytest.mark.parametrize(
    "sample",
    [
        pytest.param(masked([0, 0], [-1.0, -2.0]), id="no_trained_token"),
        pytest.param(masked([1, 1]), id="null_log_probs"),
        pytest.param(masked([], []), id="no_response"),
    ],
)
def test_there_is_no_mean_of_no_log_probs(sample: sw.Sample) -> None:
    assert inspect_one(sample).log_probs is None


def test_r3_is_described() -> None:
    sample = make_sample(rollout_routed_experts=routing(4, 2, 3))
    payload = bytes(sw.encode_samples([sample]))
    r3 = inspect_payload(payload).samples[0].r3
    assert r3 is not None
    assert (r3.shape, r3.dtype, r3.max_id, r3.nbytes) == ([4, 2, 3], "int32", 23, 96)
    assert r3.share == 96 / len(payload)


def test_a_null_r3_has_no_description() -> None:
    assert inspect_one(make_sample()).r3 is None


def test_an_empty_r3_has_a_shape_but_no_max_id() -> None:
    r3 = inspect_one(make_sample(1, response_length=0, rollout_routed_experts=routing(0, 2, 3))).r3
    assert r3 is not None
    assert (r3.shape, r3.max_id, r3.nbytes) == ([0, 2, 3], None, 0)


def test_a_marker_of_minus_one_can_be_the_max_id() -> None:
    r3 = inspect_one(make_sample(rollout_routed_experts=np.full((4, 1, 1), -1, np.int32))).r3
    assert r3 is not None
    assert r3.max_id == -1


# 3 pieces of 4 MiB and some more: 1,000,003 rows of 4 ids of 4 bytes are 15.3 MiB.
LARGE_ROWS = 1_000_003


@pytest.mark.parametrize("position", [0, 1_048_576, 2_500_000, 4 * LARGE_ROWS - 1], ids=str)
def test_the_max_id_is_found_in_whichever_piece_it_lies(position: int) -> None:
    routed = np.zeros((LARGE_ROWS, 2, 2), np.int32)
    routed.reshape(-1)[position] = 77
    sample = sw.Sample(tokens=np.zeros(LARGE_ROWS + 1, np.int64), rollout_routed_experts=routed)
    r3 = inspect_payload(sw.encode_samples([sample])).samples[0].r3
    assert r3 is not None
    assert r3.max_id == 77


def test_the_max_id_is_left_out_where_it_is_not_asked_for() -> None:
    r3 = inspect_one(make_sample(rollout_routed_experts=routing(4, 2, 3)), max_ids=False).r3
    assert r3 is not None
    assert (r3.shape, r3.max_id) == ([4, 2, 3], None)


RSS_GROWTH = """
import mmap, sys
from sample_wire.inspection import inspect_payload

def resident_pages():  # not ru_maxrss, which a process inherits from the one that started it
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1])

with open(sys.argv[1], "rb") as file:
    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
before = resident_pages()
inspect_payload(mapped, max_ids=sys.argv[2] == "True")
print((resident_pages() - before) * mmap.PAGESIZE)
"""
R3_BYTES = 128 << 20


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc/self/statm")
@pytest.mark.parametrize("max_ids", [False, True], ids=["max_ids_off", "max_ids_on"])
def test_r3_of_a_mapped_file_is_read_for_its_max_id_only(tmp_path: Path, max_ids: bool) -> None:
    file = tmp_path / "payload"
    routed = np.zeros((1, 1 << 12, R3_BYTES >> 14), np.int32)
    with file.open("wb") as out:
        sample = make_sample(2, response_length=1, rollout_routed_experts=routed)
        sw.encode_samples([sample]).write_to(out)
    command = [sys.executable, "-c", RSS_GROWTH, str(file), str(max_ids)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert (int(done.stdout) > R3_BYTES // 2) == max_ids


def test_weight_versions_are_given_as_they_are() -> None:
    assert inspect_one(make_sample(weight_versions=["7", "7", "8"])).weight_versions == [
        "7",
        "7",
        "8",
    ]


def test_nulls_are_given_in_order_of_declaration() -> None:
    summary = inspect_one(make_sample(loss_mask=None, rollout_log_probs=None))
    assert summary.nulls == [
        "loss_mask",
        "rollout_log_probs",
        "rollout_routed_experts",
        "rollout_indexer_topk",
    ]


def test_every_array_field_that_is_not_null_has_its_size() -> None:
    sample = make_sample(rollout_routed_experts=routing(4, 2, 3), loss_mask=None)
    assert inspect_one(sample).field_bytes == {
        "tokens": 40,
        "rollout_log_probs": 24,
        "rollout_routed_experts": 96,
    }


def test_totals_are_over_all_samples() -> None:
    samples = [
        make_sample(5, rollout_routed_experts=routing(4, 2, 3)),
        make_sample(7, loss_mask=np.array([1, 0, 0], np.uint8)),
        make_sample(3, rollout_routed_experts=routing(2, 2, 3)),
    ]
    payload = bytes(sw.encode_samples(samples))
    summary = inspect_payload(payload)
    assert (summary.num_samples, summary.num_tokens, summary.num_trained) == (3, 15, 7)
    assert (summary.payload_bytes, summary.r3_bytes) == (len(payload), 96 + 48)
    assert summary.r3_share == 144 / len(payload)


def test_the_total_of_trained_tokens_is_unknown_if_one_mask_is_null() -> None:
    summary = inspect_payload(sw.encode_samples([make_sample(), make_sample(loss_mask=None)]))
    assert summary.num_trained is None
    assert summary.num_tokens == 10


def test_a_payload_without_samples_gives_its_reason() -> None:
    summary = inspect_payload(sw.encode_samples([], {"b": 1, "a": 2}, empty_reason="no_records"))
    assert summary.empty_reason == "no_records"
    assert summary.session_metadata_keys == ["b", "a"]
    assert (summary.num_samples, summary.num_tokens, summary.samples) == (0, 0, [])


def refuse(name: str) -> NoReturn:
    raise AssertionError(f"{name} is not standard JSON")


def test_json_output_is_standard_json_even_of_non_finite_numbers() -> None:
    sample = masked([1, 1], [NAN, -INF])
    text = summary_json(inspect_payload(sw.encode_samples([sample])))
    log_probs = json.loads(text, parse_constant=refuse)["samples"][0]["log_probs"]
    assert log_probs == {"mean": "NaN", "min": "NaN", "num_non_finite": 2}


def test_json_output_is_ascii_and_parses_to_an_equal_summary() -> None:
    sample = make_sample(
        rollout_routed_experts=routing(4, 2, 3), weight_versions=["gr\u00fcn", "\x1b[31m"]
    )
    summary = inspect_payload(sw.encode_samples([sample, make_sample()], {"\u00e9": 1}))
    text = summary_json(summary)
    assert text.isascii()
    assert msgspec.json.decode(text, type=PayloadSummary) == summary


def test_a_summary_can_be_written_by_msgspec_itself() -> None:
    summary = inspect_payload(sw.encode_samples([masked([1, 1], [-INF, -1.0])]))
    text = msgspec.json.encode(summary)
    assert b'"-Infinity"' in text
    assert msgspec.json.decode(text, type=PayloadSummary) == summary


def test_field_set_2_is_read_where_it_is_asked_for() -> None:
    payload = sw.encode_samples([make_sample(reward=1.0)], field_set=2)
    assert inspect_payload(payload, field_set=2).field_set == 2


def test_a_payload_of_field_set_1_is_refused_as_field_set_2() -> None:
    with pytest.raises(sw.FieldError):
        inspect_payload(sw.encode_samples([make_sample()]), field_set=2)


def test_more_samples_than_allowed_are_refused() -> None:
    payload = sw.encode_samples([make_sample()] * 3)
    assert inspect_payload(payload, max_samples=3).num_samples == 3
    with pytest.raises(sw.LimitError):
        inspect_payload(payload, max_samples=2)


def mapped(data: bytes) -> mmap.mmap:
    """The bytes in anonymous mapped memory."""
    memory = mmap.mmap(-1, len(data))
    memory.write(data)
    return memory


def misaligned(data: bytes) -> memoryview:
    """The bytes at an odd address, whatever the allocator does."""
    room = np.empty(len(data) + 8, np.uint8)
    start = 1 - room.ctypes.data % 2
    room[start : start + len(data)] = np.frombuffer(data, np.uint8)
    return room[start : start + len(data)].data


@pytest.mark.parametrize(
    "wrap", [bytearray, memoryview, mapped, misaligned], ids=lambda f: f.__name__
)
def test_every_kind_of_buffer_gives_one_summary(wrap: Callable[[bytes], object]) -> None:
    payload = sw.encode_samples([make_sample(rollout_routed_experts=routing(4, 2, 3))])
    assert inspect_payload(wrap(bytes(payload))) == inspect_payload(payload)


def test_what_is_no_buffer_is_a_type_error() -> None:
    with pytest.raises(TypeError):
        inspect_payload("text")


def test_every_truncation_is_refused() -> None:
    payload = bytes(sw.encode_samples([make_sample(2, response_length=1)]))
    for length in range(len(payload)):
        with pytest.raises(sw.DecodeError):
            inspect_payload(payload[:length])


def test_the_summary_keeps_no_view_of_the_buffer() -> None:
    buffer = bytearray(bytes(sw.encode_samples([make_sample()])))
    summary = inspect_payload(buffer)
    buffer.clear()  # a BufferError while a view of it lives
    assert summary.num_tokens == 5
