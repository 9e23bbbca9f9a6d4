"""A trainer is killed while it receives its samples: only its own request ends with it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import numpy as np

from benchmarks._health import watched
from benchmarks._site import Site
from sample_wire import Sample, SamplesReply

from ._processes import ROOT
from ._rows import Row, at_most, fact

_MIB: Final = 2**20
_MAX_LEFT_MIB: Final = 8.0


def client_killed(site: Site, num_rounds: int) -> list[Row]:
    """Kills a trainer in the middle of each collect; another one collects the session then.

    That the server has given up is certain: its meter answers when no request is open.
    """
    collected = unharmed = 0
    left, ended = [], []
    other = site.talk(site.session.num_turns)
    with watched(site.port) as health:
        for _ in range(num_rounds):
            with _trainer(site) as (trainer, session_id):
                _had(site, session_id)
                # What a whole collect leaves behind is there before the broken one.
                collected += is_right(site, site.collect(session_id))
                before = site.resident_bytes()
                _killed(trainer)
                left.append(site.resident_bytes() - before)
                collected += is_right(site, site.collect(session_id))
            site.chat(other, site.session.num_turns - 1)
            unharmed += is_right(site, site.collect(other))
            site.delete(session_id)
            ended.append(site.resident_bytes())
    site.delete(other)
    num_asked = len(health.latencies_s) + health.num_failed
    return [
        fact("times it was collected whole, before and after", count=collected, of=2 * num_rounds),
        fact("times another session went on, unharmed", count=unharmed, of=num_rounds),
        fact("/health answered meanwhile", count=len(health.latencies_s), of=num_asked),
        at_most("memory that a broken collect leaves", max(left) / _MIB, _MAX_LEFT_MIB, "MiB"),
        at_most(
            "memory after the last session's end, over that half-way",
            (ended[-1] - ended[len(ended) // 2]) / _MIB,
            _MAX_LEFT_MIB,
            "MiB",
        ),
    ]


@contextmanager
def _trainer(site: Site) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A trainer that has created its session, and that session's id."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-m", "tests.soak._client", f"http://127.0.0.1:{site.port}"]
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def _had(site: Site, session_id: str) -> None:
    """Has all turns of the session."""
    for turn in range(site.session.num_turns):
        site.chat(session_id, turn)


def _killed(trainer: subprocess.Popen[str]) -> None:
    """Has the trainer collect, and kills it when the first piece of the body is there."""
    assert trainer.stdin is not None
    assert trainer.stdout is not None
    trainer.stdin.write("go\n")
    trainer.stdin.flush()
    if not trainer.stdout.readline():
        raise EOFError("the trainer has ended by itself")
    trainer.kill()
    trainer.wait()


def is_right(site: Site, reply: SamplesReply[Sample]) -> bool:
    """Whether a reply holds the sample that all turns of a session come to."""
    num_turns = site.session.num_turns
    [sample] = reply.samples
    return np.array_equal(np.asarray(sample.tokens), site.session.ids(num_turns)) and (
        np.array_equal(np.asarray(sample.rollout_routed_experts), site.session.rows(num_turns))
    )
