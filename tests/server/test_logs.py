"""What the server logs: one event a request, as JSON lines, and nothing that anybody wrote."""

from __future__ import annotations

import json
import logging
import re
import signal
import subprocess
from typing import Any, Final

import pytest

from sample_wire.adapters.server.logs import JsonLines

from ._raw import chat, one, request, sent
from ._serving import Handle, Site
from ._sglang import first_turn, speaks
from ._stub import PATIENCE_S, Answer, StubEngine
from .conftest import StartServer
from .test_serve_command import served

SECRET: Final = "xyzzy-plugh"
LOGGER: Final = "sample_wire.adapters.server.guard"


def settle(site: Site) -> None:
    """A request is told when it was answered: when another is answered, those before it are."""
    one(site, request("GET", "/health"))


def events(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """The fields of the requests that were told."""
    names = ("request_id", "method", "route", "status", "code")
    return [
        {name: getattr(record, name) for name in names}
        for record in caplog.records
        if record.name == LOGGER
    ]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (("GET", "/sessions/{id}"), ("/sessions/{session_id}", 200, None)),
        (("POST", "/sessions/{id}/samples"), ("/sessions/{session_id}/samples", 200, None)),
        (
            ("POST", "/sessions/{id}/v1/chat/completions"),
            ("/sessions/{session_id}/v1/chat/completions", 400, "bad_request"),
        ),
        (("GET", "/sessions/{id}/x"), ("/sessions/{session_id}/{path:path}", 404, "not_found")),
        (("PUT", "/sessions"), ("/sessions", 405, "method_not_allowed")),
        (
            ("POST", "/sessions/{id}/samples", "accept: text/html"),
            ("/sessions/{session_id}/samples", 406, "not_acceptable"),
        ),
        (("GET", "/nowhere/{id}"), ("", 404, "not_found")),
    ],
)
def test_each_request_is_told_once_by_its_route(
    session: Handle,
    caplog: pytest.LogCaptureFixture,
    raw: tuple[str, ...],
    expected: tuple[str, int, str | None],
) -> None:
    method, path, *headers = raw
    route, status, code = expected
    with caplog.at_level(logging.INFO, LOGGER):
        one(
            session.site,
            request(method, path.replace("{id}", session.id), "x-request-id: r-7", *headers),
        )
        settle(session.site)
    told = {"request_id": "r-7", "method": method, "route": route, "status": status, "code": code}
    assert events(caplog) == [told]


HEALTH: Final = b"GET /health HTTP/1.1\r\nx-request-id: r-7\r\nhost: h\r\n"
CREATE: Final = b"POST /sessions HTTP/1.1\r\nx-request-id: r-7\r\nhost: h\r\n"
CHUNKED: Final = b"transfer-encoding: chunked\r\n\r\n"
REFUSED: Final = {
    "a head that is none": (HEALTH + b"x\r\n\r\n", 400, ""),
    "a head too large": (HEALTH + b"x: %b\r\n\r\n" % (b"a" * 70_000), 431, ""),
    "a slow head": (HEALTH, 408, ""),
    "a body that is none": (CREATE + CHUNKED + b"zz\r\n", 400, "/sessions"),
    "a slow body": (CREATE + CHUNKED, 408, "/sessions"),
    "a body behind a request": (HEALTH + b"\r\n" + CREATE + CHUNKED + b"zz\r\n", 400, ""),
}


@pytest.mark.parametrize(("data", "status", "route"), REFUSED.values(), ids=REFUSED)
def test_what_a_connection_is_refused_for_is_told_once_with_the_id_of_the_answer(
    start: StartServer, caplog: pytest.LogCaptureFixture, data: bytes, status: int, route: str
) -> None:
    site = start(head_timeout_s=0.1, body_timeout_s=0.1)
    with caplog.at_level(logging.INFO, "sample_wire"):
        reply = sent(site, data)[-1]
        settle(site)
    assert (reply.status, reply.header("x-request-id")) == (status, "r-7")
    (event,) = (record for record in caplog.records if record.getMessage() == "request")
    told = vars(event)
    assert (told["request_id"], told["status"], told["route"]) == ("r-7", status, route)
    assert told["code"] == reply.refusal[1]


def test_a_refusal_of_what_has_no_id_has_a_new_one(site: Site) -> None:
    ids = {one(site, b"no request\r\n\r\n").header("x-request-id") for _ in range(2)}
    assert len(ids) == 2
    assert all(re.fullmatch("[0-9a-f]{32}", str(made)) for made in ids)


@pytest.mark.parametrize(("level", "expected"), [(logging.INFO, 0), (logging.DEBUG, 1)])
def test_health_is_told_only_to_who_looks_closely(
    site: Site, caplog: pytest.LogCaptureFixture, level: int, expected: int
) -> None:
    with caplog.at_level(level, LOGGER):
        assert one(site, request("GET", "/health", "x-request-id: r-7")).status == 200
        settle(site)
    assert [event["request_id"] for event in events(caplog)].count("r-7") == expected


@pytest.mark.parametrize(
    "answer",
    [
        Answer(200, SECRET.encode()),
        Answer(200, json.dumps({"choices": [{"message": SECRET}]}).encode()),
        Answer(500, SECRET.encode()),
        Answer(500, b"{}", [("x-odd", f"{SECRET}\x01")]),
        Answer(hang_up=True),
        speaks([10], message={"role": "assistant", "content": SECRET}),
    ],
    ids=["no JSON", "no turn", "an error", "a bad header", "nothing", "a turn"],
)
def test_nothing_of_a_conversation_and_no_id_is_in_the_log(
    session: Handle, engine: StubEngine, caplog: pytest.LogCaptureFixture, answer: Any
) -> None:
    engine.will(answer)
    body = {"messages": [{"role": "user", "content": "9174629174 1"}], "user": SECRET}
    with caplog.at_level(logging.DEBUG, "sample_wire"):
        one(session.site, chat(session, f"x-secret: {SECRET}", body=body))
        settle(session.site)
    told = [repr(vars(record)) for record in caplog.records if record.name.startswith("sample")]
    assert told
    for line in told:
        assert SECRET not in line
        assert session.id not in line
        assert "9174629174" not in line


def test_a_record_is_one_line_of_json_with_its_own_fields() -> None:
    record = logging.makeLogRecord(
        {
            "name": "a.b",
            "levelname": "INFO",
            "msg": "two\nlines of %s",
            "args": ("text",),
            "created": 12.5,
            "status": 200,
            "route": "/x",
            "odd": object,
        }
    )
    line = JsonLines().format(record)
    assert "\n" not in line
    assert json.loads(line) == {
        "time": 12.5,
        "level": "info",
        "logger": "a.b",
        "event": "two\nlines of text",
        "status": 200,
        "route": "/x",
        "odd": str(object),
    }


def test_an_errors_kind_and_places_are_told_and_its_text_is_not() -> None:
    try:
        raise RuntimeError(SECRET)
    except RuntimeError as error:
        raised = (RuntimeError, error, error.__traceback__)
    record = logging.makeLogRecord({"msg": "failed", "exc_info": raised})
    line = JsonLines().format(record)
    assert SECRET not in line
    told = json.loads(line)
    assert told["error"] == "RuntimeError"
    assert "test_logs.py" in told["places"][0]


def test_the_command_writes_json_lines_to_standard_error(engine: StubEngine) -> None:
    with served(engine, stderr=subprocess.PIPE) as (process, (url,)):
        site = Site(int(url.rpartition(":")[2]))
        with site.http:
            session = site.create()
            engine.will(first_turn(), Answer(hang_up=True))
            for _ in range(2):
                one(site, chat(session, "x-request-id: r-7"))
            one(site, b"no request\r\n\r\n")
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=PATIENCE_S)
    lines = [json.loads(line) for line in errors.splitlines()]
    requests = [line for line in lines if line["event"] == "request"]
    assert [line["status"] for line in requests] == [200, 200, 502, 400]
    assert [line["request_id"] for line in requests[1:3]] == ["r-7", "r-7"]
    assert all(line["seconds"] >= 0 for line in requests)
    assert session.id not in errors
