"""The demo: a real recorded rollout goes through the wire and comes back exact."""

from .run import run_demo

__all__ = ["run_demo"]
