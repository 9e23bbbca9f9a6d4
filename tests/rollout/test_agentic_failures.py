"""Failures to open a session or to collect: each is the caller's to see."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import pytest
from client._failures import FAILURES, LIMIT_BYTES, Failure
from client._samples import make_payload, make_sample
from client._stub import Stub, answer

from sample_wire import ClientError, Sample, SamplesReply, ServerError
from sample_wire.adapters.client import ClientLimits, SessionClient

from ._agents import Agent, rollout

SampleT = TypeVar("SampleT")
WHOLE = ["POST /sessions", "POST /ID/samples", "DELETE /ID"]


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
def test_every_failure_to_collect_is_raised_and_the_session_ended(failure: Failure) -> None:
    class Limited(SessionClient):
        """A client with the limits of this failure."""

        def __init__(self, url: str) -> None:
            super().__init__(url, limits=ClientLimits(max_reply_bytes=LIMIT_BYTES))

        async def collect(
            self,
            template: SampleT,
            *,
            max_seq_len: int | None = None,
            metadata: Mapping[str, Any] | None = None,
            timeout_s: float | None = failure.timeout_s,
        ) -> SamplesReply[SampleT]:
            return await super().collect(
                template, max_seq_len=max_seq_len, metadata=metadata, timeout_s=timeout_s
            )

    with Stub(failure.reply) as stub:
        with pytest.raises(failure.error) as raised:
            rollout(stub.url, Agent(), client=Limited)
        assert type(raised.value) is failure.error
        assert stub.requests == WHOLE


def test_a_server_that_opens_no_session_is_an_error_before_the_agent_is_asked() -> None:
    class Hasty(SessionClient):
        """A client that tries once."""

        def __init__(self, url: str) -> None:
            super().__init__(url, limits=ClientLimits(create_tries=1))

    agent = Agent()
    with Stub(create=answer(b"", status=503)) as stub:
        with pytest.raises(ServerError, match="503"):
            rollout(stub.url, agent, client=Hasty)
        assert stub.requests == ["POST /sessions"]
    assert agent.calls == []


def test_a_reply_with_several_samples_is_refused() -> None:
    payload = make_payload(make_sample(), make_sample())
    with Stub(answer(payload)) as stub, pytest.raises(ClientError, match="has 2 samples"):
        rollout(stub.url, Agent())


@pytest.mark.parametrize("told", [None, {}, {"reward": 1.0}], ids=repr)
def test_what_the_agent_told_stays_with_the_client_of_a_linear_session(told: Any) -> None:
    with Stub(answer(make_payload())) as stub:
        rollout(stub.url, Agent(told=told), Sample(), max_seq_len=50)
        assert stub.only("collect").body == b'{"max_seq_len":50}'
