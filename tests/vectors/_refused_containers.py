"""The n_ vectors of the container layer: one or more for each rule of SPEC section 4.3."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ._kit import Vector
from ._wire import framed

_A: Final = '"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}'
_B: Final = '"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}'
_GOOD: Final = f"{{{_A}}}"


def _refused(rule: str, name: str, why: str, data: bytes) -> Vector:
    about = {
        "verdict": "refuse",
        "layer": "container",
        "rule": rule,
        "error": "ContainerError",
        "why": why,
    }
    return Vector(f"n_container_{name}", data, about)


def _framing() -> Iterator[Vector]:
    claimed = (100_000_001).to_bytes(8, "little")
    yield _refused("C1", "empty", "no length", b"")
    yield _refused("C1", "seven_bytes", "half a length", bytes(7))
    yield _refused("C2", "header_over_the_cap", "more than 100 MB", claimed + b"{}")
    yield _refused("C2", "header_length_all_ones", "more than 100 MB", b"\xff" * 8 + b"{}")
    yield _refused(
        "C3", "header_past_the_end", "one byte more than there is", b"\3" + bytes(7) + b"{}"
    )


def _texts() -> Iterator[Vector]:
    for name, why, header in (
        ("header_empty", "no header at all", ""),
        ("header_leading_space", "it must begin with '{'", f" {_GOOD}"),
        ("header_byte_order_mark", "it must begin with '{'", f"\ufeff{_GOOD}"),
        ("header_list", "it must begin with '{'", f"[{_GOOD}]"),
    ):
        yield _refused("C4", name, why, framed(header, bytes(4)))
    texts: tuple[tuple[str, str, str | bytes], ...] = (
        ("header_cut", "it ends too early", _GOOD[:-1]),
        ("header_nul_padding", "NUL is not white space", f"{_GOOD}\x00"),
        ("header_text_after_it", "nothing may follow", f"{_GOOD}{{}}"),
        ("header_utf16", "UTF-8 only", _GOOD.encode("utf-16-le")),
        ("header_not_utf8", "UTF-8 only", _GOOD.replace('"a"', '"\xff"').encode("latin-1")),
        ("header_lone_surrogate", "half a pair is no text", _GOOD.replace('"a"', '"\\udc00"')),
        ("header_raw_control", "it must be escaped", _GOOD.replace('"a"', '"\x1f"')),
        ("header_nan", "no JSON number", _GOOD.replace("[4]", "[NaN]")),
        ("header_leading_zero", "no JSON number", _GOOD.replace("[4]", "[04]")),
        ("header_trailing_comma", "no JSON", _GOOD.replace("[4]", "[4,]")),
    )
    for name, why, text in texts:
        yield _refused("C5", name, why, framed(text, bytes(4)))
    deep = _GOOD.replace("[4]", "[" * 200 + "4" + "]" * 200)
    yield _refused("C6", "header_deep", "nothing in a header is deep", framed(deep, bytes(4)))
    keys = (
        ("tensor_twice", "the same tensor", f"{{{_A},{_A}}}"),
        (
            "tensor_twice_by_escape",
            "one name, two spellings",
            f"{{{_A},{_A}}}".replace("a", "\\u0061", 1),
        ),
        ("entry_key_twice", "the same key", _GOOD.replace('"dtype"', '"dtype":"U8","dtype"')),
        ("metadata_key_twice", "the same key", '{"__metadata__":{"k":"1","k":"1"}}'),
        ("metadata_twice", "the same key", '{"__metadata__":{},"__metadata__":{}}'),
    )
    for name, why, text in keys:
        yield _refused("C7", name, why, framed(text, bytes(4) if "tensor" in name else b""))


def _metadata() -> Iterator[Vector]:
    for name, value in (
        ("null", "null"),
        ("list", "[]"),
        ("text", '"x"'),
        ("value_null", '{"k":null}'),
        ("value_number", '{"k":1}'),
        ("value_object", '{"k":{}}'),
    ):
        header = f'{{"__metadata__":{value}}}'
        yield _refused("C8", f"metadata_{name}", "text to text, or absent", framed(header))
    header = _GOOD.replace('"a"', '"__metadata__"')
    why = "no tensor can have this name"
    yield _refused("C8", "metadata_is_a_tensor", why, framed(header, bytes(4)))


def _entries() -> Iterator[Vector]:
    why = "exactly dtype, shape and data_offsets, of their types"
    for name, entry in (
        ("entry_number", "4"),
        ("entry_null", "null"),
        ("entry_list", '["U8",[4],[0,4]]'),
        ("entry_empty", "{}"),
        ("entry_no_dtype", '{"shape":[4],"data_offsets":[0,4]}'),
        ("entry_no_shape", '{"dtype":"U8","data_offsets":[0,4]}'),
        ("entry_no_offsets", '{"dtype":"U8","shape":[4]}'),
        ("entry_unknown_key", '{"dtype":"U8","shape":[4],"data_offsets":[0,4],"x":1}'),
        ("entry_key_case", '{"Dtype":"U8","shape":[4],"data_offsets":[0,4]}'),
        ("dtype_number", '{"dtype":8,"shape":[4],"data_offsets":[0,4]}'),
        ("shape_object", '{"dtype":"U8","shape":{},"data_offsets":[0,4]}'),
        ("shape_text", '{"dtype":"U8","shape":["4"],"data_offsets":[0,4]}'),
        ("offsets_three", '{"dtype":"U8","shape":[4],"data_offsets":[0,4,4]}'),
        ("offsets_one", '{"dtype":"U8","shape":[4],"data_offsets":[4]}'),
        ("offsets_null", '{"dtype":"U8","shape":[4],"data_offsets":null}'),
    ):
        yield _refused("C9", name, why, framed(f'{{"a":{entry}}}', bytes(4)))


def _numbers() -> Iterator[Vector]:
    why = "sizes are integers of 0..2**63-1 without sign, fraction or exponent"
    for name, size in (
        ("minus_one", "-1"),
        ("minus_zero", "-0"),
        ("fraction", "0.0"),
        ("exponent", "0e0"),
        ("true", "false"),
        ("null", "null"),
        ("two_to_the_63", str(2**63)),
        ("of_many_digits", "9" * 5000),
    ):
        header = f'{{"a":{{"dtype":"U8","shape":[{size},0],"data_offsets":[0,0]}}}}'
        yield _refused("C9", f"size_{name}", why, framed(header))
        header = f'{{"a":{{"dtype":"U8","shape":[0],"data_offsets":[{size},{size}]}}}}'
        yield _refused("C9", f"offset_{name}", why, framed(header))


def _dtypes() -> Iterator[Vector]:
    for name, dtype in (
        ("bf16", "BF16"),
        ("f8", "F8_E5M2"),
        ("f4", "F4"),
        ("lower_case", "u8"),
        ("numpy_name", "uint8"),
        ("numpy_code", "|u1"),
        ("object", "O"),
        ("nul", "U8\\u0000"),
        ("empty", ""),
    ):
        header = _GOOD.replace("U8", dtype)
        yield _refused("C10", f"dtype_{name}", "not in the table", framed(header, bytes(4)))


def _sizes() -> Iterator[Vector]:
    def header(shape: str, offsets: str, dtype: str = "U8") -> str:
        return f'{{"a":{{"dtype":"{dtype}","shape":[{shape}],"data_offsets":[{offsets}]}}}}'

    ones = ",".join("1" * 33)
    yield _refused("C11", "rank_33", "more than 32 axes", framed(header(ones, "0,1"), b"\0"))
    giant = ",".join(["9" * 18] * 2000)
    why = "long before their product is made"
    yield _refused("C11", "giant_sizes", why, framed(header(giant, "0,0")))
    yield _refused(
        "C12",
        "overflow_beside_zero",
        "a zero axis does not excuse the others",
        framed(header(f"0,{2**62},2", "0,0")),
    )
    yield _refused(
        "C12",
        "overflow_by_item_size",
        "in bytes, not items",
        framed(header(f"0,{2**60}", "0,0", "I64")),
    )
    wrapped = framed(header(f"{2**32},{2**32},4", "0,0"))
    yield _refused("C12", "overflow_to_zero", "the product is 0 in 64 bits", wrapped)
    for name, shape, offsets in (
        ("range_too_short", "4", "0,3"),
        ("range_too_long", "3", "0,4"),
        ("range_backwards", "4", "4,0"),
        ("range_of_rank_0", "", "0,4"),
        ("range_of_empty", "0", "0,4"),
    ):
        yield _refused(
            "C13", name, "not the size of the shape", framed(header(shape, offsets), bytes(4))
        )


def _cover() -> Iterator[Vector]:
    def pair(first: str, second: str, sizes: str = "4 4") -> str:
        one, two = sizes.split()
        return (
            f'{{"a":{{"dtype":"U8","shape":[{one}],"data_offsets":[{first}]}},'
            f'"b":{{"dtype":"U8","shape":[{two}],"data_offsets":[{second}]}}}}'
        )

    for name, why, text in (
        ("hole_at_the_start", "unclaimed bytes", pair("1,5", "5,9")),
        ("hole_between", "not even for alignment", pair("0,4", "8,12")),
        ("overlap", "shared bytes", pair("0,4", "3,7")),
        ("same_range", "shared bytes", pair("0,4", "0,4")),
        ("empty_inside", "an empty range inside another", pair("0,4", "2,2", "4 0")),
        ("empty_beyond", "an empty range past the end", pair("0,4", "5,5", "4 0")),
    ):
        yield _refused("C14", name, why, framed(text, bytes(12)))
    two = f"{{{_A},{_B}}}"
    for name, why, data in (
        ("one_byte_short", "the data ends too early", framed(two, bytes(7))),
        ("one_byte_more", "bytes that no tensor claims", framed(two, bytes(9))),
        ("no_tensors_but_data", "bytes that no tensor claims", framed("{}", bytes(8))),
        ("half", "the data ends too early", framed(_GOOD)),
    ):
        yield _refused("C15", name, why, data)
    flags = _GOOD.replace("U8", "BOOL")
    why = "a BOOL is 0 or 1"
    yield _refused("C16", "bool_2", why, framed(flags, b"\0\1\2\1"))
    yield _refused("C16", "bool_255", why, framed(flags, b"\0\1\0\xff"))


def refused_containers() -> list[Vector]:
    """Every n_container_ vector."""
    return [
        *_framing(),
        *_texts(),
        *_metadata(),
        *_entries(),
        *_numbers(),
        *_dtypes(),
        *_sizes(),
        *_cover(),
    ]
