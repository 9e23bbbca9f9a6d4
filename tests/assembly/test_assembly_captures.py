"""Real engines' sessions, assembled as the slow reference assembles them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sample_wire.assembly import TurnReader

from ._captures import PACKAGED, exchanges, turns_of
from ._compare import check_against_slow, check_turns, spec_of
from ._records import Record, assembled, both_forms, one, refused, rows_in, spelled
from .slow_reading import Routing, read_turn
from .slow_reference import Options, slow_assemble_turns

TOKEN_IN = ("sgl_tito_s31_t6", PACKAGED, "vllm_tito_stream_s22_t3")
CHAT = ("sgl_chat_s11_t4", "vllm_chat_s12_t4")
INCREMENTAL = Routing(4, 8, num_experts=64, required=True, incremental=True)
FULL = Routing(4, 8, num_experts=64, required=True)


def with_reply_bytes(record: Record) -> Record:
    """A captured turn whose reply is still text, as a server gets it."""
    response = record["response"]
    return record | {"response": response | {"body": json.dumps(response["body"]).encode()}}


FORMS = {"objects": dict, "bytes": with_reply_bytes}
as_sent = pytest.mark.parametrize("sent", FORMS.values(), ids=FORMS)


@as_sent
@pytest.mark.parametrize("name", TOKEN_IN)
def test_a_token_in_session_assembles_as_the_slow_reference_does(name: str, sent: Any) -> None:
    records = turns_of(name)
    if name.startswith("vllm_tito_stream"):
        sent = dict  # a stream's events are recorded as objects
    options = Options(routing=INCREMENTAL, decode_text=spelled, keep_messages=True)
    result = check_against_slow(records, options, [*map(sent, records)])
    assert result is not None
    (sample,) = result.samples
    outputs = [len(read_turn(record, 1, INCREMENTAL).output) for record in records]
    assert sample.loss_mask.sum() == sum(outputs)


@pytest.mark.parametrize("name", TOKEN_IN)
def test_a_token_in_session_cut_at_every_length_is_the_slow_references(name: str) -> None:
    records = turns_of(name)
    slow_turns = [read_turn(record, i + 1, INCREMENTAL) for i, record in enumerate(records)]
    reader = TurnReader(routing=spec_of(INCREMENTAL), decode_text=spelled)
    turns: list[Any] = []
    for record in records:
        turns.append(reader.read(record, turns[-1] if turns else None))
    for limit in range(turns[-1].num_tokens + 2):
        options = Options(routing=INCREMENTAL, decode_text=spelled, max_seq_len=limit)
        check_turns(turns, options, *slow_assemble_turns(slow_turns, options))


@as_sent
@pytest.mark.parametrize("name", CHAT)
def test_each_turn_of_a_chat_session_assembles_alone(name: str, sent: Any) -> None:
    for record in turns_of(name):
        options = Options(routing=FULL, decode_text=spelled, keep_messages=True)
        assert check_against_slow([record], options, [sent(record)]) is not None


@pytest.mark.parametrize("name", CHAT)
def test_a_chat_session_is_refused_at_the_turn_and_position_where_it_parts(name: str) -> None:
    records = turns_of(name)
    first, second = (read_turn(record, 1, FULL) for record in records[:2])
    pairs = enumerate(zip(first.tokens, second.prompt, strict=False))
    position = next(index for index, (held, new) in pairs if held != new)
    error = refused(records, routing=spec_of(FULL))
    assert (error.turn, error.field) == (2, "input_ids")
    assert f"at position {position}:" in str(error)
    assert position - len(first.prompt) in (0, 1)  # at the first sampled token, or one later


@as_sent
@pytest.mark.parametrize("name", CHAT)
def test_a_chat_session_splits_into_one_sample_for_each_run(name: str, sent: Any) -> None:
    records = turns_of(name)
    options = Options(routing=FULL, decode_text=spelled, split=True)
    result = check_against_slow(records, options, [*map(sent, records)])
    assert result is not None
    assert len(result.samples) == len(records)  # every turn was tokenized anew


@pytest.mark.parametrize("limit", [0, 300, 500, 700, 2000])
def test_a_split_session_is_cut_run_by_run(limit: int) -> None:
    options = Options(routing=FULL, decode_text=spelled, split=True, max_seq_len=limit)
    check_against_slow(turns_of("sgl_chat_s11_t4"), options)


GENERATED = ("generate, R3 + logprobs", "generate max_new_tokens=0", "generate stream")


@pytest.mark.parametrize("note", [*GENERATED, "chat without R3"])
def test_an_exchange_that_tells_its_ids_is_a_record(note: str) -> None:
    record = exchanges()[note]
    found = one([record], routing=spec_of(Routing(4, 8, num_experts=64)))
    if note == "generate stream":
        record = record | {"response": record["response"]["body"]["sse"][-2]}
    expected = read_turn(record, 1, Routing(4, 8, num_experts=64))
    assert found.tokens.tolist() == expected.tokens
    assert (found.rollout_routed_experts is None) == (expected.routed is None)


@both_forms
def test_of_two_outputs_the_first_is_the_record(sent: Any) -> None:
    record = exchanges()["generate n=2"]
    replies = record["response"]["body"]
    alone = {"request": record["request"]["body"], "response": replies[0]}
    both = sent({"request": record["request"]["body"], "response": replies})
    options = Options(routing=Routing(4, 8))
    check_against_slow([alone], options, [both])


def test_rows_from_the_prompts_end_on_are_none_for_one_token() -> None:
    record = exchanges()["generate max_new_tokens=1 start_len=prompt_len"]
    error = refused([record], routing=spec_of(Routing(4, 8, incremental=True)))
    assert (error.turn, error.field) == (1, "routed_experts")
    assert "starts at row 8; expected 0: gap of 8 rows" in str(error)


def test_a_request_for_no_token_has_the_prompts_rows_but_the_last() -> None:
    found = one([exchanges()["generate max_new_tokens=0"]], routing=spec_of(Routing(4, 8)))
    assert (found.response_length, len(found.tokens), len(rows_in(found))) == (0, 8, 7)


@pytest.mark.parametrize(
    ("note", "field", "text"),
    [
        ("generate start_len beyond prompt (error)", "meta_info", "neither meta_info nor"),
        ("chat without return_meta_info (sglext)", "meta_info", "neither meta_info nor"),
        ("chat stream", None, "a streamed chat does not tell its output ids"),
        ("chat stream + return_meta_info (error)", "meta_info", "neither meta_info nor"),
    ],
)
def test_an_exchange_that_does_not_tell_its_ids_is_refused(
    note: str, field: str | None, text: str
) -> None:
    error = refused([exchanges()[note]])
    assert (error.turn, error.field) == (1, field)
    assert text in str(error)


def test_every_exchange_is_either_a_record_or_refused() -> None:
    accepted = {*GENERATED, "chat without R3", "generate n=2"}
    for note, record in exchanges().items():
        if note in accepted:
            assert assembled([record], routing=spec_of(Routing(4, 8))).samples
        else:
            refused([record], routing=spec_of(Routing(4, 8)))
