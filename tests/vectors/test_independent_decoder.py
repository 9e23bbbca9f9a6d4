"""SPEC.md is complete: a decoder made from it alone reads and refuses what the vectors say."""

from __future__ import annotations

import ast
import json
import sys
import zlib
from pathlib import Path
from typing import Any, Final

import pytest

from . import independent_decoder
from ._all import CONFORMANCE
from ._meaning import with_empty_tokens
from ._spec import table
from .independent_decoder import RefusedError, decode_container, decode_reply

CORPUS: Final = Path(__file__).parent / "corpus"
ABOUT: Final[dict[str, dict[str, Any]]] = {
    path.stem: json.loads(path.read_text()) for path in sorted(CONFORMANCE.glob("*.json"))
}
_CASES: Final[list[dict[str, Any]]] = [
    case
    for case in json.loads((CORPUS / "manifest.json").read_text())["cases"]
    if not case.get("heavy")
]


def _names(prefix: str) -> list[str]:
    return [name for name in ABOUT if name.startswith(prefix)]


def _decode(about: dict[str, Any], data: bytes) -> Any:
    if about["layer"] == "sample":
        return decode_reply(data, about.get("field_set", 1))
    return {
        name: {"dtype": tensor.dtype, "shape": tensor.shape, "hex": tensor.data.hex()}
        for name, tensor in decode_container(data).items()
    }


def test_it_imports_the_standard_library_alone() -> None:
    tree = ast.parse(Path(independent_decoder.__file__).read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {
        name.split(".")[0]
        for node in imports
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else _aliases(node))
    }
    assert names <= sys.stdlib_module_names


def _aliases(node: ast.Import) -> list[str]:
    return [alias.name for alias in node.names]


@pytest.mark.parametrize("name", _names("y_"))
def test_it_reads_every_vector_to_its_meaning(name: str) -> None:
    meaning = ABOUT[name]["meaning"]
    if ABOUT[name]["layer"] == "sample":
        meaning = with_empty_tokens(meaning)
    found = _decode(ABOUT[name], (CONFORMANCE / f"{name}.bin").read_bytes())
    assert json.dumps(found, sort_keys=True) == json.dumps(meaning, sort_keys=True)


@pytest.mark.parametrize("name", _names("n_"))
def test_it_refuses_every_vector_by_the_rule_that_is_named(name: str) -> None:
    with pytest.raises(RefusedError) as raised:
        _decode(ABOUT[name], (CONFORMANCE / f"{name}.bin").read_bytes())
    assert raised.value.rule == ABOUT[name]["rule"]


@pytest.mark.parametrize("case", _CASES, ids=lambda case: case["name"])
def test_it_gives_every_case_of_the_corpus_its_verdict(case: dict[str, Any]) -> None:
    choices = {row["case"]: row["verdict"].split(":")[0] for row in table("12", "case")}
    expected = {"accept": "accept", "reject": "refuse"}.get(case["expect"]) or choices[case["name"]]
    data = (CORPUS / case["file"]).read_bytes()
    try:
        _decode(case, zlib.decompress(data) if case["encoding"] == "zlib" else data)
        verdict = "accept"
    except RefusedError:
        verdict = "refuse"
    assert verdict == expected, case["reason"]
