"""The published description against the application, the table of codes, and itself."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest
from server._serving import serving
from starlette.routing import Route

import sample_wire
from sample_wire.adapters import server
from sample_wire.adapters.server import ServerSettings, create_app
from sample_wire.adapters.server.codes import CODES
from sample_wire.adapters.server.passthrough import ALLOWED_PATHS

from ._description import DESCRIPTION, METHODS, operations, resolved

README: Final = (Path(server.__file__).parent / "README.md").read_text("utf-8")
PATHS: Final[dict[str, Any]] = DESCRIPTION["paths"]
APP: Final = create_app(ServerSettings(engine_url="http://127.0.0.1:1", tokenizer="chatml"))
CATCH_ALL: Final = "{path:path}"
OPERATIONS: Final = [*operations()]
NAMES: Final = [f"{method} {path}" for path, method, _ in OPERATIONS]


@pytest.fixture(scope="module")
def http() -> Iterator[httpx2.Client]:
    with (
        serving(APP) as port,
        httpx2.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client,
    ):
        yield client


def schemas_in(value: Any) -> Iterator[dict[str, Any]]:
    """All schemas below a schema, itself the first."""
    schema = resolved(value)
    yield schema
    inner = [*schema.get("properties", {}).values(), *schema.get("anyOf", ())]
    for one in [*inner, *([schema["items"]] if "items" in schema else [])]:
        yield from schemas_in(one)


def test_the_server_answers_with_the_description(http: httpx2.Client) -> None:
    response = http.get("/openapi.json")
    assert response.headers["content-type"] == "application/json"
    assert response.json() == DESCRIPTION


def test_it_names_the_version_of_the_package() -> None:
    assert DESCRIPTION["openapi"] == "3.1.0"
    assert DESCRIPTION["info"]["version"] == sample_wire.__version__


def test_it_has_the_paths_of_the_application_and_no_other() -> None:
    routes = [route.path for route in APP.routes if isinstance(route, Route)]
    assert len(routes) == len(APP.routes)
    named = [
        path.replace(CATCH_ALL, allowed)
        for path in routes
        for allowed in (ALLOWED_PATHS if CATCH_ALL in path else [""])
    ]
    assert sorted(named) == sorted(PATHS)


@pytest.mark.parametrize("path", PATHS)
def test_it_has_the_methods_that_a_path_allows_and_no_other(http: httpx2.Client, path: str) -> None:
    session_id = http.post("/sessions").json()["session_id"]
    response = http.request("PURGE", path.replace("{session_id}", session_id))
    assert response.status_code == 405
    described = {method.upper() for method in METHODS if method in PATHS[path]}
    assert set(response.headers["allow"].split(", ")) == described


@pytest.mark.parametrize("path", PATHS)
def test_it_has_the_parameters_that_a_path_names(path: str) -> None:
    told = [parameter["name"] for parameter in PATHS[path].get("parameters", [])]
    assert told == re.findall(r"{(\w+)}", path)


@pytest.mark.parametrize(("path", "method", "operation"), OPERATIONS, ids=NAMES)
def test_every_schema_can_be_judged(path: str, method: str, operation: dict[str, Any]) -> None:
    """References lead to one, and no keyword is used that nobody looks at: both would raise."""
    told = [operation.get("requestBody", {}), *operation["responses"].values()]
    schemas = [body["schema"] for one in told for body in one.get("content", {}).values()]
    judged = [inner for schema in schemas for inner in schemas_in(schema)]
    assert len(judged) >= len(schemas)
    assert schemas or method in ("head", "delete"), path


def test_every_schema_is_referred_to() -> None:
    text = json.dumps(DESCRIPTION)
    unused = [name for name in DESCRIPTION["components"]["schemas"] if f'/{name}"' not in text]
    assert unused == []


def test_every_code_of_an_operation_stands_with_it() -> None:
    """And a code that no described request is answered with stands nowhere."""
    text = json.dumps(PATHS)
    assert [code.name for code in CODES if f'"{code.name}"' in text] == [
        code.name for code in CODES if code.operations
    ]


def test_the_table_of_the_readme_is_that_of_the_codes() -> None:
    rows = re.findall(r"^\| (\d{3}) \| `([a-z_]+)` \| (.*) \|$", README, re.MULTILINE)
    assert rows == [(str(code.status), code.name, code.when) for code in CODES]


def test_the_routes_of_the_readme_are_those_of_the_description() -> None:
    """HEAD, and the slash at the end of a path, it tells in words."""
    told = re.findall(r"^\| `([A-Z]+) (/\S*)` \|", README, re.MULTILINE)
    described = {
        (method.upper(), path.replace("{session_id}", "{id}"))
        for path, method, _ in OPERATIONS
        if method != "head" and path != "/sessions/"
    }
    assert len(told) == len(set(told))
    assert set(told) == described
