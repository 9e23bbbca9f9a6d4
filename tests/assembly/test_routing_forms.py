"""Every public form of a routing value is read, whichever way the reply comes."""

from __future__ import annotations

import base64
import json
import sys
from typing import Any

import numpy as np
import pytest

from sample_wire.adapters.engines import fast_base64, turn_reader
from sample_wire.assembly import TurnReader
from sample_wire.assembly.routing import strict_base64

from ._records import (
    FORMS,
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
    sglang_generate,
    spec,
    vllm,
    vllm_chat,
)

NARROW = ("uint8", "int8", "uint16", "int16", "int32")


def with_value(value: Any, num_tokens: int = 5) -> Record:
    """A turn of so many tokens with this routing value."""
    return sglang([*range(num_tokens - 1)], [7], routed_experts=value)


@both_forms
@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("form", ["npy", "object"])
def test_narrow_rows_are_read_by_value(form: str, dtype: str, sent: Any) -> None:
    info = np.iinfo(dtype)
    rows = np.array([info.max, 0, info.min // 2, 1], np.int64).reshape(4, 1, 1)
    make = npy_base64 if form == "npy" else routing_object
    record = sent(with_value(make(rows, np.dtype(dtype).str if form == "npy" else dtype)))
    assert rows_in(one([record])).tolist() == rows.tolist()


@both_forms
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("shape", [sglang, sglang_generate, vllm, vllm_chat])
def test_each_form_is_read_from_each_reply(shape: Any, form: Any, sent: Any) -> None:
    record = sent(shape([1, 2], [3], routed_experts=form(routed(2))))
    assert np.array_equal(rows_in(one([record], routing=spec())), routed(2))


@both_forms
@pytest.mark.parametrize("form", ["npy", "object"])
def test_a_form_that_describes_itself_needs_no_spec(form: str, sent: Any) -> None:
    record = sent(with_value(FORMS[form](routed(4))))
    assert np.array_equal(rows_in(one([record])), routed(4))


@both_forms
def test_raw_rows_need_a_spec(sent: Any) -> None:
    error = refused([sent(with_value(raw_base64(routed(4))))])
    assert (error.turn, error.field) == (1, "routed_experts")
    assert "a RoutingSpec must say its layers and top_k" in str(error)


@both_forms
@pytest.mark.parametrize(
    ("form", "num_layers", "top_k"),
    [
        *(("raw", *shape) for shape in ((2, 6), (4, 3), (2, 2), (2, 1))),
        # Headers also tell shapes apart that have as many numbers.
        *(("npy", *shape) for shape in ((2, 6), (4, 3), (2, 2), (3, 2), (1, 6))),
        *(("object", *shape) for shape in ((2, 6), (4, 3), (2, 2), (3, 2), (1, 6))),
    ],
)
def test_a_configured_width_is_never_guessed(
    form: str, num_layers: int, top_k: int, sent: Any
) -> None:
    record = sent(with_value(FORMS[form](routed(4))))
    error = refused([record], routing=spec(num_layers=num_layers, top_k=top_k))
    assert (error.turn, error.field) == (1, "routed_experts")


@both_forms
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_no_rows_are_told_from_no_routing(form: Any, sent: Any) -> None:
    record = sent(sglang([1], [], routed_experts=form(routed(0))))
    assert rows_in(one([record], routing=spec())).shape == (0, 2, 3)
    absent = sent(sglang([1], []))
    assert one([absent], routing=spec()).rollout_routed_experts is None


@both_forms
@pytest.mark.parametrize("form", [npy_base64, routing_object])
def test_no_rows_of_no_width_have_the_configured_one(form: Any, sent: Any) -> None:
    record = sent(sglang([1], [], routed_experts=form(np.empty((0, 2, 0), np.int32))))
    assert rows_in(one([record], routing=spec())).shape == (0, 2, 3)


@both_forms
def test_a_null_value_is_an_absent_one(sent: Any) -> None:
    record = sglang([1], [2])
    record["response"]["choices"][0]["meta_info"]["routed_experts"] = None
    assert one([sent(record)], routing=spec()).rollout_routed_experts is None


@both_forms
def test_sglext_holds_the_routing_of_a_reply_without_it_in_meta_info(sent: Any) -> None:
    record = sglang([1, 2], [3])
    record["response"]["sglext"] = {"routed_experts": raw_base64(routed(2))}
    assert np.array_equal(rows_in(one([sent(record)], routing=spec())), routed(2))


@both_forms
def test_the_object_may_state_its_start(sent: Any) -> None:
    value = routing_object(routed(3, start=4), start=4)
    records = [
        sglang([1, 2, 3], [4, 5], start=0, routed_experts=raw_base64(routed(4))),
        sglang([1, 2, 3, 4, 5, 6], [7, 8], routed_experts=value),
    ]
    found = one([*map(sent, records)], routing=spec(incremental=True))
    assert np.array_equal(rows_in(found), routed(7))


@both_forms
@pytest.mark.parametrize("stated", [0, 3, 5])
def test_a_start_that_contradicts_the_request_is_refused(stated: int, sent: Any) -> None:
    value = routing_object(routed(3, start=4), start=stated)
    records = [
        sglang([1, 2, 3], [4, 5], start=0, routed_experts=raw_base64(routed(4))),
        sglang([1, 2, 3, 4, 5, 6], [7, 8], start=4, routed_experts=value),
    ]
    assert refused([*map(sent, records)], routing=spec(incremental=True)).turn == 2


@both_forms
def test_an_object_without_a_start_says_nothing_of_it(sent: Any) -> None:
    records = [
        sglang([1, 2, 3], [4, 5], start=0, routed_experts=routing_object(routed(4))),
        sglang(
            [1, 2, 3, 4, 5, 6],
            [7, 8],
            start=4,
            routed_experts=routing_object(routed(3, start=4)),
        ),
    ]
    found = one([*map(sent, records)], routing=spec(incremental=True))
    assert np.array_equal(rows_in(found), routed(7))


@pytest.mark.parametrize("indent", [None, 4])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_white_space_around_a_value_does_not_matter(form: Any, indent: int | None) -> None:
    record = with_value(form(routed(4)))
    text = json.dumps(record["response"], indent=indent, separators=(" , ", " : "))
    record["response"] = text.encode()
    assert np.array_equal(rows_in(one([record], routing=spec())), routed(4))


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_reply_may_come_in_any_buffer(kind: Any) -> None:
    record = with_value(raw_base64(routed(4)))
    record["response"] = kind(json.dumps(record["response"]).encode())
    assert np.array_equal(rows_in(one([record], routing=spec())), routed(4))


def large_rows() -> Array:
    """Rows whose base64 is decoded in several pieces."""
    return np.random.default_rng(5).integers(0, 250, (1700, 25, 10), np.int32)


@both_forms
@pytest.mark.parametrize("num_experts", [None, 250])
@pytest.mark.parametrize(
    "make",
    [
        raw_base64,
        npy_base64,
        lambda rows: npy_base64(rows, "|u1"),
        lambda rows: npy_base64(rows, "<u2"),
        lambda rows: routing_object(rows, "uint8"),
        routing_object,
    ],
    ids=["raw", "npy", "npy u1", "npy u2", "object u1", "object"],
)
def test_a_long_value_is_read_piece_by_piece(make: Any, num_experts: int | None, sent: Any) -> None:
    record = sent(with_value(make(large_rows()), 1701))
    routing = spec(num_layers=25, top_k=10, num_experts=num_experts)
    assert rows_in(one([record], routing=routing)).tobytes() == large_rows().tobytes()


@pytest.mark.parametrize("at", [1, 2**18 - 1, 2**18, 2**18 + 2, -5])
@pytest.mark.parametrize("bad", ["=", "-", "\n"])
def test_a_long_value_with_one_bad_character_is_refused(at: int, bad: str) -> None:
    text = raw_base64(large_rows())
    at %= len(text)
    record = with_value(text[:at] + bad + text[at + 1 :], 1701)
    assert refused([record], routing=spec(num_layers=25, top_k=10)).field == "routed_experts"


def test_rows_of_a_size_that_does_not_divide_the_pieces_are_read() -> None:
    rows = np.random.default_rng(6).integers(0, 250, (9001, 7, 5), np.int32)
    record = with_value(npy_base64(rows, "|u1"), 9002)
    found = rows_in(one([record], routing=spec(num_layers=7, top_k=5)))
    assert found.tobytes() == rows.tobytes()


def test_one_row_larger_than_a_piece_is_read() -> None:
    rows = np.random.default_rng(7).integers(0, 250, (2, 500, 600), np.int32)
    record = with_value(raw_base64(rows), 3)
    found = rows_in(one([record], routing=spec(num_layers=500, top_k=600)))
    assert found.tobytes() == rows.tobytes()


# Ids.


@both_forms
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_ids_outside_the_experts_are_refused(form: Any, sent: Any) -> None:
    for bad in (300, 1000, -2):
        rows = np.full((4, 2, 3), 299)
        rows[2, 1, 1] = bad
        error = refused([sent(with_value(form(rows)))], routing=spec(num_experts=300))
        assert (error.turn, error.field) == (1, "routed_experts")
        assert f"holds id {bad}, of 300 experts" in str(error)


@both_forms
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_row_that_mixes_not_captured_with_ids_is_refused(form: Any, sent: Any) -> None:
    rows = np.full((4, 2, 3), 5)
    rows[1] = -1
    record = sent(with_value(form(rows)))
    assert np.array_equal(rows_in(one([record], routing=spec(num_experts=8))), rows)
    rows[1, 0, 0] = 3
    error = refused([sent(with_value(form(rows)))], routing=spec(num_experts=8))
    assert (error.turn, error.field) == (1, "routed_experts")
    assert "mixes -1" in str(error)


def test_ids_go_unchecked_where_the_number_of_experts_is_not_known() -> None:
    rows = np.array([-1, 2**31 - 1, 5, -(2**31), 7, 8], np.int64).reshape(1, 2, 3)
    record = with_value(raw_base64(rows), 2)
    assert np.array_equal(rows_in(one([record], routing=spec())), rows)


# The two decoders.


BASE64_TEXTS = {
    "valid": base64.b64encode(bytes(range(12))).decode(),
    "plus and slash": "+/+/////",
    "padded": "AAAAAA==",
    "trailing bits": "AAAAAB==",
    "trailing bits of one pad": "AAAAAAE=",
    "excess padding": "AAAB====",
    "only padding": "====",
    "leading padding": "=AAAAAA=",
    "padding in the middle": "AA==AAAA",
    "one pad too many": "AAAAA===",
    "not a multiple": "AAAAA",
    "white space": "AAAA AA=",
    "new line": "AAAA\nAA=",
    "trailing new line": "AAAAAA=\n",
    "url-safe minus": "AAA-AAAA",
    "url-safe underscore": "AAA_AAAA",
    "non-ascii": "AAA\u00e9AAAA",
    "nul": "AAA\x00AAAA",
    "quote": 'AAA"AAAA',
    "backslash": "AAA\\AAAA",
}


def read_with(reader: TurnReader, text: str, form: str) -> list[Any] | str:
    """The rows that a reader makes of base64 for any number of one-byte rows, or why not."""
    found: list[Any] | str = ""
    for num_rows in range(13):
        value = {"data": text, "shape": [num_rows, 1, 1], "dtype": "uint8"}
        record = sglang([*range(num_rows)], [7], routed_experts=value)
        if form == "bytes":
            record["response"] = json.dumps(record["response"]).encode()
        try:
            turn = reader.read(record, None)
        except ValueError as error:
            found = found or str(error).split(": ")[1]
        else:
            assert turn.routing is not None
            return [*turn.routing.to_array(np.uint8).ravel().tolist()]
    return found


@pytest.mark.parametrize("form", ["objects", "bytes"])
@pytest.mark.parametrize("text", BASE64_TEXTS.values(), ids=BASE64_TEXTS)
def test_both_base64_decoders_give_one_verdict(text: str, form: str) -> None:
    pytest.importorskip("pybase64")
    plain = TurnReader(routing=None, decode_text=None)
    fast = turn_reader(routing=None, decode_text=None)
    first, second = read_with(plain, text, form), read_with(fast, text, form)
    assert type(first) is type(second)
    if isinstance(first, list):
        assert first == second == [*base64.b64decode(text, validate=True)]


def test_both_base64_decoders_give_one_verdict_on_random_texts() -> None:
    pytest.importorskip("pybase64")
    rng = np.random.default_rng(8)
    plain = TurnReader(routing=None, decode_text=None)
    fast = turn_reader(routing=None, decode_text=None)
    alphabet = "ABab01+/===-_ \n"
    for _ in range(150):
        text = "".join(alphabet[i] for i in rng.integers(0, len(alphabet), rng.integers(0, 13)))
        first, second = read_with(plain, text, "objects"), read_with(fast, text, "objects")
        assert isinstance(first, str) == isinstance(second, str), text
        assert isinstance(first, str) or first == second, text


@pytest.mark.parametrize("text", ["AAAA====", "AAAAAAAA====", "AAAAAAA=", "AAAA"])
def test_rows_that_base64_does_not_hold_are_never_lost(text: str) -> None:
    for reader in (TurnReader, turn_reader):
        made = reader(routing=spec(num_layers=1, top_k=1), decode_text=None)
        for num_rows in range(1, 4):
            try:
                turn = made.read(with_value(text, num_rows + 1), None)
            except ValueError:
                continue
            assert turn.routing is not None
            assert len(turn.routing) == num_rows


def test_assemble_takes_any_strict_decoder() -> None:
    for decode in (fast_base64(), strict_base64):
        options: dict[str, Any] = {"routing": spec(), "decode_base64": decode}
        good = one([with_value(raw_base64(routed(4)))], **options)
        assert np.array_equal(rows_in(good), routed(4))
        refused([with_value("@@@@" * 32)], **options)


def test_without_pybase64_the_standard_library_decodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pybase64", None)
    reader = turn_reader(routing=spec(), decode_text=None)
    turn = reader.read(with_value(raw_base64(routed(4))), None)
    assert turn.routing is not None
    assert np.array_equal(turn.routing.to_array(np.int32), routed(4))
