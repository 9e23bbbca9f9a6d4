"""Routing values that are refused by name: forms, alphabets, headers, shapes and dtypes."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import numpy as np
import pytest

from ._records import (
    Array,
    Record,
    both_forms,
    npy_base64,
    one,
    raw_base64,
    refused,
    routed,
    routing_object,
    rows_in,
    sglang,
    spec,
)


def with_value(value: Any, num_tokens: int = 5) -> Record:
    """A turn of so many tokens with this routing value."""
    return sglang([*range(num_tokens - 1)], [7], routed_experts=value)


def fault_of(value: Any, sent: Any, num_tokens: int = 5, **options: Any) -> str:
    """What is said of a turn with this value; the spec is the one of `routed`."""
    record = sent(with_value(value, num_tokens))
    error = refused([record], **({"routing": spec()} | options))
    assert (error.turn, error.field) == (1, "routed_experts")
    return str(error)


@both_forms
@pytest.mark.parametrize("value", [routed(4).tolist(), [], [[]], [1]], ids=str)
def test_nested_lists_are_refused_by_name(value: Any, sent: Any) -> None:
    assert "comes as nested lists" in fault_of(value, sent)


@both_forms
@pytest.mark.parametrize("value", [0, 1.5, True, False], ids=str)
def test_a_number_or_truth_value_is_refused_by_name(value: Any, sent: Any) -> None:
    assert f"comes as {type(value).__name__}, a form that is not known" in fault_of(value, sent)


@both_forms
def test_an_empty_text_for_rows_is_refused(sent: Any) -> None:
    assert "has 0 rows, its tokens need 4" in fault_of("", sent)


WHOLE = raw_base64(routed(4))
BAD_TEXTS = {
    "white space": WHOLE[:8] + "    " + WHOLE[12:],
    "new line at the end": WHOLE[:-1] + "\n",
    "leading white space": " " + WHOLE[1:],
    "url-safe": WHOLE[:8] + "-_-_" + WHOLE[12:],
    "padding in the middle": WHOLE[:6] + "==" + WHOLE[8:],
    "padding at the start": "=" + WHOLE[1:],
    "only padding": "=" * len(WHOLE),
    "excess padding": WHOLE[:-4] + "====",
    "non-ascii": WHOLE[:8] + "\u00e9" + WHOLE[9:],
    "wide digits": WHOLE[:8] + "\uff21" + WHOLE[9:],
    "at signs": "@" * len(WHOLE),
    "backslash": WHOLE[:8] + "\\" + WHOLE[9:],
    "quote": WHOLE[:8] + '"' + WHOLE[9:],
    "nul": WHOLE[:8] + "\x00" + WHOLE[9:],
    "one character less": WHOLE[:-1],
    "one character more": WHOLE + "A",
    "surrogate": WHOLE[:8] + "\ud800" + WHOLE[9:],
}


@both_forms
@pytest.mark.parametrize("text", BAD_TEXTS.values(), ids=BAD_TEXTS)
@pytest.mark.parametrize("form", ["raw", "object"])
def test_text_that_is_no_strict_base64_is_refused(form: str, text: str, sent: Any) -> None:
    value = text if form == "raw" else {"data": text, "shape": [4, 2, 3], "dtype": "int32"}
    fault_of(value, sent)


def test_an_escaped_character_in_the_bytes_is_refused_and_never_read_as_another() -> None:
    record = with_value("AAAA" * 32)
    text = json.dumps(record["response"]).replace("AAAA", "AA\\u0041A", 1)
    record["response"] = text.encode()
    assert refused([record], routing=spec()).field == "routed_experts"


@both_forms
@pytest.mark.parametrize("num_bytes", [1, 3, 23, 25, 95, 97, 99])
def test_raw_bytes_that_make_no_whole_rows_are_refused(num_bytes: int, sent: Any) -> None:
    value = base64.b64encode(bytes(num_bytes)).decode()
    assert f"has {num_bytes} bytes, a row of 2 x 3 is 24" in fault_of(value, sent)


# .npy files.


def npy(
    rows: Array, *, header: bytes | None = None, version: bytes = b"\x01\x00", tail: bytes = b""
) -> str:
    """base64 of a .npy file made by hand."""
    shape = ", ".join(map(str, rows.shape))
    text = header or (
        f"{{'descr': '{rows.dtype.str}', 'fortran_order': False, 'shape': ({shape}), }}".encode()
    )
    text += b"\n"
    size = len(text).to_bytes(2 if version == b"\x01\x00" else 4, "little")
    data = b"\x93NUMPY" + version + size + text + rows.tobytes() + tail
    return base64.b64encode(data).decode()


ROWS = routed(4).astype("<i4")


@both_forms
def test_the_hand_made_npy_file_is_a_good_one(sent: Any) -> None:
    record = sent(with_value(npy(ROWS)))
    assert np.array_equal(rows_in(one([record], routing=spec())), ROWS)


@both_forms
def test_a_fortran_ordered_npy_file_is_refused(sent: Any) -> None:
    assert "Fortran order" in fault_of(npy_base64(np.asfortranarray(ROWS)), sent)


@both_forms
@pytest.mark.parametrize("version", [b"\x02\x00", b"\x03\x00", b"\x00\x00", b"\x01\x01"])
def test_a_npy_file_of_another_version_is_refused(version: bytes, sent: Any) -> None:
    assert "another version" in fault_of(npy(ROWS, version=version), sent)


def test_an_object_array_is_refused_and_never_unpickled() -> None:
    file = io.BytesIO()
    np.save(file, np.array([[[print]]], object), allow_pickle=True)
    value = base64.b64encode(file.getvalue()).decode()
    assert "another dtype or header" in fault_of(value, dict, 2)


@both_forms
@pytest.mark.parametrize(
    "dtype", [">i4", ">u2", "<i8", "<u4", "<u8", "<f4", "<f8", "|b1", "<c8", "|S4", "<U1", "<M8[s]"]
)
def test_a_npy_file_of_another_dtype_is_refused(dtype: str, sent: Any) -> None:
    assert "dtype" in fault_of(npy_base64(ROWS % 2, dtype), sent)


HEADERS = {
    "keys in another order": b"{'fortran_order': False, 'descr': '<i4', 'shape': (4, 2, 3), }",
    "a call": b"{'descr': __import__('os').getcwd(), 'fortran_order': False, 'shape': (4,2,3)}",
    "no shape": b"{'descr': '<i4', 'fortran_order': False, }",
    "negative": b"{'descr': '<i4', 'fortran_order': False, 'shape': (-4, 2, 3), }",
    "scalar": b"{'descr': '<i4', 'fortran_order': False, 'shape': (), }",
    "structured": b"{'descr': [('a', '<i4')], 'fortran_order': False, 'shape': (4, 2, 3), }",
    "a key twice": b"{'descr': '<i4', 'descr': '<i4', 'fortran_order': False, 'shape': (4, 2, 3)}",
    "empty": b"",
    "long": b" " * 5000,
}


@both_forms
@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS)
def test_a_npy_header_that_numpy_would_not_write_is_refused(header: bytes, sent: Any) -> None:
    assert ".npy" in fault_of(npy(ROWS, header=header or b" "), sent)


@both_forms
@pytest.mark.parametrize("num_bytes", [6, 7, 9, 12, 50, 128, 129, 200, 223])
def test_a_npy_file_that_is_cut_anywhere_is_refused(num_bytes: int, sent: Any) -> None:
    whole = base64.b64decode(npy_base64(ROWS))
    assert len(whole) == 224
    fault_of(base64.b64encode(whole[:num_bytes]).decode(), sent)


@both_forms
@pytest.mark.parametrize("tail", [b"\x00", b"\x00" * 3, b"\x00" * 24])
def test_bytes_after_a_npy_files_array_are_refused(tail: bytes, sent: Any) -> None:
    rule = f"needs 96 bytes, there are {96 + len(tail)}"
    assert rule in fault_of(npy(ROWS, tail=tail), sent)


@both_forms
@pytest.mark.parametrize(
    "shape",
    [(4, 6), (24,), (2, 2, 2, 3), (4, 3, 2), (4, 6, 1), (3, 2, 4), (8, 1, 3), (1, 2, 12)],
    ids=str,
)
@pytest.mark.parametrize("form", [npy_base64, routing_object])
def test_another_shape_is_refused(form: Any, shape: tuple[int, ...], sent: Any) -> None:
    fault_of(form(ROWS.reshape(shape)), sent)


@pytest.mark.parametrize("shape", [[10**30, 2, 3], [2**31, 2, 3], [4, 10**18, 10**18]], ids=str)
@both_forms
def test_a_giant_shape_is_refused(shape: list[int], sent: Any) -> None:
    header = f"{{'descr': '<i4', 'fortran_order': False, 'shape': ({shape[0]}, {shape[1]}, "
    header += f"{shape[2]}), }}"
    fault_of(npy(ROWS, header=header.encode()), sent)
    fault_of({"data": WHOLE, "shape": shape, "dtype": "int32"}, sent)
    fault_of({"data": WHOLE, "shape": shape, "dtype": "int32"}, sent, routing=None)


@both_forms
@pytest.mark.parametrize("shape", [(4, 0, 3), (4, 2, 0), (4, 0, 0)], ids=str)
@pytest.mark.parametrize("form", [npy_base64, routing_object])
def test_rows_with_nothing_in_them_are_refused(
    form: Any, shape: tuple[int, ...], sent: Any
) -> None:
    rule = "has 4 rows with nothing in them"
    assert rule in fault_of(form(np.empty(shape, np.int32)), sent, routing=None)


@both_forms
def test_a_giant_width_of_no_rows_is_refused(sent: Any) -> None:
    value = {"data": "", "shape": [0, 10**30, 2], "dtype": "int32"}
    fault_of(value, sent, 1, routing=None)


# Objects.


@both_forms
@pytest.mark.parametrize(
    "change",
    [
        {"data": None},
        {"data": 5},
        {"data": ["AAAA"]},
        {"shape": None},
        {"shape": "4, 2, 3"},
        {"shape": [4.0, 2, 3]},
        {"shape": ["4", 2, 3]},
        {"shape": [True, 2, 3]},
        {"shape": [4, -2, -3]},
        {"shape": [-4, 2, 3]},
        {"shape": 4},
        {"dtype": None},
        {"dtype": 32},
        {"dtype": "float32"},
        {"dtype": "int64"},
        {"dtype": "uint32"},
        {"dtype": ">i4"},
        {"dtype": "object"},
        {"dtype": "O"},
        {"dtype": "i4,i4"},
        {"dtype": "(2,3)i4"},
        {"dtype": "(1,i4"},
        {"dtype": ","},
        {"dtype": "a"},
        {"dtype": ""},
        {"dtype": "\ud800"},
        {"dtype": "int32\x00"},
        {"start": -1},
        {"start": "0"},
        {"start": 1.0},
        {"start": True},
        {"start": 10**30},
    ],
    ids=str,
)
@pytest.mark.parametrize("routing", [spec(), None], ids=["spec", "no spec"])
def test_an_object_with_a_value_of_another_kind_is_refused(
    change: dict[str, Any], routing: Any, sent: Any
) -> None:
    fault_of(routing_object(ROWS) | change, sent, routing=routing)


@both_forms
@pytest.mark.parametrize("key", ["data", "shape", "dtype"])
def test_an_object_without_one_of_its_keys_is_refused(key: str, sent: Any) -> None:
    value = routing_object(ROWS)
    del value[key]
    fault_of(value, sent)
    fault_of({}, sent)


@both_forms
def test_an_object_may_hold_further_keys(sent: Any) -> None:
    record = sent(with_value(routing_object(ROWS) | {"order": "C"}))
    assert np.array_equal(rows_in(one([record], routing=spec())), ROWS)


@both_forms
@pytest.mark.parametrize("num_bytes", [92, 100, 0])
def test_an_object_with_another_number_of_bytes_is_refused(num_bytes: int, sent: Any) -> None:
    value = routing_object(ROWS) | {"data": base64.b64encode(bytes(num_bytes)).decode()}
    assert f"needs 96 bytes, there are {num_bytes}" in fault_of(value, sent)


# The indexer's width is derived.


@both_forms
@pytest.mark.parametrize("num_bytes", [0, 4, 12, 20])
def test_an_indexer_array_that_does_not_divide_by_its_rows_is_refused(
    num_bytes: int, sent: Any
) -> None:
    value = base64.b64encode(bytes(num_bytes)).decode()
    record = sglang([1, 2], [3], indexer_topk=value, indexer_topk_num_layers=1)
    if num_bytes == 0:
        record["response"]["choices"][0]["meta_info"]["indexer_topk"] = ""
    error = refused([sent(record)])
    assert (error.turn, error.field) == (1, "indexer_topk")


@both_forms
@pytest.mark.parametrize("layers", [0, -1, 1.0, "1", True, 10**30])
def test_a_number_of_indexer_layers_that_makes_no_sense_is_refused(layers: Any, sent: Any) -> None:
    value = raw_base64(routed(2, 1, 2))
    record = sglang([1, 2], [3], indexer_topk=value, indexer_topk_num_layers=layers)
    assert refused([sent(record)]).turn == 1


@both_forms
def test_a_faulty_value_is_refused_even_where_its_rows_are_not_needed(sent: Any) -> None:
    records = [
        sglang([1, 2], [3], finish="length", routed_experts=raw_base64(routed(2))),
        sent(sglang([1, 2, 3, 4], [5], routed_experts="@@@@")),
    ]
    assert refused(records, routing=spec()).turn == 2
