"""A tokenizer of the transformers package, with the chat template of its folder.

The prompt of a first turn is the whole conversation, rendered and encoded.  From then on only
what a turn appends is encoded: it is rendered behind a stand-in for the conversation, and what
the stand-in alone renders to is cut off.  Cost is flat in the length of the conversation.

The ids are taken from the tokenizers package below transformers: its batch calls leave the
interpreter lock while they work, and nothing in them changes the tokenizer, so that a mismatch
report in a worker thread neither blocks nor disturbs the event loop.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ...errors import SessionError
from ._families import (
    Boundary,
    TemplateKwargs,
    boundary_of,
    family_named,
    fitting_families,
)
from ._messages import bad_messages, plain_messages, plain_tools
from ._mismatch import IdComparison, openings_in

_log: Final = logging.getLogger(__name__)
Message = Mapping[str, Any]
Plain = dict[str, Any]

_SYSTEM: Final[Plain] = {"role": "system", "content": "stand-in"}
_USER: Final[Plain] = {"role": "user", "content": "stand-in"}
# What stands before the stand-in turn.  Some templates refuse a conversation without a user,
# some one with a system message: the first that the template takes is used.
_OPENINGS: Final[tuple[tuple[Plain, ...], ...]] = ((_SYSTEM,), (_USER,))
_END_OF_IDS: Final = 2**32
# apply_chat_template hands this one of its own arguments on to the template.
_TEMPLATE_ARGUMENTS: Final = frozenset({"kwargs", "documents"})
# Some vocabularies have them as special tokens.
_TOOL_MARKS: Final = ("<tool_call>", "</tool_call>")

# What templates raise that meet a value they were not written for.
_TEMPLATE_FAULTS: Final[tuple[type[Exception], ...]] = (
    TypeError,
    ValueError,
    AttributeError,
    LookupError,
    ArithmeticError,
    RecursionError,
)


class HFTokenizer:
    """Tokenizes conversations with a local Hugging Face folder; nothing is downloaded.

    Args:
        path: a folder with a fast tokenizer (tokenizer.json) and, if none is given here, a chat
            template.  Code in the folder is not run.
        family: "default", "qwen3" or "glm": how turns are joined.  "default" joins them as they
            are, and logs a warning where the vocabulary is that of a family with a rule.
        chat_template: the text of a template, or the path of one, to use instead of the
            folder's.  Templates that rewrite earlier turns once later ones follow need this.
        template_kwargs: arguments for the template, in each request.

    Attributes:
        max_trim_tokens: how many ids at the end of a turn its next prompt may lack: 0, or 1
            for "glm".
        allowed_append_roles: roles of messages that may follow a generated turn.

    Raises:
        ValueError: no such folder or family, no tokenizer or template in it, a template that
            does not compile, a vocabulary of another family, or contradicting arguments.
        OSError: the file of the template cannot be read.
        ImportError: transformers or jinja2 is not installed (extra `tokenizers`).
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        family: str = "default",
        chat_template: str | os.PathLike[str] | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        rules = family_named(family)
        self.allowed_append_roles = rules.append_roles
        self._tokenizer = _loaded(Path(path))
        self._ids_of_texts = self._tokenizer.backend_tokenizer.encode_batch_fast
        self._texts_of_ids = self._tokenizer.backend_tokenizer.decode_batch
        self._template_error: type[Exception] = importlib.import_module("jinja2").TemplateError
        self._chat_template = _template_text(chat_template)
        self._check_template()
        self._kwargs = TemplateKwargs(rules, template_kwargs, self._reserved_names())
        id_of = self._tokenizer.backend_tokenizer.token_to_id
        self._boundary: Boundary = boundary_of(rules, id_of, self._encode)
        if self._boundary == Boundary({}):
            self._warn_of_fitting_families(path)
        self.max_trim_tokens = self._boundary.max_trim_tokens
        self._unspoken_ids = _special_ids(self._tokenizer) - {id_of(mark) for mark in _TOOL_MARKS}
        self._comparison = IdComparison(
            decode=self.decode,
            special_ids={*self._tokenizer.all_special_ids, *self._tokenizer.added_tokens_decoder},
            openings=openings_in(id_of),
            trailing_ids=self._boundary.trailing_ids,
        )

    def _warn_of_fitting_families(self, path: str | os.PathLike[str]) -> None:
        id_of = self._tokenizer.backend_tokenizer.token_to_id
        for name in fitting_families(id_of, self._encode):
            _log.warning(
                "%s has the tokens of family %s: without that family, turns are joined with no"
                " boundary rule, and later prompts may differ from the chat template's",
                path,
                name,
            )

    def template_kwargs(self, request_kwargs: Mapping[str, Any] | None) -> dict[str, Any]:
        """The template arguments of one request: the launch ones, overlaid by its own.

        Raises:
            SessionError: 400 "template_kwargs": no object, a reserved name, or a value that
                contradicts the family.
        """
        return self._kwargs.overlaid(request_kwargs)

    def render(
        self, messages: Sequence[Message], tools: Sequence[Any] | None, kwargs: Mapping[str, Any]
    ) -> list[int]:
        """The ids of a whole conversation and the opening of the assistant's next turn.

        Args:
            kwargs: as `template_kwargs` gives them.

        Raises:
            SessionError: 400 "bad_messages" or "render_failed".
        """
        if not messages:
            raise bad_messages("messages must not be empty")
        return self._encode(self._text(plain_messages(messages), tools, kwargs, generate=True))

    def append(
        self,
        checkpoint_ids: Sequence[int],
        stored: Sequence[Message],
        appended: Sequence[Message],
        tools: Sequence[Any] | None,
        kwargs: Mapping[str, Any],
    ) -> tuple[int, list[int]]:
        """The prompt after a generated turn, without making its leading ids again.

        Args:
            checkpoint_ids: prompt and output of the last turn.
            stored: the messages behind those ids; the last is the generated one.
            appended: the messages after it, maybe none.

        Returns:
            (num_kept, tail_ids): the prompt is the first num_kept checkpoint ids, then tail_ids.

        Raises:
            SessionError: 400 "bad_messages" or "render_failed"; 500 "template_not_prefix" where
                the template changes what stands before the appended messages.
        """
        tail = self._tail(_stand_in(stored), plain_messages(appended), tools, kwargs)
        return self._boundary.join(checkpoint_ids, self._encode(tail))

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, special tokens kept; ids outside the vocabulary have none."""
        # Others do not even reach the package, which takes 32 bits.
        sound = [token_id for token_id in ids if 0 <= token_id < _END_OF_IDS]
        text: str = self._texts_of_ids([sound], skip_special_tokens=False)[0]
        return text

    def decode_message(self, ids: Sequence[int]) -> str:
        """The text of a generated turn: as `decode`, with no special tokens but those of tools."""
        return self.decode([token_id for token_id in ids if token_id not in self._unspoken_ids])

    def mismatch(
        self,
        messages: Sequence[Message],
        tools: Sequence[Any] | None,
        kwargs: Mapping[str, Any],
        ids: Sequence[int],
    ) -> list[dict[str, Any]]:
        """Where ids differ from the messages rendered anew; safe in a worker thread.

        Returns:
            As IdComparison.differences; no entry means no difference.

        Raises:
            SessionError: 400 "bad_messages" or "render_failed".
        """
        text = self._text(plain_messages(messages), tools, kwargs, generate=False)
        return self._comparison.differences(self._encode(text), ids)

    def _tail(
        self,
        stand_in: Plain,
        appended: list[Plain],
        tools: Sequence[Any] | None,
        kwargs: Mapping[str, Any],
    ) -> str:
        """What a template writes behind a generated turn, the next opening included."""
        refusals = []
        for opening in _OPENINGS:
            before = [*opening, stand_in]
            try:
                head = self._text(before, tools, kwargs, generate=False)
                whole = self._text([*before, *appended], tools, kwargs, generate=True)
            except SessionError as refusal:
                refusals.append(refusal)
                continue
            if whole.startswith(head):
                return whole[len(head) :]
        if len(refusals) == len(_OPENINGS):
            raise refusals[-1]
        raise SessionError(
            "the chat template changes earlier turns once messages are appended: "
            "give one that leaves them as they are",
            code="template_not_prefix",
            http_status=500,
        )

    def _text(
        self,
        messages: list[Plain],
        tools: Sequence[Any] | None,
        kwargs: Mapping[str, Any],
        *,
        generate: bool,
    ) -> str:
        try:
            text: str = self._tokenizer.apply_chat_template(
                messages,
                tools=plain_tools(tools),
                chat_template=self._chat_template,
                add_generation_prompt=generate,
                tokenize=False,
                **kwargs,
            )
        except self._template_error as error:
            raise _render_failed(str(error)) from error
        except _TEMPLATE_FAULTS as error:
            raise _render_failed(type(error).__name__) from error
        return text

    def _encode(self, text: str) -> list[int]:
        try:
            ids: list[int] = self._ids_of_texts([text], add_special_tokens=False)[0].ids
        except (TypeError, ValueError) as error:
            raise _render_failed("the text is not valid Unicode") from error
        return ids

    def _check_template(self) -> None:
        """Refuses a template that does not compile.

        Whether it takes a conversation is for each conversation to tell.
        """
        if self._chat_template is None and not self._tokenizer.chat_template:
            raise ValueError("the folder has no chat template: give one")
        try:
            self._text([_USER], None, {}, generate=False)
        except SessionError as refusal:
            fault = refusal.__cause__
            if isinstance(fault, importlib.import_module("jinja2").TemplateSyntaxError):
                raise ValueError(f"the chat template does not compile: {fault}") from fault

    def _reserved_names(self) -> frozenset[str]:
        """Arguments of apply_chat_template itself, a template of the client's among them."""
        own = inspect.signature(self._tokenizer.apply_chat_template).parameters
        return (frozenset(own) - _TEMPLATE_ARGUMENTS) | {"messages"}


def _loaded(path: Path) -> Any:
    if not path.is_dir():
        raise ValueError(f"{path} is no folder: a tokenizer must be local")
    try:
        transformers = importlib.import_module("transformers")
    except ImportError as error:
        raise ImportError(
            "HFTokenizer needs transformers: pip install 'sample-wire[tokenizers]'"
        ) from error
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            str(path), local_files_only=True, trust_remote_code=False
        )
    except Exception as error:  # tokenizers raises this class itself
        raise ValueError(f"no tokenizer can be loaded from {path}: {error}") from error
    if not tokenizer.is_fast:
        raise ValueError(f"{path} has no fast tokenizer (tokenizer.json)")
    return tokenizer


def _special_ids(tokenizer: Any) -> set[int]:
    """Ids of tokens that are marks and no text."""
    added = tokenizer.added_tokens_decoder.items()
    return {*tokenizer.all_special_ids, *(token_id for token_id, token in added if token.special)}


def _template_text(template: str | os.PathLike[str] | None) -> str | None:
    """The text of a template that is given as such or as a path; None for the folder's own."""
    if template is None or isinstance(template, str):
        return template
    return Path(template).read_text("utf-8")


def _stand_in(stored: Sequence[Message]) -> Plain:
    """An assistant's turn with the tool calls of the last one, for templates that look there.

    It has a reasoning, since some templates write an empty one only where a turn is the last.
    """
    calls = plain_messages(stored[-1:])[0].get("tool_calls") if stored else None
    turn: Plain = {"role": "assistant", "content": "stand-in", "reasoning_content": "stand-in"}
    return turn | {"content": "", "tool_calls": calls} if calls else turn


def _render_failed(fault: str) -> SessionError:
    return SessionError(
        f"the chat template refuses the messages: {fault}", code="render_failed", http_status=400
    )
