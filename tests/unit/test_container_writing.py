"""write_container: the same bytes as the safetensors package, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from sample_wire import EncodeError, read_container, write_container

DTYPES = ("u8", "i8", "f8", "c8", "f4", "u4", "i4", "f2", "u2", "i2", "i1", "u1", "?")
NAMES = ("a", "a.0", "_b", "", " ", "a b", '"', "\\", "\x00", "\u00e9", "\U0001f600", "metadata")


def refused(tensors: Any, metadata: Any = None) -> EncodeError:
    with pytest.raises(EncodeError) as caught:
        write_container(tensors, metadata)
    return caught.value


def test_tensors_of_every_dtype_are_written_as_the_safetensors_package_does() -> None:
    tensors: dict[str, Any] = {
        f"t{index}.{dtype}": np.ones((index % 3, 2), dtype) for index, dtype in enumerate(DTYPES)
    }
    tensors |= {"scalar": np.array(1.5), "flat": np.arange(3), "none": np.zeros((0, 4))}
    assert bytes(write_container(tensors)) == safetensors.numpy.save(tensors)


@pytest.mark.parametrize("name", NAMES)
def test_any_name_is_written_as_the_safetensors_package_does(name: str) -> None:
    tensors: dict[str, Any] = {name: np.arange(2), name + "x": np.arange(3, dtype=np.int8)}
    payload = bytes(write_container(tensors))
    assert payload == safetensors.numpy.save(tensors)
    assert [*read_container(payload)] == [name, name + "x"]


def test_metadata_is_written_as_the_safetensors_package_does() -> None:
    tensors: dict[str, Any] = {"a": np.arange(2)}
    metadata = {"key": 'text "\u00e9"'}
    assert bytes(write_container(tensors, metadata)) == safetensors.numpy.save(tensors, metadata)


def test_metadata_is_sorted() -> None:
    one = bytes(write_container({}, {"b": "1", "a": "2"}))
    assert one == bytes(write_container({}, {"a": "2", "b": "1"}))
    assert one.index(b'"a"') < one.index(b'"b"')


def test_no_metadata_and_empty_metadata_differ() -> None:
    assert b"__metadata__" not in bytes(write_container({}))
    assert b'"__metadata__":{}' in bytes(write_container({}, {}))


def test_the_header_is_padded_to_eight_bytes() -> None:
    for length in range(1, 12):
        payload = bytes(write_container({"n" * length: np.zeros(1, np.uint8)}))
        assert int.from_bytes(payload[:8], "little") % 8 == 0


def test_the_order_of_tensors_given_does_not_matter() -> None:
    tensors: dict[str, Any] = {"b": np.arange(2), "a": np.ones(1, np.uint8), "c": np.zeros(1)}
    back = dict(reversed(tensors.items()))
    assert bytes(write_container(tensors)) == bytes(write_container(back))
    assert [*read_container(write_container(tensors))] == ["b", "c", "a"]


def test_the_name_of_the_formats_metadata_is_refused() -> None:
    assert "__metadata__" in str(refused({"__metadata__": np.arange(2)}))


@pytest.mark.parametrize("name", [1, None, b"a", ("a",)], ids=repr)
def test_a_name_that_is_no_text_is_refused(name: Any) -> None:
    refused({name: np.arange(2)})
    refused({"a": np.arange(2), name: np.arange(2)})


@pytest.mark.parametrize(
    "metadata",
    [{1: "a"}, {"a": 1}, {"a": None}, {"a": ["b"]}, {"\ud800": "a"}, {"a": "\ud800"}],
    ids=ascii,
)
def test_metadata_that_is_no_text_is_refused(metadata: Any) -> None:
    refused({}, metadata)


def test_a_name_with_a_lone_surrogate_is_refused() -> None:
    assert "lone surrogate" in str(refused({"a\ud800": np.arange(2)}))


@pytest.mark.parametrize("value", [[1, 2], 5, None, b"ab", np.int64(1), memoryview(b"a")], ids=repr)
def test_what_is_no_numpy_array_is_refused(value: Any) -> None:
    assert "must be a numpy array" in str(refused({"a": value}))


@pytest.mark.parametrize("dtype", ["O", "U1", "S1", "M8[s]", "m8[s]", "V4", "c16", "i4,f4"])
def test_a_dtype_that_the_format_lacks_is_refused(dtype: str) -> None:
    error = refused({"a": np.zeros(2, dtype)})
    assert error.got == str(np.zeros(2, dtype).dtype)


def test_a_bool_of_another_byte_is_refused() -> None:
    assert "neither 0 nor 1" in str(refused({"a": np.array([0, 2], np.uint8).view(np.bool_)}))
    assert "neither 0 nor 1" in str(refused({"a": np.array([0, 2], np.uint8).view(np.bool_)[::-1]}))


def test_a_masked_array_is_refused_and_an_unmasked_one_is_written() -> None:
    refused({"a": np.ma.masked_array([1, 2], [False, True])})
    payload = write_container({"a": np.ma.masked_array([1, 2], [False, False])})
    assert read_container(payload)["a"].tolist() == [1, 2]


def test_subclasses_of_arrays_are_written_by_value() -> None:
    class Named(np.ndarray[Any, np.dtype[Any]]):
        """A subclass that changes nothing."""

    array = np.arange(6).reshape(2, 3).view(Named)
    payload = write_container({"a": array, "r": np.rec.array(np.arange(2))})
    for buffer in (bytes(payload), payload.contiguous()):
        assert read_container(buffer)["a"].tolist() == [[0, 1, 2], [3, 4, 5]]
        assert read_container(buffer)["r"].tolist() == [0, 1]


def test_more_axes_than_numpy_1_can_hold_are_refused() -> None:
    assert read_container(write_container({"a": np.zeros((1,) * 32)}))["a"].ndim == 32
    try:
        wide = np.zeros((1,) * 33)
    except ValueError:
        pytest.skip("this numpy holds at most 32 axes")
    assert "at most 32 axes" in str(refused({"a": wide}))


@pytest.mark.heavy
def test_a_header_beyond_the_formats_cap_is_refused() -> None:
    assert "cap is 100 MB" in str(refused({"n" * 100_000_000: np.zeros(1, np.uint8)}))
