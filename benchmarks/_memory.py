"""Peak memory of encoding P to one buffer, in payload sizes, measured in two ways.

tracemalloc counts what numpy and Python allocate.  The resident set, of a process of its own,
counts what the system gave; run as `python -m benchmarks._memory FORMAT` it prints that.
"""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from benchmarks._data import sample_of
from benchmarks._peers import OURS, format_of
from sample_wire import Sample

ROOT: Final = Path(__file__).resolve().parents[1]
_CLEAR_REFS: Final = Path("/proc/self/clear_refs")
_RESET_PEAK: Final = "5"


def traced_peak(sample: Sample) -> float:
    """Peak of what our joining allocates, the result included, over the size of the payload."""
    encode = format_of(OURS[1]).encode
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        payload = encode(sample, {})
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return float((peak - before) / len(payload))


def has_resident_peak() -> bool:
    """Whether this system can reset and tell a process's peak resident set (Linux)."""
    return _CLEAR_REFS.exists()


def resident_peak(name: str) -> float:
    """Growth of the peak resident set of a new process that encodes P, over the payload.

    Args:
        name: a format that gives one buffer.

    Raises:
        subprocess.CalledProcessError: the process failed.
    """
    command = [sys.executable, "-m", "benchmarks._memory", name]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return float(done.stdout)


def _resident_growth(encode: Callable[[Sample, dict[str, Any]], Any], sample: Sample) -> float:
    encode(sample_of("S", "arrays"), {})  # loads what the first call loads
    _CLEAR_REFS.write_text(_RESET_PEAK)
    before = status_bytes("VmHWM")
    payload = encode(sample, {})
    return float((status_bytes("VmHWM") - before) / len(payload))


def status_bytes(key: str, process: int | None = None) -> int:
    """A size of this process, or of one by its number, in bytes; the system tells KiB."""
    status = Path(f"/proc/{process or 'self'}/status")
    for line in status.read_text().splitlines():
        name, _, value = line.partition(":")
        if name == key:
            return int(value.split()[0]) * 1024
    raise LookupError(f"{status} has no {key}")


if __name__ == "__main__":
    print(_resident_growth(format_of(sys.argv[1]).encode, sample_of("P", "arrays")))
