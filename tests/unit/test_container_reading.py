"""read_container: views, alignment, and headers that are not spelled as ours."""

from __future__ import annotations

import numpy as np
import pytest
from strategies import Array

from sample_wire import ContainerError, Payload, read_container, write_container


def container(header: str | bytes, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else header.encode()
    return len(text).to_bytes(8, "little") + text + data


ENTRY = '{"dtype":"U8","shape":[2],"data_offsets":[0,2]}'


def refused(payload: bytes) -> str:
    with pytest.raises(ContainerError) as caught:
        read_container(payload)
    return str(caught.value)


@pytest.mark.parametrize(
    "header",
    [
        f'{{"a":{ENTRY}}}',
        f'{{"a":{ENTRY}}}     ',
        f'{{ "a" : {ENTRY.replace(":", " : ")} }}',
        f'{{"\\u0061":{ENTRY}}}',
        f'{{"__metadata__":{{"k":"v"}},"a":{ENTRY}}}',
        f'{{"a":{ENTRY},"__metadata__":{{}}}}',
        '{"a":{"data_offsets":[0,2],"shape":[2],"dtype":"U8"}}',
    ],
    ids=["ours", "padded", "spaced", "escaped", "metadata", "empty-metadata", "key-order"],
)
def test_a_header_may_be_spelled_in_other_ways(header: str) -> None:
    assert read_container(container(header, b"\x01\x02"))["a"].tolist() == [1, 2]


WRONG_HEADERS: dict[str, str | bytes] = {
    "empty": "",
    "array": "[]",
    "leading-space": " {}",
    "text-after": "{}x",
    "no-json": "{a}",
    "unfinished": '{"a":',
    "not-utf8": b'{"\xff":1}',
    "surrogate": '{"\\ud800":' + ENTRY + "}",
    "key-twice": f'{{"a":{ENTRY},"a":{ENTRY}}}',
    "dtype-twice": '{"a":{"dtype":"U8","dtype":"U8","shape":[2],"data_offsets":[0,2]}}',
    "nan": '{"a":NaN}',
    "infinity": '{"a":-Infinity}',
    "inf-number": '{"a":1e999}',
    "long-number": '{"a":' + "9" * 5000 + "}",
    "deep": '{"a":' + "[" * 200 + "]" * 200 + "}",
    "entry-number": '{"a":5}',
    "entry-null": '{"a":null}',
    "unknown-key": '{"a":' + ENTRY[:-1] + ',"x":1}}',
    "key-missing": '{"a":{"dtype":"U8","shape":[2]}}',
    "minus-zero": '{"a":{"dtype":"U8","shape":[-0],"data_offsets":[0,0]}}',
    "negative": '{"a":{"dtype":"U8","shape":[-2],"data_offsets":[0,2]}}',
    "float": '{"a":{"dtype":"U8","shape":[2.0],"data_offsets":[0,2]}}',
    "bool": '{"a":{"dtype":"U8","shape":[true],"data_offsets":[0,1]}}',
    "dtype": '{"a":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}}',
    "size": '{"a":{"dtype":"U8","shape":[3],"data_offsets":[0,2]}}',
    "hole": '{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}',
    "overlap": f'{{"a":{ENTRY},"b":{ENTRY}}}',
    "short": '{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}',
    "long": '{"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}}',
    "axes": '{"a":{"dtype":"U8","shape":[' + "1," * 32 + '2],"data_offsets":[0,2]}}',
    "huge-empty": '{"a":{"dtype":"U8","shape":[0,9223372036854775808],"data_offsets":[0,0]}}',
    "huge-empty-product": (
        '{"a":{"dtype":"U8","shape":[0,4294967296,4294967296],"data_offsets":[0,0]}}'
    ),
    "metadata-number": f'{{"__metadata__":{{"k":1}},"a":{ENTRY}}}',
    "metadata-text": f'{{"__metadata__":"k","a":{ENTRY}}}',
    "metadata-null": f'{{"__metadata__":null,"a":{ENTRY}}}',
    "metadata-tensor": f'{{"__metadata__":{ENTRY}}}',
}


@pytest.mark.parametrize("case", WRONG_HEADERS)
def test_a_header_that_breaks_a_rule_is_refused(case: str) -> None:
    assert len(refused(container(WRONG_HEADERS[case], b"\x01\x02"))) <= 2000


@pytest.mark.parametrize("nbytes", range(8))
def test_fewer_bytes_than_a_header_length_are_refused(nbytes: int) -> None:
    assert f"{nbytes} bytes" in refused(bytes(nbytes)) or "8 length bytes" in refused(bytes(nbytes))


def test_a_bool_tensor_of_other_bytes_is_refused() -> None:
    header = ENTRY.replace("U8", "BOOL")
    payload = container(f'{{"a":{header}}}', b"\x00\x01")
    assert read_container(payload)["a"].tolist() == [False, True]
    assert "BOOL" in refused(payload[:-1] + b"\x02")


def test_arrays_are_read_only_views_that_keep_the_buffer_alive() -> None:
    buffer = np.frombuffer(bytes(write_container({"a": np.arange(4)})), np.uint8)
    (found,) = read_container(buffer).values()
    assert np.shares_memory(found, buffer)
    assert not found.flags.writeable
    del buffer
    assert found.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("shift", range(1, 8))
def test_a_misaligned_buffer_is_read_by_an_aligned_copy(shift: int) -> None:
    tensors: dict[str, Array] = {"a": np.arange(3.0), "b": np.arange(2, dtype=np.uint8)}
    raw = bytes(write_container(tensors))
    shifted = np.frombuffer(bytes(shift) + raw, np.uint8)[shift:]
    found = read_container(shifted)
    assert found["a"].flags.aligned
    assert not found["a"].flags.writeable
    assert found["a"].tolist() == [0.0, 1.0, 2.0]
    assert np.shares_memory(found["b"], shifted)


def test_a_tensor_that_lies_in_several_buffers_is_joined() -> None:
    raw = bytes(write_container({"a": np.arange(4), "none": np.zeros((0, 2))}))
    for cut in range(len(raw) + 1):
        found = read_container(Payload([raw[:cut], raw[cut:]]))
        assert found["a"].tolist() == [0, 1, 2, 3]
        assert not found["a"].flags.writeable
        assert found["none"].shape == (0, 2)


def test_buffers_of_an_unjoined_payload_are_not_copied() -> None:
    array = np.arange(4)
    found = read_container(write_container({"a": array}))["a"]
    assert np.shares_memory(found, array)
    assert not found.flags.writeable
