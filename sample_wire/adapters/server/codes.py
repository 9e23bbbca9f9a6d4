"""CODES: every code that an error of the server has, its status, and who gives it when.

This is their one table.  README.md shows it to people, openapi.py to programs; tests compare it
with the code, and the README with it.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Code(NamedTuple):
    """A code, and what it says.

    Attributes:
        status: the HTTP status that it comes with.
        name: the code.
        when: what has happened, for people.
        operations: the operations of openapi.py that give it; none where no described request
            is answered so.
    """

    status: int
    name: str
    when: str
    operations: tuple[str, ...] = ()


_CHAT: Final = ("chat",)
_SAMPLES: Final = ("samples",)
_OF_SESSIONS: Final = ("dump", "delete", "chat", "samples", "models")
_OF_ENGINES: Final = ("chat", "models")
_GUARDED: Final = ("describe", "create", *_OF_SESSIONS)
_ALL: Final = ("health", *_GUARDED)

CODES: Final = (
    Code(
        400,
        "bad_http",
        "what came is no request of HTTP/1, or one that two servers may read in two ways; the "
        "connection is closed",
    ),
    Code(
        400,
        "invalid_json",
        "the body is no JSON, no UTF-8, nests too deep, or has more than 262,144 values",
        (*_CHAT, *_SAMPLES),
    ),
    Code(400, "bad_request", "JSON of a wrong form", (*_CHAT, *_SAMPLES)),
    Code(400, "bad_messages", "messages or tools of a wrong form", _CHAT),
    Code(
        400,
        "template_kwargs",
        "`chat_template_kwargs` of a wrong form, or against the model's family",
        _CHAT,
    ),
    Code(400, "render_failed", "the chat template refuses the messages", _CHAT),
    Code(400, "append_role", "a message of this role cannot follow a generated turn", _CHAT),
    Code(
        400,
        "rollback_too_deep",
        "the request departs from more than the last generated turn",
        _CHAT,
    ),
    Code(400, "routing_off", "routing was asked for, and the server was not told its shape", _CHAT),
    Code(400, "not_supported", "an option that this kind of engine does not have", _CHAT),
    Code(
        400,
        "invalid_max_seq_len",
        "it is neither null nor an integer; one below 0 is as 0",
        _SAMPLES,
    ),
    Code(
        401,
        "unauthorized",
        "the server has a token, and the request does not carry it; `GET /health` need not",
        _GUARDED,
    ),
    Code(
        404,
        "unknown_session",
        "there is no such session, or it is being deleted",
        _OF_SESSIONS,
    ),
    Code(404, "not_found", "there is no such route"),
    Code(405, "method_not_allowed", "the route has other methods"),
    Code(
        406,
        "not_acceptable",
        "`Accept` leaves no layout of a payload; `supported` lists their media types, nothing was "
        "done",
        _SAMPLES,
    ),
    Code(
        408,
        "slow_request",
        "the request's head or body took longer to come than `--head-timeout` or `--body-timeout`",
        _ALL,
    ),
    Code(
        409,
        "stale_turn",
        "another turn was committed while this one was generated: it is not recorded",
        _CHAT,
    ),
    Code(
        409,
        "schema_mismatch",
        "the client would decode other samples than the server sends",
        ("create",),
    ),
    Code(
        409,
        "truncated_turn",
        "in a tree: the turn that the request extends was cut off by its length",
        _CHAT,
    ),
    Code(
        409,
        "too_many_turns",
        "in a tree: it is full; told before the engine is called",
        _CHAT,
    ),
    Code(
        413,
        "body_too_large",
        "the body of a chat has more than `--max-body-bytes`, or another one more than that or "
        "1 MiB; the connection is closed",
        ("create", *_CHAT, *_SAMPLES, "models"),
    ),
    Code(422, "assembly_failed", "the turns cannot become a sample", _SAMPLES),
    Code(422, "encode_failed", "the sample cannot be sent without changing it", _SAMPLES),
    Code(422, "hook_failed", "in a tree: a hook raised, or gave what it may not", _SAMPLES),
    Code(
        422,
        "invalid_metadata",
        "in a tree: the agent's metadata cannot be laid over the samples",
        _SAMPLES,
    ),
    Code(
        431,
        "head_too_large",
        "the request's head has more than 65,536 bytes; the connection is closed",
        _ALL,
    ),
    Code(499, "client_gone", "the client closed its connection; for the log, nobody reads it"),
    Code(500, "matcher_failed", "the message matcher raised, or gave no bool", _CHAT),
    Code(500, "prefix_mismatch", "the prompt drops tokens of the turn before it", _CHAT),
    Code(
        500,
        "template_not_prefix",
        "the chat template changes what stands before appended messages",
        _CHAT,
    ),
    Code(500, "internal_error", "a fault of ours: the log has it", _ALL),
    Code(
        502,
        "engine_unreachable",
        "no connection to the engine, or one that broke off",
        _OF_ENGINES,
    ),
    Code(
        502,
        "engine_timeout",
        "the engine was silent for longer than `--timeout`, or no connection to it was free",
        _OF_ENGINES,
    ),
    Code(
        502,
        "bad_engine_reply",
        "its reply cannot be a turn, is a redirect, or has more than `--max-reply-bytes`; nothing "
        "is recorded",
        _OF_ENGINES,
    ),
    Code(
        503,
        "busy",
        "there are `--max-running-requests`, or the bodies on their way have more than "
        "`--max-incoming-bytes`",
        _GUARDED,
    ),
    Code(
        503,
        "draining",
        "the server is about to stop and takes no new sessions; those that are there go on",
        ("create",),
    ),
    Code(
        503,
        "memory_full",
        "what sessions hold, and the engine is sent and answers, has come to four fifths of "
        "`--max-held-bytes`, for a new session, or to all of it, for a turn",
        ("create", *_CHAT),
    ),
    Code(
        503,
        "stopping",
        "the server stops: the request had no time left and changed nothing",
        _ALL,
    ),
    Code(503, "too_many_sessions", "there are `--max-sessions`", ("create",)),
)
