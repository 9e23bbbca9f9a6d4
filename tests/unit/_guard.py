"""Classes defined on the spot, to see what the import-time guard says of them."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import pytest

from sample_wire import Sample, SampleBase, SchemaError

MISSING = object()


def define(
    annotation: Any, default: Any = None, *, base: type[SampleBase] = Sample, name: str = "foo"
) -> type[Any]:
    """A subclass with one more field, by default an optional one called foo."""
    namespace: dict[str, Any] = {"__annotations__": {name: annotation}}
    if default is not MISSING:
        namespace[name] = default
    return type("Defined", (base,), namespace)


def computed(declaration: object, annotation: Any = Any, default: Any = None) -> type[Any]:
    """A subclass whose field foo is declared so."""
    return define(Annotated[annotation, declaration], default)


def guard_refuses(declaration: object, annotation: Any = Any, default: Any = None) -> SchemaError:
    """The guard's error for a field foo declared so; it names class and field."""
    with pytest.raises(SchemaError) as caught:
        computed(declaration, annotation, default)
    assert caught.value.field == "foo"
    assert str(caught.value).startswith("Defined.foo")
    return caught.value


def new_list() -> Any:
    """A default of a new list for each instance."""
    return dataclasses.field(default_factory=list)
