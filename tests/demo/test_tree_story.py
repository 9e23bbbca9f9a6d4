"""`sample-wire demo --trajectory tree`: what it prints, and that its checks can fail."""

from __future__ import annotations

import copy
import re
from typing import Any

import numpy as np
import pytest

from sample_wire import SamplesReply, cli
from sample_wire.demo.engine import EngineSettings, serve_engine
from sample_wire.demo.inputs import input_samples
from sample_wire.demo.servers import DemoError
from sample_wire.demo.tree_story import Outcome, check_samples

from ._running import Ended, run
from .test_story_engine import failing_engine


@pytest.fixture(scope="module")
def story() -> Ended:
    """One run of the demo."""
    return run("--trajectory", "tree")


def test_it_exits_with_0_and_leaves_nothing_running(story: Ended) -> None:
    assert story.status == 0, story.err


def test_its_output_fits_a_screen(story: Ended) -> None:
    lines = story.out.splitlines()
    assert max(map(len, lines)) <= 100
    assert len(lines) <= 30


def test_it_shows_the_retry_and_the_fork(story: Ended) -> None:
    tree = re.findall(r"^([0-9|+ -]+?)  +[\d,]+ tokens, \d+ sampled(.*)$", story.out, re.MULTILINE)
    assert tree == [
        ("0", ""),
        ("+- 1", ", dropped"),
        ("+- 2", ""),
        ("|  3", ", sample 0"),
        ("+- 4", ", sample 1"),
    ]


def test_the_samples_train_what_the_kept_turns_sampled_once(story: Ended) -> None:
    sampled = dict(re.findall(r"(\d) +[\d,]+ tokens, (\d+) sampled", story.out))
    kept = sum(int(sampled[node]) for node in "0234")
    rows = re.findall(r"^ +\d +(\d) +(\d) +[\d,]+ +(\d+) +(\d+)$", story.out, re.MULTILINE)
    assert [(leaf, turns) for leaf, turns, _, _ in rows] == [("3", "3"), ("4", "2")]
    assert {rollout_id for *_, rollout_id in rows} == {"100"}
    assert sum(int(trained) for _, _, trained, _ in rows) == kept
    assert f"trained once: {kept} tokens" in story.out


def test_it_runs_against_an_engine_that_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    settings = EngineSettings(num_layers=2, num_experts=8, top_k=2, mean_answer_tokens=20)
    named = ["--tokenizer", "chatml", "--routing-layers", "2", "--routing-top-k", "2"]
    with serve_engine(settings) as url:
        arguments = ["demo", "--trajectory", "tree", "--engine", url, *named]
        assert cli.main([*arguments, "--incremental"]) == 0
    out = capsys.readouterr().out
    assert f"engine   {url}\n" in out
    assert "tree: turns 5, leaves 3, kept 2" in out


def test_an_engine_that_fails_is_told_with_its_own_words(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with failing_engine() as url:
        arguments = ["--trajectory", "tree", "--engine", url, "--tokenizer", "chatml"]
        assert cli.main(["demo", *arguments]) == 1
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.startswith("sample-wire: DemoError: turn 1: the agent got ")
    assert "out of memory" in told


def outcome(*masks: list[int]) -> Outcome:
    """Two leaves of three tokens each, the first of their two sampled tokens a turn of both."""
    nodes = [
        {"id": 0, "completion_span": [1, 2]},
        {"id": 1, "completion_span": [2, 3]},
        {"id": 2, "completion_span": [2, 3]},
    ]
    samples = input_samples()[:1] * 2
    for index, mask in enumerate(masks):
        sample = samples[index] = copy.deepcopy(samples[index])
        sample.tokens, sample.response_length = np.arange(3), 2
        sample.loss_mask = np.array(mask, np.uint8)
        sample.metadata |= {"leaf": {"path_node_ids": [0, index + 1]}}
        sample.non_generation_time = 2.0
    reply = SamplesReply(copy.deepcopy(samples), {"tree": {"nodes": nodes}}, None)
    told: dict[str, Any] = {"agent_metrics": {"total_tool_time": 2.0}}
    return Outcome(samples, b"", reply, told)


def test_completions_that_are_trained_once_pass() -> None:
    assert check_samples(outcome([1, 1], [0, 1])) == 3


@pytest.mark.parametrize(
    ("masks", "turn"),
    [(([1, 1], [1, 1]), 0), (([0, 1], [0, 1]), 0), (([1, 1], [0, 0]), 2)],
    ids=["twice", "never", "a leaf"],
)
def test_a_completion_that_is_not_trained_once_is_told(masks: Any, turn: int) -> None:
    with pytest.raises(DemoError, match=f"of turn {turn} is not trained once"):
        check_samples(outcome(*masks))


def test_samples_that_are_not_those_of_the_payload_are_told_by_field() -> None:
    found = outcome([1, 1], [0, 1])
    found.reply.samples[1].response = "another"
    with pytest.raises(DemoError, match=r"not that of the payload: response$"):
        check_samples(found)
