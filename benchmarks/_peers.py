"""The wire formats that are compared: ours, and what people use today.

Each carries the same content: the tensors of a sample and one document of everything else.
Each peer's reply is arrays and that document, as fast as the format's own package gives them;
it checks nothing that its package does not.  Ours gives a Sample laid over the template, with
every check of the format.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import safetensors.numpy

from benchmarks._data import template
from sample_wire import (
    Computed,
    Sample,
    SamplesReply,
    Schema,
    Tensor,
    decode_samples,
    encode_samples,
)

Array = npt.NDArray[Any]
Document = dict[str, Any]

META_TENSOR: Final = "_samples_meta"
# glibc maps larger blocks anew each time (its M_MMAP_THRESHOLD grows to 32 MiB and no further);
# there Payload.contiguous is faster, below it bytes.
_SMALL_BYTES: Final = 32 * 2**20
TENSORS: Final[dict[str, np.dtype[Any]]] = {
    field.name: np.dtype(field.owner.codec.dtype)
    for field in Schema.of(Sample).computed(1)
    if isinstance(field.owner, Computed) and isinstance(field.owner.codec, Tensor)
}


class Record(NamedTuple):
    """What every format must give back: arrays by field name, and all else."""

    arrays: dict[str, Array]
    document: Document


@dataclass(frozen=True, slots=True)
class Format:
    """One format.

    Attributes:
        is_joined: whether encode gives one buffer; otherwise a list of buffers.
        gives_views: whether decode gives views of the received wire; otherwise copies.
        note: what else decode gives or does, in a few words.
        encode: sample and session metadata to the wire.
        decode: the received wire to what a caller of the format would use.
        record: the decoded reply as a Record, for comparing; never timed.
    """

    name: str
    is_joined: bool
    gives_views: bool
    note: str
    encode: Callable[[Sample, Document], Any]
    decode: Callable[[Any], Any]
    record: Callable[[Any], Record] = lambda decoded: Record(*decoded)


def document_of(sample: Sample, session_metadata: Document) -> Document:
    """All of a sample but its tensors, as plain dicts, and the session's metadata."""
    cache = sample.prefix_cache_info
    fields = {
        "response": sample.response,
        "response_length": sample.response_length,
        "status": sample.status.value,
        "weight_versions": sample.weight_versions,
        "prefix_cache_info": {
            "cached_tokens": cache.cached_tokens,
            "total_prompt_tokens": cache.total_prompt_tokens,
        },
        "metadata": sample.metadata,
        "nulls": [name for name in TENSORS if getattr(sample, name) is None],
    }
    return {"samples": [fields], "session_metadata": session_metadata, "empty_reason": None}


def arrays_of(sample: Sample) -> dict[str, Array]:
    """A sample's tensors as arrays of the wire's dtypes; lists are converted by numpy."""
    return {
        name: np.asarray(value, dtype)
        for name, dtype in TENSORS.items()
        if (value := getattr(sample, name)) is not None
    }


def received(wire: Any) -> Any:
    """The wire as another process would hold it: in memory of its own."""
    if isinstance(wire, list):
        return [bytes(buffer) for buffer in wire]
    return bytes(wire)


def num_bytes(wire: Any) -> int:
    """Size of a wire, one buffer or a list of them."""
    buffers = wire if isinstance(wire, list) else [wire]
    return sum(memoryview(buffer).nbytes for buffer in buffers)


def is_same(record: Record, sample: Sample, session_metadata: Document) -> bool:
    """Whether a record holds exactly the sample, dtypes included."""
    expected = arrays_of(sample)
    return (
        record.document == document_of(sample, session_metadata)
        and record.arrays.keys() == expected.keys()
        and all(
            array.dtype == expected[name].dtype and np.array_equal(array, expected[name])
            for name, array in record.arrays.items()
        )
    )


def _ours_record(reply: SamplesReply[Sample]) -> Record:
    sample = reply.samples[0]
    kept = template().metadata
    own = {key: value for key, value in sample.metadata.items() if key not in kept}
    document = document_of(sample, reply.session_metadata)
    document["samples"][0]["metadata"] = own
    return Record(arrays_of(sample), document)


def ours_unjoined() -> Format:
    """A Payload's buffers, and views of the payload."""
    trainers = template()

    def encode(sample: Sample, session_metadata: Document) -> Any:
        return encode_samples([sample], session_metadata)

    def decode(wire: Any) -> SamplesReply[Sample]:
        return decode_samples(wire, trainers)

    return Format(
        "sample_wire, unjoined", False, True, "checked; a Sample", encode, decode, _ours_record
    )


def ours_joined() -> Format:
    """One buffer, and arrays that can be written to."""
    trainers = template()

    def encode(sample: Sample, session_metadata: Document) -> Any:
        payload = encode_samples([sample], session_metadata)
        return bytes(payload) if payload.nbytes < _SMALL_BYTES else payload.contiguous()

    def decode(wire: Any) -> SamplesReply[Sample]:
        return decode_samples(wire, trainers, copy=True)

    return Format(
        "sample_wire, one buffer", True, False, "checked; a Sample", encode, decode, _ours_record
    )


def safetensors_peer() -> Format:
    """safetensors.numpy, the document as JSON in one more tensor."""
    to_json = msgspec.json.Encoder().encode
    from_json: Callable[[Any], Document] = msgspec.json.Decoder(dict[str, Any]).decode

    def encode(sample: Sample, session_metadata: Document) -> bytes:
        tensors = arrays_of(sample)
        text = to_json(document_of(sample, session_metadata))
        tensors[META_TENSOR] = np.frombuffer(text, np.uint8)
        return safetensors.numpy.save(tensors)

    def decode(wire: bytes) -> tuple[dict[str, Array], Document]:
        tensors = safetensors.numpy.load(wire)
        return tensors, from_json(tensors.pop(META_TENSOR).data)

    return Format("safetensors.numpy", True, False, "container checked", encode, decode)


class _Packed(msgspec.Struct, array_like=True):
    dtype: str
    shape: list[int]
    data: memoryview


class _Message(msgspec.Struct, array_like=True):
    tensors: dict[str, _Packed]
    document: dict[str, Any]


def msgpack_peer() -> Format:
    """msgspec.msgpack, each tensor its dtype, shape and bytes, typed on the way back."""
    pack = msgspec.msgpack.Encoder().encode
    unpack = msgspec.msgpack.Decoder(_Message).decode

    def encode(sample: Sample, session_metadata: Document) -> bytes:
        tensors = {
            name: _Packed(array.dtype.str, list(array.shape), array.data)
            for name, array in arrays_of(sample).items()
        }
        return pack(_Message(tensors, document_of(sample, session_metadata)))

    def decode(wire: bytes) -> tuple[dict[str, Array], Document]:
        message = unpack(wire)
        return {
            name: np.frombuffer(item.data, item.dtype).reshape(item.shape)
            for name, item in message.tensors.items()
        }, message.document

    return Format("msgspec.msgpack, memoryviews", True, True, "misaligned arrays", encode, decode)


def pickle_peer() -> Format:
    """pickle protocol 5, everything in one byte string."""

    def encode(sample: Sample, session_metadata: Document) -> bytes:
        return pickle.dumps((arrays_of(sample), document_of(sample, session_metadata)), 5)

    def decode(wire: bytes) -> tuple[dict[str, Array], Document]:
        content: tuple[dict[str, Array], Document] = pickle.loads(wire)
        return content

    return Format("pickle 5, in band", True, False, "can run code", encode, decode)


def pickle_out_of_band_peer() -> Format:
    """pickle protocol 5, the arrays' buffers beside the byte string; framing them is left out."""

    def encode(sample: Sample, session_metadata: Document) -> list[Any]:
        buffers: list[pickle.PickleBuffer] = []
        content = (arrays_of(sample), document_of(sample, session_metadata))
        head = pickle.dumps(content, 5, buffer_callback=buffers.append)
        return [head, *buffers]

    def decode(wire: list[bytes]) -> tuple[dict[str, Array], Document]:
        content: tuple[dict[str, Array], Document] = pickle.loads(wire[0], buffers=wire[1:])
        return content

    return Format("pickle 5, out of band", False, True, "can run code", encode, decode)


def arrow_peer() -> Format:
    """Arrow IPC, one record batch of one row: a list column a tensor, as Arrow users have it.

    R3 is a flat list beside a column of its shape, the document a JSON text column.  The
    Tensor messages of Arrow would carry the shape, but one tensor each and no document.
    """
    pa = import_module("pyarrow")
    to_json = msgspec.json.Encoder().encode
    from_json: Callable[[Any], Document] = msgspec.json.Decoder(dict[str, Any]).decode

    def row(values: Array) -> Any:
        offsets = pa.array(np.array([0, values.size], np.int64))
        return pa.LargeListArray.from_arrays(offsets, pa.array(values.reshape(-1)))

    def encode(sample: Sample, session_metadata: Document) -> Any:
        text = to_json(document_of(sample, session_metadata))
        columns: dict[str, Any] = {META_TENSOR: pa.array([text], pa.large_binary())}
        for name, array in arrays_of(sample).items():
            columns[name] = row(array)
            if array.ndim > 1:
                columns[f"{name}.shape"] = row(np.array(array.shape, np.int64))
        batch = pa.record_batch(columns)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        return sink.getvalue()

    def decode(wire: bytes) -> tuple[dict[str, Array], Document]:
        batch = pa.ipc.open_stream(wire).read_next_batch()
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        text = columns.pop(META_TENSOR)[0].as_buffer()
        values = {name: column.values.to_numpy() for name, column in columns.items()}
        arrays = {
            name: array.reshape(values[f"{name}.shape"]) if f"{name}.shape" in values else array
            for name, array in values.items()
            if not name.endswith(".shape")
        }
        return arrays, from_json(text)

    return Format(
        "Arrow IPC, one-row batch", True, True, "R3 shape in a column of its own", encode, decode
    )


def base64_peer() -> Format:
    """JSON by orjson, each tensor its dtype, shape and base64 text."""
    orjson = import_module("orjson")

    def encode(sample: Sample, session_metadata: Document) -> bytes:
        tensors = {
            name: [array.dtype.str, array.shape, base64.b64encode(array.data).decode("ascii")]
            for name, array in arrays_of(sample).items()
        }
        message = {"tensors": tensors, "document": document_of(sample, session_metadata)}
        encoded: bytes = orjson.dumps(message)
        return encoded

    def decode(wire: bytes) -> tuple[dict[str, Array], Document]:
        message = orjson.loads(wire)
        return {
            name: np.frombuffer(base64.b64decode(text), dtype).reshape(shape)
            for name, (dtype, shape, text) in message["tensors"].items()
        }, message["document"]

    return Format("orjson + base64", True, False, "text", encode, decode)


OURS: Final = ("sample_wire, unjoined", "sample_wire, one buffer")
FORMATS: Final[dict[str, Callable[[], Format]]] = {
    OURS[0]: ours_unjoined,
    OURS[1]: ours_joined,
    "safetensors.numpy": safetensors_peer,
    "msgspec.msgpack, memoryviews": msgpack_peer,
    "pickle 5, in band": pickle_peer,
    "pickle 5, out of band": pickle_out_of_band_peer,
    "Arrow IPC, one-row batch": arrow_peer,
    "orjson + base64": base64_peer,
}
REQUIRES: Final = {"Arrow IPC, one-row batch": "pyarrow", "orjson + base64": "orjson"}


@cache
def format_of(name: str) -> Format:
    """The format of that name.

    Raises:
        ImportError: its package, REQUIRES, is not installed.
    """
    return FORMATS[name]()
