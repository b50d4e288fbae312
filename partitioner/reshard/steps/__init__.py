"""The step kinds, and the edges of each from a state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from partitioner.partition.shard_state import ShardState
from partitioner.reshard.problem import ReshardProblem
from partitioner.reshard.step import ReshardStep
from partitioner.reshard.steps.all_gather import all_gather_edges
from partitioner.reshard.steps.all_reduce import all_reduce_edges
from partitioner.reshard.steps.all_to_all import all_to_all_edges
from partitioner.reshard.steps.permute import permute_edges
from partitioner.reshard.steps.reduce_scatter import reduce_scatter_edges
from partitioner.reshard.steps.slice_step import slice_edges

#: Functions that yield the legal steps from a state, in a fixed order. Yielding fewer loses optimality, never
#: correctness.
Edges: TypeAlias = Callable[[ReshardProblem, ShardState], Iterator[ReshardStep]]

EDGES: tuple[Edges, ...] = (
    slice_edges,
    reduce_scatter_edges,
    all_to_all_edges,
    permute_edges,
    all_gather_edges,
    all_reduce_edges,
)
