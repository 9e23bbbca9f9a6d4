"""A refusal of the server: its status, code and words reach the caller unchanged."""

from __future__ import annotations

import gzip
import json

import pytest

from sample_wire import Sample
from sample_wire.errors import ServerError

from ._clients import Connect
from ._stub import Reply, Stub, answer, hang_up, head, sends

LONG = "turn 3: " + "the prompt does not extend the turns before it. " * 100
WORDS = [
    "turn 2: rollout_log_probs has 4 rows, tokens has 5",
    'quotes " and \\ and\nlines\tand tabs',
    "\u00fcber \u4e2d\u6587 \U0001f600",
    LONG,
    "",
]
IDS = ["plain", "escapes", "unicode", "long", "empty"]


def refused(connect: Connect, reply: Reply) -> ServerError:
    with (
        Stub(reply) as stub,
        connect(stub.url) as client,
        pytest.raises(ServerError) as caught,
    ):
        client.collect(Sample())
    return caught.value


def ours(text: str, *, status: int = 422, **more: object) -> Reply:
    body = json.dumps({"error": text, "code": "assembly_failed"} | more).encode()
    return answer(body, status=status, media_type="application/json")


@pytest.mark.parametrize("text", WORDS, ids=IDS)
def test_the_text_of_a_422_is_verbatim(connect: Connect, text: str) -> None:
    assert refused(connect, ours(text)).text == text


@pytest.mark.parametrize("text", WORDS, ids=IDS)
def test_a_plain_text_422_is_verbatim_and_has_no_code(connect: Connect, text: str) -> None:
    error = refused(connect, answer(text.encode(), status=422, media_type="text/plain"))
    assert error.text == text
    assert error.code is None


def test_a_refusal_that_breaks_off_keeps_its_status_and_the_words_that_came(
    connect: Connect,
) -> None:
    reply = sends(head(422, length=500), b"turn 3: the prompt", then=hang_up)
    error = refused(connect, reply)
    assert (error.status, error.text) == (422, "turn 3: the prompt")


def test_status_and_code_are_told(connect: Connect) -> None:
    error = refused(connect, ours("no", status=409))
    assert (error.status, error.code) == (409, "assembly_failed")


def test_the_message_holds_status_code_and_text(connect: Connect) -> None:
    assert (
        str(refused(connect, ours("no row"))) == "the server answered 422 assembly_failed: no row"
    )


def test_other_keys_of_the_error_are_ignored(connect: Connect) -> None:
    assert refused(connect, ours("no", detail={"turn": 3})).text == "no"


@pytest.mark.parametrize(
    "body",
    [
        b'{"error":{"message":"an OpenAI error"}}',
        b'{"detail":"Not Found"}',
        b'{"error":"unfinished',
        b"[]",
        b"<html><body>502 Bad Gateway</body></html>",
    ],
    ids=["object", "detail", "cut", "list", "HTML"],
)
def test_a_body_of_another_form_is_the_text_as_it_is(connect: Connect, body: bytes) -> None:
    error = refused(connect, answer(body, status=502, media_type="text/html"))
    assert error.text == body.decode()
    assert error.code is None


def test_bytes_that_are_no_text_are_shown_as_replaced(connect: Connect) -> None:
    assert refused(connect, answer(b"\xff{", status=500)).text == "\ufffd{"


def test_a_refusal_in_gzip_is_read(connect: Connect) -> None:
    body = gzip.compress(b"the words")
    assert refused(connect, answer(body, "Content-Encoding: gzip", status=502)).text == "the words"


def test_no_more_than_a_mebibyte_of_a_refusal_is_kept(connect: Connect) -> None:
    error = refused(connect, answer(b"x" * (2**20 + 2**17), status=500, media_type="text/plain"))
    assert error.text == "x" * 2**20
