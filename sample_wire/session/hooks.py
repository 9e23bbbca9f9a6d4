"""Hooks: which samples of a tree are trained on, and what is done to them before.

A hook is a function (samples, session_metadata) -> list.  The pick chooses among the leaves'
samples; the post-process may change those that are left, and says which are sent.  An operator
names hooks by dotted paths; the default ones are in `tree_samples`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from ..errors import SessionError
from ..overlay import independent
from ._dotted import imported
from .trajectory import Collected
from .tree_samples import drop_retries, train_once

Hook = Callable[[list[Any], dict[str, Any]], list[Any]]


@dataclass(frozen=True, slots=True)
class SampleHooks:
    """The two hooks of a server, with the paths that they were named by."""

    pick: Hook
    pick_path: str
    post_process: Hook
    post_process_path: str

    @classmethod
    def load(cls, pick: str | None = None, post_process: str | None = None) -> Self:
        """The hooks at these dotted paths; None is the default one.

        Raises:
            ValueError: nothing at a path, or no synchronous function of two arguments.
        """
        pick = _path_of(drop_retries) if pick is None else pick
        post_process = _path_of(train_once) if post_process is None else post_process
        return cls(
            _loaded(pick, "pick hook"),
            pick,
            _loaded(post_process, "post-process hook"),
            post_process,
        )

    def apply(self, found: Collected, sample_type: type) -> Collected:
        """What is sent of a tree; where it has no samples, they are not asked.

        Args:
            found: as it was collected, a sample for each leaf that has one.
            sample_type: the class that the post-process gives instances of.

        Raises:
            SessionError: 422 "hook_failed": a hook raised, or gave what it must not.
        """
        if not found.samples:
            return found
        # Theirs to read: what the server tells of the session is not for them to change.
        metadata = independent(found.session_metadata, copy_arrays=False)
        picked = self._called(self.pick, "pick", list(found.samples), metadata)
        given, taken = ([id(sample) for sample in some] for some in (found.samples, picked))
        if not {*given}.issuperset(taken) or len({*taken}) < len(taken):
            raise self._failed("pick", "it gave a sample twice, or one that it was not given")
        done = self._called(self.post_process, "post-process", picked, metadata)
        if not all(isinstance(sample, sample_type) for sample in done):
            why = f"it gave something that is no {sample_type.__name__}"
            raise self._failed("post-process", why)
        return Collected(done, found.session_metadata, None if done else "all_truncated")

    def _called(
        self, hook: Hook, what: str, samples: list[Any], session_metadata: dict[str, Any]
    ) -> list[Any]:
        try:
            answer: object = hook(samples, session_metadata)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # one that calls exit must not end the server
            raise self._failed(what, f"{type(error).__name__}: {_text_of(error)}") from error
        if not isinstance(answer, list):
            raise self._failed(what, f"it gave a {type(answer).__name__}, not a list")
        return answer

    def _failed(self, what: str, why: str) -> SessionError:
        return SessionError(
            f"the {what} hook failed (pick {self.pick_path}, post-process "
            f"{self.post_process_path}): {why}",
            code="hook_failed",
            http_status=422,
        )


def _text_of(error: BaseException) -> str:
    """An error's text, fit for a reply: some hold bytes that are no text, some cannot tell it."""
    try:
        return str(error).encode("utf-8", "backslashreplace").decode()
    except Exception:  # noqa: BLE001  # whatever its __str__ does
        return "it has no text"


def _path_of(hook: Hook) -> str:
    return f"{hook.__module__}.{hook.__name__}"


def _loaded(path: str, what: str) -> Hook:
    found = imported(path, what)
    try:
        inspect.signature(found).bind([], {})
    except TypeError:
        raise ValueError(f"{what} {path!r} does not take (samples, session_metadata)") from None
    except ValueError:
        pass  # a builtin that does not tell; it shows when it is called
    return found
