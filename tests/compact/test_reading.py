"""What decode gives of a compact payload: ownership, memory, partial reads, and summaries."""

from __future__ import annotations

import json
import pickle
import tracemalloc
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest

from sample_wire import (
    LimitError,
    MetaError,
    Payload,
    Sample,
    VersionError,
    decode_samples,
    detach,
    encode_samples,
    read_container,
    read_fields,
    write_container,
)
from sample_wire.blocks import RowBlocks, Segment
from sample_wire.cli import main
from sample_wire.inspection import inspect_payload

from ._samples import META, R3, Array, compact_bytes, decoded_routing, routed_sample, rows

FIELDS: Final = ("tokens", "loss_mask", "rollout_log_probs", R3)


def _sample(num_rows: int = 30) -> Sample:
    return routed_sample(
        rows(num_rows),
        response_length=4,
        loss_mask=np.array([1, 0, 255, 1], np.uint8),
        rollout_log_probs=np.array([-0.5, -0.0, np.nan, -np.inf]),
    )


def _arrays(sample: Sample) -> list[Array]:
    return [np.asarray(getattr(sample, name)) for name in FIELDS]


@pytest.mark.parametrize("copy", [False, True])
@pytest.mark.parametrize("widen", [False, True])
def test_arrays_may_be_written_to_only_with_copy(copy: bool, widen: bool) -> None:
    payload = compact_bytes([_sample()])
    (found,) = decode_samples(payload, Sample(), copy=copy, widen=widen).samples
    assert [array.flags.writeable for array in _arrays(found)] == [copy] * 4
    shares = [np.shares_memory(array, np.frombuffer(payload, np.uint8)) for array in _arrays(found)]
    # A mask is uint8 in either layout.
    assert shares == [not (copy or (widen and name != "loss_mask")) for name in FIELDS]


def test_widened_arrays_are_those_of_the_exact_layout_bit_for_bit() -> None:
    sample = _sample()
    exact = decode_samples(bytes(encode_samples([sample])), Sample()).samples[0]
    compact = decode_samples(compact_bytes([sample]), Sample()).samples[0]
    for left, right in zip(_arrays(exact), _arrays(compact), strict=True):
        assert (left.dtype, left.shape) == (right.dtype, right.shape)
        assert left.tobytes() == right.tobytes()
        assert right.flags.aligned


def _in_pieces(payload: Payload) -> Payload:
    return Payload([piece[at : at + 7] for piece in payload for at in range(0, len(piece), 7)])


@pytest.mark.parametrize(
    "carried",
    [
        bytes,
        lambda payload: bytearray(bytes(payload)),
        lambda payload: memoryview(b"x" + bytes(payload))[1:],
        lambda payload: payload,
        _in_pieces,
    ],
    ids=["bytes", "bytearray", "misaligned", "payload", "pieces"],
)
@pytest.mark.parametrize("widen", [False, True])
def test_every_kind_of_buffer_is_read(carried: Callable[[Payload], object], widen: bool) -> None:
    samples = [_sample(30), _sample(40)]
    np.asarray(samples[1].rollout_routed_experts)[:30] = samples[0].rollout_routed_experts
    payload = carried(encode_samples(samples, layout="compact"))
    for given, found in zip(
        samples, decode_samples(payload, Sample(), widen=widen).samples, strict=True
    ):
        for left, right in zip(_arrays(given), _arrays(found), strict=True):
            assert np.array_equal(left, right, equal_nan=left.dtype.kind == "f")


def test_encoding_leaves_the_samples_as_they_are_and_aliases_what_is_narrow() -> None:
    narrow = rows(50).astype(np.uint8)
    blocks = RowBlocks((Segment(narrow, 0, 30), Segment(narrow, 30, 50)), (2, 3))
    wide = _sample(50)
    before = [array.copy() for array in _arrays(wide)]
    payload = encode_samples([wide], layout="compact")
    bytes(payload)
    for left, right in zip(before, _arrays(wide), strict=True):
        assert left.tobytes() == right.tobytes()
    in_blocks = encode_samples([routed_sample(blocks)], layout="compact")  # type: ignore[arg-type]  # blocks stand for arrays
    shared = [np.shares_memory(np.frombuffer(piece, np.uint8), narrow) for piece in in_blocks]
    assert shared.count(True) == 2


@pytest.mark.parametrize("late", [255, 300, -1])
def test_a_large_array_stays_in_one_piece_of_the_payload(late: int) -> None:
    routed = np.full((1_000_000, 2, 3), 200, np.int32)
    routed[-1] = late
    payload = encode_samples([routed_sample(routed)], layout="compact")
    buffers: list[pickle.PickleBuffer] = []
    text = pickle.dumps(payload, 5, buffer_callback=buffers.append)
    again = pickle.loads(text, buffers=buffers)
    first, second = (decoded_routing(again, widen=False)[0] for _ in range(2))
    assert np.shares_memory(first, second)
    assert np.array_equal(first, routed)


@pytest.mark.parametrize("place", [0, 350_000, -1])
@pytest.mark.parametrize(("value", "width"), [(200, 1), (300, 2), (-1, 2)])
def test_narrowing_takes_no_more_memory_than_the_narrow_array(
    place: int, value: int, width: int
) -> None:
    routed = np.full((700_000, 2, 3), 200, np.int32)
    routed[place] = value
    sample = routed_sample(routed, tokens=np.zeros(700_001, np.uint8))
    sample.tokens = np.zeros(700_001, np.int64)
    tracemalloc.start()
    encode_samples([sample], layout="compact")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < (routed.size * width + 700_001) * 1.2 + 2_000_000


def test_a_writable_copy_is_made_once() -> None:
    payload = compact_bytes([routed_sample(np.full((700_000, 2, 3), 200, np.int32))])
    tracemalloc.start()
    (found,) = decode_samples(payload, Sample(), copy=True).samples
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < sum(array.nbytes for array in _arrays(found)[::3]) * 1.1


def test_an_array_that_there_is_no_memory_for_is_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    payload = compact_bytes([_sample()])

    empty = np.empty

    def refused(shape: Any, *rest: Any) -> Array:
        if shape == [31]:
            raise MemoryError
        return empty(shape, *rest)

    monkeypatch.setattr(np, "empty", refused)
    with pytest.raises(LimitError, match=r"no memory for an array of shape \[31\]"):
        decode_samples(payload, Sample())


def test_one_field_can_be_read_or_detached() -> None:
    sample = _sample()
    (read,) = read_fields(compact_bytes([sample]), [R3, "response_length"])
    assert read[R3].dtype == np.int32
    assert np.array_equal(read[R3], np.asarray(sample.rollout_routed_experts))
    (narrow,) = read_fields(compact_bytes([sample]), [R3], widen=False)
    assert narrow[R3].dtype == np.uint8
    (found,) = decode_samples(compact_bytes([sample]), Sample(), widen=False).samples
    detach(found, R3)
    assert np.asarray(found.rollout_routed_experts).dtype == np.uint8
    assert np.asarray(found.rollout_routed_experts).flags.writeable


@pytest.mark.parametrize(
    "samples", [[], [Sample(tokens=np.zeros(0, np.int64), response="", response_length=0)]]
)
def test_payloads_of_nothing_are_read(samples: list[Sample]) -> None:
    payload = encode_samples(samples, {"a": 1}, empty_reason="none", layout="compact")
    reply = decode_samples(bytes(payload), Sample())
    assert (reply.session_metadata, reply.empty_reason) == ({"a": 1}, "none")
    assert [np.asarray(sample.tokens).dtype for sample in reply.samples] == [np.int64] * len(
        samples
    )


def test_field_set_2_travels_in_the_compact_layout() -> None:
    sample = routed_sample(rows(3), reward=0.0)
    payload = compact_bytes([sample], field_set=2)
    assert decode_samples(payload, Sample(reward=1.0), field_set=2).samples[0].reward == 0.0


def _changed(change: Callable[[dict[str, Any]], object]) -> bytes:
    tensors = dict(read_container(compact_bytes([_sample()])))
    found = json.loads(tensors[META].tobytes())
    change(found)
    tensors[META] = np.frombuffer(json.dumps(found).encode(), np.uint8)
    return bytes(write_container(tensors))


def test_keys_of_the_document_come_in_any_order() -> None:
    payload = _changed(lambda found: found.update(format=found.pop("format")))
    assert len(decode_samples(payload, Sample()).samples) == 1


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda found: found.pop("dtypes"), MetaError),
        (lambda found: found.update(dtypes=[]), MetaError),
        (lambda found: found.update(dtypes={"tokens.0": 1}), MetaError),
        (lambda found: found.update(shared={"tokens.0": [0]}), MetaError),
        (lambda found: found.update(shared=[[[[]]]]), MetaError),
        (lambda found: found.update(format=3), VersionError),
    ],
    ids=["no-dtypes", "dtypes-list", "dtype-number", "shared-single", "shared-list", "format-3"],
)
def test_notes_of_another_form_are_refused(
    change: Callable[[dict[str, Any]], object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        decode_samples(_changed(change), Sample())


def test_in_format_1_nobody_knows_the_notes() -> None:
    tensors = dict(read_container(bytes(encode_samples([_sample()]))))
    found = json.loads(tensors[META].tobytes()) | {"dtypes": 7, "shared": [[]]}
    tensors[META] = np.frombuffer(json.dumps(found).encode(), np.uint8)
    assert len(decode_samples(bytes(write_container(tensors)), Sample()).samples) == 1


def test_a_summary_tells_the_layout_and_what_was_sent() -> None:
    first, second = _sample(30), _sample(40)
    np.asarray(second.rollout_routed_experts)[:30] = first.rollout_routed_experts
    np.asarray(second.rollout_routed_experts)[30:] = 7
    found = inspect_payload(encode_samples([first, second], layout="compact"))
    assert found.layout == "compact"
    r3 = [sample.r3 for sample in found.samples]
    assert [(one.dtype, one.shape, one.nbytes, one.max_id) for one in r3 if one] == [
        ("uint8", [30, 2, 3], 180, 255),
        ("uint8", [40, 2, 3], 60, 255),
    ]
    assert inspect_payload(encode_samples([first])).layout == "exact"


def test_the_commands_read_compact_payloads(
    tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "payload.safetensors"
    path.write_bytes(compact_bytes([_sample()]))
    assert main(["verify", str(path)]) == 0
    assert main(["inspect", str(path)]) == 0
    assert "field set 1, compact layout" in capsys.readouterr().out


def test_narrow_values_are_equal() -> None:
    (found,) = decoded_routing(compact_bytes([_sample()]), widen=False)
    assert found.dtype == np.uint8
    assert np.array_equal(found, np.asarray(_sample().rollout_routed_experts))
