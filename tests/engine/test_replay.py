"""The replay mode: the contract of the embedded model, at the size that it is told."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from server._serving import serving

from sample_wire import Sample, Status
from sample_wire.adapters.client import SyncSessionClient
from sample_wire.adapters.server import ServerSettings, create_app
from sample_wire.demo.engine import ReplayEngine, ReplaySettings, serve_engine
from sample_wire.demo.engine.sampling import SamplingParams
from sample_wire.demo.engine.serving import main

from ._calls import IM_END, PATIENCE_S, TOOLS, Caller, asked, prompt_of, rows_of

SMALL: Final = ReplaySettings(num_layers=3, num_experts=300, top_k=4, turn_tokens=100)
PROMPT: Final = prompt_of(asked("Hi"))
WHOLE: Final = {"max_new_tokens": None}
IDS: Final = st.lists(st.integers(0, 259), min_size=1, max_size=300)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The replay mode, at a small size."""
    with serve_engine(SMALL) as found:
        yield found


@pytest.fixture(scope="module")
def replay(url: str) -> Iterator[Caller]:
    """That engine, to be called."""
    with Caller(url) as caller:
        yield caller


def all_rows(reply: Any) -> list[Any]:
    found: list[Any] = rows_of(reply["meta_info"]["routed_experts"], SMALL).tolist()
    return found


@given(IDS)
def test_a_turn_ends_where_the_tokens_are_a_multiple(replay: Caller, prompt: list[int]) -> None:
    reply = replay.generate(prompt, params=WHOLE)
    assert 0 < len(reply["output_ids"]) <= SMALL.turn_tokens
    assert (len(prompt) + len(reply["output_ids"])) % SMALL.turn_tokens == 0
    assert reply["meta_info"]["finish_reason"] == {"type": "stop", "matched": IM_END}


def test_an_output_is_no_longer_than_asked_for(replay: Caller) -> None:
    reply = replay.generate(PROMPT, params={"max_new_tokens": 5})
    assert IM_END not in reply["output_ids"]
    assert reply["meta_info"]["finish_reason"] == {"type": "length", "length": 5}


@given(IDS)
def test_a_row_has_experts_of_the_model_and_none_twice(replay: Caller, prompt: list[int]) -> None:
    reply = replay.generate(prompt, params=WHOLE)
    rows = rows_of(reply["meta_info"]["routed_experts"], SMALL)
    assert len(rows) == len(prompt) + len(reply["output_ids"]) - 1
    assert 0 <= rows.min() <= rows.max() < SMALL.num_experts
    ordered = np.sort(rows, axis=2)
    assert np.all(ordered[..., 1:] > ordered[..., :-1])


@given(IDS, st.data())
def test_equal_prefixes_have_equal_rows(replay: Caller, prompt: list[int], data: Any) -> None:
    size = data.draw(st.integers(1, len(prompt)))
    whole, part = (replay.generate(ids, params=WHOLE) for ids in (prompt, prompt[:size]))
    assert all_rows(whole)[:size] == all_rows(part)[:size]


def test_the_rows_behind_another_token_are_others(replay: Caller) -> None:
    one, other = (
        all_rows(replay.generate([first, *PROMPT], params={"max_new_tokens": 1}))
        for first in (1, 2)
    )
    assert all(row != its for row, its in zip(one, other, strict=True))


def test_the_same_tokens_in_another_order_have_other_rows(replay: Caller) -> None:
    one, other = (
        all_rows(replay.generate(ids, params={"max_new_tokens": 1})) for ids in ([7, 8], [8, 7])
    )
    assert one[1] != other[1]


@given(IDS, st.data())
def test_rows_from_a_start_on_are_the_last_of_all_rows(
    replay: Caller, prompt: list[int], data: Any
) -> None:
    start = data.draw(st.integers(0, len(prompt)))
    whole = replay.generate(prompt, params=WHOLE)
    part = replay.generate(prompt, params=WHOLE, routed_experts_start_len=start)
    assert all_rows(part) == all_rows(whole)[start:]


def test_no_rows_are_an_empty_text(replay: Caller) -> None:
    reply = replay.generate(
        PROMPT, params={"max_new_tokens": 1}, routed_experts_start_len=len(PROMPT)
    )
    assert reply["meta_info"]["routed_experts"] == ""


def test_the_same_request_is_answered_the_same(replay: Caller) -> None:
    one, other = (replay.generate(PROMPT, params=WHOLE) for _ in range(2))
    assert one["output_ids"] == other["output_ids"]
    told = [reply["meta_info"]["output_token_logprobs"] for reply in (one, other)]
    assert told[0] == told[1]


@pytest.mark.parametrize(
    ("params", "prompt"),
    [({"sampling_seed": 1}, PROMPT), ({}, [*PROMPT[:-1], 65])],
    ids=["seed", "prompt"],
)
def test_another_seed_or_prompt_has_another_output(
    replay: Caller, params: dict[str, int], prompt: list[int]
) -> None:
    one = replay.generate(PROMPT, params=WHOLE)
    other = replay.generate(prompt, params={**WHOLE, **params})
    assert one["output_ids"] != other["output_ids"]


def test_several_outputs_differ_each_with_its_own_rows(replay: Caller) -> None:
    first, second = replay.generate(PROMPT, params={**WHOLE, "n": 2})
    assert first["output_ids"] != second["output_ids"]
    size = len(PROMPT)
    assert all_rows(first)[:size] == all_rows(second)[:size]
    assert all_rows(first)[size:] != all_rows(second)[size:]


def test_what_is_aborted_is_answered_with_no_output() -> None:
    aborted = threading.Event()
    aborted.set()
    made = ReplayEngine(SMALL).generate(PROMPT, SamplingParams(), None, aborted)
    assert (made.ids, made.finish_reason["type"]) == ([], "abort")
    assert len(made.routed_NLK) == len(PROMPT) - 1


def test_chat_tells_text_and_ids_that_agree(replay: Caller) -> None:
    [choice] = replay.chat(asked("Hi"))["choices"]
    texts = [entry[2] for entry in choice["meta_info"]["output_token_logprobs"]]
    assert choice["message"]["content"] + "<|im_end|>" == "".join(texts)


def test_chat_without_meta_info_tells_the_rows_beside_the_choices(replay: Caller) -> None:
    reply = replay.chat(asked("Hi"), return_meta_info=False)
    assert len(rows_of(reply["sglext"]["routed_experts"], SMALL)) == SMALL.turn_tokens - 1


def test_tools_are_not_called(replay: Caller) -> None:
    [choice] = replay.chat(asked("Will it rain?"), tools=TOOLS)["choices"]
    assert "tool_calls" not in choice["message"]


def test_a_conversation_beyond_the_context_is_refused(replay: Caller) -> None:
    body = {"input_ids": PROMPT, "sampling_params": {"max_new_tokens": SMALL.max_context}}
    assert "the context has room for 1048576" in replay.refusal("/generate", body)


@pytest.mark.parametrize("incremental", [False, True], ids=["full prefix", "incremental"])
def test_a_session_of_it_is_collected_with_the_rows_of_its_last_turn(
    url: str, replay: Caller, incremental: bool
) -> None:
    routing = SMALL.routing_spec(incremental=incremental)
    app = create_app(ServerSettings(engine_url=url, tokenizer="chatml", routing=routing))
    with serving(app) as port, SyncSessionClient(f"http://127.0.0.1:{port}") as client:
        messages: list[Any] = []
        for number in range(3):
            messages += asked(f"Question {number}")
            reply = client_chat(client, messages)
            messages.append(reply["choices"][0]["message"])
        [sample] = client.collect(Sample()).samples
    assert sample.status is Status.COMPLETED
    assert len(sample.tokens) == 3 * SMALL.turn_tokens
    again = replay.generate(np.asarray(sample.tokens).tolist(), params={"max_new_tokens": 0})
    assert np.asarray(sample.rollout_routed_experts).tolist() == all_rows(again)


def client_chat(client: SyncSessionClient, messages: list[Any]) -> Any:
    with Caller(client.chat_base_url) as caller:
        response = caller.post("/chat/completions", {"messages": messages})
    assert response.status_code == 200, response.text
    return response.json()


def test_the_command_serves_the_size_that_it_is_told() -> None:
    sizes = ["--layers", "2", "--top-k", "3", "--experts", "8", "--turn-tokens", "64"]
    command = [sys.executable, "-m", "sample_wire.demo.engine", "--replay", *sizes]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        with Caller(line.removeprefix("embedded engine: serving on ").strip()) as engine:
            meta = engine.chat(asked("Hi"))["choices"][0]["meta_info"]
        process.terminate()
        process.wait(PATIENCE_S)
    told = ReplaySettings(num_layers=2, top_k=3, num_experts=8, turn_tokens=64)
    assert rows_of(meta["routed_experts"], told).shape == (63, 2, 3)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--replay", "--top-k", "300"), "top_k must be at most num_experts"),
        (("--replay", "--turn-tokens", "0"), "turn_tokens must be at least 1"),
        (("--layers", "3"), "the sizes of replies need --replay"),
    ],
    ids=["top-k", "turn", "no replay"],
)
def test_sizes_that_do_not_hold_are_refused(
    arguments: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        main(arguments)
    assert refused.value.code == 2
    assert told in capsys.readouterr().err
