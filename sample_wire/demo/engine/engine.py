"""The embedded engine: stands in for SGLang where none is at hand."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from .cache import PrefixCache
from .generation import ABORT, Generation
from .grammar import TOKENIZER, StructuralTag, turn_grammar
from .model import KVState, Model, RouterChoice
from .running import Running
from .sampling import Sampler, SamplingParams
from .schema import Allowed, Grammar
from .settings import EngineSettings


class Engine(Running):
    """A tiny mixture-of-experts model with a prefix cache; stands in for SGLang.

    generate may run in several threads.

    Args:
        settings: see EngineSettings.
        on_choice: as for Model.
    """

    def __init__(
        self, settings: EngineSettings, on_choice: Callable[[RouterChoice], None] | None = None
    ) -> None:
        super().__init__()
        self.settings = settings
        self._model = Model(settings, on_choice)
        self._cache = PrefixCache(settings.cache_tokens)

    def generate(
        self,
        prompt: Sequence[int],
        params: SamplingParams,
        tag: StructuralTag | None,
        aborted: threading.Event,
        number: int = 0,
    ) -> Generation:
        """One output.

        Args:
            prompt: ids of the vocabulary; the context has room for them and max_new_tokens.
            params: see SamplingParams; n is not looked at.
            tag: the grammar of its tool calls, or None for none.
            aborted: ends the output when it is set.
            number: which of several outputs this is; they draw different numbers.
        """
        room = self.settings.max_context - len(prompt)
        limit = room if params.max_new_tokens is None else params.max_new_tokens
        made = Generation(list(prompt), started=time.time())
        state = KVState(self.settings, len(prompt) + limit)
        made.num_cached = self._cache.fill(state, prompt)
        logits = self._model.forward(state, prompt[made.num_cached :])
        made.first_token = time.time()
        grammar = _Steps(turn_grammar(self.settings, tag, prompt) if tag else None)
        seed = self.settings.seed if params.sampling_seed is None else params.sampling_seed
        # With the prompt's length in it, the turns of a conversation draw different numbers.
        sampler = Sampler(params, (seed, number, len(prompt)))
        while not self._ended(made, params, limit, aborted):
            if made.ids:
                logits = self._model.forward(state, made.ids[-1:])
            token_id, log_prob = sampler.draw(logits, len(made.ids), grammar.allowed)
            grammar.take(token_id)
            made.ids.append(token_id)
            made.log_probs.append(log_prob)
        made.routed_NLK = state.routed_NLK[: len(prompt) + len(made.ids) - 1]
        made.ended = time.time()
        self._cache.keep(state)
        return made

    def _ended(
        self, made: Generation, params: SamplingParams, limit: int, aborted: threading.Event
    ) -> bool:
        """Whether this output is at its end; then its finish reason is set."""
        if made.ids and made.ids[-1] in params.stop_ids:
            made.finish_reason = {"type": "stop", "matched": made.ids[-1]}
        elif (found := _stop_text(made.ids, params.stop_texts)) is not None:
            made.finish_reason = {"type": "stop", "matched": found}
        elif len(made.ids) >= limit:
            made.finish_reason = {"type": "length", "length": len(made.ids)}
        elif aborted.is_set():
            made.finish_reason = dict(ABORT)
        return bool(made.finish_reason)


class _Steps:
    """A grammar that is walked along with the output; None allows everything.

    Attributes:
        allowed: the ids that may come next, or None for all.
    """

    def __init__(self, grammar: Grammar | None) -> None:
        self._grammar = grammar
        self.allowed: Allowed | None = None if grammar is None else next(grammar)

    def take(self, token_id: int) -> None:
        """Goes on behind an id."""
        if self._grammar is None:
            return
        try:
            self.allowed = self._grammar.send(token_id)
        except StopIteration:
            self._grammar = self.allowed = None


def _stop_text(ids: Sequence[int], texts: Sequence[str]) -> str | None:
    """The text that the output ends with, if it is one of these."""
    for text in texts:
        wanted = TOKENIZER.encode(text)
        if ids[-len(wanted) :] == wanted:
            return text
    return None
