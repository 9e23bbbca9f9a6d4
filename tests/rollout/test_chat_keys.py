"""Sampling parameters as an agent is given them."""

from __future__ import annotations

from typing import Any

import pytest

from sample_wire.rollout._chat_keys import request_kwargs


@pytest.mark.parametrize(
    ("sampling", "chat"),
    [
        ({"max_new_tokens": 5}, {"max_tokens": 5}),
        ({"min_new_tokens": 5}, {"min_tokens": 5}),
        ({"sampling_seed": 5}, {"seed": 5}),
        ({"max_new_tokens": 5, "max_tokens": 6}, {"max_tokens": 6}),
        ({"sampling_seed": 5, "seed": 0}, {"seed": 0}),
        ({"max_new_tokens": 5, "max_tokens": None}, {"max_tokens": 5}),
        ({"max_new_tokens": None}, {}),
        ({"temperature": 0.0, "top_p": None, "top_k": -1}, {"temperature": 0.0, "top_k": -1}),
        ({"stop": ["a"], "stop_token_ids": [1]}, {"stop": ["a"], "stop_token_ids": [1]}),
        ({"spaces_between_special_tokens": False, "anything": 1}, {}),
        ({"model": "m", "messages": [], "regex": "a+"}, {"regex": "a+"}),
        ({}, {}),
    ],
    ids=repr,
)
def test_sampling_parameters_become_keys_of_a_chat_request(
    sampling: dict[str, Any], chat: dict[str, Any]
) -> None:
    before = dict(sampling)
    assert request_kwargs(sampling) == chat
    assert sampling == before
