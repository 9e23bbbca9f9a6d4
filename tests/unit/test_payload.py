"""Payload: what its buffers are, and that every way out gives the same bytes."""

from __future__ import annotations

import gc
import io
import os
import pickle
import socket
import tempfile
import threading
import weakref
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from sample_wire import Payload, Sample, decode_samples, encode_samples, write_container

from ._samples import make_sample

PROTOCOLS = pytest.mark.parametrize("protocol", [2, 3, 4, 5])


def pieces(count: int, size: int = 3) -> list[bytes]:
    """Buffers with bytes that tell them apart; every third one is empty."""
    return [bytes([index % 251]) * (size if index % 3 else 0) for index in range(count)]


def test_the_buffers_are_read_only_flat_views_of_bytes() -> None:
    for view in encode_samples([make_sample()]):
        assert type(view) is memoryview
        assert (view.format, view.ndim, view.readonly) == ("B", 1, True)
        assert view.c_contiguous


@pytest.mark.parametrize(
    "buffer",
    [
        b"abcdefgh",
        bytearray(b"abcdefgh"),
        memoryview(b"abcdefgh").cast("I"),
        np.arange(8, dtype=np.uint8),
        np.ones((2, 2), np.float32),
        np.ones((2, 2), ">i4"),
        np.ones((), np.complex64),
        np.ones(3, np.bool_),
    ],
    ids=lambda buffer: f"{type(buffer).__name__}-{getattr(buffer, 'dtype', '')}",
)
def test_a_payload_takes_any_contiguous_buffer(buffer: Any) -> None:
    payload = Payload([buffer])
    (view,) = payload
    assert (view.format, view.ndim, view.readonly) == ("B", 1, True)
    assert bytes(payload) == bytes(buffer)
    assert payload.nbytes == len(bytes(buffer))


@pytest.mark.parametrize(
    "buffer", [np.zeros((4, 4))[:, 1], np.zeros(4)[::2], "text", None, 5], ids=str
)
def test_a_payload_refuses_what_is_no_contiguous_buffer(buffer: Any) -> None:
    with pytest.raises(TypeError):
        Payload([buffer])


def test_the_header_comes_first_and_the_arrays_are_aliased() -> None:
    sample = make_sample()
    payload = encode_samples([sample])
    tokens = bytes(payload).index(sample.tokens.tobytes())
    sample.tokens[0] = 77
    assert bytes(payload)[tokens] == 77


def test_a_payload_can_be_iterated_again_and_again() -> None:
    payload = encode_samples([make_sample()])
    assert [bytes(view) for view in payload] == [bytes(view) for view in payload]


def test_nbytes_is_the_size_of_all_buffers() -> None:
    payload = encode_samples([make_sample(), make_sample()], {"a": 1})
    assert payload.nbytes == sum(view.nbytes for view in payload) == len(bytes(payload))


def test_contiguous_gives_one_new_writable_buffer_of_bytes() -> None:
    sample = make_sample()
    payload = encode_samples([sample])
    whole = payload.contiguous()
    assert (whole.format, whole.ndim, whole.readonly) == ("B", 1, False)
    assert bytes(whole) == bytes(payload)
    whole[:] = bytes(len(whole))
    assert sample.tokens.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("buffers", [[], [b""], [b"", b""]], ids=str)
def test_an_empty_payload_has_no_bytes(buffers: list[bytes]) -> None:
    payload = Payload(buffers)
    assert (payload.nbytes, bytes(payload), bytes(payload.contiguous())) == (0, b"", b"")
    assert payload.write_to(io.BytesIO()) == 0


def test_the_repr_tells_the_size_and_not_the_bytes() -> None:
    assert repr(Payload([b"secret", b"x"])).startswith("Payload(7 bytes in 2 ")


def test_a_payload_is_written_to_a_raw_and_to_a_buffered_file() -> None:
    payload = encode_samples([make_sample()])
    for buffering in (0, -1):
        with tempfile.TemporaryFile(buffering=buffering) as file:
            assert payload.write_to(file) == payload.nbytes
            file.seek(0)
            assert file.read() == bytes(payload)


class ShortFile:
    """A raw file that takes at most a few bytes at a time, as a pipe may."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.got = bytearray()

    def write(self, data: memoryview, /) -> int:
        taken = data[: self.most]
        self.got += taken
        return len(taken)


@pytest.mark.parametrize("most", [1, 2, 7, 1000])
def test_a_file_that_writes_short_gets_every_byte_once(most: int) -> None:
    payload = encode_samples([make_sample()], {"text": "x" * 2000})
    file = ShortFile(most)
    assert payload.write_to(file) == payload.nbytes
    assert bytes(file.got) == bytes(payload)


def test_a_file_that_takes_nothing_without_blocking_is_an_error() -> None:
    class Full:
        def write(self, data: memoryview, /) -> None:
            assert len(data)

    with pytest.raises(BlockingIOError):
        encode_samples([]).write_to(Full())


def test_a_pipe_in_non_blocking_mode_is_an_error_when_it_is_full() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with (
        open(reader, "rb"),
        open(writer, "wb", buffering=0) as pipe,
        pytest.raises(BlockingIOError),
    ):
        Payload([bytes(2**20)]).write_to(pipe)


def received(payload: Payload, *, most: int = 65536, send_buffer: int | None = None) -> bytes:
    """What a slow reader gets of a payload that is sent over a pair of real sockets."""
    left, right = socket.socketpair()
    if send_buffer is not None:
        left.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    got = bytearray()

    def read() -> None:
        while chunk := right.recv(most):
            got.extend(chunk)

    reader = threading.Thread(target=read)
    with left, right:
        reader.start()
        sent = payload.send_to(left)
        left.shutdown(socket.SHUT_WR)
        reader.join()
    assert sent == payload.nbytes
    return bytes(got)


def test_a_payload_is_sent_over_a_socket() -> None:
    payload = encode_samples([make_sample()])
    assert received(payload) == bytes(payload)


@pytest.mark.parametrize("count", [1023, 1024, 1025, 2048, 5000])
def test_more_buffers_than_one_call_takes_are_sent_in_order(count: int) -> None:
    payload = Payload(pieces(count))
    assert received(payload, most=100) == b"".join(pieces(count))


def test_a_slow_reader_gets_every_byte_once() -> None:
    payload = Payload(pieces(64, size=9001))
    assert received(payload, most=777, send_buffer=4096) == bytes(payload)


@pytest.mark.parametrize("buffers", [[], [b""], [b""] * 3000, [b"", b"a", b""]], ids=len)
def test_empty_buffers_are_sent(buffers: list[bytes]) -> None:
    assert received(Payload(buffers)) == b"".join(buffers)


class ShortSocket:
    """A socket that sends at most a few bytes in a call."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.got = bytearray()
        self.num_buffers: list[int] = []

    def sendmsg(self, buffers: Iterable[Any], /) -> int:
        given = [bytes(buffer) for buffer in buffers]
        self.num_buffers.append(len(given))
        taken = b"".join(given)[: self.most]
        self.got += taken
        return len(taken)


@pytest.mark.parametrize("most", [1, 2, 3, 4, 1000])
def test_a_socket_that_sends_short_gets_every_byte_once(most: int) -> None:
    sock = ShortSocket(most)
    payload = Payload(pieces(2000))
    assert payload.send_to(sock) == payload.nbytes
    assert bytes(sock.got) == bytes(payload)
    assert max(sock.num_buffers) <= 1024


@PROTOCOLS
def test_a_pickled_payload_has_the_same_bytes_and_size(protocol: int) -> None:
    payload = encode_samples([make_sample()], {"a": 1})
    again = pickle.loads(pickle.dumps(payload, protocol))
    assert type(again) is Payload
    assert (bytes(again), again.nbytes) == (bytes(payload), payload.nbytes)


@PROTOCOLS
def test_a_pickled_payload_decodes_and_pickles_again(protocol: int) -> None:
    again = pickle.loads(pickle.dumps(encode_samples([make_sample()]), protocol))
    again = pickle.loads(pickle.dumps(again, protocol))
    (found,) = decode_samples(again, Sample()).samples
    assert found.tokens.tolist() == [0, 1, 2, 3, 4]


def address(buffer: object) -> int:
    return int(np.frombuffer(buffer, np.uint8).ctypes.data)  # type: ignore[call-overload]  # any


def test_pickling_out_of_band_copies_no_byte_in_either_direction() -> None:
    payload = encode_samples([make_sample()])
    buffers: list[pickle.PickleBuffer] = []
    pickled = pickle.dumps(payload, 5, buffer_callback=buffers.append)
    again = pickle.loads(pickled, buffers=buffers)
    addresses = [address(view) for view in payload if len(view)]
    assert [address(buffer.raw()) for buffer in buffers if len(buffer.raw())] == addresses
    assert [address(view) for view in again if len(view)] == addresses


def test_a_pickle_out_of_band_holds_no_data() -> None:
    payload = Payload([bytes(10**6)])
    assert len(pickle.dumps(payload, 5, buffer_callback=lambda _: None)) < 200


def test_a_payload_lets_go_of_its_arrays() -> None:
    array = np.zeros(10)
    payload = write_container({"a": array})
    alive = weakref.ref(array)
    del array
    gc.collect()
    assert alive() is not None
    del payload
    gc.collect()
    assert alive() is None
