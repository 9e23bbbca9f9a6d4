"""Calls of an engine over HTTP, and what the tests ask it."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import httpx2
import numpy as np
import numpy.typing as npt

from sample_wire.adapters.tokenizer import ByteChatML
from sample_wire.demo.engine import EngineSettings
from sample_wire.demo.engine.settings import ModelSettings

# Long enough for a busy machine; only a broken test waits it out.
PATIENCE_S: Final = 60
SETTINGS: Final = EngineSettings()
TOKENIZER: Final = ByteChatML()
IM_END: Final = 257
TOOLS: Final[list[dict[str, Any]]] = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"enum": ["Paris", "S\u00e3o Paulo"]},
                    "days": {"type": "integer", "minimum": 1, "maximum": 14},
                },
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "search",
            "parameters": {"type": "object", "properties": {"query": {"type": "string"}}},
        },
    },
]


def asked(text: str, **message: Any) -> list[dict[str, Any]]:
    """The messages of a conversation that has just begun."""
    return [{"role": "user", "content": text, **message}]


def prompt_of(
    messages: Sequence[Mapping[str, Any]], tools: list[dict[str, Any]] | None = None
) -> list[int]:
    """The ids of a prompt."""
    return TOKENIZER.render(messages, tools, {})


def rows_of(text: str, settings: ModelSettings = SETTINGS) -> npt.NDArray[np.int32]:
    """Routing rows as the engine sends them: [rows, L, K]."""
    array = np.frombuffer(base64.b64decode(text, validate=True), "<i4")
    return array.reshape(-1, settings.num_layers, settings.top_k)


class Caller(contextlib.AbstractContextManager["Caller"]):
    """Calls one engine."""

    def __init__(self, url: str) -> None:
        self.http = httpx2.Client(base_url=url, timeout=PATIENCE_S, trust_env=False)

    def __exit__(self, *_: object) -> None:
        self.http.close()

    def post(self, path: str, body: Any) -> httpx2.Response:
        """The response to a JSON body."""
        return self.http.post(path, json=body)

    def generate(self, prompt: Sequence[int], *, params: Any = None, **body: Any) -> Any:
        """The reply of /generate with log-probs and routing, unless the body says otherwise."""
        told = {"return_logprob": True, "return_routed_experts": True}
        sent = {"input_ids": list(prompt), "sampling_params": params or {}, **told, **body}
        return self._good(self.post("/generate", sent))

    def chat(self, messages: Sequence[Mapping[str, Any]], **body: Any) -> Any:
        """The reply of chat with all that can be told, unless the body says otherwise."""
        told = {"logprobs": True, "return_meta_info": True, "return_routed_experts": True}
        sent = {"messages": list(messages), **told, **body}
        return self._good(self.post("/v1/chat/completions", sent))

    def refusal(self, path: str, body: Any) -> str:
        """The text of a refusal, in the form of its path."""
        response = self.post(path, body)
        assert response.status_code == 400, response.text
        found = response.json()
        if path == "/generate":
            assert [*found] == ["error"]
            found = found["error"]
        else:
            facts = {key: found[key] for key in ("object", "type", "param", "code")}
            assert facts == {"object": "error", "type": "BadRequest", "param": None, "code": 400}
        return str(found["message"])

    @staticmethod
    def _good(response: httpx2.Response) -> Any:
        assert response.status_code == 200, response.text
        return response.json()
