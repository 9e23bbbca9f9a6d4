"""The demo as a process of its own, in a process group of its own, as a terminal starts it.

Its environment names a proxy, which it must not use on its way to loopback.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Final, NamedTuple

COMMAND: Final = (sys.executable, "-m", "sample_wire", "demo")
# Long enough for a busy machine; only a broken test waits it out.
PATIENCE_S: Final = 120


class Ended(NamedTuple):
    """A demo that has ended, and with it every process that it started."""

    status: int
    out: str
    err: str


@contextlib.contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The demo while it runs; whatever is left of its process group is killed in the end."""
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONIOENCODING": "ascii", "HTTP_PROXY": "http://127.0.0.1:1"},
        text=True,
        start_new_session=True,
    )
    with process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def ended(process: subprocess.Popen[str]) -> Ended:
    """Waits until nobody writes to the demo's output any more: itself and all that it started."""
    out, err = process.communicate(timeout=PATIENCE_S)
    return Ended(process.returncode, out, err)


def run(*arguments: str) -> Ended:
    """A demo from its start to its end."""
    with started(*arguments) as process:
        return ended(process)


def table(out: str) -> dict[str, list[float]]:
    """The figures of the table, by the name of the row."""
    rows = re.findall(r"^(\d|total) +([\d,. ]+)$", out, re.MULTILINE)
    return {name: [float(cell.replace(",", "")) for cell in cells.split()] for name, cells in rows}
