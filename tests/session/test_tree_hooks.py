"""Hooks over a tree's samples: each completion trained once, and hooks of an operator's own."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sample_wire.errors import SessionError
from sample_wire.sample import Sample, Status
from sample_wire.session import Collected, SampleHooks, SampleOptions
from sample_wire.session.tree_samples import drop_retries, train_once

from ._trees import A1, A2, T1, T2, U1, collect, forked, grow, leaf_ids, masks
from ._words import Words, refusal, say, tree


def hooks_here(**names: str) -> SampleHooks:
    """Hooks of this module."""
    return SampleHooks.load(**{key: f"{__name__}.{name}" for key, name in names.items()})


def all_of_them(samples: list[Any], _metadata: dict[str, Any]) -> list[Any]:
    return samples


# Each completion is trained once.


def test_a_completion_on_two_paths_is_trained_in_the_sample_of_the_earlier_leaf() -> None:
    found = collect(forked())
    early, late = found.samples
    spans = [node["completion_span"] for node in found.session_metadata["tree"]["nodes"]]
    num_prompt = spans[0][0]
    assert masks(found)[0][:2] == [1, 1]
    assert masks(found)[1][:2] == [0, 0]
    assert masks(found)[1][-1] == 1
    for sample, nodes in ((early, (0, 1, 2)), (late, (3,))):
        trained = np.flatnonzero(sample.loss_mask) + num_prompt
        places = [place for node in nodes for place in range(*spans[node])]
        assert trained.tolist() == places


def test_a_dropped_leaf_owns_nothing() -> None:
    session = tree()
    grow(session, U1, says=A1, output=(50, 51))
    grow(session, U1, A1, T1)
    grow(session, U1, A1, T1)
    (sample,) = collect(session).samples
    assert sample.loss_mask is not None
    assert sample.loss_mask[:2].tolist() == [1, 1]


def test_masks_are_those_of_one_call_alone() -> None:
    session = forked()
    assert masks(collect(session)) == masks(collect(session))


def test_a_completion_that_was_cut_in_the_middle_is_masked_as_far_as_it_goes() -> None:
    session = tree()
    grow(session, U1, says=A1, output=(50, 51, 52))
    grow(session, U1, A1, T1)
    grow(session, say("user", "other"), says=A1)
    grow(session, U1, A1, say("tool", "t1'"))
    num_prompt = session.metadata(None)["tree"]["nodes"][0]["completion_span"][0]
    found = collect(session, num_prompt + 2, hooks=hooks_here(pick="all_of_them"))
    by_leaf = dict(zip(leaf_ids(found), masks(found), strict=True))
    assert by_leaf[1] == [1, 1]
    assert by_leaf[3] == [0, 0]
    assert {sample.status for sample in found.samples} >= {Status.TRUNCATED}


def test_a_dropped_last_id_of_a_shared_turn_is_trained_by_nobody() -> None:
    words = Words(max_trim_tokens=1)
    session = tree(words)
    mark = words.id_of("<tool>")
    grow(session, U1, says=A1, output=(50, mark))
    grow(session, U1, A1, say("user", "x"), output=(60,))
    grow(session, U1, A1, say("user", "y"), says=A2, output=(70,))
    grow(session, U1, A1, say("user", "y"), A2, T2, output=(80,))
    first, second = collect(session, hooks=hooks_here(pick="all_of_them")).samples
    assert first.loss_mask is not None
    assert first.loss_mask.tolist()[:2] == [1, 0]
    assert second.loss_mask is not None
    assert second.loss_mask.tolist()[:2] == [0, 0]
    assert int(second.loss_mask.sum()) == 2


# Hooks of an operator's own.


def newest_leaf(samples: list[Any], _metadata: dict[str, Any]) -> list[Any]:
    return samples[-1:]


def none_of_them(_samples: list[Any], _metadata: dict[str, Any]) -> list[Any]:
    return []


def twice(samples: list[Any], _metadata: dict[str, Any]) -> list[Any]:
    return [samples[0], samples[0]]


def another(_samples: list[Any], _metadata: dict[str, Any]) -> list[Any]:
    return [Sample()]


def as_tuple(samples: list[Any], _metadata: dict[str, Any]) -> Any:
    return tuple(samples)


def raises(_samples: list[Any], _metadata: dict[str, Any]) -> list[Any]:
    raise KeyError("what")


class UntellableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("never")


def raises_no_text(_samples: list[Any], _metadata: dict[str, Any]) -> list[Any]:
    raise ValueError("\udcff file")


def raises_untellable(_samples: list[Any], _metadata: dict[str, Any]) -> list[Any]:
    raise UntellableError


def exits(_samples: list[Any], _metadata: dict[str, Any]) -> list[Any]:
    sys.exit("done here")


def interrupted(_samples: list[Any], _metadata: dict[str, Any]) -> list[Any]:
    raise KeyboardInterrupt


def adds_to_the_report(samples: list[Any], metadata: dict[str, Any]) -> list[Any]:
    for told in (*(sample.metadata for sample in samples), metadata):
        told["tito_session_mismatch"].append({"planted": 1})
    return samples


def no_samples(_samples: list[Any], _metadata: dict[str, Any]) -> list[Any]:
    return [{}]


def clears(samples: list[Any], metadata: dict[str, Any]) -> list[Any]:
    kept = list(samples)
    samples.clear()
    return train_once(drop_retries(kept, metadata), metadata)


async def later(samples: list[Any], _metadata: dict[str, Any]) -> list[Any]:
    return samples


async def generates(samples: list[Any], _metadata: dict[str, Any]) -> Any:
    yield samples


def of_one(samples: list[Any]) -> list[Any]:
    return samples


NOT_CALLABLE = 7


def hooked(**names: str) -> Collected:
    """What hooks of this module send of a tree of two turns."""
    session = tree()
    grow(session, U1, says=A1, output=(50, 51))
    grow(session, U1, A1, T1, says=A2, output=(60,))
    return collect(session, hooks=hooks_here(**names))


def test_hooks_of_ones_own_pick_and_process() -> None:
    assert leaf_ids(hooked(pick="newest_leaf")) == [1]
    assert leaf_ids(hooked(pick="clears", post_process="all_of_them")) == [1]
    assert hooked(post_process="another").samples[0].response_length == 0


@pytest.mark.parametrize("hook", ["pick", "post_process"])
def test_hooks_that_leave_nothing_give_no_sample_and_say_why(hook: str) -> None:
    found = hooked(**{hook: "none_of_them"})
    assert (found.samples, found.empty_reason) == ([], "all_truncated")


def test_hooks_are_not_asked_where_there_is_no_sample() -> None:
    hooks = hooks_here(pick="raises", post_process="raises")
    assert collect(tree(), hooks=hooks).empty_reason == "no_records"
    assert collect(forked(), 0, hooks=hooks).empty_reason == "all_truncated"


BAD_HOOKS = {
    "pick_twice": ("pick", "twice", "it gave a sample twice, or one that it was not given"),
    "pick_another": ("pick", "another", "it gave a sample twice, or one that it was not given"),
    "pick_no_sample": ("pick", "no_samples", "it gave a sample twice, or one"),
    "pick_tuple": ("pick", "as_tuple", "it gave a tuple, not a list"),
    "pick_raises": ("pick", "raises", "KeyError: 'what'"),
    "pick_raises_no_text": ("pick", "raises_no_text", "ValueError: \\udcff file"),
    "pick_raises_untellable": ("pick", "raises_untellable", "UntellableError: it has no text"),
    "pick_exits": ("pick", "exits", "SystemExit: done here"),
    "process_tuple": ("post_process", "as_tuple", "it gave a tuple, not a list"),
    "process_raises": ("post_process", "raises", "KeyError: 'what'"),
    "process_no_sample": ("post_process", "no_samples", "it gave something that is no Sample"),
}


@pytest.mark.parametrize(("hook", "name", "why"), BAD_HOOKS.values(), ids=BAD_HOOKS)
def test_a_hook_that_fails_is_a_422_that_names_both(hook: str, name: str, why: str) -> None:
    with pytest.raises(SessionError) as error:
        hooked(**{hook: name})
    assert refusal(error) == (422, "hook_failed")
    text = str(error.value)
    assert f"the {hook.replace('_', '-')} hook failed" in text
    assert f"{__name__}.{name}" in text
    default = {"pick": "train_once", "post_process": "drop_retries"}[hook]
    assert f"sample_wire.session.tree_samples.{default}" in text
    assert why in text


def test_an_interrupt_is_no_failure_of_the_hook_that_it_meets() -> None:
    with pytest.raises(KeyboardInterrupt):
        hooked(pick="interrupted")


def test_a_hook_cannot_change_the_report_that_the_server_keeps() -> None:
    session, report = forked(), [{"type": "assistant_text"}]
    mismatches = dict.fromkeys(session.ends(), report)
    made = session.collecting(None, None, mismatches, SampleOptions())()
    done = hooks_here(post_process="adds_to_the_report").apply(made, Sample)
    assert done.session_metadata["tito_session_mismatch"] == [{"type": "assistant_text"}]
    assert done.samples[0].metadata["tito_session_mismatch"][1:] == [{"planted": 1}]
    assert report == [{"type": "assistant_text"}]


WRONG_PATHS = {
    "no_dots": ("collect", "is no dotted path"),
    "no_module": ("no_such_module_here.hook", "cannot be imported"),
    "empty": ("", "is no dotted path"),
    "no_name": (f"{__name__}.no_such_name", "cannot be imported"),
    "not_callable": (f"{__name__}.NOT_CALLABLE", "is no synchronous function"),
    "async": (f"{__name__}.later", "is no synchronous function"),
    "async_generator": (f"{__name__}.generates", "is no synchronous function"),
    "one_argument": (f"{__name__}.of_one", "does not take (samples, session_metadata)"),
}


@pytest.mark.parametrize(("path", "why"), WRONG_PATHS.values(), ids=WRONG_PATHS)
@pytest.mark.parametrize("hook", ["pick", "post_process"])
def test_a_path_that_leads_to_no_hook_is_refused_at_start(hook: str, path: str, why: str) -> None:
    text = f"{hook.replace('_', '-')} hook {path!r} {why}"
    with pytest.raises(ValueError, match=f"^{re.escape(text)}"):
        SampleHooks.load(**{hook: path})


def test_a_module_whose_own_code_fails_is_refused_at_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_hooks.py").write_text("raise RuntimeError('not today')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=r"broken_hooks\.pick' cannot be imported: not today"):
        SampleHooks.load(pick="broken_hooks.pick")


def test_a_builtin_that_does_not_tell_its_arguments_is_taken() -> None:
    assert SampleHooks.load(pick="builtins.max").pick_path == "builtins.max"
