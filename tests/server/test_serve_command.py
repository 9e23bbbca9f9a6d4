"""`sample-wire serve`: its processes."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest

from ._serving import Handle, Site
from ._sglang import speaks
from ._stub import PATIENCE_S, StubEngine

Process = subprocess.Popen[str]


@contextlib.contextmanager
def served(
    engine: StubEngine, *arguments: str, stderr: int | None = None
) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """The command in a process of its own, and the URLs that it serves."""
    command = (
        *(sys.executable, "-m", "sample_wire", "serve", "--port", "0"),
        *("--engine", engine.url, "--tokenizer", "chatml", *arguments),
    )
    num_lines = int(arguments[1]) if arguments else 1
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True) as process:
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(num_lines)]
            prefix = "sample-wire: serving on "
            yield process, [line.removeprefix(prefix).strip() for line in lines]
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


def workers_of(process: Process) -> list[int]:
    """The ids of its server processes, in the order in which they were started."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [
        int(child)
        for child in children
        if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]


def is_closed(url: str) -> bool:
    """Whether nothing listens there."""
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", int(url.rpartition(":")[2]))) != 0


def played(url: str, engine: StubEngine) -> Handle:
    """A session of one turn at a server of another process."""
    site = Site(int(url.rpartition(":")[2]))
    with site.http:
        session = site.create()
        engine.will(speaks([104, 105], message={"role": "assistant", "content": "hi"}))
        assert session.chat([{"role": "user", "content": "hello"}]).status_code == 200
        (sample,) = session.collect().samples
        assert sample.tokens.tolist()[-2:] == [104, 105]
        assert session.delete().status_code == 204
    return session


def test_one_server_serves_and_ends_when_it_is_terminated(engine: StubEngine) -> None:
    with served(engine) as (process, (url,)):
        played(url, engine)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == -signal.SIGTERM


def test_several_workers_are_servers_of_their_own_on_consecutive_ports(
    engine: StubEngine,
) -> None:
    with served(engine, "--workers", "2") as (process, urls):
        ports = [int(url.rpartition(":")[2]) for url in urls]
        assert ports[1] == ports[0] + 1
        sessions = [played(url, engine) for url in urls]
        ids = {
            httpx2.get(f"{url}/health", trust_env=False).json()["session_server_instance_id"]
            for url in urls
        }
        assert len(ids) == 2
        other = httpx2.get(f"{urls[1]}{sessions[0].path}", trust_env=False)
        assert other.status_code == 404
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 143


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="finds processes by /proc")
def test_a_worker_that_dies_is_told_and_ends_the_others(engine: StubEngine) -> None:
    with served(engine, "--workers", "2", stderr=subprocess.PIPE) as (process, urls):
        for url in urls:
            played(url, engine)
        os.kill(workers_of(process)[1], signal.SIGKILL)
        assert process.wait(PATIENCE_S) == 1
        assert process.stderr is not None
        assert f"the server on {urls[1]} ended (-9)" in process.stderr.read()
        assert is_closed(urls[0])


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP])
def test_no_worker_outlives_its_parent(engine: StubEngine, number: signal.Signals) -> None:
    with served(engine, "--workers", "2") as (process, urls):
        for url in urls:
            played(url, engine)
        process.send_signal(number)
        process.wait(PATIENCE_S)
        # The parent's output ends when nobody holds it any more: neither it nor a worker.
        assert process.stdout is not None
        assert process.stdout.read() == ""
        assert all(is_closed(url) for url in urls)


def test_an_interrupt_does_not_wait_for_a_hook_that_never_returns(
    engine: StubEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hanging_hooks.py").write_text(
        "import threading\n"
        "def hang(samples, metadata):\n"
        "    print('hanging', flush=True)\n"
        "    threading.Event().wait()\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    tree = ("--trajectory", "tree", "--pick", "hanging_hooks.hang")
    arguments = ("--workers", "1", "--stop-timeout", "0.5", *tree)
    with served(engine, *arguments) as (process, (url,)):
        site = Site(int(url.rpartition(":")[2]))
        with site.http, ThreadPoolExecutor() as pool:
            session = site.create()
            engine.will(speaks([104], message={"role": "assistant", "content": "h"}))
            assert session.chat([{"role": "user", "content": "hello"}]).status_code == 200
            pool.submit(session.samples)
            assert process.stdout is not None
            assert process.stdout.readline() == "hanging\n"
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE_S) == 130


def test_an_interrupt_ends_the_command_with_its_status(engine: StubEngine) -> None:
    with served(engine, "--workers", "2") as (process, urls):
        played(urls[1], engine)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130
