"""POST /abort_request: running generations end, and what they have is answered.

The engine's routers tell the test what they choose, from the engine's own threads: that is
where the test holds a generation until the abortion has been answered.
"""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Iterator
from typing import Any, Final

import httpx2
import pytest

from sample_wire.demo.engine import RouterChoice, serve_engine

from ._calls import PATIENCE_S, Caller, asked, prompt_of, rows_of

PROMPT: Final = prompt_of(asked("Name two rivers."))
ENDLESS: Final = {"max_new_tokens": 8000, "ignore_eos": True}
NUM_BEFORE: Final = 5


class Hold:
    """Holds the generation that comes to this many tokens behind the prompt."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.go_on = threading.Event()

    def __call__(self, choice: RouterChoice) -> None:
        if len(choice.ids) == len(PROMPT) + NUM_BEFORE and not self.reached.is_set():
            self.reached.set()
            assert self.go_on.wait(PATIENCE_S)


@pytest.fixture
def hold() -> Hold:
    return Hold()


@pytest.fixture
def held(hold: Hold) -> Iterator[Caller]:
    """An engine that stops at the hold."""
    with serve_engine(on_choice=hold) as url, Caller(url) as caller:
        yield caller
        hold.go_on.set()


def aborted(engine: Caller, hold: Hold, abortion: Any, call: Any) -> Any:
    """The reply of a call that an abortion reaches while it generates."""
    with concurrent.futures.ThreadPoolExecutor() as pool:
        future = pool.submit(call)
        assert hold.reached.wait(PATIENCE_S)
        response = engine.post("/abort_request", abortion)
        assert (response.status_code, response.content) == (200, b"")
        hold.go_on.set()
        return future.result()


@pytest.mark.parametrize("abortion", [{"rid": "r1"}, {"abort_all": True}], ids=str)
def test_a_generation_ends_and_is_answered_with_what_it_has(
    held: Caller, hold: Hold, abortion: Any
) -> None:
    reply = aborted(held, hold, abortion, lambda: held.generate(PROMPT, params=ENDLESS, rid="r1"))
    meta = reply["meta_info"]
    assert meta["finish_reason"]["type"] == "abort"
    # The hold is in the pass of the token before last: one more is drawn from it.
    assert meta["completion_tokens"] == len(reply["output_ids"]) == NUM_BEFORE + 1
    assert len(meta["output_token_logprobs"]) == NUM_BEFORE + 1
    assert len(rows_of(meta["routed_experts"])) == len(PROMPT) + NUM_BEFORE


def test_a_chat_ends_likewise(held: Caller, hold: Hold) -> None:
    def call() -> Any:
        return held.chat([], input_ids=PROMPT, ignore_eos=True, rid="r1")

    (choice,) = aborted(held, hold, {"rid": "r1"}, call)["choices"]
    assert choice["finish_reason"] == choice["meta_info"]["finish_reason"]["type"] == "abort"
    assert choice["matched_stop"] is None
    assert len(choice["logprobs"]["content"]) == NUM_BEFORE + 1


def test_other_names_are_not_touched(held: Caller, hold: Hold) -> None:
    params = {"max_new_tokens": NUM_BEFORE + 9, "ignore_eos": True}
    reply = aborted(
        held, hold, {"rid": "r2"}, lambda: held.generate(PROMPT, params=params, rid="r1")
    )
    assert reply["meta_info"]["finish_reason"]["type"] == "length"


def test_nothing_to_abort_is_no_error(engine: Caller) -> None:
    for body in ({"rid": "no such"}, {"abort_all": True}, {}):
        assert engine.post("/abort_request", body).status_code == 200


def test_an_abortion_of_another_form_is_refused(engine: Caller) -> None:
    assert "rid" in engine.refusal("/abort_request", {"rid": 1})


def test_health_answers_while_it_generates(held: Caller, hold: Hold) -> None:
    with concurrent.futures.ThreadPoolExecutor() as pool:
        params = {"max_new_tokens": NUM_BEFORE + 2, "ignore_eos": True}
        future = pool.submit(lambda: held.generate(PROMPT, params=params))
        assert hold.reached.wait(PATIENCE_S)
        assert held.http.get("/health").status_code == 200
        assert not future.done()
        hold.go_on.set()
        assert len(future.result()["output_ids"]) == NUM_BEFORE + 2


def test_a_client_that_has_gone_is_not_generated_for(held: Caller, hold: Hold) -> None:
    """Four of them would take all the engine's threads."""
    body = {"input_ids": PROMPT, "sampling_params": ENDLESS}
    for _ in range(5):
        with pytest.raises(httpx2.ReadTimeout):
            httpx2.post(f"{held.http.base_url}/generate", json=body, timeout=0.05, trust_env=False)
    hold.go_on.set()
    reply = held.generate(PROMPT, params={"max_new_tokens": 1})
    assert reply["meta_info"]["completion_tokens"] == 1
