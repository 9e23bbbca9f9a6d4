"""The conformance vectors: y_ must be read to their meaning, n_ refused, i_ may go either way.

`make_vectors.py` writes them; a test only reads them.
"""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest

import sample_wire
from sample_wire import (
    DecodeError,
    Payload,
    Sample,
    SamplesReply,
    decode_samples,
    encode_samples,
    read_container,
    read_fields,
    write_container,
)
from sample_wire.codec import LAYOUTS, Layout

from ._all import CONFORMANCE, about_text, all_vectors
from ._meaning import container_meaning, reply_meaning, with_empty_tokens
from ._spec import section, table
from ._wire import LETTERS

VECTORS: Final = all_vectors()
ABOUT: Final[dict[str, dict[str, Any]]] = {
    path.stem: json.loads(path.read_text()) for path in sorted(CONFORMANCE.glob("*.json"))
}
# Rules that Sample cannot break (it has no ragged field), or that need megabytes; tests of their
# own in test_spec.py and test_spec_compact.py.
_RULES_WITHOUT_VECTOR: Final = {"F11", "L1", "L2"}
_NUMPY_NAMES: Final = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "C64": "complex64",
    "BOOL": "bool",
    **{
        f"{kind[0].upper()}{bits}": f"{kind}{bits}"
        for kind in ("int", "uint")
        for bits in (8, 16, 32, 64)
    },
}


def _names(prefix: str, layer: str | None = None) -> list[str]:
    return [
        name
        for name, about in ABOUT.items()
        if name.startswith(prefix) and layer in (None, about["layer"])
    ]


def _bytes_of(name: str) -> bytes:
    return (CONFORMANCE / f"{name}.bin").read_bytes()


def _read(name: str, buffer: object, template: Sample | None = None) -> Any:
    about = ABOUT[name]
    if about["layer"] == "container":
        return read_container(buffer)
    return decode_samples(buffer, template or Sample(), field_set=about["field_set"])


def _written(name: str, reply: SamplesReply[Sample], layout: Layout) -> bytes:
    """The reply of a vector as the package writes it."""
    written = encode_samples(
        reply.samples,
        reply.session_metadata,
        empty_reason=reply.empty_reason,
        field_set=ABOUT[name]["field_set"],
        layout=layout,
        num_experts=ABOUT[name].get("num_experts"),
    )
    return bytes(written)


def _in_pieces(data: bytes) -> Payload:
    """The same bytes as buffers of odd lengths, as they might come from a network."""
    return Payload([data[start : start + 13] for start in range(0, len(data), 13)])


_BUFFERS: Final[list[Callable[[bytes], object]]] = [bytes, bytearray, memoryview, _in_pieces]


def test_the_files_are_the_vectors_that_the_script_makes() -> None:
    expected = {f"{name}{suffix}" for name in VECTORS for suffix in (".bin", ".json")}
    assert {path.name for path in CONFORMANCE.iterdir()} == expected


def test_every_file_is_what_the_script_makes() -> None:
    changed = [
        name
        for name, vector in VECTORS.items()
        if _bytes_of(name) != vector.data
        or (CONFORMANCE / f"{name}.json").read_text() != about_text(vector)
    ]
    assert changed == []


def test_a_prefix_says_what_the_json_says() -> None:
    verdicts = {"y": "accept", "n": "refuse", "i": "either"}
    wrong = [name for name, about in ABOUT.items() if verdicts[name[0]] != about["verdict"]]
    assert wrong == []


@pytest.mark.parametrize("kind", _BUFFERS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("name", _names("y_", "sample"))
def test_a_payload_is_read_to_its_meaning(name: str, kind: Callable[[bytes], object]) -> None:
    about = ABOUT[name]
    found = reply_meaning(_read(name, kind(_bytes_of(name))), about["field_set"])
    assert _exact(found) == _exact(with_empty_tokens(about["meaning"]))


@pytest.mark.parametrize("kind", _BUFFERS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("name", _names("y_", "container"))
def test_a_container_is_read_to_its_meaning(name: str, kind: Callable[[bytes], object]) -> None:
    expected = {
        tensor: {**about, "dtype": _NUMPY_NAMES[about["dtype"]]}
        for tensor, about in ABOUT[name]["meaning"].items()
    }
    assert container_meaning(_read(name, kind(_bytes_of(name)))) == expected


def _canonical(layer: str) -> list[str]:
    return [name for name in _names("y_", layer) if ABOUT[name]["canonical"]]


@pytest.mark.parametrize("name", _canonical("sample"))
def test_a_canonical_payload_is_written_again_byte_for_byte(name: str) -> None:
    layout: Layout = "compact" if ABOUT[name].get("format") == 2 else "exact"
    assert _written(name, _read(name, _bytes_of(name)), layout) == _bytes_of(name)


@pytest.mark.parametrize("name", _canonical("container"))
def test_a_canonical_container_is_written_again_byte_for_byte(name: str) -> None:
    assert bytes(write_container(_read(name, _bytes_of(name)))) == _bytes_of(name)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", _names("y_", "sample"))
def test_a_payload_that_was_read_and_written_means_the_same(name: str, layout: Layout) -> None:
    field_set = ABOUT[name]["field_set"]
    reply = _read(name, _bytes_of(name))
    read_again = decode_samples(_written(name, reply, layout), Sample(), field_set=field_set)
    found = reply_meaning(read_again, field_set)
    assert _exact(found) == _exact(reply_meaning(reply, field_set))


@pytest.mark.parametrize("kind", _BUFFERS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("name", _names("n_"))
def test_a_refusal_is_of_the_class_that_the_json_names(
    name: str, kind: Callable[[bytes], object]
) -> None:
    with pytest.raises(DecodeError) as raised:
        _read(name, kind(_bytes_of(name)))
    assert type(raised.value) is getattr(sample_wire, ABOUT[name]["error"])


@pytest.mark.parametrize("name", _names("n_", "container"))
def test_the_sample_decoder_refuses_a_refused_container(name: str) -> None:
    with pytest.raises(DecodeError):
        decode_samples(_bytes_of(name), Sample())


@pytest.mark.parametrize("name", _names("n_", "sample"))
def test_a_refusal_leaves_the_template_as_it_was(name: str) -> None:
    template = Sample(metadata={"kept": {"deep": [1]}}, label=np.arange(3), group_index=7)
    before = pickle.dumps(template)
    with pytest.raises(DecodeError):
        _read(name, _bytes_of(name), template)
    assert pickle.dumps(template) == before


@pytest.mark.parametrize("name", _names("i_"))
def test_an_undecided_payload_gets_the_verdict_that_is_pinned(name: str) -> None:
    try:
        _read(name, _bytes_of(name))
        verdict = "accept"
    except DecodeError as error:
        verdict = type(error).__name__
    assert verdict == ABOUT[name]["this_package"]


def test_every_refusal_rule_of_the_spec_has_a_vector_and_every_vector_a_rule() -> None:
    rules = {row["rule"] for number in ("4.3", "9.2") for row in table(number, "rule")}
    with_vector = {ABOUT[name]["rule"] for name in _names("n_")}
    assert with_vector == rules - _RULES_WITHOUT_VECTOR


def test_section_14_names_the_rules_without_a_vector() -> None:
    (stated,) = re.findall(r"^(.*) have no vector", section("14"), re.MULTILINE)
    assert set(re.findall(r"[A-Z]\d+", stated)) == _RULES_WITHOUT_VECTOR


@pytest.mark.parametrize("name", _names("n_"))
def test_a_vector_names_the_error_that_its_rule_states(name: str) -> None:
    number = "4.3" if ABOUT[name]["layer"] == "container" else "9.2"
    errors = {row["rule"]: row["error"] for row in table(number, "rule")}
    assert ABOUT[name]["error"] in errors[ABOUT[name]["rule"]].split(" or ")


def test_the_hand_written_layout_order_is_that_of_the_spec() -> None:
    assert list(LETTERS) == [row["wire name"] for row in table("4.2", "order")]


@pytest.mark.parametrize("name", _names("n_", "sample"))
def test_section_9_3_a_partial_read_refuses_what_the_header_and_the_json_show(name: str) -> None:
    with pytest.raises(DecodeError) as raised:
        read_fields(_bytes_of(name), ["response"], field_set=ABOUT[name]["field_set"])
    assert type(raised.value) is getattr(sample_wire, ABOUT[name]["error"])


def _exact(meaning: dict[str, Any]) -> str:
    """JSON text of a meaning: unlike ==, it tells 1 from 1.0 and True, and 0.0 from -0.0."""
    return json.dumps(meaning)
