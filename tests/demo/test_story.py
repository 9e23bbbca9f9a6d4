"""The rollout demo as a whole: what it prints, how it ends, and that its checks can fail."""

from __future__ import annotations

import multiprocessing
import os
import pathlib
import re
import signal
import subprocess
import sys
from typing import Any

import pytest

import sample_wire as sw
from sample_wire import cli
from sample_wire.demo import story as story_module
from sample_wire.demo import two_ways
from sample_wire.demo.health import HealthWatch
from sample_wire.demo.progress import Progress

from ._running import Ended, ended, run, started, table

NUM_SESSIONS = 4
NOWHERE = "http://127.0.0.1:1"
# Of the table's columns: counts and bytes, which add up; a ratio; times, which add up; a ratio.
SUMS, RATIOS, TIMES = slice(0, 6), (6, 9), slice(7, 9)


@pytest.fixture(scope="module")
def story() -> Ended:
    """One run of the demo."""
    return run()


def test_the_demo_exits_with_0_and_leaves_nothing_running(story: Ended) -> None:
    assert story.status == 0, story.err


def test_its_output_fits_a_screen(story: Ended) -> None:
    lines = story.out.splitlines()
    assert max(map(len, lines)) <= 100
    assert len(lines) <= 45


def test_a_log_gets_a_few_whole_lines_of_progress(story: Ended) -> None:
    assert story.err.isprintable() is False
    lines = story.err.splitlines()
    assert 2 <= len(lines) <= 6
    assert all(line.startswith("sample-wire: ") and line.isprintable() for line in lines)


def test_the_embedded_engine_is_called_what_it_is(story: Ended) -> None:
    assert "stands in for SGLang" in story.out


def test_every_session_has_a_row_and_the_totals_are_the_sums(story: Ended) -> None:
    rows = table(story.out)
    total = rows.pop("total")
    assert [*rows] == [str(index) for index in range(NUM_SESSIONS)]
    sums = [sum(column) for column in zip(*rows.values(), strict=True)]
    assert total[SUMS] == sums[SUMS]
    assert total[TIMES] == pytest.approx(sums[TIMES], abs=0.01 * NUM_SESSIONS)


def test_the_ratios_are_those_of_the_figures_beside_them(story: Ended) -> None:
    for figures in table(story.out).values():
        payload_bytes, records_bytes, bytes_ratio, payload_ms, records_ms, time_ratio = figures[4:]
        assert bytes_ratio == pytest.approx(records_bytes / payload_bytes, abs=0.006)
        assert time_ratio == pytest.approx(records_ms / payload_ms, rel=0.02, abs=0.006)


def test_every_session_is_a_conversation_with_tools(story: Ended) -> None:
    rows = table(story.out)
    del rows["total"]
    for num_turns, num_tools, num_tokens, num_trained, *_ in rows.values():
        assert 3 <= num_turns <= 5
        assert num_tools >= 2
        assert 0 < num_trained < num_tokens


def test_health_was_answered_all_the_while(story: Ended) -> None:
    found = re.search(r"/health .*: (\d+) answers, (\d+) not 200, slowest ([\d.]+) ms", story.out)
    assert found is not None
    assert int(found[1]) > 0
    assert int(found[2]) == 0
    assert float(found[3]) > 0


def test_the_payload_that_is_looked_into_is_that_of_the_first_session(story: Ended) -> None:
    _, _, num_tokens, num_trained, payload_bytes, *_ = table(story.out)["0"]
    assert f"payload: {payload_bytes:,.0f} bytes, field set 1" in story.out
    assert f"samples 1, tokens {num_tokens:,.0f}, trained {num_trained:,.0f}" in story.out


def shape_of(out: str) -> list[str]:
    """The lines up to the payload's summary without their numbers and alignment."""
    head, _, _ = out.partition("\nsample-wire inspect says")
    return [" ".join(re.sub(r"[\d,.]+", "#", line).split()) for line in head.splitlines()]


def test_readme_starts_with_the_demo_and_shows_what_it_prints(story: Ended) -> None:
    text = (pathlib.Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    first = text.partition("```sh\n")[2].partition("\n```")[0]
    assert first.endswith(".venv/bin/sample-wire demo")
    shown = text.partition("```text\n")[2].partition("\n```")[0]
    assert shape_of(shown) == shape_of(story.out)


@pytest.mark.parametrize("moment", ["starting the servers", "the servers are up"])
def test_an_interrupt_ends_it_quietly_and_leaves_nothing_running(moment: str) -> None:
    with started() as process:
        assert process.stderr is not None
        while moment not in process.stderr.readline():
            assert process.poll() is None
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does, to all of the group
        stopped = ended(process)
    assert stopped.status == 130
    assert "Traceback" not in stopped.err


def test_nothing_is_left_running_when_it_is_killed() -> None:
    with started() as process:
        assert process.stderr is not None
        while "are up" not in process.stderr.readline():
            assert process.poll() is None
        process.kill()
        assert ended(process).status == -signal.SIGKILL


def test_an_engine_that_dies_is_told_as_such(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill_the_engine(_progress: Progress, text: str) -> None:
        for process in multiprocessing.active_children():
            if "are up" in text and "engine" in process.name:
                process.kill()
                process.join()

    monkeypatch.setattr(Progress, "step", kill_the_engine)
    assert cli.main(["demo"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("sample-wire: DemoError: session ")
    assert "the embedded engine has ended with exit code -9" in err
    assert err.count("\n") == 1
    assert multiprocessing.active_children() == []


def test_ways_that_do_not_give_the_same_sample_are_told_by_field(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def decode_wrongly(buffer: Any, template: sw.Sample) -> Any:
        reply = sw.decode_samples(buffer, template, copy=True)
        mask = reply.samples[0].loss_mask
        assert mask is not None
        mask[-1] ^= 1
        return reply

    monkeypatch.setattr(two_ways, "decode_samples", decode_wrongly)
    assert cli.main(["demo"]) == 1
    err = capsys.readouterr().err
    assert re.search(r"DemoError: session \d: not equal in both ways: loss_mask\n", err)


def test_health_that_is_not_answered_is_told_after_the_report(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(story_module, "HealthWatch", lambda _url: HealthWatch(NOWHERE))
    assert cli.main(["demo"]) == 1
    printed = capsys.readouterr()
    found = re.search(r"/health .*: (\d+) answers, (\d+) not 200", printed.out)
    assert found is not None
    assert found[1] == found[2]
    assert f"DemoError: {found[2]} requests for /health got no answer" in printed.err


EXTRAS = ("anyio", "httpx2", "openai", "starlette", "uvicorn")


def without(names: tuple[str, ...], *arguments: str) -> subprocess.CompletedProcess[str]:
    """The demo where these packages are not installed."""
    script = (
        "import sys\n"
        f"sys.modules.update(dict.fromkeys({names!r}))\n"
        "from sample_wire.cli import main\n"
        f"sys.exit(main(['demo', *{arguments!r}]))"
    )
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)


@pytest.mark.parametrize("name", EXTRAS)
def test_without_its_extra_it_says_in_one_line_what_to_install(name: str) -> None:
    done = without((name,))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert 'pip install "sample-wire[demo]"' in done.stderr
    assert "demo --recorded needs none" in done.stderr


def test_the_recorded_demo_needs_no_extra() -> None:
    done = without(EXTRAS, "--recorded")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--recorded", "recording.json"),
        ("--recorded", "--engine", "http://127.0.0.1:1"),
        ("--engine", "http://127.0.0.1:1"),
        ("--tokenizer", "chatml"),
        ("--model-config", "."),
        ("--routing-layers", "2", "--routing-top-k", "2"),
        ("--family", "glm"),
        ("--template-kwargs", '{"a": 1}'),
        ("--required",),
    ],
    ids=" ".join,
)
def test_arguments_that_do_not_go_together_are_a_usage_error(arguments: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as refused:
        cli.main(["demo", *arguments])
    assert refused.value.code == 2
