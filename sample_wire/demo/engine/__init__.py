"""The embedded engine: stands in for SGLang where none is at hand.

A tiny mixture-of-experts model in numpy, with random, seeded weights, served in SGLang's
contract.  Its replies have the form of those that SGLang 0.5.23 was seen to send; its text is
noise.  In its replay mode it runs no model, and answers with noise of the size that it is told.
Needs the extra `server`.

    with serve_engine(EngineSettings(seed=7)) as url:
        ...
"""

from .engine import Engine
from .generation import Generation
from .grammar import structural_tag
from .model import RouterChoice
from .replay import ReplayEngine
from .serving import serve_engine
from .settings import EngineSettings, ReplaySettings

__all__ = [
    "Engine",
    "EngineSettings",
    "Generation",
    "ReplayEngine",
    "ReplaySettings",
    "RouterChoice",
    "serve_engine",
    "structural_tag",
]
