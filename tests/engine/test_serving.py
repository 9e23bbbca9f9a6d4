"""Running the engine: in a thread, as a command, and to the end of both."""

from __future__ import annotations

import concurrent.futures
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from sample_wire.demo.engine import EngineSettings, RouterChoice, serve_engine
from sample_wire.demo.engine.serving import main

from ._calls import PATIENCE_S, SETTINGS, Caller, asked, prompt_of


def test_health_is_an_empty_200(engine: Caller) -> None:
    response = engine.http.get("/health")
    assert (response.status_code, response.content) == (200, b"")


def test_the_model_is_listed_as_in_openais_api(engine: Caller) -> None:
    listed = engine.http.get("/v1/models").json()
    (model,) = listed["data"]
    assert listed["object"] == "list"
    assert (model["id"], model["object"]) == (SETTINGS.model, "model")
    assert model["max_model_len"] == SETTINGS.max_context


def test_the_model_info_tells_the_weight_version(engine: Caller) -> None:
    info = engine.http.get("/get_model_info").json()
    assert info["is_generation"] is True
    assert info["weight_version"] == SETTINGS.weight_version


def test_settings_reach_the_replies() -> None:
    settings = EngineSettings(model="mine", weight_version="v9", num_layers=1)
    with serve_engine(settings) as url, Caller(url) as engine:
        reply = engine.chat(asked("Hi"), max_tokens=2)
    assert reply["model"] == "mine"
    meta = reply["choices"][0]["meta_info"]
    assert meta["weight_version"] == reply["metadata"]["weight_version"] == "v9"
    assert meta["weight_versions"] == [{"version": "v9", "start": 0, "end": 2}]


def test_the_end_ends_the_thread_and_closes_the_port() -> None:
    before = {*threading.enumerate()}
    with serve_engine() as url:
        httpx2.get(f"{url}/health", trust_env=False)
    assert {*threading.enumerate()} <= before
    with pytest.raises(httpx2.ConnectError):
        httpx2.get(f"{url}/health", trust_env=False)


def test_the_end_does_not_wait_for_a_generation_to_end_by_itself() -> None:
    started = threading.Event()
    params = {"max_new_tokens": 8000, "ignore_eos": True}
    prompt = prompt_of(asked("Hi"))

    def told(choice: RouterChoice) -> None:
        if len(choice.ids) > len(prompt):
            started.set()

    with concurrent.futures.ThreadPoolExecutor() as pool:
        with serve_engine(on_choice=told) as url:
            caller = Caller(url)
            future = pool.submit(lambda: caller.generate(prompt, params=params))
            assert started.wait(PATIENCE_S)
        reply = future.result()
        caller.http.close()
    assert reply["meta_info"]["finish_reason"]["type"] == "abort"


def test_an_error_inside_ends_the_engine_too() -> None:
    before = {*threading.enumerate()}
    with pytest.raises(KeyboardInterrupt), serve_engine():
        raise KeyboardInterrupt
    assert {*threading.enumerate()} <= before


@pytest.fixture
def command() -> Iterator[subprocess.Popen[str]]:
    """The engine as a command."""
    process = subprocess.Popen(
        [sys.executable, "-m", "sample_wire.demo.engine", "--port", "0", "--seed", "3"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        yield process
        process.kill()


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)],
    ids=["SIGINT", "SIGTERM"],
)
def test_the_command_serves_until_a_signal_comes(
    command: subprocess.Popen[str], number: signal.Signals, status: int
) -> None:
    assert command.stdout is not None
    line = command.stdout.readline()
    url = line.removeprefix("embedded engine: serving on ").strip()
    with Caller(url) as engine:
        found: Any = engine.generate(prompt_of(asked("Hi")), params={"max_new_tokens": 3})
    assert len(found["output_ids"]) == 3
    command.send_signal(number)
    stdout, stderr = command.communicate(timeout=PATIENCE_S)
    assert (command.returncode, stdout, stderr) == (status, "", "")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--seed", "-1"), "seed must not be negative"),
        (("--port", "99999"), "port must be 0-65535"),
        (("--port", "x"), "invalid int value"),
    ],
    ids=["seed", "port beyond", "port no number"],
)
def test_arguments_that_do_not_hold_are_refused(
    arguments: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        main(arguments)
    assert refused.value.code == 2
    assert told in capsys.readouterr().err


def test_a_port_in_use_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SystemExit) as refused:
            main(["--port", str(port)])
    assert refused.value.code == 2
    assert f"127.0.0.1:{port}: Address already in use" in capsys.readouterr().err
