"""Tokenizers of the session server: a Hugging Face folder, or a byte-level one without files.

Both make prompt ids in the same way: a conversation is rendered once, and what is appended
later is tokenized alone, behind the ids that are there already.  Those are never made again
from text, since text does not determine them.  transformers is imported when the first
HFTokenizer is made, not before.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from .chatml import ByteChatML
from .hf import HFTokenizer

__all__ = ["CHATML", "ByteChatML", "HFTokenizer", "load_tokenizer"]

CHATML: Final = "chatml"


def load_tokenizer(
    spec: str,
    *,
    family: str = "default",
    chat_template: str | os.PathLike[str] | None = None,
    template_kwargs: Mapping[str, Any] | None = None,
) -> ByteChatML | HFTokenizer:
    """The tokenizer that a setting names.

    Args:
        spec: "chatml" for ByteChatML, or the path of a folder ("./chatml" for one of that name).
        family, template_kwargs: as for HFTokenizer.
        chat_template: path of a template file, or None for the folder's own.  "chatml" has a
            template and a family of its own and takes neither.

    Raises:
        ValueError: a setting that does not hold; the text says which.
        OSError: the template file cannot be read.
        ImportError: a folder is named and transformers is not installed.
    """
    if spec != CHATML:
        template = None if chat_template is None else Path(chat_template)
        return HFTokenizer(
            spec, family=family, chat_template=template, template_kwargs=template_kwargs
        )
    if family != "default" or chat_template is not None:
        raise ValueError("the chatml tokenizer takes neither a family nor a chat template")
    return ByteChatML(template_kwargs=template_kwargs)
