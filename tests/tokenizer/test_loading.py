"""Which folder, template and family make a tokenizer, and what is imported for it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sample_wire.adapters.tokenizer import ByteChatML, HFTokenizer, load_tokenizer

from ._folders import GLM_ADDED, write_small

HI = [{"role": "user", "content": "hi"}]


def test_chatml_names_the_byte_level_tokenizer() -> None:
    assert isinstance(load_tokenizer("chatml"), ByteChatML)


def test_any_other_name_is_a_folder(glm_folder: Path) -> None:
    tokenizer = load_tokenizer(str(glm_folder), family="glm", template_kwargs={"a": 1})
    assert isinstance(tokenizer, HFTokenizer)
    assert tokenizer.max_trim_tokens == 1
    assert tokenizer.template_kwargs(None) == {"a": 1, "clear_thinking": False}


def test_the_setting_of_a_template_is_the_path_of_a_file(glm_folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "template.jinja"
    file.write_text("hello {{ messages[0].content }}", encoding="utf-8")
    tokenizer = load_tokenizer(str(glm_folder), chat_template=str(file))
    assert tokenizer.decode(tokenizer.render(HI, None, {})) == "hello hi"


def test_a_template_file_that_is_not_there_is_an_error(glm_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"absent\.jinja"):
        load_tokenizer(str(glm_folder), chat_template=str(tmp_path / "absent.jinja"))


@pytest.mark.parametrize(
    "settings", [{"family": "glm"}, {"chat_template": "{{ 1 }}"}], ids=["family", "template"]
)
def test_the_byte_level_tokenizer_takes_no_family_and_no_template(settings: Any) -> None:
    with pytest.raises(ValueError, match="takes neither"):
        load_tokenizer("chatml", **settings)


def test_the_byte_level_tokenizer_takes_template_arguments() -> None:
    tokenizer = load_tokenizer("chatml", template_kwargs={"a": 1})
    assert tokenizer.template_kwargs(None) == {"a": 1}


@pytest.mark.parametrize("name", ["Qwen/Qwen3-0.6B", "no such folder", ""])
def test_a_name_that_is_no_folder_is_refused_and_not_downloaded(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is no folder"):
        HFTokenizer(tmp_path / name / "absent")


@pytest.mark.parametrize("text", [None, "", "{", '{"model": 5}'], ids=repr)
def test_a_folder_without_a_sound_tokenizer_is_refused(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "tokenizer.json").write_text(text, encoding="utf-8")
        config = '{"tokenizer_class": "PreTrainedTokenizerFast"}'
        (tmp_path / "tokenizer_config.json").write_text(config, encoding="utf-8")
    with pytest.raises(ValueError, match="no tokenizer can be loaded from"):
        HFTokenizer(tmp_path)


def test_a_folder_without_a_fast_tokenizer_is_refused(tmp_path: Path) -> None:
    config = {"tokenizer_class": "ByT5Tokenizer"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="has no fast tokenizer"):
        HFTokenizer(tmp_path, chat_template="hello")


def test_an_unknown_family_is_refused(glm_folder: Path) -> None:
    with pytest.raises(ValueError, match="unknown tokenizer family 'llama': one of default, qwen3"):
        HFTokenizer(glm_folder, family="llama")


def test_a_vocabulary_of_another_family_is_refused(glm_folder: Path, chatml_folder: Path) -> None:
    with pytest.raises(ValueError, match=r"no <\|im_end\|> in the vocabulary.*qwen3"):
        HFTokenizer(glm_folder, family="qwen3")
    with pytest.raises(ValueError, match=r"no <\|observation\|> in the vocabulary.*glm"):
        HFTokenizer(chatml_folder, family="glm")


def test_a_vocabulary_without_one_token_for_the_separator_is_refused(
    chatml_folder: Path, tmp_path: Path
) -> None:
    document = json.loads((chatml_folder / "tokenizer.json").read_text("utf-8"))
    document["normalizer"] = {"type": "Replace", "pattern": {"String": "\n"}, "content": "\n|"}
    (tmp_path / "tokenizer.json").write_text(json.dumps(document), "utf-8")
    for name in ("tokenizer_config.json", "chat_template.jinja"):
        (tmp_path / name).write_bytes((chatml_folder / name).read_bytes())
    with pytest.raises(ValueError, match="is not one token"):
        HFTokenizer(tmp_path, family="qwen3")


def test_a_folder_without_a_template_is_refused_unless_one_is_given(tmp_path: Path) -> None:
    folder = write_small(tmp_path, GLM_ADDED, template=None)
    with pytest.raises(ValueError, match="no chat template"):
        HFTokenizer(folder)
    tokenizer = HFTokenizer(folder, chat_template="hello")
    assert tokenizer.decode(tokenizer.render(HI, None, {})) == "hello"


def test_a_template_may_be_given_as_the_path_of_a_file(glm_folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "template.jinja"
    file.write_text("hello {{ messages[0].content }}", encoding="utf-8")
    tokenizer = HFTokenizer(glm_folder, chat_template=file)
    assert tokenizer.decode(tokenizer.render(HI, None, {})) == "hello hi"


@pytest.mark.parametrize("template", ["{% for %}", "{{ 'open }}", "{% endif %}"])
def test_a_template_that_does_not_compile_is_refused(glm_folder: Path, template: str) -> None:
    with pytest.raises(ValueError, match="does not compile"):
        HFTokenizer(glm_folder, chat_template=template)


def test_code_in_the_folder_is_not_run(glm_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "mine.py").write_text(
        f"from pathlib import Path\nPath({str(tmp_path)!r}, 'ran').touch()\nclass Mine: ...\n"
    )
    config = {"tokenizer_class": "Mine", "auto_map": {"AutoTokenizer": [None, "mine.Mine"]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_bytes((glm_folder / "tokenizer.json").read_bytes())
    with pytest.raises(ValueError, match="trust_remote_code"):
        HFTokenizer(folder, chat_template="hello")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("folder", "family"), [("glm_folder", "glm"), ("chatml_folder", "qwen3")], ids=["glm", "qwen3"]
)
def test_a_vocabulary_whose_family_is_not_named_is_warned_of(
    folder: str, family: str, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    path = request.getfixturevalue(folder)
    HFTokenizer(path, family=family)
    assert caplog.messages == []
    HFTokenizer(path)
    (message,) = caplog.messages
    assert f"has the tokens of family {family}" in message


def test_a_vocabulary_of_no_family_is_not_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    HFTokenizer(write_small(tmp_path, (), template="hello"))
    assert caplog.messages == []


@pytest.mark.parametrize("package", ["transformers", "jinja2"])
def test_a_missing_package_is_named(
    glm_folder: Path, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=package):
        HFTokenizer(glm_folder)


def test_nothing_heavy_is_imported_before_a_folder_is_loaded() -> None:
    script = (
        "import sys\n"
        "from sample_wire.adapters.tokenizer import ByteChatML, HFTokenizer, load_tokenizer\n"
        "load_tokenizer('chatml').render([{'role': 'user', 'content': 'hi'}], None, {})\n"
        "heavy = {'transformers', 'tokenizers', 'jinja2', 'torch', 'asyncio', 'http'}\n"
        "print(sorted(heavy & sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
