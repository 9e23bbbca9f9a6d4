"""The summary of a payload as text for a terminal."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sample_wire as sw
from sample_wire._report import markdown_table, printable, summary_text, text_table
from sample_wire.inspection import inspect_payload


def make_sample(**fields: Any) -> sw.Sample:
    defaults: dict[str, Any] = {
        "tokens": np.arange(5),
        "response_length": 3,
        "loss_mask": np.array([1, 0, 1], np.uint8),
        "rollout_log_probs": np.array([-1.0, -9.0, -2.5]),
        "rollout_routed_experts": np.arange(24, dtype=np.int32).reshape(4, 2, 3),
        "status": sw.Status.COMPLETED,
        "weight_versions": ["7", "7", "8"],
    }
    return sw.Sample(**{**defaults, **fields})


def shown(*samples: sw.Sample, **options: Any) -> str:
    return summary_text(inspect_payload(sw.encode_samples(samples, **options)), "reply.bin")


def test_a_summary_reads_as_two_tables_and_what_is_said_once() -> None:
    bare = make_sample(loss_mask=None, rollout_routed_experts=None, status=sw.Status.ABORTED)
    payload = sw.encode_samples([make_sample(), bare], {"b": 1, "a": 2})
    num_bytes = f"{payload.nbytes:,}"
    share = f"{9600 / payload.nbytes:.1f} %"
    assert summary_text(inspect_payload(payload), "reply.bin").splitlines() == [
        f"reply.bin: {num_bytes} bytes, field set 1",
        "samples 2, tokens 10, trained null",
        f"R3: 96 bytes, {share} of the payload",
        "session metadata: b, a",
        "",
        "sample  status     tokens  response  trained  turns  lp mean   lp min",
        "     0  completed       5         3        2      2  -1.7500  -2.5000",
        "     1  aborted         5         3     null   null     null     null",
        "",
        "sample  R3 shape  dtype  max id  bytes  " + "share".rjust(len(share)),
        f"     0  4x2x3     int32      23     96  {share}",
        "",
        "weight versions: 7 x 2, 8",
        "nulls, sample 0: rollout_indexer_topk",
        "nulls, sample 1: loss_mask, rollout_routed_experts, rollout_indexer_topk",
    ]


def test_non_finite_log_probs_are_shown_as_such() -> None:
    text = shown(make_sample(rollout_log_probs=np.array([-np.inf, 0.0, np.inf])))
    assert " NaN  -Infinity" in text


def test_a_payload_without_samples_shows_no_table() -> None:
    assert shown(empty_reason="all_truncated").splitlines()[1:] == [
        "samples 0, tokens 0, trained 0",
        "R3: 0 bytes, 0.0 % of the payload",
        "session metadata: none",
        "empty reason: all_truncated",
    ]


def test_without_any_r3_there_is_no_table_of_it() -> None:
    assert "R3 shape" not in shown(make_sample(rollout_routed_experts=None))


def test_samples_that_agree_share_a_line() -> None:
    versions = [["1"], ["1"], ["1"], ["2"], ["1"], []]
    lines = shown(*[make_sample(weight_versions=entry) for entry in versions]).splitlines()
    assert [line for line in lines if line.startswith("weight")] == [
        "weight versions, sample 0-2, 4: 1",
        "weight versions, sample 3: 2",
        "weight versions, sample 5: none",
    ]


def test_the_same_payload_gives_the_same_text() -> None:
    assert shown(make_sample(), make_sample()) == shown(make_sample(), make_sample())


def test_the_tables_of_production_sizes_fit_80_columns() -> None:
    sample = sw.Sample(
        tokens=np.zeros(103_000, np.int64),
        response_length=61_800,
        loss_mask=np.ones(61_800, np.uint8),
        rollout_log_probs=np.full(61_800, -123.456),
        rollout_routed_experts=np.full((102_999, 2, 2), 255, np.int32),
        status=sw.Status.COMPLETED,
    )
    lines = shown(*[sample] * 12).splitlines()
    assert max(map(len, lines)) <= 80
    assert max(map(len, lines)) > 60


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("\x1b[31mred", id="escape_sequence"),
        pytest.param("a\nb", id="newline"),
        pytest.param("\u202eabc", id="right_to_left_override"),
        pytest.param("caf\u00e9", id="accent"),
    ],
)
def test_text_of_a_payload_cannot_drive_the_terminal(text: str) -> None:
    sample = make_sample(weight_versions=[text])
    lines = shown(sample, empty_reason=text, session_metadata={text: 1})
    assert text not in lines
    assert lines.replace("\n", "").isprintable()
    assert lines.isascii()


@pytest.mark.parametrize("text", ["plain", "with space", "back\\slash", ""], ids=repr)
def test_printable_ascii_stays_as_it_is(text: str) -> None:
    assert printable(text) == text


def test_a_table_aligns_the_named_columns_to_the_left() -> None:
    rows = [["a", "name", "n"], ["1", "x", "10"], ["200", "long name", "3"]]
    assert text_table(rows, left={1}) == [
        "  a  name        n",
        "  1  x          10",
        "200  long name   3",
    ]


def test_a_table_of_markdown_has_its_head_first() -> None:
    rows = [["", "bytes"], ["one", "1"], ["other", "22"]]
    assert markdown_table(rows) == "|  | bytes |\n| --- | --- |\n| one | 1 |\n| other | 22 |"
