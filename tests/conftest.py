"""Chooses the hypothesis profile by the environment variable HYPOTHESIS_PROFILE.

"default" is short and the same on every run and machine; "long" looks further, with new
examples each time (CONTRIBUTING.md, Long runs).
"""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

# Collecting doctests would import it a second time, under another name.
collect_ignore = ["strategies.py"]

# No deadline and no too_slow check: both measure the machine, not the code.
settings.register_profile(
    "default",
    max_examples=50,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.register_profile(
    "long",
    max_examples=2000,
    derandomize=False,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture(scope="session", autouse=True)
def _interruptible() -> None:
    """Ctrl-C works in the tests and in what they start, also where a shell had it ignored.

    A process that was started in the background ignores SIGINT, and so would its children.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _buffered() -> None:
    """What the tests start buffers its output, as it does for users, whatever this shell says."""
    os.environ.pop("PYTHONUNBUFFERED", None)
