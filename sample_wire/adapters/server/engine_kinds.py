"""The kinds of engines by the names that a setting gives them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...session import EngineKind, SGLangChat, VLLMGenerate
from .settings import ServerSettings

ENGINE_KINDS: Final[Mapping[str, EngineKind]] = {"sglang": SGLangChat(), "vllm": VLLMGenerate()}
# Settings that ask for what SGLang alone has.
_SGLANGS: Final = ("indexer", "speculative")


def engine_kind(settings: ServerSettings) -> EngineKind:
    """The kind that the settings name.

    Raises:
        ValueError: there is none of that name, or it lacks what the settings ask for.
    """
    name = settings.engine_kind
    if name not in ENGINE_KINDS:
        raise ValueError(f"engine kind {name!r} is none of {', '.join(ENGINE_KINDS)}")
    for wanted in _SGLANGS:
        if name != "sglang" and getattr(settings, wanted):
            raise ValueError(f"{wanted}: engines of kind {name} do not tell it")
    return ENGINE_KINDS[name]
