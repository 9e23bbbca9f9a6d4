"""A real session of SGLang, played again: the stub serves the recorded replies.

The recorded prompts had owned token ids, so the server must ask with exactly those, and the
sample that comes out must be what `assemble` makes of the recording.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pytest

from sample_wire import Sample
from sample_wire.assembly import RoutingSpec, assemble
from sample_wire.session import Message

from ._numbers import NumberTokenizer
from ._serving import Handle, running
from ._stub import Answer, StubEngine

CAPTURE: Final = Path(__file__).parents[1] / "data" / "captures" / "sgl_tito_s31_t6.json"
SPEC: Final = RoutingSpec(num_layers=4, top_k=8, num_experts=64, required=True, incremental=True)
TURNS: Final[list[dict[str, Any]]] = json.loads(CAPTURE.read_bytes())["turns"]
# Keys of a recorded request that are the server's to set.
_SERVERS: Final = ("input_ids", "routed_experts_start_len", "logprobs", "return_meta_info")


class ReplayTokenizer(NumberTokenizer):
    """Gives the recorded prompts: the first whole, of the later ones what follows."""

    def render(self, *_arguments: Any) -> list[int]:
        ids: list[int] = TURNS[0]["request"]["body"]["input_ids"]
        return ids

    def append(
        self, checkpoint_ids: Sequence[int], stored: Sequence[Message], *_others: Any
    ) -> tuple[int, list[int]]:
        number = sum(message["role"] == "assistant" for message in stored)
        ids: list[int] = TURNS[number]["request"]["body"]["input_ids"]
        return len(checkpoint_ids), ids[len(checkpoint_ids) :]


def replay(session: Handle, engine: StubEngine) -> Handle:
    """The session after all its turns."""
    for turn in TURNS:
        engine.will(Answer(200, json.dumps(turn["response"]["body"]).encode()))
        body = dict(turn["request"]["body"])
        for key in _SERVERS:
            del body[key]
        response = session.chat_bytes(json.dumps(body).encode())
        assert response.status_code == 200, response.text
    return session


@pytest.fixture
def replayed(engine: StubEngine) -> Iterator[Handle]:
    """A linear session after all its turns."""
    with running(ReplayTokenizer(), engine.url, routing=SPEC) as site:
        yield replay(site.create(), engine)


def assembled(records: Sequence[Any], decode: Callable[[list[int]], str], limit: int | None) -> Any:
    result = assemble(
        records,
        accumulated_token_ids=None,
        max_trim_tokens=0,
        decode_text=decode,
        max_seq_len=limit,
        routing=SPEC,
    )
    return result.samples


def facts(sample: Sample, *, lifecycle: bool) -> dict[str, Any]:
    """A sample's fields as plain values."""
    schema = Sample.__sample_schema__
    found = {field.name: getattr(sample, field.name) for field in schema.computed(2)}
    if not lifecycle:
        found["metadata"] = {k: v for k, v in sample.metadata.items() if k != "lifecycle"}
    arrays = ("tokens", "loss_mask", "rollout_log_probs", "rollout_routed_experts")
    for name in arrays:
        array = np.asarray(found[name])
        found[name] = (array.dtype, array.shape, array.tobytes())
    return found


def test_the_engine_is_asked_exactly_as_in_the_recording(
    replayed: Handle, engine: StubEngine
) -> None:
    for seen, turn in zip(engine.seen, TURNS, strict=True):
        assert seen.json == turn["request"]["body"]
    assert len(engine.seen) == len(replayed.dump()["records"])


@pytest.mark.parametrize("limit", [None, 1126, 1000, 909, 908, 500, 403, 402])
def test_the_sample_is_what_assemble_makes_of_the_recording(
    replayed: Handle, limit: int | None
) -> None:
    expected = assembled(TURNS, NumberTokenizer().decode, limit)
    found = replayed.collect(limit).samples
    assert [facts(one, lifecycle=False) for one in found] == [
        facts(one, lifecycle=False) for one in expected
    ]


def test_the_records_assemble_to_the_same_sample_with_its_times(replayed: Handle) -> None:
    dump = replayed.dump()
    (expected,) = assembled(dump["records"], NumberTokenizer().decode, None)
    (found,) = replayed.collect().samples
    assert facts(found, lifecycle=True) == facts(expected, lifecycle=True)


def test_the_records_hold_every_reply_as_it_was_recorded(replayed: Handle) -> None:
    for record, turn in zip(replayed.dump()["records"], TURNS, strict=True):
        assert record["request"] == turn["request"]["body"]
        assert record["response"] == turn["response"]["body"]
        assert (record["method"], record["path"], record["status_code"]) == (
            "POST",
            "/v1/chat/completions",
            200,
        )


def test_the_record_keys_are_in_their_order(replayed: Handle) -> None:
    dump = replayed.dump()
    assert list(dump) == ["session_id", "records", "metadata"]
    assert list(dump["records"][0]) == [
        "timestamp",
        "request_timestamp",
        "method",
        "path",
        "status_code",
        "request",
        "response",
    ]
    assert msgspec.json.decode(replayed.site.http.get(replayed.path).content) == dump


@pytest.mark.parametrize("limit", [None, 1000, 908, 403])
def test_a_tree_gives_the_same_sample(
    replayed: Handle, engine: StubEngine, limit: int | None
) -> None:
    with running(ReplayTokenizer(), engine.url, routing=SPEC, trajectory="tree") as site:
        branch = replay(site.create(), engine)
        found = branch.collect(limit).samples
    expected = replayed.collect(limit).samples
    for sample, other in zip(found, expected, strict=True):
        told = {**sample.metadata, "lifecycle": other.metadata["lifecycle"]}
        assert told.pop("leaf")["path_node_ids"] == list(range(len(TURNS)))
        ids = TURNS[-1]["request"]["body"]["input_ids"]
        assert told.pop("accumulated_token_ids")[: len(ids)] == ids
        assert told.pop("tito_session_mismatch") == []
        assert told == other.metadata
        sample.metadata = other.metadata
        assert facts(sample, lifecycle=True) == facts(other, lifecycle=True)
