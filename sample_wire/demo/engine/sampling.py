"""Sampling: the parameters that a request gives, and the choice of one id."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
import numpy as np
import numpy.typing as npt

from ...adapters.tokenizer.chatml import IM_END, ByteChatML
from .schema import Allowed

DEFAULT_NEW_TOKENS: Final = 128  # SGLang's, of /generate
_MAX_BIAS: Final = 100  # OpenAI's
_GREEDY: Final = 1e-6  # SGLang's: at or below it the likeliest id is taken

Size = Annotated[int, msgspec.Meta(ge=0)]


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`sampling_params` of SGLang's /generate, as far as the embedded engine knows them.

    Args:
        max_new_tokens: None for as many as the context holds.
        min_new_tokens: before this many no id that stops is drawn, unless a grammar wants it.
        temperature: 0 takes the likeliest id each time.
        top_p, top_k: ids are drawn from the likeliest ones only; -1 is no top_k.
        sampling_seed: the same seed draws the same ids; None takes the engine's.
        stop: texts that end the output, without being part of its text.
        stop_token_ids: ids that end the output, as the end of a turn does.
        ignore_eos: the end of a turn does not end the output.
        logit_bias: id as text -> what is added to its logit.
        structural_tag: a grammar, see `grammar.structural_tag`.
        n: outputs.
        skip_special_tokens, no_stop_trim, spaces_between_special_tokens: what the text shows.
    """

    max_new_tokens: Size | None = DEFAULT_NEW_TOKENS
    min_new_tokens: Size = 0
    temperature: Annotated[float, msgspec.Meta(ge=0)] = 1.0
    top_p: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0
    top_k: Annotated[int, msgspec.Meta(ge=-1)] = -1
    sampling_seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    logit_bias: dict[str, float] | None = None
    structural_tag: str | None = None
    n: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1
    skip_special_tokens: bool = True
    no_stop_trim: bool = False
    spaces_between_special_tokens: bool = True

    def __post_init__(self) -> None:
        biased = [key for key in self.logit_bias or () if not _names_id(key)]
        if biased or not all(0 <= one < ByteChatML.num_ids for one in self.stop_token_ids or ()):
            raise ValueError("logit_bias or stop_token_ids name an id that the vocabulary lacks")
        if not all(abs(bias) <= _MAX_BIAS for bias in (self.logit_bias or {}).values()):
            raise ValueError(f"a bias in logit_bias is between {-_MAX_BIAS} and {_MAX_BIAS}")
        if self.max_new_tokens is not None and self.min_new_tokens > self.max_new_tokens:
            raise ValueError("min_new_tokens is more than max_new_tokens")
        if self.min_new_tokens and len(self.stop_ids) == ByteChatML.num_ids:
            raise ValueError("min_new_tokens: every id of the vocabulary stops")

    @property
    def stop_texts(self) -> list[str]:
        """The texts that end the output."""
        texts = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return list(filter(None, texts))

    @property
    def stop_ids(self) -> frozenset[int]:
        """The ids that end the output."""
        return frozenset(self.stop_token_ids or ()) | (set() if self.ignore_eos else {IM_END})


def _names_id(key: str) -> bool:
    return key.isascii() and key.isdigit() and int(key) < ByteChatML.num_ids


class Sampler:
    """Draws the ids of one output.

    Args:
        params: the request's.
        seed: numbers that name the stream of random numbers.
    """

    def __init__(self, params: SamplingParams, seed: tuple[int, ...]) -> None:
        self._params = params
        self._random = np.random.default_rng([number % 2**64 for number in seed])
        self._bias = {int(key): bias for key, bias in (params.logit_bias or {}).items()}

    def draw(
        self, logits: npt.NDArray[np.float32], number: int, allowed: Allowed | None
    ) -> tuple[int, float]:
        """One id and its log-prob in nats, among the allowed ones, at the request's temperature.

        The log-prob is that before top_p and top_k, as SGLang's.

        Args:
            logits: [V].
            number: how many ids were drawn before.
            allowed: of a grammar, or None for all.
        """
        if allowed is not None and len(allowed) == 1:
            return next(iter(allowed)), 0.0
        scores = logits.astype(np.float64)
        for token_id, bias in self._bias.items():
            scores[token_id] += bias
        if allowed is not None:
            forbidden = np.ones(len(scores), np.bool_)
            forbidden[[*allowed]] = False
            scores[forbidden] = -np.inf
        elif number < self._params.min_new_tokens:
            scores[[*self._params.stop_ids]] = -np.inf
        greedy = self._params.temperature <= _GREEDY
        if not greedy:
            scores /= self._params.temperature
        scores -= scores.max()
        log_probs = scores - np.log(np.exp(scores).sum())
        token_id = int(log_probs.argmax()) if greedy else self._pick(np.exp(log_probs))
        return token_id, float(np.float32(log_probs[token_id]))

    def _pick(self, probs: npt.NDArray[np.float64]) -> int:
        order = self._likeliest(probs)
        sums = np.cumsum(probs if order is None else probs[order])
        at = int(np.searchsorted(sums, self._random.random() * sums[-1], side="right"))
        return at if order is None else int(order[at])

    def _likeliest(self, probs: npt.NDArray[np.float64]) -> npt.NDArray[np.int64] | None:
        """The ids that top_p and top_k leave, by probability; None for all."""
        top_p, top_k = self._params.top_p, self._params.top_k
        if top_p == 1 and top_k < 1:
            return None
        order = np.argsort(-probs, kind="stable")
        sums = np.cumsum(probs[order])
        # The first id whose sum reaches top_p is the last one that is kept.
        num_kept = int(np.searchsorted(sums, top_p * sums[-1])) + 1
        return order[: min(num_kept, top_k) if top_k > 0 else num_kept]
