"""Appended turn by turn, a prompt is what the whole conversation renders to anew.

That holds as far as text determines ids.  Where a model has written other ids than the
tokenizer would, the ids stay the model's and the texts agree.
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from sample_wire.adapters.tokenizer import ByteChatML, HFTokenizer

from ._talk import TALKS, Message, Talk, glm_reply, played, qwen3_reply

Encode = Callable[[str], list[int]]


def cut_in_two(encode: Encode, text: str, at: int) -> list[int]:
    """The ids of a text encoded in two parts: the same text in other ids, mostly."""
    return encode(text[:at]) + encode(text[at:])


@given(talk=TALKS)
def test_qwen3_prompts_are_the_conversation_rendered_anew_where_text_determines_ids(
    talk: Talk, qwen3: HFTokenizer, qwen3_ids: Encode
) -> None:
    steps = played(talk, qwen3, lambda reply: qwen3_ids(qwen3_reply(reply)))
    for step in steps:
        anew = qwen3.render(step.messages, talk.tools, qwen3.template_kwargs(None))
        assert qwen3.decode(step.prompt) == qwen3.decode(anew)
        if anew[: len(step.checkpoint)] == step.checkpoint:
            assert step.prompt == anew


@given(talk=TALKS, at=st.integers(0, 12))
def test_qwen3_checkpoints_stay_as_they_are_in_whatever_ids_the_model_wrote_them(
    talk: Talk, at: int, qwen3: HFTokenizer, qwen3_ids: Encode
) -> None:
    steps = played(talk, qwen3, lambda reply: cut_in_two(qwen3_ids, qwen3_reply(reply), at))
    for step in steps:
        assert step.num_kept == len(step.checkpoint)
        assert step.prompt[: step.num_kept] == step.checkpoint


@given(talk=TALKS, wrong=st.booleans())
def test_glm_prompts_are_the_conversation_rendered_anew_whatever_token_ended_the_turns(
    talk: Talk, wrong: bool, glm: HFTokenizer, glm_ids: Encode
) -> None:
    def written(reply: Message) -> list[int]:
        calls = bool(reply.get("tool_calls"))
        return glm_ids(glm_reply(reply) + ("<|observation|>" if calls != wrong else "<|user|>"))

    for step in played(talk, glm, written):
        assert step.num_kept == len(step.checkpoint) - 1
        # A prompt opens the reasoning, and the template writes only its end in a later one.
        anew = glm.render(step.messages, talk.tools, glm.template_kwargs(None))
        prompt = glm.decode(step.prompt).replace("<think></think>", "</think>")
        assert prompt == glm.decode(anew)


@given(talk=TALKS)
def test_byte_level_prompts_are_the_conversation_rendered_anew(talk: Talk) -> None:
    tokenizer = ByteChatML()
    steps = played(talk, tokenizer, lambda reply: tokenizer.encode(qwen3_reply(reply)))
    for step in steps:
        assert step.num_kept == len(step.checkpoint)
        assert step.prompt == tokenizer.render(step.messages, talk.tools, {})


def test_plain_qwen3_conversations_are_determined_by_their_text(
    qwen3: HFTokenizer, qwen3_ids: Encode
) -> None:
    """The condition in the first test is not an empty one."""
    question = {"role": "user", "content": "hi"}
    answers = [{"role": "assistant", "content": text} for text in ("Hello", "Bye", "1 + 1")]
    talk = Talk([question], [(answer, [question]) for answer in answers], tools=None)
    last = played(talk, qwen3, lambda reply: qwen3_ids(qwen3_reply(reply)))[-1]
    assert last.prompt == qwen3.render(last.messages, None, {})
