"""An assembled sample is sent in blocks, with the bytes of the same sample in plain arrays."""

from __future__ import annotations

import dataclasses
import io
import pickle
import socket
import threading
from typing import Any

import numpy as np
import pytest
from strategies import same_sample, same_value

from sample_wire import (
    EncodeError,
    Payload,
    Sample,
    decode_samples,
    encode_samples,
    read_container,
    read_fields,
    validate,
)
from sample_wire.assembly import RowLedger
from sample_wire.blocks import RowBlocks, Segment

from ._captures import PACKAGED, turns_of
from ._records import (
    Array,
    assembled,
    one,
    raw_base64,
    routed,
    sglang,
    spec,
    spelled,
)


def in_plain_arrays(sample: Sample) -> Sample:
    """The same sample with each array in one piece."""
    arrays: dict[str, Any] = {
        name: None if (rows := getattr(sample, name)) is None else np.asarray(rows)
        for name in ("rollout_routed_experts", "rollout_indexer_topk")
    }
    return dataclasses.replace(sample, **arrays)


def several_buffers() -> Sample:
    """A sample whose rows lie in buffers of three dtypes, one of them the wire's own."""
    parts = [routed(3), np.full((2, 2, 3), -1), routed(4, start=700) + 70_000, routed(2, start=9)]
    records, ids, rows = [], [1], np.empty((0, 2, 3), np.int64)
    for number, part in enumerate(parts):
        start = len(rows)
        rows = np.concatenate([rows, part])
        ids = ids + [7] * (len(rows) - len(ids) + 1)
        finish = "length" if number == len(parts) - 1 else "stop"
        records.append(
            sglang(ids[:-1], ids[-1:], start=start, finish=finish, routed_experts=raw_base64(part))
        )
        meta = records[-1]["response"]["choices"][0]["meta_info"]
        meta["indexer_topk"] = raw_base64(routed(len(rows), 1, 2) + 100_000)
        meta["indexer_topk_num_layers"] = 1
    return one(records, routing=spec(incremental=True), decode_text=spelled)


def captured() -> Sample:
    """The sample of a real engine's session."""
    return one(turns_of(PACKAGED), routing=spec(num_layers=4, top_k=8, incremental=True))


def without_rows() -> Sample:
    """One token, and so no rows."""
    return one([sglang([1], [], routed_experts="")], routing=spec())


def large() -> Sample:
    """Rows of more than a megabyte once they are widened."""
    rows = np.random.default_rng(2).integers(0, 250, (3000, 25, 10))
    record = sglang([*range(3000)], [7], routed_experts=raw_base64(rows))
    return one([record], routing=spec(num_layers=25, top_k=10))


SAMPLES = {
    "several buffers": several_buffers,
    "captured": captured,
    "without rows": without_rows,
    "large": large,
}
samples = pytest.mark.parametrize("make", SAMPLES.values(), ids=SAMPLES)


def blocks_of(sample: Sample) -> RowBlocks:
    """The routing rows as the sample holds them."""
    assert isinstance(sample.rollout_routed_experts, RowBlocks)
    return sample.rollout_routed_experts


def test_the_blocks_of_a_sample_are_of_several_dtypes() -> None:
    dtypes = {block.dtype for block in blocks_of(several_buffers()).blocks}
    assert dtypes == {np.dtype(np.uint8), np.dtype(np.int8), np.dtype(np.int32)}


@samples
def test_the_bytes_are_those_of_plain_arrays(make: Any) -> None:
    sample = make()
    expected = bytes(encode_samples([in_plain_arrays(sample)]))
    assert bytes(encode_samples([sample])) == expected


@samples
def test_every_way_out_gives_the_same_bytes(make: Any) -> None:
    payload = encode_samples([make()])
    whole = bytes(payload)
    assert payload.nbytes == len(whole)
    assert bytes(payload.contiguous()) == whole
    assert b"".join(payload) == whole
    file = io.BytesIO()
    assert payload.write_to(file) == len(whole)
    assert file.getvalue() == whole


def test_iterating_gives_read_only_bytes_of_limited_size() -> None:
    views = [*encode_samples([large()])]
    assert all(view.readonly and view.format == "B" and view.ndim == 1 for view in views)
    assert max(view.nbytes for view in views) <= 2**20
    assert [*map(bytes, encode_samples([large()]))] == [*map(bytes, views)]


def test_blocks_are_not_joined() -> None:
    sample = several_buffers()
    joined, apart = encode_samples([in_plain_arrays(sample)]), encode_samples([sample])
    assert len([*apart]) - len([*joined]) == len(blocks_of(sample).segments) - 1


def test_a_block_in_the_wires_dtype_is_aliased_and_not_copied() -> None:
    rows = np.full((2, 2, 3), 2**20, np.int32)
    blocks = RowBlocks((Segment(rows, 0, 2),), (2, 3))
    payload = encode_samples([Sample(tokens=np.arange(3), rollout_routed_experts=blocks)])  # type: ignore[arg-type]  # an array-like
    assert any(np.shares_memory(np.frombuffer(view, np.uint8), rows) for view in payload)


@samples
def test_a_socket_gets_the_same_bytes(make: Any) -> None:
    payload = encode_samples([make()])
    sender, receiver = socket.socketpair()
    got = bytearray()

    def receive() -> None:
        while part := receiver.recv(1 << 16):
            got.extend(part)

    thread = threading.Thread(target=receive)
    thread.start()
    with sender:
        assert payload.send_to(sender) == payload.nbytes
    thread.join()
    receiver.close()
    assert bytes(got) == bytes(payload)


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@samples
def test_pickling_keeps_the_bytes(make: Any, protocol: int) -> None:
    payload = encode_samples([make()])
    assert bytes(pickle.loads(pickle.dumps(payload, protocol))) == bytes(payload)


@samples
def test_pickling_out_of_band_keeps_the_bytes(make: Any) -> None:
    payload = encode_samples([make()])
    buffers: list[pickle.PickleBuffer] = []
    text = pickle.dumps(payload, 5, buffer_callback=buffers.append)
    assert len(text) < 2000
    assert sum(buffer.raw().nbytes for buffer in buffers) == payload.nbytes
    assert bytes(pickle.loads(text, buffers=buffers)) == bytes(payload)


@samples
def test_the_unjoined_payload_decodes_to_the_sample(make: Any) -> None:
    sample = make()
    payload = encode_samples([sample])
    (found,) = decode_samples(payload, Sample()).samples
    assert same_sample(found, in_plain_arrays(sample))
    assert same_value(
        read_container(payload)["rollout_routed_experts.0"],
        np.asarray(sample.rollout_routed_experts),
    )


def test_a_partial_read_of_the_unjoined_payload_finds_the_fields() -> None:
    sample = several_buffers()
    (found,) = read_fields(encode_samples([sample]), ["loss_mask", "rollout_routed_experts"])
    assert same_value(found["loss_mask"], sample.loss_mask)
    assert same_value(found["rollout_routed_experts"], np.asarray(sample.rollout_routed_experts))


def test_encoding_twice_gives_the_same_bytes_and_changes_nothing() -> None:
    sample = several_buffers()
    first = bytes(encode_samples([sample]))
    assert bytes(encode_samples([sample])) == first
    validate(sample)


def test_samples_that_share_their_blocks_are_sent_together() -> None:
    records = [
        sglang([1, 2], [3], routed_experts=raw_base64(routed(2))),
        sglang([1, 2, 9], [4], routed_experts=raw_base64(routed(3))),
    ]
    made = assembled(records, routing=spec(), on_discontinuity="split").samples
    assert blocks_of(made[0]).segments[0].buffer is blocks_of(made[1]).segments[0].buffer
    expected = bytes(encode_samples([*map(in_plain_arrays, made)]))
    assert bytes(encode_samples(made)) == expected


def test_a_later_turn_does_not_change_a_payload_that_was_made_before() -> None:
    ledger = RowLedger((2, 3))
    held = ledger.extend(ledger.empty(), 0, [routed(4)])
    payload = encode_samples([Sample(tokens=np.arange(5), rollout_routed_experts=held)])  # type: ignore[arg-type]  # an array-like
    before = bytes(payload)
    ledger.extend(held, 2, [routed(9, start=50)])
    assert bytes(payload) == before


def blocks(rows: Array, row_shape: tuple[int, ...]) -> Any:
    """One block."""
    return RowBlocks((Segment(rows, 0, len(rows)),), row_shape)


@pytest.mark.parametrize("dtype", [np.int64, np.uint32, np.uint64, np.float32])
def test_blocks_that_the_wire_cannot_carry_unchanged_are_refused(dtype: Any) -> None:
    rows = blocks(np.zeros((2, 2, 3), dtype), (2, 3))
    with pytest.raises(EncodeError, match="cannot carry unchanged") as caught:
        encode_samples([Sample(tokens=np.arange(3), rollout_routed_experts=rows)])
    assert (caught.value.field, caught.value.got) == (
        "rollout_routed_experts",
        str(np.dtype(dtype)),
    )


def test_blocks_of_another_rank_are_refused() -> None:
    rows = blocks(np.zeros((2, 6), np.uint8), (6,))
    with pytest.raises(EncodeError, match="has rank 2, not 3"):
        encode_samples([Sample(tokens=np.arange(3), rollout_routed_experts=rows)])


@pytest.mark.parametrize("num_rows", [0, 1, 3])
def test_blocks_of_another_number_of_rows_are_refused(num_rows: int) -> None:
    rows = blocks(np.zeros((num_rows, 2, 3), np.uint8), (2, 3))
    with pytest.raises(EncodeError, match=f"has {num_rows} rows, 3 tokens need 2"):
        encode_samples([Sample(tokens=np.arange(3), rollout_routed_experts=rows)])


def test_blocks_may_stand_for_any_array_field() -> None:
    tokens = blocks(np.array([1, 2, 300], np.int32), ())
    mask = blocks(np.array([1, 0], np.uint8), ())
    sample = Sample(tokens=tokens, response_length=2, loss_mask=mask)
    (found,) = decode_samples(encode_samples([sample]), Sample()).samples
    assert found.tokens.tolist() == [1, 2, 300]
    assert np.asarray(found.loss_mask).tolist() == [1, 0]


def test_a_payload_of_widened_blocks_is_sent_in_blocks_by_a_file_that_takes_little() -> None:
    class Slow:
        """A raw file that writes at most 1000 bytes a call."""

        def __init__(self) -> None:
            self.data = bytearray()

        def write(self, data: memoryview, /) -> int:
            """Takes what it can."""
            self.data += data[:1000]
            return min(len(data), 1000)

    payload: Payload = encode_samples([large()])
    file = Slow()
    payload.write_to(file)
    assert bytes(file.data) == bytes(payload)


@pytest.mark.parametrize("written", [None, 0])
def test_a_file_that_takes_no_more_is_told_and_not_asked_for_ever(written: int | None) -> None:
    class Full:
        """A file that takes nothing."""

        def write(self, data: memoryview, /) -> int | None:  # noqa: ARG002  # the protocol's
            """Takes nothing."""
            return written

    with pytest.raises(BlockingIOError):
        encode_samples([several_buffers()]).write_to(Full())


def test_the_pieces_of_a_payload_are_counted_with_their_blocks() -> None:
    sample = several_buffers()
    num_joined = len([*encode_samples([in_plain_arrays(sample)])])
    num_pieces = num_joined + len(blocks_of(sample).segments) - 1
    payload = encode_samples([sample])
    assert repr(payload) == f"Payload({payload.nbytes} bytes in {num_pieces} pieces)"


def test_a_socket_that_takes_little_at_a_time_gets_all_of_it() -> None:
    class Slow:
        """A socket that sends at most 1000 bytes a call, of several buffers."""

        def __init__(self) -> None:
            self.data = bytearray()

        def sendmsg(self, buffers: Any, /) -> int:
            """Takes what it can."""
            taken = b"".join(buffers)[:1000]
            self.data += taken
            return len(taken)

    payload, slow = encode_samples([several_buffers()]), Slow()
    assert payload.send_to(slow) == payload.nbytes > 1000
    assert bytes(slow.data) == bytes(payload)


class Held:
    """An object that keeps its buffer in an attribute, as SharedMemory does."""

    def __init__(self, buf: object) -> None:
        self.buf = buf


def test_a_payload_is_read_from_what_holds_its_buffer() -> None:
    sample = several_buffers()
    holder = Held(memoryview(bytes(encode_samples([sample]))))
    (found,) = decode_samples(holder, Sample()).samples
    assert same_sample(found, in_plain_arrays(sample))


def released() -> memoryview:
    """A view whose buffer is gone."""
    view = memoryview(b"12345678")
    view.release()
    return view


@pytest.mark.parametrize(
    "buffer",
    [None, 5, "text", Held(None), memoryview(bytes(16))[::2], released()],
    ids=["none", "number", "text", "no buffer", "strided", "released"],
)
def test_what_is_no_readable_buffer_is_a_type_error(buffer: object) -> None:
    with pytest.raises(TypeError):
        Payload([buffer])  # type: ignore[list-item]  # what is refused


def test_an_empty_buffer_is_a_piece_of_no_bytes() -> None:
    assert bytes(Payload([b"", bytearray()])) == b""
