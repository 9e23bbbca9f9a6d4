"""A server that is given a model's folder: its template, its boundary rule, its ids."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tokenizer._folders import QWEN3_ADDED, QWEN3_TEMPLATE, write_small

from sample_wire.adapters.server import ServerSettings, create_app
from sample_wire.adapters.tokenizer import HFTokenizer

from ._errors import refusal
from ._serving import Handle, Site, serving
from ._sglang import USER, speaks
from ._stub import StubEngine

SAID = {"role": "assistant", "content": "yo"}
Serve = Callable[..., Site]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small(tmp_path_factory.mktemp("model"), QWEN3_ADDED, template=QWEN3_TEMPLATE)


@pytest.fixture
def serve(engine: StubEngine, folder: Path) -> Iterator[Serve]:
    """Starts a server on the folder, as `sample-wire serve` does."""
    with contextlib.ExitStack() as stack:

        def serve(**settings: Any) -> Site:
            made = ServerSettings(engine_url=engine.url, tokenizer=str(folder), **settings)
            site = Site(stack.enter_context(serving(create_app(made))))
            stack.enter_context(site.http)
            return site

        yield serve


def two_prompts(session: Handle, engine: StubEngine, output: list[int]) -> list[list[int]]:
    """The prompts' ids of a turn that ends with these ids, and of the turn after it."""
    engine.will(speaks(output, message=SAID), speaks(output, message=SAID))
    assert session.chat([USER]).status_code == 200
    assert session.chat([USER, SAID, USER]).status_code == 200
    return [seen.json["input_ids"] for seen in engine.seen]


def test_prompts_are_those_of_the_models_template(
    serve: Serve, engine: StubEngine, folder: Path
) -> None:
    model = HFTokenizer(folder, family="qwen3")
    output = ids_behind_a_prompt(model, "yo<|im_end|>")
    first, second = two_prompts(serve(family="qwen3").create(), engine, output)
    assert first == model.render([USER], None, {})
    assert second == model.render([USER, SAID, USER], None, {})


def test_a_template_file_takes_the_place_of_the_models(
    serve: Serve, engine: StubEngine, folder: Path, tmp_path: Path
) -> None:
    file = tmp_path / "mine.jinja"
    file.write_text("{% for one in messages %}{{ one.role }}: {{ one.content }};{% endfor %}")
    session = serve(family="qwen3", chat_template=str(file)).create()
    engine.will(speaks([0], message=SAID))
    assert session.chat([USER]).status_code == 200
    prompt = engine.seen[0].json["input_ids"]
    assert HFTokenizer(folder, family="qwen3").decode(prompt) == "user: 1 2 3;"


@pytest.mark.parametrize("token_id", [2**32, 2**40])
def test_an_id_that_the_vocabulary_cannot_have_is_a_token_without_text(
    serve: Serve, engine: StubEngine, token_id: int
) -> None:
    session = serve(family="qwen3").create()
    engine.will(speaks([token_id], message=SAID))
    assert session.chat([USER]).status_code == 200
    (sample,) = session.collect().samples
    assert sample.tokens.tolist()[-1] == token_id
    assert sample.response == ""


def test_an_id_below_0_is_no_reply(serve: Serve, engine: StubEngine) -> None:
    session = serve(family="qwen3").create()
    engine.will(speaks([-10], message=SAID))
    assert refusal(session.chat([USER])) == (502, "bad_engine_reply")
    assert session.num_records() == 0


def ids_behind_a_prompt(model: HFTokenizer, text: str) -> list[int]:
    """The ids of what the template writes behind the prompt of a first turn."""
    whole, start = model.render([USER, SAID, USER], None, {}), len(model.render([USER], None, {}))
    ends = (end for end in range(start, len(whole)) if model.decode(whole[start:end]) == text)
    return whole[start : next(ends)]
