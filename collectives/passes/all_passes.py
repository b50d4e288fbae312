"""The one list of passes on collectives: importing this module registers them."""

from __future__ import annotations

from collectives.passes.all_reduce_combiner import AllReduceCombiner
from collectives.passes.all_reduce_contiguous import AllReduceContiguous
from collectives.passes.all_reduce_folder import AllReduceFolder
from collectives.passes.all_reduce_reassociate import AllReduceReassociate
from collectives.passes.collective_pipeliner import CollectivePipeliner
from collectives.passes.reduce_scatter_combiner import ReduceScatterCombiner
from collectives.passes.reduce_scatter_reassociate import ReduceScatterReassociate
from collectives.passes.windowed_einsum import WindowedEinsum

__all__ = [
    "AllReduceCombiner",
    "AllReduceContiguous",
    "AllReduceFolder",
    "AllReduceReassociate",
    "CollectivePipeliner",
    "ReduceScatterCombiner",
    "ReduceScatterReassociate",
    "WindowedEinsum",
]
