"""Runs a fuzzer: short in the tests, long from the command line, there watched as it goes."""

from __future__ import annotations

import argparse
import faulthandler
import gc
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from ._findings import Finding

Check = Callable[[bytes], str | Finding]
_BATCH: Final = 1000
_WARM_UP_BATCHES: Final = 10
_MAX_BATCH_S: Final = 120
_MAX_INPUT_S: Final = 5.0
_MAX_GROWTH_MIB: Final = 32
_MAX_FINDINGS: Final = 20
_STATM: Final = Path("/proc/self/statm")
_PAGE_KIB: Final = 4


class Result(NamedTuple):
    """How often each kind of outcome came up, and what must not have happened."""

    kinds: Counter[str]
    findings: list[Finding]


def run(next_input: Callable[[], bytes], check: Check, num_inputs: int) -> Result:
    """Checks so many inputs; stops early when there are many findings."""
    result = Result(Counter(), [])
    for _ in range(num_inputs):
        outcome = check(next_input())
        if isinstance(outcome, Finding):
            result.findings.append(outcome)
            if len(result.findings) >= _MAX_FINDINGS:
                break
        else:
            result.kinds[outcome] += 1
    return result


def main(make_inputs: Callable[[int], Callable[[], bytes]], check: Check) -> int:
    """The command: `--seed S --num-inputs N`; returns the exit status, 0 if nothing was found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--num-inputs", type=int, default=100_000)
    arguments = parser.parse_args()
    started = time.monotonic()
    timed = _Timed(check)
    next_input = make_inputs(arguments.seed)
    kinds: Counter[str] = Counter()
    num_findings = 0
    memory = _Memory()
    for first in range(0, arguments.num_inputs, _BATCH):
        # A loop in C hears no signal: this prints where it is, and ends the process.
        faulthandler.dump_traceback_later(_MAX_BATCH_S, exit=True)
        result = run(next_input, timed, min(_BATCH, arguments.num_inputs - first))
        faulthandler.cancel_dump_traceback_later()
        kinds += result.kinds
        for finding in result.findings:
            print(finding, flush=True)
        num_findings += len(result.findings)
        if num_findings >= _MAX_FINDINGS:
            break
        memory.after_batch()
        if first // _BATCH % 100 == 99:
            print(f"seed {arguments.seed}: {first + _BATCH} inputs", flush=True)
    seconds = time.monotonic() - started
    print(f"seed {arguments.seed}: {dict(kinds.most_common())}, {num_findings} findings")
    print(f"{seconds:.0f} s, slowest input {timed.slowest_s:.3f} s, {memory}")
    return 1 if num_findings or not memory.is_flat else 0


class _Timed:
    """A check whose inputs may not take long."""

    def __init__(self, check: Check) -> None:
        self._check = check
        self.slowest_s = 0.0

    def __call__(self, data: bytes) -> str | Finding:
        started = time.monotonic()
        outcome = self._check(data)
        seconds = time.monotonic() - started
        self.slowest_s = max(self.slowest_s, seconds)
        return Finding(f"took {seconds:.1f} s", data) if seconds > _MAX_INPUT_S else outcome


class _Memory:
    """Resident memory after each batch; it may not grow once the process is warm (Linux)."""

    def __init__(self) -> None:
        self._mib: list[float] = []

    def after_batch(self) -> None:
        gc.collect()
        if _STATM.exists():
            self._mib.append(int(_STATM.read_text().split()[1]) * _PAGE_KIB / 1024)

    @property
    def growth_mib(self) -> float:
        warm = self._mib[_WARM_UP_BATCHES:]
        return warm[-1] - warm[0] if warm else 0.0

    @property
    def is_flat(self) -> bool:
        return self.growth_mib <= _MAX_GROWTH_MIB

    def __str__(self) -> str:
        if not self._mib:
            return "memory not measured here"
        return f"{self._mib[-1]:.0f} MiB resident, {self.growth_mib:+.1f} MiB since warm"
