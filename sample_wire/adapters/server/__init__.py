"""The session server: agents speak OpenAI chat to it, trainers get samples from it.

Starlette and the rest of the extra `server` are imported with `create_app`, not before.
"""

from typing import TYPE_CHECKING

from .settings import ServerSettings

if TYPE_CHECKING:
    from .app import create_app

__all__ = ["ServerSettings", "create_app"]


def __getattr__(name: str) -> object:
    if name == "create_app":
        from .app import create_app

        return create_app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
