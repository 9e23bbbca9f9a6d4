"""Hooks of an operator's own over the samples of a tree, and settings that are refused at start."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest

from sample_wire.adapters.server import ServerSettings, create_app

from ._errors import error_of
from ._numbers import NumberTokenizer
from ._sglang import USER, speaks
from ._stub import PATIENCE_S, Gate, StubEngine
from ._trees import A1, OTHER_TOOL, collect, grow, say
from .conftest import StartServer


def newest(samples: list[Any], metadata: dict[str, Any]) -> list[Any]:
    return samples[-metadata["agent"]["count"] :]


def raises(_samples: list[Any], _metadata: dict[str, Any]) -> list[Any]:
    raise RuntimeError("no samples today")


def unwritable(samples: list[Any], _metadata: dict[str, Any]) -> list[Any]:
    for sample in samples:
        sample.metadata["set"] = {1}
    return samples


async def later(samples: list[Any], _metadata: dict[str, Any]) -> list[Any]:
    return samples


HOOK_GATES: list[Gate] = []


def waits(samples: list[Any], _metadata: dict[str, Any]) -> list[Any]:
    HOOK_GATES.pop().pass_through()
    return samples


def test_a_slow_hook_holds_up_nobody_else(
    threads: ThreadPoolExecutor, start: StartServer, engine: StubEngine
) -> None:
    session = start(trajectory="tree", pick=f"{__name__}.waits").create()
    grow(session, engine)
    gates = [Gate() for _ in range(8)]
    HOOK_GATES.extend(gates)
    futures = [threads.submit(collect, session) for _ in gates]
    for gate in gates:
        gate.wait_for_request()
    assert session.site.http.get("/health").status_code == 200
    say(session, engine, speaks([60]), USER, A1, OTHER_TOOL)
    for gate in gates:
        gate.open()
    for future in futures:
        reply = future.result(PATIENCE_S)
        assert [sample.metadata["leaf"]["node_id"] for sample in reply.samples] == [1, 3, 4]
        assert len(reply.session_metadata["tree"]["nodes"]) == 5


def test_an_operators_hook_picks_the_samples(start: StartServer, engine: StubEngine) -> None:
    session = start(trajectory="tree", pick=f"{__name__}.newest").create()
    grow(session, engine)
    for count in (1, 2, 3):
        reply = collect(session, metadata={"count": count})
        leaves = [sample.metadata["leaf"]["node_id"] for sample in reply.samples]
        assert leaves == [1, 3, 4][-count:]


def test_a_hook_that_fails_is_a_422_that_names_it_and_loses_nothing(
    start: StartServer, engine: StubEngine
) -> None:
    path = f"{__name__}.raises"
    session = start(trajectory="tree", post_process=path).create()
    grow(session, engine)
    status, code, text = error_of(session.samples())
    assert (status, code) == (422, "hook_failed")
    assert path in text
    assert "sample_wire.session.tree_samples.drop_retries" in text
    assert text.endswith("RuntimeError: no samples today")
    assert len(session.dump()["metadata"]["tree"]["nodes"]) == 5


def test_what_a_hook_leaves_that_cannot_be_written_is_a_422(
    start: StartServer, engine: StubEngine
) -> None:
    session = start(trajectory="tree", post_process=f"{__name__}.unwritable").create()
    grow(session, engine)
    status, code, text = error_of(session.samples())
    assert (status, code) == (422, "encode_failed")
    assert "metadata" in text


REFUSED: Final = {
    "async_hook": ({"trajectory": "tree", "pick": f"{__name__}.later"}, "synchronous"),
    "no_hook": ({"trajectory": "tree", "post_process": "no_such_module.hook"}, "imported"),
    "hook_of_a_line": ({"pick": f"{__name__}.newest"}, "hooks are for trees"),
    "field_set_1": ({"trajectory": "tree", "field_set": 1}, "rewards"),
    "ring": ({"trajectory": "ring"}, "'ring' is none of linear, tree"),
}


@pytest.mark.parametrize(("settings", "why"), REFUSED.values(), ids=REFUSED)
def test_settings_that_do_not_hold_are_refused_at_start(settings: Any, why: str) -> None:
    made = ServerSettings(engine_url="http://127.0.0.1:1", tokenizer="of the test", **settings)
    with pytest.raises(ValueError, match=why):
        create_app(made, tokenizer=NumberTokenizer())
