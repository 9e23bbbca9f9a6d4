"""multi_turn.generate on a stub that serves /generate over a real socket."""

from __future__ import annotations

import copy
import time
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import pytest
from server._numbers import TRIMMED_ID, NumberTokenizer
from server._sglang import NUM_LAYERS, TOP_K, routed
from server._stub import StubEngine

from sample_wire import Computed, Sample, Status, Tensor
from sample_wire.assembly import RoutingSpec
from sample_wire.rollout import multi_turn
from sample_wire.session.tool_calls import ParsedText

from ._engine import CALL, FIRST, TOOLS, USER, Toolbox, generated, hold

FULL = RoutingSpec(num_layers=NUM_LAYERS, top_k=TOP_K)
INCREMENTAL = RoutingSpec(num_layers=NUM_LAYERS, top_k=TOP_K, incremental=True)
SECOND = generated([30, 31], [-0.5, -1.0], weight_version="w2", cached_tokens=5)


def list_of(array: Any) -> list[Any]:
    """An array that is not None as a list."""
    assert isinstance(array, np.ndarray)
    values: list[Any] = array.tolist()
    return values


@pytest.mark.parametrize("routing", [None, FULL, INCREMENTAL], ids=["none", "full", "incremental"])
def test_turns_and_tools_become_one_sample(engine: StubEngine, routing: RoutingSpec | None) -> None:
    engine.will(FIRST, SECOND)
    sample = hold(engine, tools=Toolbox("20 21").tools, routing=routing)
    assert sample.tokens.tolist() == [1, 2, 3, 10, 11, 20, 21, 30, 31]
    assert list_of(sample.loss_mask) == [1, 1, 0, 0, 1, 1]
    assert list_of(sample.rollout_log_probs) == [-0.125, -0.25, 0, 0, -0.5, -1]
    assert (sample.response, sample.response_length) == ("<10><11><20><21><30><31>", 6)
    assert sample.weight_versions == ["w1", "w2"]
    assert sample.prefix_cache_info.cached_tokens == 5
    assert sample.prefix_cache_info.total_prompt_tokens == 10
    assert sample.status is Status.COMPLETED
    if routing is None:
        assert sample.rollout_routed_experts is None
    else:
        np.testing.assert_array_equal(sample.rollout_routed_experts, routed(8))


def test_arrays_have_the_dtypes_of_a_decoded_sample(engine: StubEngine) -> None:
    engine.will(FIRST, SECOND)
    sample = hold(engine, tools=Toolbox("20 21").tools, routing=FULL)
    arrays = (sample.tokens, sample.loss_mask, sample.rollout_log_probs)
    assert [array.dtype for array in arrays if array is not None] == ["int64", "uint8", "float64"]
    assert sample.rollout_routed_experts is not None
    assert sample.rollout_routed_experts.dtype == np.int32


def test_the_engine_is_asked_for_the_ids_that_were_held(engine: StubEngine) -> None:
    engine.will(FIRST, SECOND)
    params = {"max_new_tokens": 50, "temperature": 0.5, "top_p": None}
    hold(engine, params=params, tools=Toolbox("20 21").tools)
    sampling = {"max_new_tokens": 50, "temperature": 0.5}
    assert [(seen.method, seen.target) for seen in engine.seen] == [("POST", "/generate")] * 2
    assert [seen.json for seen in engine.seen] == [
        {"input_ids": [1, 2, 3], "sampling_params": sampling, "return_logprob": True},
        {
            "input_ids": [1, 2, 3, 10, 11, 20, 21],
            "sampling_params": sampling,
            "return_logprob": True,
        },
    ]


@pytest.mark.parametrize(
    ("routing", "starts"), [(FULL, [None, None]), (INCREMENTAL, [0, 4])], ids=["full", "new rows"]
)
def test_routing_is_asked_for_as_the_spec_says(
    engine: StubEngine, routing: RoutingSpec, starts: list[int | None]
) -> None:
    engine.will(FIRST, SECOND)
    hold(engine, tools=Toolbox("20 21").tools, routing=routing)
    assert [seen.json["return_routed_experts"] for seen in engine.seen] == [True, True]
    assert [seen.json.get("routed_experts_start_len") for seen in engine.seen] == starts


def test_tools_are_run_one_after_another(engine: StubEngine) -> None:
    other = '<tool_call>{"name": "mul", "arguments": {"b":\t2}}</tool_call>'
    engine.will(generated([10], text=f"So: {CALL}\n{other}"), SECOND)
    box = Toolbox("20", "21 22")
    sample = hold(engine, tools=box.tools)
    assert box.calls == [("add", '{"a": 1}'), ("mul", '{"b":\t2}')]
    assert sample.tokens.tolist() == [1, 2, 3, 10, 20, 21, 22, 30, 31]
    assert list_of(sample.loss_mask) == [1, 0, 0, 0, 1, 1]


class RecordingTokenizer(NumberTokenizer):
    """Keeps the conversations that it was asked to go on with."""

    def __init__(self, **launch_kwargs: Any) -> None:
        super().__init__(launch_kwargs=launch_kwargs)
        self.rendered: list[Any] = []
        self.appended: list[Any] = []

    def render(self, messages: Any, tools: Any, kwargs: Any) -> list[int]:
        self.rendered.append((copy.deepcopy(messages), tools, kwargs))
        return super().render(messages, tools, kwargs)

    def append(self, checkpoint_ids: Any, stored: Any, appended: Any, *rest: Any) -> Any:
        self.appended.append(copy.deepcopy((checkpoint_ids, stored, appended, *rest)))
        return super().append(checkpoint_ids, stored, appended, *rest)


def test_the_conversation_is_what_an_agent_would_have_sent(engine: StubEngine) -> None:
    engine.will(generated([10, 11], text=f"So: {CALL}"), SECOND)
    tokenizer = RecordingTokenizer()
    hold(engine, tools=Toolbox("20 21").tools, tokenizer=tokenizer)
    assert tokenizer.rendered[0] == ([USER], TOOLS, {})
    ((ids, stored, appended, tools, kwargs),) = tokenizer.appended
    assert (ids, tools, kwargs) == ([1, 2, 3, 10, 11], TOOLS, {})
    (user, said), (answered,) = stored, appended
    (call,) = said["tool_calls"]
    assert user == USER
    assert (said["role"], said["content"]) == ("assistant", "So:")
    assert call["function"] == {"name": "add", "arguments": '{"a": 1}'}
    assert answered == {"role": "tool", "tool_call_id": call["id"], "content": "20 21"}


def test_the_template_options_of_the_launch_are_used(engine: StubEngine) -> None:
    engine.will(SECOND)
    tokenizer = RecordingTokenizer(thinking=True)
    hold(engine, tokenizer=tokenizer)
    assert tokenizer.rendered == [([USER], None, {"thinking": True})]


@pytest.mark.parametrize(
    ("reply", "status"),
    [
        (generated([10, 11], text="No call."), Status.COMPLETED),
        (generated([10, 11], text=CALL, finish="length"), Status.TRUNCATED),
        (generated([10, 11], text=CALL, finish="abort"), Status.ABORTED),
        (generated([10, 11], text=CALL, finish="content_filter"), Status.PENDING),
        (generated([10, 11], text=CALL, finish=None), Status.PENDING),
        (generated([10, 11], text=CALL[:-1]), Status.COMPLETED),
    ],
    ids=["no call", "length", "abort", "unknown", "none", "broken call"],
)
def test_a_turn_without_a_call_or_that_did_not_complete_is_the_last(
    engine: StubEngine, reply: Any, status: Status
) -> None:
    engine.will(reply)
    box = Toolbox()
    sample = hold(engine, tools=box.tools, routing=FULL)
    assert (sample.tokens.tolist(), sample.status) == ([1, 2, 3, 10, 11], status)
    np.testing.assert_array_equal(sample.rollout_routed_experts, routed(4))
    assert box.calls == []


def test_an_abort_in_a_later_turn_keeps_the_turns_before(engine: StubEngine) -> None:
    engine.will(FIRST, generated([], text="", finish="abort"))
    sample = hold(engine, tools=Toolbox("20 21").tools, routing=FULL)
    assert sample.tokens.tolist() == [1, 2, 3, 10, 11, 20, 21]
    assert list_of(sample.loss_mask) == [1, 1, 0, 0]
    assert sample.status is Status.ABORTED
    np.testing.assert_array_equal(sample.rollout_routed_experts, routed(6))


def test_without_tools_a_call_is_text(engine: StubEngine) -> None:
    engine.will(FIRST)
    sample = hold(engine)
    assert (sample.tokens.tolist(), sample.status) == ([1, 2, 3, 10, 11], Status.COMPLETED)


def test_a_parser_can_be_given(engine: StubEngine) -> None:
    call = {"id": "c", "function": {"name": "f", "arguments": "{}"}}

    def parse(text: str) -> ParsedText:
        return ParsedText("", [call] if text == "call f" else [])

    engine.will(generated([10, 11], text="call f"), generated([30], text="done"))
    box = Toolbox("20")
    tools = multi_turn.Tools(definitions=TOOLS, run=box.run, parse=parse)
    assert hold(engine, tools=tools).tokens.tolist() == [1, 2, 3, 10, 11, 20, 30]
    assert box.calls == [("f", "{}")]


@pytest.mark.parametrize("routing", [FULL, INCREMENTAL], ids=["full", "incremental"])
def test_the_last_turns_tools_are_run_and_the_sample_ends_before_what_they_say(
    engine: StubEngine, routing: RoutingSpec
) -> None:
    engine.will(FIRST, generated([30, 31], text=CALL))
    box = Toolbox("20 21", "40 41 42")
    sample = hold(engine, tools=box.tools, routing=routing, max_turns=2)
    assert len(box.calls) == len(engine.seen) == 2
    assert sample.tokens.tolist() == [1, 2, 3, 10, 11, 20, 21, 30, 31]
    np.testing.assert_array_equal(sample.rollout_routed_experts, routed(8))
    assert sample.status is Status.COMPLETED


@pytest.mark.parametrize(
    ("params", "max_seq_len", "limits"),
    [
        ({"max_new_tokens": 50}, None, [50, 50]),
        ({"max_new_tokens": 50}, 40, [37, 33]),
        ({"max_new_tokens": 35}, 40, [35, 33]),
        ({}, 40, [37, 33]),
        ({"max_new_tokens": None}, 8, [5, 1]),
    ],
    ids=repr,
)
def test_a_completion_may_have_what_the_limits_leave(
    engine: StubEngine, params: dict[str, Any], max_seq_len: int | None, limits: list[int]
) -> None:
    engine.will(FIRST, SECOND)
    hold(engine, params=params, max_seq_len=max_seq_len, tools=Toolbox("20 21").tools)
    asked = [seen.json["sampling_params"]["max_new_tokens"] for seen in engine.seen]
    assert asked == limits


@pytest.mark.parametrize("max_seq_len", [5, 6, 7])
@pytest.mark.parametrize("routing", [FULL, INCREMENTAL], ids=["full", "incremental"])
def test_a_prompt_without_room_ends_the_sample_before_it(
    engine: StubEngine, routing: RoutingSpec, max_seq_len: int
) -> None:
    engine.will(FIRST)
    sample = hold(engine, max_seq_len=max_seq_len, tools=Toolbox("20 21").tools, routing=routing)
    assert sample.tokens.tolist() == [1, 2, 3, 10, 11]
    assert sample.status is Status.TRUNCATED
    np.testing.assert_array_equal(sample.rollout_routed_experts, routed(4))
    assert len(engine.seen) == 1


def test_an_engine_that_says_more_than_it_was_asked_for_is_cut(engine: StubEngine) -> None:
    engine.will(generated([10, 11, 12, 13], text="10 11 12 13"))
    sample = hold(engine, max_seq_len=5, routing=FULL)
    assert sample.tokens.tolist() == [1, 2, 3, 10, 11]
    assert sample.status is Status.TRUNCATED
    np.testing.assert_array_equal(sample.rollout_routed_experts, routed(4))


@pytest.mark.parametrize(
    ("params", "max_seq_len"), [({}, 3), ({}, 1), ({"max_new_tokens": 0}, None)], ids=repr
)
def test_a_first_prompt_without_room_is_all_of_its_sample(
    engine: StubEngine, params: dict[str, Any], max_seq_len: int | None
) -> None:
    sample = hold(engine, params=params, max_seq_len=max_seq_len, routing=FULL)
    assert sample.tokens.tolist() == [1, 2, 3]
    assert (sample.response, sample.response_length) == ("", 0)
    assert list_of(sample.loss_mask) == list_of(sample.rollout_log_probs) == []
    assert sample.rollout_routed_experts is None
    assert sample.status is Status.TRUNCATED
    assert engine.seen == []


def test_a_family_may_drop_the_last_id_of_a_turn(engine: StubEngine) -> None:
    engine.will(generated([10, TRIMMED_ID], text=CALL), SECOND)
    sample = hold(
        engine,
        tools=Toolbox("20 21").tools,
        tokenizer=NumberTokenizer(max_trim_tokens=1),
        routing=FULL,
    )
    assert sample.tokens.tolist() == [1, 2, 3, 10, 20, 21, 30, 31]
    assert list_of(sample.loss_mask) == [1, 0, 0, 1, 1]
    np.testing.assert_array_equal(sample.rollout_routed_experts, routed(7))


def test_a_turn_that_loses_its_routing_ends_the_sample_before_it(engine: StubEngine) -> None:
    engine.will(FIRST, generated([30, 31], routed_experts=None))
    sample = hold(engine, tools=Toolbox("20 21").tools, routing=FULL)
    assert sample.tokens.tolist() == [1, 2, 3, 10, 11]
    assert sample.metadata["dropped_turns"] == {"count": 1, "reason": "routing_gap"}


def test_the_sample_lies_over_a_copy_of_the_input(engine: StubEngine) -> None:
    engine.will(FIRST, SECOND)
    given = Sample(prompt=[dict(USER)], label="kept", index=3, reward=0.5, metadata={"mine": [1]})
    before = copy.deepcopy(given)
    sample = hold(engine, given, tools=Toolbox("20 21").tools)
    assert (sample.label, sample.index, sample.reward) == ("kept", 3, 0.5)
    assert sample.prompt == [USER]
    sample.metadata["mine"].append(2)
    assert vars(given).keys() == vars(before).keys()
    assert (given.prompt, given.metadata) == (before.prompt, before.metadata)
    assert len(given.tokens) == 0


def test_the_lifecycle_tells_when_turns_ran(engine: StubEngine) -> None:
    engine.will(FIRST, generated([30], e2e_latency=0.25))
    before = time.time()
    sample = hold(engine, tools=Toolbox("20 21").tools)
    first, second = sample.metadata["lifecycle"]
    assert (first["turn"], second["turn"], first["t0"]) == (1, 2, None)
    assert before <= first["req_ts"] <= first["t1"] == second["prev_t1"]
    assert second["prev_t1"] <= second["req_ts"] <= second["t1"] <= time.time()
    assert second["t0"] == second["t1"] - 0.25


class EntropySample(Sample):
    """A trainer's own class, with a value that its engine tells of each token."""

    entropy: Annotated[
        npt.NDArray[np.float32] | None,
        Computed(codec=Tensor("float32"), rows="response", merge="concat", fill=0.0, null="none"),
    ] = None


def test_a_field_of_a_subclass_takes_its_values_from_the_engine(engine: StubEngine) -> None:
    engine.will(generated([10, 11], text=CALL, entropy=[0.5, 1.5]), generated([30], entropy=[2.5]))
    sample = hold(engine, EntropySample(prompt=[USER]), tools=Toolbox("20 21").tools)
    assert isinstance(sample, EntropySample)
    assert list_of(sample.entropy) == [0.5, 1.5, 0.0, 0.0, 2.5]
