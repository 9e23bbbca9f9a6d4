"""The engine and the session server as processes that are killed and started again."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Self

import httpx2

from ._engine import SETTINGS

ROOT: Final = Path(__file__).resolve().parents[2]
# Long enough for a busy machine; only what hangs waits it out.
PATIENCE_S: Final = 60.0
# Of what a process that ended wrote to its log, in characters.
_TAIL: Final = 2000


def plain_http(server_url: str) -> httpx2.Client:
    """A client without TLS, whose certificates take 50 ms to read, and without proxies."""
    return httpx2.Client(base_url=server_url, timeout=PATIENCE_S, trust_env=False, verify=False)


class Process:
    """A server that prints its URL, and comes back on the same port when it is started again.

    Args:
        command: the module and its arguments; PORT in it is the port.

    Attributes:
        url, port: where it listens.
        pid: of the process that runs.
    """

    def __init__(self, *command: str) -> None:
        self._command = command
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115  # closed when the block ends
        self.port = 0
        self.start_again()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self._process.pid

    def line(self) -> str:
        """The next line that it prints.

        Raises:
            EOFError: it has ended.
        """
        assert self._process.stdout is not None
        if line := self._process.stdout.readline():
            return line
        status = self._process.wait()
        self._log.seek(0)
        raise EOFError(f"{self._command} has ended with {status}: {self._log.read()[-_TAIL:]}")

    def kill(self) -> None:
        """Ends it as a machine that fails does: it is told nothing (SIGKILL)."""
        self._process.kill()
        self._process.communicate()

    def start_again(self) -> None:
        """Starts it where it listened before."""
        command = [one.replace("PORT", str(self.port)) for one in self._command]
        self._process = subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=ROOT,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # more would wait for each other
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self.port = int(self.line().rpartition(":")[2])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._log.close()


class Site(NamedTuple):
    """What a run is about."""

    engine: Process
    server: Process


@contextlib.contextmanager
def running(*options: str) -> Iterator[Site]:
    """`sample-wire serve` with these options too, in front of the embedded engine."""
    with (
        Process("tests.soak._engine", "PORT") as engine,
        Process("sample_wire", "serve", *_arguments(engine.url), *options) as server,
    ):
        with plain_http(server.url) as http:
            http.get("/health").raise_for_status()  # it listens before it serves
        yield Site(engine, server)


def _arguments(engine_url: str) -> Sequence[str]:
    spec = SETTINGS.routing_spec()
    return (
        *("--engine", engine_url, "--tokenizer", "chatml", "--port", "PORT"),
        *("--routing-layers", str(spec.num_layers), "--routing-top-k", str(spec.top_k)),
        *("--num-experts", str(spec.num_experts), "--required"),
    )
