"""A real session of vLLM, played again through the server: the stub serves the recorded replies.

The agent is the openai package, the tokenizer has the engine's own vocabulary, and the messages
are those that the recorded ids spell.  So the server must ask with exactly the recorded ids,
and the sample that comes out must be what `assemble` makes of the recording.
"""

from __future__ import annotations

import importlib.resources
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import openai
import pytest
from tokenizer._folders import write_qwen36

from sample_wire import Sample
from sample_wire.adapters.tokenizer import HFTokenizer
from sample_wire.assembly import RoutingSpec, assemble
from sample_wire.cli import main
from sample_wire.codec import decode_samples

from ._serving import Handle, running
from ._stub import Answer, StubEngine

CAPTURE: Final = importlib.resources.files("sample_wire.demo") / "vllm_tito_s21_t5.json"
SPEC: Final = RoutingSpec(num_layers=4, top_k=8, num_experts=64, required=True, incremental=True)
TURNS: Final[list[dict[str, Any]]] = json.loads(CAPTURE.read_bytes())["turns"]
REQUESTS: Final = [turn["request"]["body"] for turn in TURNS]
REPLIES: Final = [turn["response"]["body"] for turn in TURNS]
# The recorded conversation was written without the tools.
TEMPLATE: Final = """\
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- if message.role == 'tool' %}
        {{- '<tool_response>\\n' + message.content + '\\n</tool_response>' }}
    {%- else %}
        {{- message.content }}
    {%- endif %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
NAMES: Final = ("get_weather", "calculate", "search_notes")
TOOLS: Final[Any] = [{"type": "function", "function": {"name": name}} for name in NAMES]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> HFTokenizer:
    """What is needed of the real vocabulary."""
    folder = tmp_path_factory.mktemp("qwen36")
    ids = REQUESTS[-1]["token_ids"] + REPLIES[-1]["choices"][0]["token_ids"]
    write_qwen36(folder, template=TEMPLATE, ids=ids)
    return HFTokenizer(folder, family="qwen3")


class Played:
    """The session after all its turns, and the chat completions that its agent got."""

    def __init__(self, session: Handle, engine: StubEngine, tokenizer: HFTokenizer) -> None:
        self.session = session
        self.completions: list[Any] = []
        messages: list[Any] = spoken_in(tokenizer.decode(REQUESTS[0]["token_ids"]))
        with openai.OpenAI(base_url=session.chat_url, api_key="k", max_retries=0) as agent:
            for number, request in enumerate(REQUESTS):
                engine.will(Answer(200, json.dumps(REPLIES[number]).encode()))
                self.completions.append(asked(agent, messages, request))
                if number + 1 < len(REQUESTS):
                    held = request["token_ids"] + REPLIES[number]["choices"][0]["token_ids"]
                    following = REQUESTS[number + 1]["token_ids"][len(held) :]
                    messages.append(self.completions[-1].choices[0].message)
                    messages += spoken_in(tokenizer.decode(following))
        self.seen = [seen.json for seen in engine.seen]
        self.targets = [(seen.method, seen.target) for seen in engine.seen]


def spoken_in(text: str) -> list[dict[str, str]]:
    """The messages of a rendered conversation, but for the opening at its end."""
    messages = []
    for piece in text.split("<|im_start|>")[1:-1]:
        role, _, content = piece.partition("\n")
        content = content.removesuffix("<|im_end|>\n")
        if role == "tool":
            content = content.removeprefix("<tool_response>\n").removesuffix("\n</tool_response>")
        messages.append({"role": role, "content": content, "tool_call_id": "c"})
    return messages


def asked(agent: openai.OpenAI, messages: list[Any], request: dict[str, Any]) -> Any:
    """The chat completion of one turn, asked for with the recorded sampling parameters."""
    sampling = request["sampling_params"]
    return agent.chat.completions.create(
        model=request["model"],
        messages=messages,
        tools=TOOLS,
        temperature=sampling["temperature"],
        seed=sampling["seed"],
        max_tokens=sampling["max_tokens"],
        extra_body={"structured_outputs": sampling.get("structured_outputs")},
    )


@pytest.fixture(scope="module")
def played(tokenizer: HFTokenizer) -> Iterator[Played]:
    engine = StubEngine()
    try:
        with running(tokenizer, engine.url, engine_kind="vllm", routing=SPEC) as site:
            yield Played(site.create(), engine, tokenizer)
    finally:
        engine.close()


def assembled(records: Any, tokenizer: HFTokenizer, limit: int | None) -> list[Sample]:
    return assemble(
        records,
        accumulated_token_ids=None,
        max_trim_tokens=0,
        decode_text=tokenizer.decode,
        max_seq_len=limit,
        routing=SPEC,
    ).samples


def facts(sample: Sample, *, lifecycle: bool) -> dict[str, Any]:
    """A sample's fields as plain values."""
    schema = Sample.__sample_schema__
    found = {field.name: getattr(sample, field.name) for field in schema.computed(2)}
    if not lifecycle:
        found["metadata"] = {k: v for k, v in sample.metadata.items() if k != "lifecycle"}
    for name in ("tokens", "loss_mask", "rollout_log_probs", "rollout_routed_experts"):
        array = np.asarray(found[name])
        found[name] = (array.dtype, array.shape, array.tobytes())
    return found


def test_the_engine_is_asked_exactly_as_in_the_recording(played: Played) -> None:
    assert played.targets == [("POST", "/inference/v1/generate")] * len(TURNS)
    # An echo of the prompt's ids is not asked for: the server knows them.
    assert [{**seen, "return_token_ids": True} for seen in played.seen] == REQUESTS


@pytest.mark.parametrize("limit", [None, 975, 974, 831, 700, 271, 270, 94, 45])
def test_the_sample_is_what_assemble_makes_of_the_recording(
    played: Played, tokenizer: HFTokenizer, limit: int | None
) -> None:
    expected = assembled(TURNS, tokenizer, limit)
    found = played.session.collect(limit).samples
    assert [facts(one, lifecycle=False) for one in found] == [
        facts(one, lifecycle=False) for one in expected
    ]


def test_the_records_are_what_went_over_the_wire(played: Played) -> None:
    records = played.session.dump()["records"]
    assert [record["request"] for record in records] == played.seen
    assert [record["response"] for record in records] == REPLIES
    assert {(record["method"], record["path"], record["status_code"]) for record in records} == {
        ("POST", "/inference/v1/generate", 200)
    }


def test_the_records_assemble_to_the_same_sample_with_its_times(
    played: Played, tokenizer: HFTokenizer
) -> None:
    (expected,) = assembled(played.session.dump()["records"], tokenizer, None)
    (found,) = played.session.collect().samples
    assert facts(found, lifecycle=True) == facts(expected, lifecycle=True)


def test_the_dump_is_taken_by_the_assemble_command(played: Played, tmp_path: Path) -> None:
    dump, payload = tmp_path / "dump.json", tmp_path / "samples"
    dump.write_bytes(played.session.site.http.get(played.session.path).content)
    shape = ("--routing-layers", "4", "--routing-top-k", "8", "--incremental")
    assert main(["assemble", str(dump), "-o", str(payload), *shape]) == 0
    (from_dump,) = decode_samples(payload.read_bytes(), Sample()).samples
    (found,) = played.session.collect().samples
    assert from_dump.tokens.tolist() == found.tokens.tolist()
    sent, rows = (np.asarray(one.rollout_routed_experts) for one in (from_dump, found))
    assert np.array_equal(sent, rows)


def test_whole_tool_calls_are_told_in_openais_form_and_others_as_text(played: Played) -> None:
    messages = [completion.choices[0].message for completion in played.completions]
    calls = [[call.function for call in message.tool_calls or ()] for message in messages]
    assert [[(call.name, call.arguments) for call in called] for called in calls] == [
        [("get_weather", '{"op": "xingkteggioh", "n": -872}')],
        [("search_notes", '{"query": "fassungstiod", "n": -600}')],
        [],  # "n": 057 is no JSON
        [("search_notes", '{"city": "hstellungene", "n": 30}')],
        [],
    ]
    assert [message.content == "" for message in messages] == [True, True, False, True, False]
    assert "057" in messages[2].content
    reasons = [completion.choices[0].finish_reason for completion in played.completions]
    assert reasons == ["tool_calls", "tool_calls", "stop", "tool_calls", "length"]


def test_the_agent_is_told_the_engines_counts_and_names(played: Played) -> None:
    for completion, reply in zip(played.completions, REPLIES, strict=True):
        assert completion.id == reply["request_id"]
        assert (completion.created, completion.model) == (reply["created"], reply["model"])
        assert completion.usage.model_dump(exclude_unset=True) == reply["usage"]


def test_the_rows_are_those_of_the_recording(played: Played) -> None:
    (sample,) = played.session.collect().samples
    assert sample.rollout_routed_experts is not None
    assert sample.rollout_routed_experts.shape == (974, 4, 8)
    assert sample.prefix_cache_info.cached_tokens == 256 + 512 + 768


@pytest.mark.parametrize("limit", [None, 831, 270])
def test_a_tree_gives_the_same_sample(
    played: Played, tokenizer: HFTokenizer, engine: StubEngine, limit: int | None
) -> None:
    kind = {"engine_kind": "vllm", "trajectory": "tree"}
    with running(tokenizer, engine.url, routing=SPEC, **kind) as site:
        branch = Played(site.create(), engine, tokenizer).session
        found = branch.collect(limit).samples
    expected = played.session.collect(limit).samples
    for sample, other in zip(found, expected, strict=True):
        told = {**sample.metadata, "lifecycle": other.metadata["lifecycle"]}
        assert told.pop("leaf")["path_node_ids"] == list(range(len(TURNS)))
        ids = REQUESTS[-1]["token_ids"]
        assert told.pop("accumulated_token_ids")[: len(ids)] == ids
        assert isinstance(told.pop("tito_session_mismatch"), list)
        assert told == other.metadata
        sample.metadata = other.metadata
        assert facts(sample, lifecycle=True) == facts(other, lifecycle=True)
