"""A decoded array keeps its buffer open: nothing can be freed or resized under it."""

from __future__ import annotations

import mmap
from multiprocessing.shared_memory import SharedMemory

import numpy as np
import pytest

from sample_wire import Payload, Sample, decode_samples, encode_samples, read_container

BODY = bytes(encode_samples([Sample(tokens=np.arange(1000), metadata={"a": 1})]))


def test_a_mapping_cannot_be_closed_under_a_view() -> None:
    mapped = mmap.mmap(-1, len(BODY))
    mapped.write(BODY)
    sample = decode_samples(mapped, Sample()).samples[0]
    with pytest.raises(BufferError):
        mapped.close()
    assert sample.tokens.sum() == 499_500


def test_shared_memory_cannot_be_closed_under_a_view() -> None:
    block = SharedMemory(create=True, size=len(BODY))
    try:
        assert block.buf is not None
        block.buf[: len(BODY)] = BODY
        view = block.buf[: len(BODY)]
        sample = decode_samples(view, Sample()).samples[0]
        view.release()
        with pytest.raises(BufferError):
            block.close()
        assert sample.tokens.sum() == 499_500
        del sample
        block.close()
    finally:
        block.unlink()


def test_a_bytearray_cannot_be_resized_under_a_view() -> None:
    body = bytearray(BODY)
    sample = decode_samples(body, Sample()).samples[0]
    with pytest.raises(BufferError):
        body.clear()
    assert sample.tokens.sum() == 499_500


def test_a_view_of_a_container_cannot_be_made_writable() -> None:
    whole = Payload([BODY]).contiguous()
    tokens = read_container(whole)["tokens.0"]
    with pytest.raises(ValueError, match="WRITEABLE"):
        tokens.flags.writeable = True


@pytest.mark.parametrize("make", [lambda: memoryview(BODY), lambda: mmap.mmap(-1, 8)], ids=str)
def test_a_released_buffer_is_a_type_error(make: object) -> None:
    buffer = make()  # type: ignore[operator]  # one of the two above
    buffer.release() if isinstance(buffer, memoryview) else buffer.close()
    with pytest.raises(TypeError, match="cannot be read"):
        read_container(buffer)
