"""What the session client sends and how it goes on; no I/O and no HTTP package.

Each operation is a generator.  It yields a Request, is sent the Answer or thrown the error that
came instead of one, and returns the operation's result.  The two clients are shells that carry
out the requests.  The rules:

- creating may be tried again while the server cannot be reached or fails by its own fault
  (5xx): an attempt whose answer is lost leaves at worst an empty session behind.  Where there
  are several servers each try goes to another than the last, for one may drain or be gone;
- collecting is one POST, never a second: its every failure is the caller's to see.  But where
  the compact layout was asked for and 406 comes, nothing was done: the exact one is asked for;
- a server without the compact layout is told once, in the log; from then on this client asks
  for the exact one;
- the session is deleted once collect has begun, whatever became of it.  That is attempted
  once; its own errors are logged and never take the place of another.

What is left to the shells: sending, time limits, and turning transport errors into ClientError.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, Literal, TypeVar

import msgspec

from .._json import encode_json
from .._plan import plan_of
from ..codec import LAYOUTS, Layout, SamplesReply, decode_samples, plan_for
from ..errors import ClientError, DecodeError
from ..sample import Sample
from ..schema import Schema
from ._client_answer import MAX_REFUSAL_BYTES, Answer
from ._client_bodies import Created, collect_body, read_created
from ._client_requests import Request, Steps
from ._client_urls import server_urls
from ._media_types import PAYLOAD_TYPES, wanted_types
from ._token import checked_token

COLLECT_TIMEOUT_S: Final = 120.0
# Three years; timers overflow at a few hundred.
_MAX_TIME_S: Final = 1e8

logger: Final = logging.getLogger("sample_wire.client")
# Servers without the compact layout that a warning has named.
servers_told_of: Final[set[str]] = set()
SampleT = TypeVar("SampleT")
Stage = Literal["none", "creating", "open", "collecting", "attempted", "gone"]


def _check_time(name: str, time_s: float | None) -> None:
    """Passes for a limit that every timer can keep; None is none."""
    if time_s is not None and not 0 < time_s <= _MAX_TIME_S:
        raise ValueError(f"{name} is a time above 0 and up to {_MAX_TIME_S:g} s, not {time_s}")


@dataclasses.dataclass(frozen=True, slots=True)
class Fetched(Generic[SampleT]):
    """A whole reply.

    Attributes:
        decode: gives its samples; raises as decode_samples.
        is_compact: whether that widens arrays, so that it takes a while.
    """

    decode: Callable[[], SamplesReply[SampleT]]
    is_compact: bool


class ClientLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What a client waits for and takes; None turns a limit off.

    Attributes:
        create_tries: how often create may try, the first time included.
        create_pause_s: pause before it tries again.
        create_timeout_s: of one try.
        delete_timeout_s: of the one DELETE.
        max_reply_bytes: a larger reply of collect is refused, before it is read where the
            server tells its size.
    """

    create_tries: int = 60
    create_pause_s: float = 1.0
    create_timeout_s: float | None = 30.0
    delete_timeout_s: float | None = 120.0
    max_reply_bytes: int | None = 16 * 2**30

    def __post_init__(self) -> None:
        """Refuses a client that could never send anything."""
        if self.create_tries < 1:
            raise ValueError(f"create_tries is at least 1, not {self.create_tries}")
        if not 0 <= self.create_pause_s <= _MAX_TIME_S:
            raise ValueError(f"create_pause_s is a time from 0 on, not {self.create_pause_s}")
        _check_time("create_timeout_s", self.create_timeout_s)
        _check_time("delete_timeout_s", self.delete_timeout_s)


class SessionSteps:
    """One session's requests in their order, and what has become of it.

    Args:
        servers: URLs of independent servers; each session is opened on one of them, taken at
            random, and stays there.
        field_set, schema: what collect will decode; None takes Sample's own schema.
        handshake: whether to ask the server for the same field set and schema.
        layout, widen: what collect asks for, and whether it widens narrow arrays.
        limits: see ClientLimits.
        token: the servers', or None.
    """

    def __init__(
        self,
        servers: str | Sequence[str],
        *,
        field_set: int,
        schema: Schema | None,
        handshake: bool,
        layout: Layout,
        widen: bool,
        limits: ClientLimits,
        token: str | None = None,
    ) -> None:
        self._servers = server_urls(servers)
        self._field_set = field_set
        self._schema = schema
        agreed = schema or Sample.__sample_schema__
        plan_of(agreed, field_set)  # refuses a field set that there is not
        self._fingerprint = agreed.fingerprint(field_set)
        self._handshake = handshake
        if layout not in LAYOUTS:
            raise ValueError(f"layout is one of {LAYOUTS}, not {layout!r}")
        self._layout = layout
        self._widen = widen
        self._limits = limits
        self._token = token if token is None else checked_token(token)
        self._server_url = ""
        self._session_id = ""
        self._instance_id: str | None = None
        self._trajectory: str | None = None
        self.stage: Stage = "none"

    @property
    def uses_tls(self) -> bool:
        """Whether any server is reached by HTTPS."""
        return any(url.lower().startswith("https:") for url in self._servers)

    @property
    def session_id(self) -> str:
        """The session's id, also after its end.

        Raises:
            ClientError: none was created.
        """
        self._require_session()
        return self._session_id

    @property
    def server_url(self) -> str:
        """The server that the session lives on.  Raises as session_id."""
        self._require_session()
        return self._server_url

    @property
    def instance_id(self) -> str | None:
        """The id that the server goes by, or None where it told none.  Raises as session_id."""
        self._require_session()
        return self._instance_id

    @property
    def trajectory(self) -> str | None:
        """The kind of the session, or None where the server told none.  Raises as session_id."""
        self._require_session()
        return self._trajectory

    @property
    def session_url(self) -> str:
        """Where the session lives.  Raises as session_id."""
        return f"{self.server_url}/sessions/{self._session_id}"

    @property
    def _create_url(self) -> str:
        return f"{self._server_url}/sessions"

    @property
    def has_session(self) -> bool:
        """Whether the server holds a session that nobody has told it to delete."""
        return self.stage in ("open", "collecting")

    def _require_session(self) -> None:
        if self.stage in ("none", "creating"):
            raise ClientError("there is no session: create one first")

    def create(self) -> Steps[str]:
        """Opens a session; gives its id."""
        if self.stage == "creating" or self.has_session:
            raise ClientError("the client has a session: delete it before you create another")
        self._server_url, self.stage = random.choice(self._servers), "creating"
        try:
            created = read_created((yield from self._create_answer()))
        except BaseException:
            self.stage = "none"
            raise
        self._session_id, self.stage = created.session_id, "open"
        self._instance_id = created.session_server_instance_id
        self._trajectory = created.trajectory
        mismatch = self._mismatch(created) if self._handshake else None
        if mismatch is not None:
            yield from self.delete()
            raise mismatch
        return created.session_id

    def collect(
        self,
        template: SampleT,
        *,
        max_seq_len: int | None,
        metadata: Mapping[str, Any] | None,
        timeout_s: float | None,
    ) -> Steps[Fetched[SampleT]]:
        """Fetches the samples, then ends the session; wrong arguments leave it open."""
        url = self.session_url
        if self.stage != "open":
            raise ClientError("collect is called once a session, before it is deleted")
        content = collect_body(max_seq_len, metadata)
        plan_for(template, self._field_set, self._schema).overlay.check_template(template)
        _check_time("timeout_s", timeout_s)
        self.stage = "collecting"
        try:
            answer = yield from self._samples_answer(
                Request(
                    "collect",
                    f"{url}/samples",
                    content,
                    timeout_s,
                    self._limits.max_reply_bytes,
                    wanted_types(self._layout),
                    token=self._token,
                )
            )
            answer.require_success()
            is_compact = answer.media_type == PAYLOAD_TYPES["compact"]
            return Fetched(functools.partial(self._decoded, answer, template), is_compact)
        finally:
            # A generator that is thrown away unfinished has nobody left who could send.
            if not isinstance(sys.exception(), GeneratorExit):
                yield from self.delete()

    def delete(self) -> Steps[bool]:
        """Ends the session; whether the server has it no more."""
        if self.stage in ("none", "creating", "gone"):
            return True
        self.stage = "attempted"
        url = self.session_url
        try:
            limit = self._limits.delete_timeout_s
            answer = yield Request("delete", url, b"", limit, MAX_REFUSAL_BYTES, token=self._token)
            if answer.status != 404:  # 404: it is gone already, and asking again would not help
                answer.require_success()
        except Exception:
            # Whoever knows a session's id may use it: it is not for logs.
            logger.warning("a session at %s could not be deleted", self._server_url, exc_info=True)
            return False
        self.stage = "gone"
        return True

    def _samples_answer(self, request: Request) -> Steps[Answer]:
        """The answer to the POST, or to the second one where the first was 406."""
        started_s = time.monotonic()
        answer = yield request
        if self._layout == "exact":
            return answer
        if answer.media_type == PAYLOAD_TYPES["exact"]:
            self._fall_back(f"the server answered {answer.media_type}")
        if answer.status != 406:
            return answer
        self._fall_back(str(answer.refusal()))
        return (yield request.again(wanted_types("exact"), time.monotonic() - started_s))

    def _fall_back(self, told: str) -> None:
        """Asks for the exact layout from now on, and says why, once a server in a process: there
        may be a client for each session."""
        self._layout = "exact"
        if self._server_url in servers_told_of:
            return
        servers_told_of.add(self._server_url)
        logger.warning(
            "%s has no compact layout, the exact one is used: asked for %s, %s",
            self._server_url,
            PAYLOAD_TYPES["compact"],
            told,
        )

    def _decoded(self, answer: Answer, template: SampleT) -> SamplesReply[SampleT]:
        """The samples.  The payload itself says its format; where it is refused, both are told."""
        try:
            return decode_samples(
                answer.body,
                template,
                field_set=self._field_set,
                widen=self._widen,
                schema=self._schema,
            )
        except DecodeError as error:
            error.add_note(f"the server sent it as {answer.media_type}")
            raise

    def _create_answer(self) -> Steps[Answer]:
        """The first answer that is not the server's own fault, or the last of all tries."""
        content = b""
        if self._handshake:
            content = encode_json({"field_set": self._field_set, "schema": self._fingerprint})
        limits = self._limits
        request = Request(
            "create",
            self._create_url,
            content,
            limits.create_timeout_s,
            MAX_REFUSAL_BYTES,
            ("application/json",),
            token=self._token,
        )
        tries_left = limits.create_tries
        while True:
            tries_left -= 1
            try:
                answer = yield request
                if answer.status < 500 or not tries_left:
                    return answer
            except ClientError:
                if not tries_left:
                    raise
            others = [url for url in self._servers if url != self._server_url]
            self._server_url = random.choice(others or self._servers)
            request = msgspec.structs.replace(
                request, url=self._create_url, pause_s=limits.create_pause_s
            )

    def _mismatch(self, created: Created) -> ClientError | None:
        """The error where the server has named a field set or schema that is not ours."""
        ours = {"field_set": self._field_set, "schema": self._fingerprint}
        theirs = {"field_set": created.field_set, "schema": created.schema}
        for name, value in theirs.items():
            if value is not None and value != ours[name]:
                return ClientError(
                    f"the server's {name} is {value}, the client's is {ours[name]}",
                    expected=str(ours[name]),
                    got=str(value),
                )
        return None
