"""SessionClient and SyncSessionClient: one session of a session server, from the trainer's side.

    async with SessionClient("http://10.0.0.7:30000") as session:
        await agent(session.chat_base_url)  # any OpenAI client
        reply = await session.collect(template)

Both are shells around `_client_core`, which knows what to send and how to judge the answer:
they send it, keep the time, and make transport errors a ClientError.  Needs the extra `client`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, Self, TypeVar

import anyio
import httpx2

from ..codec import Layout, SamplesReply
from ..errors import ClientError
from ..schema import Schema
from ._client_answer import Answer
from ._client_core import COLLECT_TIMEOUT_S, ClientLimits, SessionSteps
from ._client_deadline import Deadline
from ._client_requests import Request, Steps

__all__ = ["COLLECT_TIMEOUT_S", "ClientLimits", "SessionClient", "SyncSessionClient"]

HttpT = TypeVar("HttpT", httpx2.AsyncClient, httpx2.Client)
SampleT = TypeVar("SampleT")
ResultT = TypeVar("ResultT")


class ClientBase(Generic[HttpT]):
    """What both clients are made with, and know.

    Args:
        servers: the URL of a session server, or several: each session is opened on one of them,
            taken at random, and stays there.  A try that fails goes on at another.
        field_set: the field set that collect decodes.
        schema: of the templates that collect will be given.  None takes the one that a
            template's class declares, and Sample's for the handshake.
        handshake: whether create asks the server for the same field set and schema.  A server
            that does not answer to that is taken as it is.
        layout: of the payload that collect asks for: "exact", or "compact", which is a quarter
            of the size at up to 256 experts.  From a server that has only the exact one this
            client takes that, and logs a warning, one a server.
        widen: False gives narrow arrays of a compact payload as they were sent, without a copy.
        limits: see ClientLimits.
        token: the servers' bearer token, or None.  An agent is given the same, as its API key.
        http: sends the requests and stays open.  It should be left to session clients: a
            connection that other requests made it keep may break under collect.  None makes
            one that uses no proxy of the environment, and is closed with this client.

    Raises:
        ValueError: no server, something that is not an HTTP URL, no such field set or layout, or
            a token that no header can carry.
    """

    _http_type: type[HttpT]

    def __init__(
        self,
        servers: str | Sequence[str],
        *,
        field_set: int = 1,
        schema: Schema | None = None,
        handshake: bool = True,
        layout: Layout = "exact",
        widen: bool = True,
        limits: ClientLimits | None = None,
        token: str | None = None,
        http: HttpT | None = None,
    ) -> None:
        self._steps = SessionSteps(
            servers,
            field_set=field_set,
            schema=schema,
            handshake=handshake,
            layout=layout,
            widen=widen,
            limits=limits or ClientLimits(),
            token=token,
        )
        self._owns_http = http is None
        self._http: HttpT = http or self._http_type(
            trust_env=False,
            # Reading the certificates takes 50 ms; redirects are not followed, so that plain
            # HTTP stays plain.
            verify=self._steps.uses_tls,
        )

    @property
    def session_id(self) -> str:
        """The session's id, also after its end.

        Raises:
            ClientError: no session was created.
        """
        return self._steps.session_id

    @property
    def server_url(self) -> str:
        """The URL of the server that the session lives on.

        Raises:
            ClientError: no session was created.
        """
        return self._steps.server_url

    @property
    def instance_id(self) -> str | None:
        """The id of that server's process, or None where it told none.

        Raises:
            ClientError: no session was created.
        """
        return self._steps.instance_id

    @property
    def trajectory(self) -> str | None:
        """ "linear" or "tree", the kind of session, or None where the server told none.

        Raises:
            ClientError: no session was created.
        """
        return self._steps.trajectory

    @property
    def chat_base_url(self) -> str:
        """The base URL to give to an OpenAI client.

        Raises:
            ClientError: no session was created.
        """
        return f"{self._steps.session_url}/v1"

    def _require_open(self) -> None:
        if self._http.is_closed:
            raise ClientError("the client is closed: make another for another session")


class SessionClient(ClientBase[httpx2.AsyncClient]):
    """One session at a time, for async code; a context manager that creates it and ends it.

    Made with the arguments of ClientBase.
    """

    _http_type = httpx2.AsyncClient

    async def create(self) -> str:
        """Opens a session, before anything is generated; gives its id.

        Raises:
            ServerError: the server refused; code "schema_mismatch" where it would send another
                field set or schema than this client decodes.
            ClientError: no server could be reached in all tries, its answer is not as agreed or
                names another schema, there is a session already, or the client is closed.
        """
        self._require_open()
        return await self._run(self._steps.create())

    async def collect(
        self,
        template: SampleT,
        *,
        max_seq_len: int | None = None,
        metadata: Mapping[str, Any] | None = None,
        timeout_s: float | None = COLLECT_TIMEOUT_S,
    ) -> SamplesReply[SampleT]:
        """The session's samples, laid over copies of the template.  Ends the session.

        The request is sent once and never again, but where a server without the compact layout
        refuses it with 406, having done nothing: then the exact one is asked for, in what is
        left of the time.  Whatever comes of it, cancellation too, the session is deleted before
        this returns or raises.  Arguments that do not hold are refused before anything is sent:
        the session stays open.

        Args:
            template: the trainer's input sample; never changed.
            max_seq_len: longer samples are cut to it; None for no limit.
            metadata: a JSON object that the agent leaves to the samples, or None.  A server of
                trees lays it over them; one of linear trajectories leaves that to the caller.
            timeout_s: for all of the exchange; None for no limit.

        Returns:
            The reply, with empty_reason where there are no samples.  Arrays are read-only views
            of the one buffer that the body was received in, but those that were widened.

        Raises:
            CollectTimeout: it took longer than timeout_s.
            ServerError: a status other than 2xx, with the server's text.
            ClientError: the connection failed, the body is not whole, or it is no payload's or
                of a format that was not asked for; or no session is open.
            DecodeError: as for decode_samples; LimitError also for a body of more than
                max_reply_bytes.
            TemplateError, TypeError: as for decode_samples, before anything is sent.
            EncodeError: metadata that JSON does not carry.
            ValueError: timeout_s is not above 0.

        Cost: one copy of the body; at most 1.35 payloads of memory, and the arrays that a
            compact payload is widened to.
        """
        fetched = await self._run(
            self._steps.collect(
                template, max_seq_len=max_seq_len, metadata=metadata, timeout_s=timeout_s
            )
        )
        if fetched.is_compact:  # widening would hold up the loop
            return await anyio.to_thread.run_sync(fetched.decode)
        return fetched.decode()

    async def delete(self) -> bool:
        """Ends the session; whether the server has it no more.  Errors are logged, not raised.

        Does nothing where there is no session, or where its end is confirmed.
        """
        return await self._run(self._steps.delete())

    async def aclose(self) -> None:
        """Ends a session that is open, and closes the HTTP client if it is this one's own."""
        try:
            if self._steps.has_session:
                await self.delete()
        finally:
            if self._owns_http:
                await self._http.aclose()

    async def __aenter__(self) -> Self:
        try:
            if self._steps.stage != "open":
                await self.create()
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _run(self, steps: Steps[ResultT]) -> ResultT:
        try:
            request = next(steps)
            while True:
                try:
                    answer = await self._exchange(request)
                except BaseException as error:  # noqa: BLE001  # steps raises it again
                    request = steps.throw(error)
                else:
                    request = steps.send(answer)
        except StopIteration as done:
            result: ResultT = done.value
            return result

    async def _exchange(self, request: Request) -> Answer:
        if request.pause_s:
            await anyio.sleep(request.pause_s)
        with (
            _client_errors(request),
            anyio.fail_after(request.timeout_s, shield=request.is_shielded),
        ):
            async with self._http.stream(
                request.method,
                request.url,
                content=request.content,
                headers=request.headers,
                follow_redirects=False,
                timeout=None,
            ) as response:
                answer = request.answered(response.status_code, response.headers)
                async with contextlib.aclosing(response.aiter_bytes()) as chunks:
                    with _words_kept(answer):
                        async for chunk in chunks:
                            if not answer.add(chunk):
                                break
        answer.finish()
        return answer


class SyncSessionClient(ClientBase[httpx2.Client]):
    """SessionClient for code that blocks; the same arguments, calls and errors."""

    _http_type = httpx2.Client

    def create(self) -> str:
        """As SessionClient.create."""
        self._require_open()
        return self._run(self._steps.create())

    def collect(
        self,
        template: SampleT,
        *,
        max_seq_len: int | None = None,
        metadata: Mapping[str, Any] | None = None,
        timeout_s: float | None = COLLECT_TIMEOUT_S,
    ) -> SamplesReply[SampleT]:
        """As SessionClient.collect; KeyboardInterrupt takes the place of cancellation."""
        fetched = self._run(
            self._steps.collect(
                template, max_seq_len=max_seq_len, metadata=metadata, timeout_s=timeout_s
            )
        )
        return fetched.decode()

    def delete(self) -> bool:
        """As SessionClient.delete."""
        return self._run(self._steps.delete())

    def close(self) -> None:
        """As SessionClient.aclose."""
        try:
            if self._steps.has_session:
                self.delete()
        finally:
            if self._owns_http:
                self._http.close()

    def __enter__(self) -> Self:
        try:
            if self._steps.stage != "open":
                self.create()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, steps: Steps[ResultT]) -> ResultT:
        try:
            request = next(steps)
            while True:
                try:
                    answer = self._exchange(request)
                except BaseException as error:  # noqa: BLE001  # steps raises it again
                    request = steps.throw(error)
                else:
                    request = steps.send(answer)
        except StopIteration as done:
            result: ResultT = done.value
            return result

    def _exchange(self, request: Request) -> Answer:
        if request.pause_s:
            time.sleep(request.pause_s)
        with (
            _client_errors(request),
            Deadline(request.timeout_s) as deadline,
            self._http.stream(
                request.method,
                request.url,
                content=request.content,
                headers=request.headers,
                follow_redirects=False,
                timeout=request.timeout_s,
                extensions={"trace": deadline.trace},
            ) as response,
        ):
            deadline.watch(response.extensions.get("network_stream"))
            answer = request.answered(response.status_code, response.headers)
            with _words_kept(answer):
                for chunk in response.iter_bytes():
                    if not answer.add(chunk):
                        break
        answer.finish()
        return answer


@contextlib.contextmanager
def _words_kept(answer: Answer) -> Iterator[None]:
    """A refusal that breaks off is a refusal: its status is known, and some of its words."""
    try:
        yield
    except httpx2.RequestError:
        if answer.is_success:
            raise


@contextlib.contextmanager
def _client_errors(request: Request) -> Iterator[None]:
    """Makes what the HTTP package raises a ClientError, the cause chained."""
    try:
        yield
    except (TimeoutError, httpx2.TimeoutException) as error:
        raise request.timed_out() from error
    except httpx2.RequestError as error:
        raise request.failed(error) from error
