"""Calls to a running server, each answer judged by the description."""

from __future__ import annotations

import http.client
import json
from typing import Any, Final, NamedTuple, Self

from sample_wire.adapters.server.codes import CODES

from ._calls import OWN, Call, text_of
from ._description import DESCRIPTION, faults

_PATIENCE_S: Final = 60
_JSON: Final = "application/json"
_STATUSES: Final = {code.name: code.status for code in CODES}
# What a request may be answered with from 500 on: the engine's fault, never the server's.
_ENGINES_STATUS: Final = 502
_CHAT: Final = "/v1/chat/completions"
_OK: Final = 200


class Answer(NamedTuple):
    """What came back; the media type with its parameters."""

    status: int
    media_type: str
    body: bytes

    @property
    def json(self) -> Any:
        """The body, parsed."""
        return json.loads(self.body)


class Talk:
    """One session of a server, and the conversation so far.

    Attributes:
        num_recorded: chats that were answered with 200.
        is_deleted: whether a call has ended the session.
    """

    def __init__(self, port: int) -> None:
        self._http = http.client.HTTPConnection("127.0.0.1", port, timeout=_PATIENCE_S)
        self._id = ""
        self._messages: list[Any] = []
        self.num_recorded = 0
        self.is_deleted = False

    def __enter__(self) -> Self:
        """Creates the session."""
        try:
            self._id = self.checked("post", "/sessions").json["session_id"]
        except BaseException:
            self._http.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def call(self, call: Call) -> Answer:
        """Makes a call, and checks the answer."""
        is_own = call.session_id == OWN
        path = call.path.replace("{session_id}", self._id if is_own else call.session_id)
        body = self._joined(call.body) if call.extends else call.body
        answer = self.ask(call.method, path + call.query, text_of(body), call.headers)
        check(answer, call.method.lower(), call.path)
        if is_own and answer.status == _OK and call.path.endswith(_CHAT):
            self.num_recorded += 1
            self._keep(body, answer)
        self.is_deleted |= is_own and call.method == "DELETE" and answer.status < 300
        return answer

    def checked(self, method: str, path: str) -> Answer:
        """A call without a body, of this session where the path has one, that must succeed."""
        answer = self.ask(method.upper(), path.replace("{session_id}", self._id))
        check(answer, method, path)
        assert answer.status < 300
        return answer

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """One exchange, unchecked."""
        self._http.request(method, path, body, headers or {})
        response = self._http.getresponse()
        return Answer(response.status, response.headers.get("content-type", ""), response.read())

    def _joined(self, body: Any) -> Any:
        """A chat body whose messages go on behind the conversation so far."""
        if not isinstance(body, dict) or not isinstance(body.get("messages"), list):
            return body
        return {**body, "messages": self._messages + body["messages"]}

    def _keep(self, body: Any, answer: Answer) -> None:
        if answer.media_type == _JSON:
            self._messages = [*body["messages"], answer.json["choices"][0]["message"]]


def check(answer: Answer, method: str, path: str) -> None:
    """Passes if the description has such an answer, and it is no fault of ours."""
    operation = DESCRIPTION["paths"][path].get(method)
    if operation is None:
        found = (answer.status, answer.json["code"])
        assert found in ((405, "method_not_allowed"), (404, "unknown_session"))
        return
    found = operation["responses"].get(str(answer.status)) or operation["responses"].get("default")
    assert found is not None, f"{answer.status} is not described: {answer.body[:200]!r}"
    assert answer.status < 500 or answer.status == _ENGINES_STATUS, answer.body[:200]
    content = found.get("content", {})
    if not content:
        assert answer.body == b""
        return
    described = _body_of(answer.media_type, content)
    assert described is not None, f"{answer.media_type!r} is none of {[*content]}"
    if answer.media_type == _JSON:
        assert faults(answer.json, described["schema"]) == []
        _check_code(answer, found["description"])


def _body_of(media_type: str, content: dict[str, Any]) -> dict[str, Any] | None:
    """What is described for a media type; parameters count where any are described for it."""
    plain = media_type.partition(";")[0]
    is_told_apart = any(name.startswith(f"{plain};") for name in content)
    names = (media_type, "*/*") if is_told_apart else (media_type, plain, "*/*")
    return next((content[name] for name in names if name in content), None)


def _check_code(answer: Answer, told: str) -> None:
    """A body in our form has a code that is described, also where the engine's own may come."""
    body = answer.json
    if isinstance(body, dict) and {"error", "code"} <= body.keys():
        assert _STATUSES.get(body["code"]) == answer.status
        assert f"`{body['code']}`" in told
