"""BenchError: the run failed, or what came back is not what it must be."""

from __future__ import annotations

from ..errors import SampleWireError


class BenchError(SampleWireError):
    """The run cannot go on: it prints no figures."""
