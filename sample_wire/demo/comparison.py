"""Bytes and times of a session's records as JSON with base64, beside the one payload.

Two forms of the records: as recorded, and with the routing that an engine sends which neither
narrows it nor leaves out what was sent before: all rows on every turn, as base64 of int32.

Shape letters: T tokens, L routed layers, K experts per token.
"""

from __future__ import annotations

import base64
import io
import json
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .._report import text_table
from ..bench import median_s
from ..codec import decode_samples, encode_samples
from ..sample import Sample
from .recording import Recording, RecordingError

Records = dict[str, Any]


class _Row(NamedTuple):
    name: str
    nbytes: int
    write_s: float
    read_s: float

    @property
    def total_s(self) -> float:
        return self.write_s + self.read_s


def comparison(
    text: bytes, recording: Recording, sample: Sample, template: Sample, metadata: dict[str, Any]
) -> list[str]:
    """The lines of a table, and of what is to be said about it.

    Args:
        text, recording: the recording's JSON, and what was read from it.
        sample: the sample that it makes.
        template: the sample that the payload is decoded onto.
        metadata: the payload's session metadata.

    Raises:
        RecordingError: the JSON is beyond Python's own parser.
    """
    payload = encode_samples([sample], metadata)
    wire = payload.contiguous()
    encode_s = median_s(lambda: encode_samples([sample], metadata))
    copy_s = median_s(payload.contiguous)
    decode_s = median_s(lambda: decode_samples(wire, template))
    ours = _Row("one payload", wire.nbytes, encode_s + copy_s, decode_s)
    records = _parse(text)
    recorded = _records_row("records, R3 as recorded", records, None)
    rows = [ours, recorded]
    routing = sample.rollout_routed_experts
    if routing is not None:
        routed_TLK = np.asarray(routing, np.int32)
        full = with_full_routing(records, recording, routed_TLK)
        rows.append(_records_row("records, R3 as SGLang sends it", full, routed_TLK.shape[1:]))
    head = ["", "bytes", "ratio", "write ms", "read ms", "both ms", "ratio"]
    lines = text_table([head, *(_cells(row, ours) for row in rows)], left={0})
    lines += [
        f"Payload: encode {1e3 * encode_s:.3f} ms, copy to one buffer {1e3 * copy_s:.3f} ms, "
        f"decode {1e3 * decode_s:.3f} ms.",
        "Records: json.dumps; json.loads, base64 to arrays.  Assembling a sample is not counted.",
    ]
    if routing is not None:
        lines += [
            "R3 as recorded: each turn sends its new rows, in the engine's narrow dtype.  As",
            "SGLang sends it: every turn all rows, int32.  The payload: every row once, int32.",
        ]
    return lines


def with_full_routing(
    records: Records, recording: Recording, routed_TLK: npt.NDArray[np.int32]
) -> Records:
    """Copies of the records, each turn with all rows up to its end as base64 of int32."""
    turns = []
    for record, turn in zip(records["turns"], recording.turns, strict=True):
        num_rows = len(turn.prompt) + len(turn.choice.token_ids) - 1
        response = record["response"]
        choice = {
            **response["body"]["choices"][0],
            "routed_experts": base64.b64encode(routed_TLK[:num_rows].tobytes()).decode("ascii"),
        }
        body = {**response["body"], "choices": [choice]}
        turns.append({**record, "response": {**response, "body": body}})
    return {"turns": turns}


def read_records(text: bytes, row_shape: tuple[int, ...] | None) -> list[list[npt.NDArray[Any]]]:
    """A record dump as arrays, turn by turn: prompt, output, log-probs, and R3 if there is any.

    Args:
        text: the dump.
        row_shape: (L, K) of int32 rows, which do not name it, or None for .npy files.
    """
    return [_turn_arrays(record, row_shape) for record in json.loads(text)["turns"]]


def _turn_arrays(record: Records, row_shape: tuple[int, ...] | None) -> list[npt.NDArray[Any]]:
    choice = record["response"]["body"]["choices"][0]
    arrays: list[npt.NDArray[Any]] = [
        np.array(record["request"]["body"]["token_ids"], np.int64),
        np.array(choice["token_ids"], np.int64),
        np.array([item["logprob"] for item in choice["logprobs"]["content"]], np.float64),
    ]
    if choice.get("routed_experts") is not None:
        data = base64.b64decode(choice["routed_experts"])
        arrays.append(
            np.load(io.BytesIO(data), allow_pickle=False).astype(np.int32)
            if row_shape is None
            else np.frombuffer(data, np.int32).reshape(-1, *row_shape)
        )
    return arrays


def _parse(text: bytes) -> Records:
    try:
        records: Records = json.loads(text)
    except (ValueError, RecursionError):
        raise RecordingError("the recording is JSON that Python's own parser refuses") from None
    return records


def _write(records: Records) -> bytes:
    return json.dumps(records, separators=(",", ":")).encode()


def _records_row(name: str, records: Records, row_shape: tuple[int, ...] | None) -> _Row:
    text = _write(records)
    return _Row(
        name,
        len(text),
        median_s(lambda: _write(records)),
        median_s(lambda: read_records(text, row_shape)),
    )


def _cells(row: _Row, base: _Row) -> list[str]:
    return [
        row.name,
        f"{row.nbytes:,}",
        f"{row.nbytes / base.nbytes:.2f}",
        f"{1e3 * row.write_s:.3f}",
        f"{1e3 * row.read_s:.3f}",
        f"{1e3 * row.total_s:.3f}",
        f"{row.total_s / base.total_s:.1f}",
    ]
