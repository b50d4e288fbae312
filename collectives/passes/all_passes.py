"""The one list of passes on collectives: importing this module registers them."""

from __future__ import annotations

from collectives.passes.all_reduce_combiner import AllReduceCombiner
from collectives.passes.collective_pipeliner import CollectivePipeliner
from collectives.passes.reduce_scatter_combiner import ReduceScatterCombiner

__all__ = [
    "AllReduceCombiner",
    "CollectivePipeliner",
    "ReduceScatterCombiner",
]
