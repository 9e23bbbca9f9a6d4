"""Both clients behind one face, so that every test of one is a test of the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

from sample_wire import Sample, SamplesReply
from sample_wire.adapters.client import SessionClient


class AnyClient(Protocol):
    """What a test calls on either client; every call blocks."""

    @property
    def session_id(self) -> str: ...
    @property
    def server_url(self) -> str: ...
    @property
    def instance_id(self) -> str | None: ...
    @property
    def trajectory(self) -> str | None: ...
    @property
    def chat_base_url(self) -> str: ...
    def create(self) -> str: ...
    def collect(
        self,
        template: Sample,
        *,
        max_seq_len: int | None = None,
        metadata: Mapping[str, Any] | None = None,
        timeout_s: float | None = 30.0,
    ) -> SamplesReply[Sample]: ...
    def delete(self) -> bool: ...
    def close(self) -> None: ...
    def __enter__(self) -> AnyClient: ...
    def __exit__(self, *_: object) -> None: ...


Kind = Literal["async", "sync"]
Connect = Callable[..., AnyClient]


class Blocking:
    """A SessionClient whose calls are run to their end, one after another, on one loop."""

    def __init__(self, client: SessionClient, runner: asyncio.Runner) -> None:
        self._client = client
        self._runner = runner

    @property
    def session_id(self) -> str:
        return self._client.session_id

    @property
    def server_url(self) -> str:
        return self._client.server_url

    @property
    def instance_id(self) -> str | None:
        return self._client.instance_id

    @property
    def trajectory(self) -> str | None:
        return self._client.trajectory

    @property
    def chat_base_url(self) -> str:
        return self._client.chat_base_url

    def create(self) -> str:
        return self._runner.run(self._client.create())

    def collect(
        self,
        template: Sample,
        *,
        max_seq_len: int | None = None,
        metadata: Mapping[str, Any] | None = None,
        timeout_s: float | None = 30.0,
    ) -> SamplesReply[Sample]:
        return self._runner.run(
            self._client.collect(
                template, max_seq_len=max_seq_len, metadata=metadata, timeout_s=timeout_s
            )
        )

    def delete(self) -> bool:
        return self._runner.run(self._client.delete())

    def close(self) -> None:
        self._runner.run(self._client.aclose())

    def __enter__(self) -> Blocking:
        self._runner.run(self._client.__aenter__())
        return self

    def __exit__(self, *error: object) -> None:
        self._runner.run(self._client.__aexit__(*error))
