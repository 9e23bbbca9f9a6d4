"""The R3 rows of a sample are what the routers chose: every token, every layer, every slot.

Random conversations go through the real session server to the embedded engine and come back
through the real client.  The engine's routers tell the test what they choose, and the test
finds each choice by all the tokens before it; so a row that is missing, shifted, of another
turn or of another conversation does not go unseen.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import httpx2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from server._serving import running

from sample_wire import Sample, Status
from sample_wire.adapters.client import SyncSessionClient
from sample_wire.demo.engine import EngineSettings, serve_engine

from ._calls import PATIENCE_S, TOKENIZER, TOOLS, asked
from ._choices import ChoiceLog

SMALL: Final = EngineSettings(
    num_layers=3, num_experts=16, top_k=3, hidden_size=16, expert_size=8, mean_answer_tokens=20
)
TEXTS: Final = st.sampled_from(
    ["Hi", "Rain?", "12 * 7", "S\u00e3o Paulo \U0001f30a", "", "</tool_call>"]
)
LIMITS: Final = st.sampled_from([1, 2, 30, 400, 400, 400, 400])
TOOL: Final = TOOLS[1]
few: Final = settings(max_examples=max(settings().max_examples // 4, 1))
fewer: Final = settings(max_examples=max(settings().max_examples // 10, 1))


class Turn(NamedTuple):
    """One call of an agent.

    Attributes:
        text: of the user's or the tool's message before it.
        options: of the request.
        is_retry: the call is made twice, so that the first answer is rolled back.
    """

    text: str
    options: dict[str, Any]
    is_retry: bool


OPTIONS: Final = st.fixed_dictionaries(
    {"seed": st.integers(0, 3), "max_tokens": LIMITS, "temperature": st.sampled_from([0.0, 1.0])},
    optional={"tools": st.just([TOOL])},
)
TURNS: Final = st.lists(
    st.builds(Turn, TEXTS, OPTIONS, st.sampled_from([False, False, True])), min_size=1, max_size=5
)


class Site(NamedTuple):
    """Session servers in front of one engine, with full and with incremental routing."""

    chosen: ChoiceLog
    full_url: str
    incremental_url: str
    http: httpx2.Client


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    chosen = ChoiceLog()
    with contextlib.ExitStack() as stack:
        engine_url = stack.enter_context(serve_engine(SMALL, on_choice=chosen))
        full, incremental = (
            stack.enter_context(running(TOKENIZER, engine_url, routing=spec))
            for spec in (SMALL.routing_spec(), SMALL.routing_spec(incremental=True))
        )
        http = stack.enter_context(httpx2.Client(timeout=PATIENCE_S, trust_env=False))
        yield Site(chosen, full.url, incremental.url, http)


def talk(http: httpx2.Client, base_url: str, turns: Sequence[Turn]) -> Iterator[str]:
    """Holds a conversation, call by call; gives the finish reason of each turn that stays."""
    messages: list[dict[str, Any]] = []
    call_id = None
    for turn in turns:
        role = {"role": "user"} if call_id is None else {"role": "tool", "tool_call_id": call_id}
        messages.append({**role, "content": turn.text})
        for seed in (9, turn.options["seed"])[not turn.is_retry :]:
            body = {"messages": messages, **turn.options, "seed": seed}
            response = http.post(f"{base_url}/chat/completions", json=body)
            assert response.status_code == 200, response.text
            (choice,) = response.json()["choices"]
        messages.append(choice["message"])
        calls = choice["message"].get("tool_calls")
        call_id = calls[0]["id"] if calls else None
        yield choice["finish_reason"]


def check(sample: Sample, chosen: ChoiceLog) -> None:
    """Every row is what the routers chose for its token."""
    rows = np.asarray(sample.rollout_routed_experts)
    expected = chosen.rows(sample.tokens.tolist(), SMALL.num_layers)
    assert rows.shape == (len(sample.tokens) - 1, SMALL.num_layers, SMALL.top_k)
    np.testing.assert_array_equal(rows, expected)


@few
@given(TURNS, st.booleans(), st.none() | st.integers(1, 900))
def test_rows_are_what_the_routers_chose(
    site: Site, turns: list[Turn], incremental: bool, max_seq_len: int | None
) -> None:
    url = site.incremental_url if incremental else site.full_url
    with SyncSessionClient(url) as session:
        reasons = list(talk(site.http, session.chat_base_url, turns))
        reply = session.collect(Sample(), max_seq_len=max_seq_len)
    assert reply.samples or max_seq_len is not None
    for sample in reply.samples:
        check(sample, site.chosen)
        if max_seq_len is None:
            whole = "length" not in reasons[:-1]
            assert whole == ("dropped_turns" not in sample.metadata)


@fewer
@given(st.lists(TURNS, min_size=2, max_size=4), st.randoms(use_true_random=False))
def test_rows_are_of_their_own_conversation_when_several_go_on_at_once(
    site: Site, conversations: list[list[Turn]], random: Any
) -> None:
    with contextlib.ExitStack() as stack:
        sessions, talks = [], []
        for number, turns in enumerate(conversations):
            url = site.incremental_url if number % 2 else site.full_url
            sessions.append(stack.enter_context(SyncSessionClient(url)))
            talks.append(talk(site.http, sessions[-1].chat_base_url, turns))
        going = list(talks)
        while going:
            one = random.choice(going)
            if next(one, None) is None:
                going.remove(one)
        for session in sessions:
            (sample,) = session.collect(Sample()).samples
            check(sample, site.chosen)


def test_full_and_incremental_routing_give_equal_samples(site: Site) -> None:
    turns = [Turn("Rain?", {"seed": 1, "max_tokens": 400, "tools": [TOOL]}, False)] * 3
    found = []
    for url in (site.full_url, site.incremental_url):
        with SyncSessionClient(url) as session:
            list(talk(site.http, session.chat_base_url, turns))
            (sample,) = session.collect(Sample()).samples
            found.append(sample)
    one, other = found
    assert one.status is other.status is Status.COMPLETED
    for name in ("tokens", "loss_mask", "rollout_log_probs", "rollout_routed_experts"):
        assert (
            np.asarray(getattr(one, name)).tobytes() == np.asarray(getattr(other, name)).tobytes()
        )


def test_a_row_of_another_token_would_be_seen(site: Site) -> None:
    with SyncSessionClient(site.full_url) as session:
        turn = Turn("Rain?", {"seed": 1, "max_tokens": 30}, False)
        list(talk(site.http, session.chat_base_url, [turn]))
        (sample,) = session.collect(Sample()).samples
    rows = np.array(sample.rollout_routed_experts)
    sample.rollout_routed_experts = np.concatenate([rows[:9], rows[10:11], rows[10:]])
    with pytest.raises(AssertionError):
        check(sample, site.chosen)


def test_a_token_that_no_router_saw_would_be_seen(site: Site) -> None:
    with pytest.raises(KeyError):
        site.chosen.rows([1, 2, 3, *TOKENIZER.render(asked("never asked"), None, {})], 3)
