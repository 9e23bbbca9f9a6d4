"""All conformance vectors, and how they lie on disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from ._accepted import accepted_vectors
from ._compact_accepted import accepted_compact_vectors
from ._compact_refused import refused_compact_vectors
from ._kit import Vector
from ._refused import refused_vectors

CONFORMANCE: Final = Path(__file__).parent / "conformance"


def all_vectors() -> dict[str, Vector]:
    """Every vector by its name, which is unique."""
    made = [
        *accepted_vectors(),
        *refused_vectors(),
        *accepted_compact_vectors(),
        *refused_compact_vectors(),
    ]
    found = {vector.name: vector for vector in made}
    if len(found) != len(made):
        raise ValueError("two vectors have one name")
    return found


def about_text(vector: Vector) -> str:
    """The text of the JSON file beside a vector."""
    return json.dumps(vector.about, indent=1) + "\n"


def write_all() -> None:
    """Writes every vector and its JSON; takes no file away."""
    CONFORMANCE.mkdir(exist_ok=True)
    for vector in all_vectors().values():
        (CONFORMANCE / f"{vector.name}.bin").write_bytes(vector.data)
        (CONFORMANCE / f"{vector.name}.json").write_text(about_text(vector), encoding="ascii")
