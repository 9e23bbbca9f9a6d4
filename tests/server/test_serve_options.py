"""`sample-wire serve`: its arguments, and what is refused before anything is served."""

from __future__ import annotations

import argparse
import contextlib
import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
import uvicorn

from sample_wire.adapters import server
from sample_wire.adapters.server import ServerSettings
from sample_wire.adapters.server.command import add_arguments, settings_of
from sample_wire.adapters.server.processes import warn_if_open
from sample_wire.adapters.server.settings import routing_of_model
from sample_wire.assembly import RoutingSpec
from sample_wire.cli import main

ENGINE: Final = ("--engine", "http://127.0.0.1:1")
NEEDED: Final = (*ENGINE, "--tokenizer", "chatml")
MODEL: Final = {"num_hidden_layers": 4, "num_experts_per_tok": 8, "num_experts": 64}


def parsed(*arguments: str) -> ServerSettings:
    """The settings of these arguments."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return settings_of(parser.parse_args([*NEEDED, *arguments]))


def test_the_kind_of_the_engine_can_be_spelled() -> None:
    assert parsed("--engine-kind", "vllm").engine_kind == "vllm"


def written(folder: Path, config: Any) -> str:
    """A folder with this config.json."""
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


def test_the_defaults_are_those_of_the_settings() -> None:
    assert parsed() == ServerSettings(engine_url=ENGINE[1], tokenizer="chatml")


def test_every_setting_can_be_spelled(tmp_path: Path) -> None:
    token_file = str(tmp_path / "token")
    Path(token_file).write_text("secret\n")
    spelled = parsed(
        *("--family", "glm", "--chat-template", "t.jinja", "--template-kwargs", '{"a": 1}'),
        *("--host", "::1", "--port", "7", "--workers", "2", "--matcher", "loose_tool_call"),
        *("--trajectory", "tree", "--pick", "a.pick", "--post-process", "a.process"),
        *("--field-set", "2", "--timeout", "0", "--idle-timeout", "60"),
        *("--max-body-bytes", "1", "--max-reply-bytes", "2", "--max-sessions", "3"),
        *("--max-held-bytes", "4", "--head-timeout", "5", "--body-timeout", "6"),
        *("--max-incoming-bytes", "9", "--max-running-requests", "10"),
        *("--stop-timeout", "7", "--send-timeout", "8", "--token-file", token_file),
        *("--engine-kind", "sglang", "--speculative", "--keep-messages", "--indexer"),
        *("--routing-layers", "2", "--routing-top-k", "3", "--num-experts", "9"),
        *("--incremental", "--required", "--max-connections", "11"),
    )
    assert spelled == ServerSettings(
        engine_url=ENGINE[1],
        tokenizer="chatml",
        family="glm",
        chat_template="t.jinja",
        template_kwargs={"a": 1},
        host="::1",
        port=7,
        workers=2,
        matcher="loose_tool_call",
        routing=RoutingSpec(num_layers=2, top_k=3, num_experts=9, required=True, incremental=True),
        indexer=True,
        speculative=True,
        keep_messages=True,
        trajectory="tree",
        pick="a.pick",
        post_process="a.process",
        field_set=2,
        timeout_s=None,
        max_body_bytes=1,
        max_reply_bytes=2,
        max_incoming_bytes=9,
        max_running_requests=10,
        max_sessions=3,
        max_held_bytes=4,
        max_connections=11,
        head_timeout_s=5.0,
        body_timeout_s=6.0,
        idle_timeout_s=60.0,
        stop_timeout_s=7.0,
        send_timeout_s=8.0,
        token="secret",
    )


def test_an_idle_timeout_of_0_is_none() -> None:
    assert parsed("--idle-timeout", "0").idle_timeout_s is None


def test_a_token_is_not_in_the_text_of_the_settings() -> None:
    settings = ServerSettings(engine_url=ENGINE[1], tokenizer="chatml", token="secret")
    assert "secret" not in repr(settings)
    assert settings.token == "secret"


@pytest.mark.parametrize(
    "config",
    [
        MODEL,
        {"num_hidden_layers": 4, "num_experts_per_tok": 8, "n_routed_experts": 64},
        {"num_hidden_layers": 4, "num_experts_per_tok": 8, "num_local_experts": 64},
        {"vision_config": {"num_hidden_layers": 9}, "text_config": MODEL},
    ],
    ids=["qwen", "deepseek", "mixtral", "with vision"],
)
def test_a_models_config_tells_the_shape_of_its_routing(
    tmp_path: Path, config: dict[str, Any]
) -> None:
    expected = RoutingSpec(num_layers=4, top_k=8, num_experts=64)
    folder = written(tmp_path, config)
    assert routing_of_model(folder) == expected
    assert parsed("--model-config", f"{folder}/config.json").routing == expected


def test_a_model_without_experts_has_no_routing(tmp_path: Path) -> None:
    folder = written(tmp_path, {"num_hidden_layers": 4})
    assert parsed("--model-config", folder).routing is None


@pytest.mark.parametrize(
    "config", [[1], {"num_experts_per_tok": 8}, {"num_experts_per_tok": 0, "num_hidden_layers": 1}]
)
def test_a_config_that_tells_no_shape_is_refused(tmp_path: Path, config: Any) -> None:
    with pytest.raises(ValueError, match=r"object|num_hidden_layers|top_k"):
        routing_of_model(written(tmp_path, config))


@pytest.fixture(autouse=True)
def _nothing_is_served_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that should be refused and is not must not serve for ever."""
    monkeypatch.setattr(uvicorn.Server, "run", None)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What the command says of arguments that it refuses, with status 2."""
    with pytest.raises(SystemExit) as ended:
        main(["serve", *arguments])
    assert ended.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "--engine, --tokenizer"),
        ((*NEEDED, "--routing-layers", "2"), "go together"),
        ((*NEEDED, "--incremental"), "--routing-layers"),
        ((*NEEDED, "--workers", "0"), "--workers"),
        ((*NEEDED, "--port", "-1"), "--port"),
        ((*NEEDED, "--trajectory", "ring"), "--trajectory"),
        ((*NEEDED, "--trajectory", "tree", "--field-set", "1"), "rewards of a tree"),
        ((*NEEDED, "--pick", "a.b"), "hooks are for trees"),
        ((*NEEDED, "--post-process", "a.b"), "hooks are for trees"),
        ((*NEEDED, "--trajectory", "tree", "--pick", "no_such.hook"), "cannot be imported"),
        ((*NEEDED, "--trajectory", "tree", "--post-process", "asyncio.sleep"), "synchronous"),
        ((*NEEDED, "--port", "65535", "--workers", "2"), "ports end at 65535"),
        ((*NEEDED, "--template-kwargs", "[]"), "no JSON object"),
        ((*NEEDED, "--template-kwargs", "{"), "no JSON object"),
        ((*NEEDED, "--matcher", "no_such_matcher"), "no_such_matcher"),
        ((*NEEDED, "--field-set", "9"), "--field-set"),
        ((*NEEDED, "--timeout", "-1"), "timeout_s is a time above 0"),
        ((*NEEDED, "--timeout", "nan"), "timeout_s is a time above 0"),
        ((*NEEDED, "--timeout", "inf"), "timeout_s is a time above 0"),
        ((*NEEDED, "--head-timeout", "0"), "head_timeout_s is a time above 0, not 0.0"),
        ((*NEEDED, "--body-timeout", "inf"), "body_timeout_s is a time above 0"),
        ((*NEEDED, "--stop-timeout", "-1"), "stop_timeout_s is a time above 0"),
        ((*NEEDED, "--max-sessions", "0"), "max_sessions must be at least 1"),
        ((*NEEDED, "--max-held-bytes", "0"), "max_held_bytes must be at least 1"),
        ((*NEEDED, "--max-body-bytes", "-1"), "-1 is negative"),
        ((*NEEDED, "--token-file", "/dev/null"), "a token is"),
        ((*NEEDED, "--idle-timeout", "-5"), "idle_timeout_s is a time above 0"),
        ((*NEEDED, "--idle-timeout", "nan"), "idle_timeout_s is a time above 0"),
        ((*NEEDED, "--matcher", "sample_wire.Sample"), "no synchronous function"),
        (("--engine", "localhost:1", "--tokenizer", "chatml"), "http://"),
        (("--engine", "http://[", "--tokenizer", "chatml"), "engine's URL"),
        (("--engine", "http://h:x", "--tokenizer", "chatml"), "engine's URL is malformed"),
        (("--engine", "http://h:65536", "--tokenizer", "chatml"), "maybe a port"),
        (("--engine", "http://h/?a=b", "--tokenizer", "chatml"), "maybe a path"),
        (("--engine", "http://", "--tokenizer", "chatml"), "names a host"),
    ],
)
def test_arguments_that_do_not_hold_are_refused_before_anything_is_served(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    assert said in refused(capsys, *arguments)


def test_a_models_config_and_a_shape_exclude_each_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = written(tmp_path, MODEL)
    arguments = (*NEEDED, "--model-config", folder, "--num-experts", "64")
    assert "--model-config" in refused(capsys, *arguments)


def test_modes_of_routing_need_a_model_with_experts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = written(tmp_path, {"num_hidden_layers": 4})
    assert "experts" in refused(capsys, *NEEDED, "--model-config", folder, "--required")


@pytest.mark.parametrize("setting", [{"workers": 0}, {"max_connections": 0}], ids=str)
def test_settings_without_a_worker_or_a_connection_are_refused(setting: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be at least 1"):
        ServerSettings(engine_url=ENGINE[1], tokenizer="chatml", **setting)  # type: ignore[arg-type]


def test_a_config_that_is_no_json_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text("1 x")
    said = refused(capsys, *NEEDED, "--model-config", str(tmp_path))
    assert "config.json is no JSON object: Extra data" in said


def test_a_tokenizers_missing_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    said = refused(capsys, *ENGINE, "--tokenizer", str(tmp_path))
    assert "sample-wire[tokenizers]" in said


def test_a_config_that_is_not_there_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", *NEEDED, "--model-config", str(tmp_path)]) == 2
    assert "config.json: No such file" in capsys.readouterr().err


def test_a_port_in_use_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", *NEEDED, "--port", str(port)]) == 2
    assert f"127.0.0.1:{port}: Address already in use" in capsys.readouterr().err


def taken_behind_a_free_one(stack: contextlib.ExitStack) -> int:
    """A port that is in use until the stack ends, while the one before it is free."""
    while True:
        taken = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        port: int = taken.getsockname()[1]
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port - 1)):
            return port


def test_a_second_port_in_use_is_named_and_the_first_is_free_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with contextlib.ExitStack() as stack:
        port = taken_behind_a_free_one(stack)
        assert main(["serve", *NEEDED, "--port", str(port - 1), "--workers", "2"]) == 2
        socket.create_server(("127.0.0.1", port - 1)).close()
    assert f"127.0.0.1:{port}: Address already in use" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("host", "token", "expected"),
    [
        ("0.0.0.0", None, True),
        ("::", None, True),
        ("trainer-7", None, True),
        ("0.0.0.0", "secret", False),
        ("127.0.0.1", None, False),
        ("::1", None, False),
        ("localhost", None, False),
    ],
)
def test_a_server_that_is_open_to_others_without_a_token_says_so(
    caplog: pytest.LogCaptureFixture, host: str, token: str | None, expected: bool
) -> None:
    warn_if_open(ServerSettings(engine_url=ENGINE[1], tokenizer="chatml", host=host, token=token))
    assert ("it has no token" in caplog.text) == expected


def test_the_package_has_no_other_names() -> None:
    with pytest.raises(AttributeError, match="no attribute 'other'"):
        server.other  # noqa: B018  # looking it up is the test


def test_without_the_extra_the_command_says_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "sample_wire.adapters.server.processes", None)
    assert "sample-wire[server]" in refused(capsys, *NEEDED)


def test_the_command_line_imports_nothing_of_the_server() -> None:
    script = (
        "import sys, sample_wire.cli as cli\n"
        "try: cli.main(['serve', '--help'])\n"
        "except SystemExit: pass\n"
        "print({'starlette', 'uvicorn', 'httpx2', 'asyncio'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "set()", done.stderr
