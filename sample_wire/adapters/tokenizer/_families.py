"""What differs from one family of models to the next: turn boundaries and template arguments.

A model ends its turn with a token of its own choice, and the chat template writes the next turn
as if it stood behind a turn of the template's.  The two meet at the boundary, and each family
has its own way to make them fit:

- Qwen3-like: the model stops at <|im_end|>, the template puts a newline behind it.  The newline
  is inserted.
- GLM-like: the model stops with the token that opens the next turn, <|user|> or <|observation|>,
  and the template opens that turn itself, maybe with the other one.  The model's is dropped.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ...errors import SessionError

APPEND_ROLES: Final = frozenset({"tool", "user", "system", "assistant"})
THINKING_KEYS: Final = frozenset({"enable_thinking", "thinking"})


@dataclass(frozen=True, slots=True)
class Family:
    """The rules of one family, in terms of texts.

    Attributes:
        inserted: (end, text): where a turn ends with the token `end`, the one token of `text`
            is put behind it.
        dropped: tokens that are taken away where a turn ends with one of them.
        fixed_kwargs: template arguments that no caller may change.
        alias_keys: template arguments that mean the same: naming one replaces all of them.
        append_roles: roles of messages that may follow a generated turn.
    """

    name: str
    inserted: tuple[str, str] | None = None
    dropped: tuple[str, ...] = ()
    fixed_kwargs: Mapping[str, Any] | None = None
    alias_keys: frozenset[str] = THINKING_KEYS
    append_roles: frozenset[str] = APPEND_ROLES


# clear_thinking: without it the templates drop the reasoning of earlier turns, which the
# model has seen when it wrote the later ones.
FAMILIES: Final = {
    family.name: family
    for family in (
        Family("default"),
        Family("qwen3", inserted=("<|im_end|>", "\n"), fixed_kwargs={"clear_thinking": False}),
        Family(
            "glm",
            dropped=("<|observation|>", "<|user|>"),
            fixed_kwargs={"clear_thinking": False},
        ),
    )
}


def family_named(name: str) -> Family:
    """The family of that name.

    Raises:
        ValueError: there is none.
    """
    if name not in FAMILIES:
        raise ValueError(f"unknown tokenizer family {name!r}: one of {', '.join(FAMILIES)}")
    return FAMILIES[name]


@dataclass(frozen=True, slots=True)
class Boundary:
    """The boundary rule of a family, in terms of ids.

    Attributes:
        inserted: id at the end of a turn -> id that is put behind it.
        dropped: ids that are taken away where a turn ends with one of them.
    """

    inserted: Mapping[int, int]
    dropped: frozenset[int] = frozenset()

    @property
    def max_trim_tokens(self) -> int:
        """How many ids at the end of a turn may be missing in the prompt after it."""
        return 1 if self.dropped else 0

    @property
    def trailing_ids(self) -> frozenset[int]:
        """Ids that say nothing at the end of a conversation: one side has them, one not."""
        return self.dropped | {*self.inserted.values()}

    def join(self, checkpoint_ids: Sequence[int], tail_ids: list[int]) -> tuple[int, list[int]]:
        """(number of leading checkpoint ids to keep, ids that follow them)."""
        num_ids = len(checkpoint_ids)
        last = int(checkpoint_ids[-1]) if num_ids else -1  # -1 is no id
        if last in self.dropped:
            return num_ids - 1, tail_ids
        if last in self.inserted:
            return num_ids, [self.inserted[last], *tail_ids]
        return num_ids, tail_ids


def boundary_of(
    family: Family, id_of: Callable[[str], int | None], encode: Callable[[str], list[int]]
) -> Boundary:
    """The boundary rule of a family for one vocabulary.

    Args:
        id_of: the id of a token, or None where the vocabulary lacks it.
        encode: the ids of a text.

    Raises:
        ValueError: the vocabulary lacks what the rule speaks of.
    """

    def known(token: str) -> int:
        found = id_of(token)
        if found is None:
            raise ValueError(
                f"no {token} in the vocabulary: not a tokenizer of family {family.name}"
            )
        return found

    inserted = {}
    if family.inserted is not None:
        end, text = family.inserted
        text_ids = encode(text)
        if len(text_ids) != 1:
            raise ValueError(f"{text!r} is not one token: not a tokenizer of family {family.name}")
        inserted[known(end)] = text_ids[0]
    return Boundary(inserted, frozenset(map(known, family.dropped)))


def fitting_families(
    id_of: Callable[[str], int | None], encode: Callable[[str], list[int]]
) -> list[str]:
    """The families with a boundary rule that this vocabulary has all tokens for.

    Args:
        id_of, encode: as for boundary_of.
    """
    fitting = []
    for family in FAMILIES.values():
        if family.inserted is None and not family.dropped:
            continue
        with contextlib.suppress(ValueError):
            boundary_of(family, id_of, encode)
            fitting.append(family.name)
    return fitting


class TemplateKwargs:
    """The arguments of the chat template: those of the launch, overlaid by a request's.

    Args:
        family: gives the fixed arguments and the aliases.
        launch: the arguments of all requests, or None.
        reserved: names that no argument may have.

    Raises:
        ValueError: the launch arguments break a rule.
    """

    def __init__(
        self, family: Family, launch: Mapping[str, Any] | None, reserved: frozenset[str]
    ) -> None:
        self._family = family
        self._fixed = dict(family.fixed_kwargs or {})
        self._reserved = reserved
        self._launch = dict(launch or {}) | self._fixed
        fault = self._fault(launch or {})
        if fault is not None:
            raise ValueError(f"template kwargs: {fault}")

    def overlaid(self, request: object) -> dict[str, Any]:
        """The arguments of one request, as a new dict.

        Args:
            request: the request's `chat_template_kwargs`; None and {} ask for nothing.

        Raises:
            SessionError: 400 "template_kwargs": no object, or a name or value that is refused.
        """
        if request is None:
            return dict(self._launch)
        if not isinstance(request, Mapping):
            raise _refusal(f"must be an object, not {type(request).__name__}")
        fault = self._fault(request)
        if fault is not None:
            raise _refusal(fault)
        aliases = self._family.alias_keys
        replaced: frozenset[str] = aliases if aliases & request.keys() else frozenset()
        kept = {name: value for name, value in self._launch.items() if name not in replaced}
        return kept | dict(request)

    def _fault(self, kwargs: Mapping[str, Any]) -> str | None:
        taken = sorted(self._reserved & kwargs.keys())
        if taken:
            return f"{taken[0]} is not the template's to take"
        for name, value in self._fixed.items():
            given = kwargs.get(name, value)
            # False == 0 in Python; a template may tell them apart.
            if given != value or type(given) is not type(value):
                return f"{name} is fixed to {value} by the family {self._family.name}"
        return None


def _refusal(fault: str) -> SessionError:
    return SessionError(f"chat_template_kwargs: {fault}", code="template_kwargs", http_status=400)
