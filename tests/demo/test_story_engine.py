"""The rollout demo with an engine of the user's own, `--engine URL`."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from sample_wire import cli
from sample_wire.demo.engine import EngineSettings, serve_engine

from ._running import table

SETTINGS = EngineSettings(num_layers=2, num_experts=8, top_k=2, mean_answer_tokens=20)
SHAPE = ("--routing-layers", "2", "--routing-top-k", "2", "--num-experts", "8")


@pytest.fixture(scope="module")
def engine() -> Iterator[str]:
    """The URL of an engine that runs already; the embedded one stands in for it."""
    with serve_engine(SETTINGS) as url:
        yield url


Out = pytest.CaptureFixture[str]


def demo(engine: str, *arguments: str) -> int:
    """The demo with that engine; its exit status."""
    return cli.main(["demo", "--engine", engine, "--tokenizer", "chatml", *arguments])


def test_the_demo_runs_against_an_engine_that_is_named(engine: str, capsys: Out) -> None:
    assert demo(f"{engine}/", *SHAPE) == 0  # the slash as users write it
    out = capsys.readouterr().out
    assert f"engine   {engine}\n" in out
    assert "without R3" not in out
    assert "embedded" not in out
    assert [*table(out)] == ["0", "1", "2", "3", "total"]
    assert "x2x2  int32" in out


def test_a_models_config_tells_the_shape_and_new_rows_can_be_asked_for(
    engine: str, tmp_path: Path, capsys: Out
) -> None:
    config = {"num_hidden_layers": 2, "num_experts_per_tok": 2, "num_experts": 8}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert demo(engine, "--model-config", str(tmp_path), "--incremental") == 0
    out = capsys.readouterr().out
    assert "x2x2  int32" in out
    assert "--incremental" not in out


def test_without_a_shape_no_routing_is_asked_for_and_that_is_said(engine: str, capsys: Out) -> None:
    assert demo(engine) == 0
    out = capsys.readouterr().out
    assert "nulls: rollout_routed_experts, rollout_indexer_topk" in out
    assert "without R3: --model-config gives its shape" in out


def test_a_shape_that_is_not_the_engines_is_told(engine: str, capsys: Out) -> None:
    assert demo(engine, "--routing-layers", "3", "--routing-top-k", "2") == 1
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.startswith("sample-wire: DemoError: session ")
    assert "routed_experts" in told


class _Failing(BaseHTTPRequestHandler):
    """An engine that is healthy until it is asked to generate."""

    def do_GET(self) -> None:
        status = 404 if self.path.startswith("/elsewhere") else 200
        self._answer(status, {"data": [{"id": "m", "object": "model"}]})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self._answer(500, {"error": {"message": "out of memory"}})

    def _answer(self, status: int, body: object) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@contextlib.contextmanager
def failing_engine() -> Iterator[str]:
    """The URL of that engine."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Failing) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def test_an_engine_that_fails_is_told_with_its_own_words(capsys: Out) -> None:
    with failing_engine() as url:
        assert demo(url) == 1
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.startswith("sample-wire: DemoError: session ")
    assert ", turn 1: the agent got " in told
    assert "out of memory" in told


def test_an_engine_that_is_not_there_is_told(capsys: Out) -> None:
    assert demo("http://127.0.0.1:1") == 1
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.startswith("sample-wire: DemoError: the engine at http://127.0.0.1:1 is not up: ")


def test_an_engine_without_health_is_told_by_its_status(capsys: Out) -> None:
    with failing_engine() as url:
        assert demo(f"{url}/elsewhere") == 1
        told = capsys.readouterr().err.splitlines()[-1]
        assert told.endswith(f"the engine at {url}/elsewhere is not up: 404 for /health")


@pytest.mark.parametrize("url", ["127.0.0.1:1", "ftp://127.0.0.1", "http://"])
def test_what_is_no_url_of_an_engine_is_a_usage_error(url: str, capsys: Out) -> None:
    with pytest.raises(SystemExit) as refused:
        demo(url)
    assert refused.value.code == 2
    assert "engine's URL" in capsys.readouterr().err


def test_a_tokenizer_that_is_not_there_is_a_usage_error(tmp_path: Path, capsys: Out) -> None:
    missing = str(tmp_path / "missing")
    with pytest.raises(SystemExit) as refused:
        cli.main(["demo", "--engine", "http://127.0.0.1:1", "--tokenizer", missing])
    assert refused.value.code == 2
    assert missing in capsys.readouterr().err
