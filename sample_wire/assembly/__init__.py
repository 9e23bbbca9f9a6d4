"""Engine records to training samples: compute, truncate, merge.  Pure: no I/O, no server."""

from ._assemble import AssemblyResult, assemble, assemble_turns, oldest_weight_version
from .ledger import RowLedger
from .routing import RoutingSpec
from .turns import Turn, TurnReader

__all__ = [
    "AssemblyResult",
    "RoutingSpec",
    "RowLedger",
    "Turn",
    "TurnReader",
    "assemble",
    "assemble_turns",
    "oldest_weight_version",
]
