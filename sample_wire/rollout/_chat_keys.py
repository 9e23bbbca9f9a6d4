"""Sampling parameters by the names of a chat request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

# Sampling name -> chat name, where they differ.
_CHAT_NAMES: Final = {
    "max_new_tokens": "max_tokens",
    "min_new_tokens": "min_tokens",
    "sampling_seed": "seed",
}
# Keys of SGLang 0.5's chat request but for model and messages, which are the agent's.
_CHAT_KEYS: Final = frozenset(
    {
        "bootstrap_host",
        "bootstrap_port",
        "bootstrap_room",
        "cache_salt",
        "chat_template_kwargs",
        "continue_final_message",
        "custom_logit_processor",
        "custom_params",
        "data_parallel_rank",
        "disagg_prefill_dp_rank",
        "ebnf",
        "extra_key",
        "frequency_penalty",
        "ignore_eos",
        "images_config",
        "input_ids",
        "logit_bias",
        "logprobs",
        "lora_path",
        "max_completion_tokens",
        "max_dynamic_patch",
        "max_tokens",
        "min_dynamic_patch",
        "min_p",
        "min_tokens",
        "n",
        "ngram_corpus_id",
        "no_stop_trim",
        "parallel_tool_calls",
        "presence_penalty",
        "priority",
        "reasoning_effort",
        "regex",
        "repetition_penalty",
        "response_format",
        "return_cached_tokens_details",
        "return_hidden_states",
        "return_meta_info",
        "return_prompt_token_ids",
        "return_routed_experts",
        "return_token_ids",
        "rid",
        "routed_dp_rank",
        "routed_experts_start_len",
        "seed",
        "separate_reasoning",
        "session_id",
        "session_params",
        "skip_special_tokens",
        "stop",
        "stop_regex",
        "stop_token_ids",
        "stream",
        "stream_options",
        "stream_reasoning",
        "task",
        "temperature",
        "tool_choice",
        "tools",
        "top_k",
        "top_logprobs",
        "top_p",
        "use_audio_in_video",
        "user",
    }
)


def request_kwargs(sampling_params: Mapping[str, Any]) -> dict[str, Any]:
    """What of the sampling parameters goes into a chat request, by its names there.

    A parameter that is given under both of its names keeps the value of the chat name.  None
    is unset, and what a chat request does not know is left out.
    """
    given = {key: value for key, value in sampling_params.items() if value is not None}
    for name, chat_name in _CHAT_NAMES.items():
        if name in given:
            given.setdefault(chat_name, given[name])
    return {key: value for key, value in given.items() if key in _CHAT_KEYS}
