"""create_app: the embedded engine's routes, as an ASGI application."""

from __future__ import annotations

import functools
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio
import anyio.to_thread
import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...adapters.server.disconnects import ClientGoneError, unless_gone
from ...adapters.server.sending import SlicedResponse
from ...adapters.tokenizer import CHATML
from .generation import Generates, Generation
from .replies import Replies, Reply, ReplyText
from .requests import (
    BadRequestError,
    ChatRequest,
    GenerateRequest,
    Job,
    chat_job,
    generate_job,
    parsed,
)

# Requests that are generated at a time; the others wait.
_NUM_THREADS: Final = 4
_JSON_TYPE: Final = "application/json"
_Handler = Callable[["EngineApp", Request], Awaitable[Response]]


class AbortRequest(msgspec.Struct):
    """The body of POST /abort_request."""

    rid: str = ""
    abort_all: bool = False


class EngineApp:
    """What the routes share: the engine, and the limit on requests at a time."""

    def __init__(self, engine: Generates) -> None:
        self.engine = engine
        self._limiter = anyio.CapacityLimiter(_NUM_THREADS)

    async def run(self, job: Job, request: Request) -> list[Generation]:
        """All outputs of a job, generated in a thread; no more of them once the client has gone.

        Raises:
            ClientGoneError: it has.
        """
        with self.engine.running(job.rid) as aborted:

            def generate() -> list[Generation]:
                return [
                    self.engine.generate(job.prompt, job.params, job.tag, aborted, number)
                    for number in range(job.params.n)
                ]

            try:
                return await unless_gone(
                    request.receive,
                    anyio.to_thread.run_sync(
                        generate, limiter=self._limiter, abandon_on_cancel=True
                    ),
                )
            finally:
                aborted.set()  # the thread of a client that has gone would go on for nobody


def create_app(engine: Generates) -> Starlette:
    """The embedded engine as an ASGI application in SGLang's contract."""
    app = EngineApp(engine)

    def route(path: str, handler: _Handler, *methods: str) -> Route:
        return Route(path, functools.partial(handler, app), methods=list(methods))

    return Starlette(
        exception_handlers={ClientGoneError: _gone},
        routes=[
            route("/health", _health, "GET"),
            route("/v1/models", _models, "GET"),
            route("/get_model_info", _model_info, "GET"),
            route("/generate", _generate, "POST"),
            route("/v1/chat/completions", _chat, "POST"),
            route("/abort_request", _abort, "POST"),
        ],
    )


async def _generate(app: EngineApp, request: Request) -> Response:
    received = time.time()
    try:
        body = parsed(await request.body(), GenerateRequest)
        job = generate_job(body, app.engine.settings)
    except BadRequestError as error:
        return _json({"error": {"message": str(error)}}, 400)
    replies = Replies(app.engine.settings, job, received=received, dispatched=time.time())
    return _sent(replies.generate(await app.run(job, request)))


async def _chat(app: EngineApp, request: Request) -> Response:
    received = time.time()
    try:
        body = parsed(await request.body(), ChatRequest)
        job = chat_job(body, app.engine.settings)
    except BadRequestError as error:
        return _refused(error)
    replies = Replies(app.engine.settings, job, received=received, dispatched=time.time())
    return _sent(replies.chat(body, await app.run(job, request)))


async def _abort(app: EngineApp, request: Request) -> Response:
    try:
        body = parsed(await request.body(), AbortRequest)
    except BadRequestError as error:
        return _refused(error)
    if body.abort_all:
        app.engine.abort_all()
    else:
        app.engine.abort(body.rid)
    return Response()


async def _gone(_request: Request, error: Exception) -> Response:
    assert isinstance(error, ClientGoneError)
    return Response(status_code=error.http_status_hint)  # nobody reads it


async def _health(_app: EngineApp, _request: Request) -> Response:
    return Response()


async def _models(app: EngineApp, _request: Request) -> Response:
    settings = app.engine.settings
    model = {
        "id": settings.model,
        "object": "model",
        "created": int(time.time()),
        "owned_by": "sample_wire",
        "root": settings.model,
        "parent": None,
        "max_model_len": settings.max_context,
    }
    return _json({"object": "list", "data": [model]})


async def _model_info(app: EngineApp, _request: Request) -> Response:
    settings = app.engine.settings
    return _json(
        {
            "model_path": settings.model,
            "tokenizer_path": CHATML,
            "is_generation": True,
            "preferred_sampling_params": None,
            "weight_version": settings.weight_version,
        }
    )


def _refused(error: BadRequestError) -> Response:
    """The refusal in OpenAI's form, as SGLang spells it."""
    body = {
        "object": "error",
        "message": str(error),
        "type": "BadRequest",
        "param": None,
        "code": 400,
    }
    return _json(body, 400)


def _json(body: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(body), status, media_type=_JSON_TYPE)


def _sent(reply: Reply | list[Reply]) -> Response:
    """A reply whose routing, a hundred megabytes maybe, is made while it is sent."""
    text = ReplyText(reply)
    return SlicedResponse(text, _JSON_TYPE, text.nbytes)
