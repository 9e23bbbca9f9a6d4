"""/generate replies in SGLang's shape, and multi_turn on a stub that sends them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from server._numbers import NumberTokenizer
from server._sglang import answer, raw_base64, routed
from server._stub import Answer, Making, Seen, StubEngine

from sample_wire import Sample
from sample_wire.adapters.engine_client import HttpEngine
from sample_wire.assembly import RoutingSpec
from sample_wire.rollout import GenerateInput, multi_turn

USER: Final = {"role": "user", "content": "1 2 3"}
CALL: Final = '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>'
TOOLS: Final = [{"type": "function", "function": {"name": "add", "parameters": {}}}]


def generated(
    ids: Sequence[int],
    log_probs: Sequence[Any] | None = None,
    text: str | None = "said",
    finish: str | None = "stop",
    **meta: Any,
) -> Making:
    """An engine that samples these ids, with routing where it is asked for; keys of meta_info."""

    def make(seen: Seen) -> Answer:
        request = seen.json
        num_prompt = len(request["input_ids"])
        given = [-0.5] * len(ids) if log_probs is None else log_probs
        meta_info = {
            "id": "m1",
            "finish_reason": None if finish is None else {"type": finish},
            "prompt_tokens": num_prompt,
            "completion_tokens": len(ids),
            "output_token_logprobs": [[lp, one, None] for lp, one in zip(given, ids, strict=True)],
        }
        if request.get("return_routed_experts"):
            start = request.get("routed_experts_start_len", 0)
            num_rows = num_prompt + len(ids) - 1 - start
            meta_info["routed_experts"] = raw_base64(routed(num_rows, start))
        reply = {"text": text, "output_ids": list(ids), "meta_info": meta_info | meta}
        return answer({key: value for key, value in reply.items() if value is not None})

    return make


# A first turn that calls a tool.
FIRST: Final = generated([10, 11], [-0.125, -0.25], CALL, weight_version="w1", cached_tokens=0)


class Toolbox:
    """Tools that say what they are told to, and keep how they were called.

    Args:
        outputs: what they say, in order; an exception is raised.
    """

    def __init__(self, *outputs: Any) -> None:
        self._outputs = list(outputs)
        self.calls: list[tuple[str, str]] = []

    async def run(self, name: str, arguments: str) -> str:
        self.calls.append((name, arguments))
        output: Any = self._outputs.pop(0)
        if isinstance(output, Exception):
            raise output
        return output  # type: ignore[no-any-return]  # some tests give what is no text

    @property
    def tools(self) -> multi_turn.Tools:
        """As multi_turn takes them."""
        return multi_turn.Tools(definitions=TOOLS, run=self.run)


def hold(
    engine: StubEngine,
    sample: Sample | None = None,
    *,
    params: Mapping[str, Any] | None = None,
    max_seq_len: int | None = None,
    max_turns: int = 8,
    tools: multi_turn.Tools | None = None,
    routing: RoutingSpec | None = None,
    tokenizer: NumberTokenizer | None = None,
) -> Sample:
    """The sample of one conversation."""
    given = GenerateInput(
        sample=sample or Sample(prompt=[USER]),
        sampling_params={"max_new_tokens": 50} if params is None else params,
        max_seq_len=max_seq_len,
    )

    async def main() -> Sample:
        async with HttpEngine(engine.url) as http:
            output = await multi_turn.generate(
                given,
                engine=http,
                tokenizer=tokenizer or NumberTokenizer(),
                max_turns=max_turns,
                tools=tools,
                routing=routing,
            )
        assert isinstance(output.samples, Sample)
        return output.samples

    return asyncio.run(main())
