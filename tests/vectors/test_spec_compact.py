"""What SPEC.md says of format 2: the dtypes of section 5.4, shared rows, and how it is written."""

from __future__ import annotations

import json
from typing import Annotated, Any, Final

import numpy as np
import pytest

from sample_wire import (
    Computed,
    EncodeError,
    FieldError,
    LimitError,
    Payload,
    Ragged,
    Sample,
    Tensor,
    decode_samples,
    encode_samples,
    read_container,
    read_fields,
)

from ._compact import compact_payload
from ._compact_accepted import leaves
from ._kit import Meaning, empty_sample, ints, reply, sample
from ._spec import table
from ._wire import META, WireTensor, split, tensor
from .independent_decoder import DTYPES, NARROWER, RefusedError, decode_reply

_WIRE_NAMES: Final = {row["wire name"]: row["numpy dtype"] for row in table("4.2", "order")}
_STORED: Final = {
    row["logical"]: row["may be stored as"].split(", ") for row in table("5.4", "logical")
}
_EXPERTS: Final = "rollout_routed_experts"


def _typed(dtype: str) -> Computed:
    return Computed(codec=Tensor(dtype), merge="last", null="none")


class EveryDtype(Sample):
    """A field for each dtype of section 4.2."""

    U64: Annotated[Any, _typed("uint64")] = None
    I64: Annotated[Any, _typed("int64")] = None
    F64: Annotated[Any, _typed("float64")] = None
    C64: Annotated[Any, _typed("complex64")] = None
    F32: Annotated[Any, _typed("float32")] = None
    U32: Annotated[Any, _typed("uint32")] = None
    I32: Annotated[Any, _typed("int32")] = None
    F16: Annotated[Any, _typed("float16")] = None
    U16: Annotated[Any, _typed("uint16")] = None
    I16: Annotated[Any, _typed("int16")] = None
    I8: Annotated[Any, _typed("int8")] = None
    U8: Annotated[Any, _typed("uint8")] = None
    BOOL: Annotated[Any, _typed("bool")] = None


def _stored_as(logical: str, stored: str) -> bytes:
    """A payload whose field of a logical dtype holds a 1 that is stored in another."""
    data = np.ones(1, _WIRE_NAMES[stored]).tobytes()
    item = tensor(f"{logical}.0", "U8", [1], [1])._replace(dtype=stored, data=data)

    def edit(document: dict[str, Any]) -> dict[str, Any]:
        (found,) = document["samples"]
        nulls = [*found["nulls"], *(name for name in _WIRE_NAMES if name != logical)]
        dtypes = {item.name: _WIRE_NAMES[logical]}
        return {**document, "samples": [{**found, "nulls": nulls}], "dtypes": dtypes}

    return compact_payload(reply(empty_sample()), document=edit, tensors=lambda _: [item])


def test_section_5_4_the_second_decoder_has_the_table() -> None:
    assert {logical: list(row) for logical, row in NARROWER.items()} == _STORED
    assert {wire: numpy for wire, (_, _, numpy) in DTYPES.items()} == _WIRE_NAMES


_PAIRS: Final = [
    (logical, stored, stored == logical or stored in _STORED.get(logical, []))
    for logical in _WIRE_NAMES
    for stored in _WIRE_NAMES
]


@pytest.mark.parametrize(("logical", "stored"), [pair[:2] for pair in _PAIRS if pair[2]])
def test_section_5_4_a_dtype_is_read_from_itself_and_from_its_row(
    logical: str, stored: str
) -> None:
    (found,) = decode_samples(_stored_as(logical, stored), EveryDtype()).samples
    array = getattr(found, logical)
    assert (array.dtype.name, array.tolist()) == (_WIRE_NAMES[logical], [1])


@pytest.mark.parametrize(("logical", "stored"), [pair[:2] for pair in _PAIRS if not pair[2]])
def test_section_5_4_a_dtype_is_read_from_no_other(logical: str, stored: str) -> None:
    with pytest.raises(FieldError) as raised:
        decode_samples(_stored_as(logical, stored), EveryDtype())
    assert raised.value.field == logical


_CHOICES: Final = [
    (logical, row[:index], stored)
    for logical, narrower in _STORED.items()
    for row in [[*narrower, logical]]
    for index, stored in enumerate(row)
]


@pytest.mark.parametrize(
    ("logical", "earlier", "stored"), _CHOICES, ids=lambda value: "" if value == [] else str(value)
)
def test_section_5_4_a_writer_takes_the_first_dtype_of_the_row_that_holds_all(
    logical: str, earlier: list[str], stored: str
) -> None:
    ends = [end for end in _ends(stored) if not any(_holds(name, end) for name in earlier)]
    assert ends
    for end in ends:
        one = EveryDtype()
        setattr(one, logical, [end])
        written = encode_samples([one], layout="compact")
        assert _entries(written)[f"{logical}.0"]["dtype"] == stored


def _ends(dtype: str) -> tuple[Any, Any]:
    """The least and the greatest value of a dtype, as Python numbers."""
    kind = np.dtype(_WIRE_NAMES[dtype])
    if kind.kind == "f":
        return float(np.finfo(kind).min), float(np.finfo(kind).max)
    return int(np.iinfo(kind).min), int(np.iinfo(kind).max)


def _holds(dtype: str, number: Any) -> bool:
    least, most = _ends(dtype)
    return bool(least <= number <= most)


def _entries(written: Payload) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(split(bytes(written))[0])
    return found


def _document(written: Payload) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(read_container(written)[META].tobytes())
    return found


def _routed(*ids: int) -> Sample:
    return Sample(
        tokens=np.arange(len(ids) + 1),
        rollout_routed_experts=np.array(ids, np.int32).reshape(-1, 1, 1),
    )


@pytest.mark.parametrize("expert", [256, -2, 2**31 - 1, -(2**31)])
def test_section_5_4_2_an_id_of_no_expert_is_refused(expert: int) -> None:
    with pytest.raises(EncodeError, match=_EXPERTS) as raised:
        encode_samples([_routed(0), _routed(3, expert, 4)], layout="compact", num_experts=256)
    assert (raised.value.field, raised.value.sample_index) == (_EXPERTS, 1)


def test_section_5_4_2_the_number_of_experts_says_nothing_of_the_indexer() -> None:
    chosen = np.full((1, 1, 1), 70_000, np.int32)
    sample_ = Sample(tokens=np.arange(2), rollout_indexer_topk=chosen)
    written = encode_samples([sample_], layout="compact", num_experts=8)
    assert _entries(written)["rollout_indexer_topk.0"]["dtype"] == "I32"


def test_section_6_1_a_writer_writes_the_keys_in_order() -> None:
    one = [_routed(5, 6, 7), _routed(5, 6, 8)]
    document = _document(encode_samples(one, layout="compact"))
    entries = list(_entries(encode_samples(one, layout="compact")))
    assert list(document) == [
        "format",
        "samples",
        "session_metadata",
        "empty_reason",
        "shared",
        "dtypes",
    ]
    assert list(document["dtypes"]) == [name for name in entries if name != META]
    assert document["shared"] == {f"{_EXPERTS}.1": [0, 2]}


def test_section_6_1_a_writer_writes_no_shared_where_no_rows_are() -> None:
    document = _document(encode_samples([_routed(1), _routed(2)], layout="compact"))
    assert list(document) == ["format", "samples", "session_metadata", "empty_reason", "dtypes"]


def test_section_6_1_shared_rows_are_in_the_order_of_the_header() -> None:
    ids = np.arange(6, dtype=np.int32).reshape(3, 2, 1)
    twelve = [
        Sample(tokens=np.arange(4), rollout_routed_experts=ids, rollout_indexer_topk=ids + 300)
        for _ in range(12)
    ]
    written = encode_samples(twelve, layout="compact")
    shared = _document(written)["shared"]
    assert len(shared) == 22
    assert list(shared) == [name for name in _entries(written) if name in shared]


_CHAIN: Final = compact_payload(
    leaves([1, 2, 3], [1, 2, 4, 5], [1, 2, 4, 6, 7]),
    shared={f"{_EXPERTS}.1": [0, 2], f"{_EXPERTS}.2": [1, 3]},
)
# The arrays of samples 1 and 2, of 4 and 5 rows of one int32.
_CHAIN_BYTES: Final = 4 * (4 + 5)


def test_section_9_2_l2_counts_all_rows_of_the_arrays_that_shared_names() -> None:
    decode_samples(_CHAIN, Sample(), max_shared_bytes=_CHAIN_BYTES)
    with pytest.raises(LimitError):
        decode_samples(_CHAIN, Sample(), max_shared_bytes=_CHAIN_BYTES - 1)


def test_section_9_2_l2_of_the_second_decoder_counts_the_same() -> None:
    decode_reply(_CHAIN, max_shared_bytes=_CHAIN_BYTES)
    with pytest.raises(RefusedError, match="L2"):
        decode_reply(_CHAIN, max_shared_bytes=_CHAIN_BYTES - 1)


def test_section_9_2_l2_is_the_same_where_nothing_is_widened() -> None:
    decode_samples(_CHAIN, Sample(), widen=False, max_shared_bytes=_CHAIN_BYTES)
    with pytest.raises(LimitError):
        decode_samples(_CHAIN, Sample(), widen=False, max_shared_bytes=_CHAIN_BYTES - 1)


@pytest.mark.parametrize("index", range(3))
def test_section_9_3_a_partial_read_gives_all_rows(index: int) -> None:
    rows = [[1, 2, 3], [1, 2, 4, 5], [1, 2, 4, 6, 7]][index]
    found = read_fields(_CHAIN, [_EXPERTS])[index][_EXPERTS]
    assert (found.dtype, found.ravel().tolist()) == (np.int32, rows)


def test_section_9_1_the_stored_dtype_is_given_to_who_asks_for_it() -> None:
    data = compact_payload(reply(sample(tokens=ints("int64", [5], [300] * 5))))
    sample_ = decode_samples(data, Sample(), widen=False).samples[0]
    found = [np.asarray(getattr(sample_, name)) for name in ("tokens", "rollout_log_probs")]
    assert [array.dtype.name for array in found] == ["uint16", "float32"]
    assert [array.tolist() for array in found] == [[300] * 5, [-0.5, -2.25]]


class MoreArrays(Sample):
    """A sample with a ragged field, and with floats for each token but the last."""

    top: Annotated[
        Any, Computed(codec=Ragged("float32"), merge="concat", rows="response", null="none")
    ] = None
    scores: Annotated[
        Any, Computed(codec=Tensor("float64", 2), merge="last", rows="transitions", null="none")
    ] = None


def _with_arrays(
    meanings: list[Meaning], dtypes: dict[str, str], arrays: list[WireTensor], **changes: Any
) -> bytes:
    """A payload with more tensors, of the fields that their names say; of the others none."""

    def edit(document: dict[str, Any]) -> dict[str, Any]:
        for index, found in enumerate(document["samples"]):
            absent = [name for name in ("top", "scores") if f"{name}.{index}" not in present]
            found["nulls"] = [*found["nulls"], *absent]
        return {**document, "dtypes": {**document["dtypes"], **dtypes}, **changes}

    present = {item.name.replace(".values.", ".") for item in arrays}
    return compact_payload(reply(*meanings), document=edit, tensors=lambda found: [*found, *arrays])


def _ragged(offsets: list[int], num_values: int, num_rows: int, stored: str) -> bytes:
    meaning = sample(response_length=num_rows, loss_mask=None, rollout_log_probs=None)
    arrays = [
        tensor("top.values.0", "F32", [num_values], range(num_values)),
        tensor("top.offsets.0", stored, [len(offsets)], offsets),
    ]
    dtypes = {"top.values.0": "float32", "top.offsets.0": "int64"}
    return _with_arrays([meaning], dtypes, arrays)


_WIDEN: Final = pytest.mark.parametrize("widen", [True, False], ids=["widened", "stored"])


@_WIDEN
@pytest.mark.parametrize("stored", [*_STORED["I64"], "I64"])
def test_section_5_4_the_offsets_of_a_ragged_field_are_read_from_every_dtype(
    stored: str, widen: bool
) -> None:
    data = _ragged([0, 2, 2, 3], 3, 3, stored)
    (read,) = decode_samples(data, MoreArrays(), widen=widen).samples
    assert [row.tolist() for row in read.top] == [[0.0, 1.0], [], [2.0]]


@_WIDEN
@pytest.mark.parametrize("stored", [*_STORED["I64"], "I64"])
@pytest.mark.parametrize(
    ("offsets", "num_rows"),
    [([1, 2, 3], 2), ([0, 2], 1), ([0, 4], 1), ([0, 3, 2, 3], 3), ([0, 127, 3], 2), ([], 0)],
    ids=["start", "short", "long", "descend", "wrap", "none"],
)
def test_section_9_2_f11_refuses_offsets_of_every_dtype(
    offsets: list[int], num_rows: int, stored: str, widen: bool
) -> None:
    with pytest.raises(FieldError, match="top"):
        decode_samples(_ragged(offsets, 3, num_rows, stored), MoreArrays(), widen=widen)


@pytest.mark.parametrize("stored", ["F64", "F32"])
def test_section_5_4_rows_of_floats_may_be_shared(stored: str) -> None:
    meaning = sample(rollout_routed_experts=None)
    arrays = [
        tensor("scores.0", stored, [4, 1], [0.5, -0.0, 1.5, 2.5]),
        tensor("scores.1", stored, [1, 1], [4.5]),
    ]
    dtypes = {"scores.0": "float64", "scores.1": "float64"}
    shared = {"scores.1": [0, 3]}
    found = (
        decode_samples(
            _with_arrays([meaning, meaning], dtypes, arrays, shared=shared), MoreArrays()
        )
        .samples[1]
        .scores
    )
    assert found.dtype == np.float64
    assert found.tobytes() == np.array([[0.5], [-0.0], [1.5], [4.5]]).tobytes()


def test_section_10_format_2_is_written_only_when_it_is_asked_for() -> None:
    assert "format" not in _document(encode_samples([_routed(1)]))
