"""What `import sample_wire` brings in: numpy, msgspec, safetensors, and nothing heavy beside."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

DEPENDENCIES = "import numpy, msgspec, safetensors"
OURS = ("sample_wire", "numpy", "msgspec", "safetensors")
HEAVY = ("torch", "ray", "asyncio", "http", "urllib", "socket", "ssl", "email", "multiprocessing")


def imported_by(statement: str) -> set[str]:
    """The modules that a fresh interpreter holds after a statement."""
    script = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return {*json.loads(done.stdout)}


@pytest.fixture(scope="module")
def beyond_dependencies() -> set[str]:
    return imported_by("import sample_wire") - imported_by(DEPENDENCIES)


@pytest.fixture(scope="module")
def rollout_modules() -> set[str]:
    return imported_by("import sample_wire.rollout") - imported_by(DEPENDENCIES)


def test_nothing_is_imported_but_ours_the_dependencies_and_the_standard_library(
    beyond_dependencies: set[str],
) -> None:
    foreign = {
        name
        for name in beyond_dependencies
        if name.partition(".")[0] not in {*sys.stdlib_module_names, *OURS}
    }
    assert foreign == set()


@pytest.mark.parametrize("name", HEAVY)
def test_no_heavy_module_is_imported(name: str, beyond_dependencies: set[str]) -> None:
    found = {one for one in beyond_dependencies if one.partition(".")[0] == name}
    assert found == set()


@pytest.mark.parametrize("name", ["cli", "demo", "inspection", "bench", "adapters", "rollout"])
def test_the_outer_layers_are_not_imported(name: str, beyond_dependencies: set[str]) -> None:
    prefix = f"sample_wire.{name}"
    assert not any(one == prefix or one.startswith(prefix + ".") for one in beyond_dependencies)


@pytest.mark.parametrize("name", [*HEAVY, "httpx2", "sample_wire.adapters", "sample_wire.demo"])
def test_rollout_brings_in_nothing_that_does_io(name: str, rollout_modules: set[str]) -> None:
    assert not any(one == name or one.startswith(name + ".") for one in rollout_modules)
