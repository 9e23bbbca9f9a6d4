"""An agent that keeps what it was answered, to compare it with the samples of its session."""

from __future__ import annotations

import random
from typing import Any, Final

import httpx2
import numpy as np

from sample_wire import Sample, decode_samples

from ._processes import plain_http

_WORDS: Final = ("add", "two", "numbers", "and", "tell", "me", "more", "of", "it")
_MAX_WORDS: Final = 12
OK: Final = 200


class Agent:
    """One session, and every answer that it got.

    Args:
        server_url: of the session server.
        seed: of what the agent says.

    Attributes:
        path: of the session.
        num_turns: that were answered.
    """

    def __init__(self, server_url: str, seed: int) -> None:
        self.http = plain_http(server_url)
        self._random = random.Random(seed)
        self._messages: list[Any] = []
        self._ids: list[int] = []
        self._log_probs: list[float] = []
        self.num_turns = 0
        created = self.http.post("/sessions").raise_for_status().json()
        self.path = f"/sessions/{created['session_id']}"

    def ask(self, headers: dict[str, str] | None = None) -> httpx2.Response:
        """One more turn.  An answer of another status than 200 changes nothing here either."""
        said = " ".join(self._random.choices(_WORDS, k=self._random.randint(1, _MAX_WORDS)))
        messages = [*self._messages, {"role": "user", "content": said}]
        response = self.http.post(
            f"{self.path}/v1/chat/completions", json={"messages": messages}, headers=headers
        )
        if response.status_code == OK:
            self._keep(messages, response.json()["choices"][0])
        return response

    def talk(self, num_turns: int) -> None:
        """Some turns that must be answered."""
        for _ in range(num_turns):
            self.ask().raise_for_status()

    def has_its_samples(self) -> bool:
        """Whether the session's sample trains just what the agent was answered."""
        return self.is_told_by(self.sample())

    def sample(self) -> Sample:
        """The session's one sample; the session stays."""
        response = self.http.post(f"{self.path}/samples").raise_for_status()
        [sample] = decode_samples(response.content, Sample()).samples
        return sample

    def is_told_by(self, sample: Sample) -> bool:
        """Whether this sample trains just what the agent was answered."""
        trained = np.asarray(sample.loss_mask) == 1
        ids = np.asarray(sample.tokens)[-sample.response_length :][trained]
        log_probs = np.asarray(sample.rollout_log_probs)[trained]
        rows = np.asarray(sample.rollout_routed_experts)
        return (
            ids.tolist() == self._ids
            and log_probs.tolist() == self._log_probs
            and len(rows) == len(np.asarray(sample.tokens)) - 1
        )

    def delete(self) -> None:
        """Ends the session."""
        self.http.delete(self.path).raise_for_status()

    def close(self) -> None:
        """Closes the connection; the session stays."""
        self.http.close()

    def _keep(self, messages: list[Any], choice: Any) -> None:
        self._messages = [*messages, choice["message"]]
        for log_prob, token, _ in choice["meta_info"]["output_token_logprobs"]:
            self._ids.append(token)
            self._log_probs.append(log_prob)
        self.num_turns += 1
