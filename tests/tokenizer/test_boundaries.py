"""How a turn and what is appended to it are joined in each family."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from sample_wire.adapters.tokenizer import ByteChatML, HFTokenizer
from sample_wire.session.tokenizer import TokenizerAdapter

from ._talk import Message, appended_to

HI: Message = {"role": "user", "content": "hi"}
HELLO: Message = {"role": "assistant", "content": "Hello"}
RESULT: Message = {"role": "tool", "content": "hello"}
NEWLINE, IM_END = 198, 151645


def vocabulary_of(folder: Path) -> dict[str, int]:
    vocabulary: dict[str, int] = Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab()
    return vocabulary


@pytest.fixture
def glm_id(glm_folder: Path) -> dict[str, int]:
    return vocabulary_of(glm_folder)


def test_the_worked_example_puts_one_newline_between_the_turns(qwen3: HFTokenizer) -> None:
    prompt = qwen3.render([HI], None, {})
    assert len(prompt) == 9
    checkpoint = [*prompt, 9707, IM_END]
    num_kept, tail = qwen3.append(checkpoint, [HI, HELLO], [HI], None, {})
    assert num_kept == 11
    assert tail[0] == NEWLINE
    assert tail[1:] == prompt
    assert checkpoint + tail == qwen3.render([HI, HELLO, HI], None, {})


def test_a_qwen3_turn_that_was_cut_off_is_followed_by_no_newline(qwen3: HFTokenizer) -> None:
    checkpoint = [*qwen3.render([HI], None, {}), 9707]
    num_kept, tail = qwen3.append(checkpoint, [HI, HELLO], [HI], None, {})
    assert (num_kept, tail) == (len(checkpoint), qwen3.render([HI], None, {}))


@pytest.mark.parametrize("checkpoint", [[], [5]], ids=["no ids", "other ids"])
def test_a_checkpoint_without_an_end_of_turn_is_kept_whole(
    qwen3: HFTokenizer, checkpoint: list[int]
) -> None:
    assert qwen3.append(checkpoint, [HI, HELLO], [HI], None, {})[0] == len(checkpoint)


@pytest.mark.parametrize("end", ["<|im_end|>", "<|user|>", "<|observation|>"])
def test_the_default_family_inserts_and_drops_nothing(
    chatml_folder: Path, glm_folder: Path, end: str
) -> None:
    tokenizer = HFTokenizer(chatml_folder if end == "<|im_end|>" else glm_folder)
    end_id = vocabulary_of(chatml_folder if end == "<|im_end|>" else glm_folder)[end]
    num_kept, tail = tokenizer.append([7, end_id], [HI, HELLO], [], None, {})
    assert (num_kept, tokenizer.decode(tail)[:2]) == (2, "<|")
    assert tokenizer.max_trim_tokens == 0


def test_an_empty_suffix_opens_the_next_turn_only(qwen3: HFTokenizer) -> None:
    num_kept, tail = qwen3.append([9707, IM_END], [HI, HELLO], [], None, {})
    assert (num_kept, qwen3.decode(tail)) == (2, "\n<|im_start|>assistant\n")


@pytest.mark.parametrize("ended_with", ["<|observation|>", "<|user|>"])
@pytest.mark.parametrize("message", [HI, RESULT], ids=["user", "tool"])
def test_the_token_that_ends_a_glm_turn_gives_way_to_the_templates(
    glm: HFTokenizer, glm_id: dict[str, int], ended_with: str, message: Message
) -> None:
    checkpoint = [7, 8, glm_id[ended_with]]
    prompt = appended_to(glm, checkpoint, [HI, HELLO], [message])
    opening = {"user": "<|user|>", "tool": "<|observation|>"}[str(message["role"])]
    assert prompt[:3] == [7, 8, glm_id[opening]]


def test_a_glm_turn_that_was_cut_off_is_kept_whole(glm: HFTokenizer) -> None:
    kwargs = glm.template_kwargs(None)
    assert glm.append([7, 8, 9], [HI, HELLO], [HI], None, kwargs)[0] == 3


def test_a_glm_prompt_may_lack_one_token_of_the_turn_before(glm: HFTokenizer) -> None:
    assert glm.max_trim_tokens == 1


@pytest.mark.parametrize("kind", ["qwen3", "chatml"])
def test_a_chatml_prompt_lacks_no_token_of_the_turn_before(qwen3: HFTokenizer, kind: str) -> None:
    adapters: dict[str, TokenizerAdapter] = {"qwen3": qwen3, "chatml": ByteChatML()}
    tokenizer = adapters[kind]
    assert tokenizer.max_trim_tokens == 0


@pytest.mark.parametrize("kind", ["qwen3", "glm", "chatml"])
def test_tool_user_system_and_assistant_messages_may_be_appended(
    qwen3: HFTokenizer, glm: HFTokenizer, kind: str
) -> None:
    adapters: dict[str, TokenizerAdapter] = {"qwen3": qwen3, "glm": glm, "chatml": ByteChatML()}
    tokenizer = adapters[kind]
    assert tokenizer.allowed_append_roles == {"tool", "user", "system", "assistant"}


def test_the_messages_before_the_appended_ones_are_not_rendered_again(glm_folder: Path) -> None:
    template = (
        "{% for m in messages %}{{ raise_exception('seen') if m.content == 'old' }}"
        "<|{{ m.role }}|>{{ m.content }}{% endfor %}"
    )
    tokenizer = HFTokenizer(glm_folder, chat_template=template)
    stored = [{"role": "user", "content": "old"}, {"role": "assistant", "content": "old"}]
    assert tokenizer.decode(appended_to(tokenizer, [], stored, [HI])) == "<|user|>hi"


def test_the_template_sees_the_tool_calls_of_the_turn_that_is_appended_to(glm_folder: Path) -> None:
    template = (
        "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}"
        "{% if m.role == 'tool' %}{{ messages[loop.index0 - 1].tool_calls[0].function.name }}"
        "{{ messages[loop.index0 - 1].tool_calls[0].function.arguments.city }}{% endif %}"
        "{% endfor %}"
    )
    tokenizer = HFTokenizer(glm_folder, chat_template=template)
    called = {"function": {"name": "weather", "arguments": '{"city": "Paris"}'}}
    stored = [HI, {"role": "assistant", "content": None, "tool_calls": [called]}]
    prompt = appended_to(tokenizer, [], stored, [RESULT])
    assert tokenizer.decode(prompt) == "<|tool|>helloweatherParis"


def test_the_vocabularys_own_opening_token_is_not_put_before_a_tail(
    glm_folder: Path, tmp_path: Path
) -> None:
    """Llama-like tokenizers put one before every text; templates write theirs once."""
    begin = vocabulary_of(glm_folder)["<sop>"]
    document = json.loads((glm_folder / "tokenizer.json").read_text("utf-8"))
    document["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": "<sop>", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
        ],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {"<sop>": {"id": "<sop>", "ids": [begin], "tokens": ["<sop>"]}},
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(document), "utf-8")
    config = (glm_folder / "tokenizer_config.json").read_bytes()
    (tmp_path / "tokenizer_config.json").write_bytes(config)
    tokenizer = HFTokenizer(tmp_path, chat_template="{% for m in messages %}<|user|>hi{% endfor %}")
    assert begin not in tokenizer.render([HI], None, {})
    assert begin not in appended_to(tokenizer, [], [HI, HELLO], [HI])
