"""The one list of passes on collectives: importing this module registers them."""

from __future__ import annotations

from collectives.passes.all_gather_combiner import AllGatherCombiner
from collectives.passes.all_gather_cse import AllGatherCse
from collectives.passes.all_gather_dynamic_slice_simplifier import AllGatherDynamicSliceSimplifier
from collectives.passes.all_reduce_combiner import AllReduceCombiner
from collectives.passes.all_reduce_reassociate import AllReduceReassociate
from collectives.passes.all_reduce_simplifier import AllReduceSimplifier
from collectives.passes.async_creation import AsyncCreation
from collectives.passes.async_to_sync import AsyncToSync
from collectives.passes.collective_permute_combiner import CollectivePermuteCombiner
from collectives.passes.collective_permute_cse import CollectivePermuteCse
from collectives.passes.collective_permute_motion import CollectivePermuteMotion
from collectives.passes.collective_permute_simplifier import CollectivePermuteSimplifier
from collectives.passes.collective_pipeliner import CollectivePipeliner
from collectives.passes.combining import CollectiveCombiner
from collectives.passes.exchange_pipeliner import ExchangePipeliner
from collectives.passes.latency_hiding_scheduler import LatencyHidingScheduler
from collectives.passes.reduce_scatter_combiner import ReduceScatterCombiner
from collectives.passes.reduce_scatter_creator import ReduceScatterCreator
from collectives.passes.reduce_scatter_reassociate import ReduceScatterReassociate
from collectives.passes.while_loop_all_reduce_code_motion import WhileLoopAllReduceCodeMotion
from collectives.passes.windowed_einsum import WindowedEinsum
from spmd.passes.interface import HloPass

#: Fewer collectives, or smaller ones, of the same values.
COLLECTIVE_SIMPLIFICATION: tuple[HloPass, ...] = (
    AllReduceSimplifier(),
    ReduceScatterCreator(),
    AllReduceReassociate(),
    ReduceScatterReassociate(),
    WhileLoopAllReduceCodeMotion(),
    AllGatherDynamicSliceSimplifier(),
    AllGatherCse(),
    CollectivePermuteSimplifier(),
    CollectivePermuteCse(),
    CollectivePermuteMotion(),
)

#: One collective instead of several. A gathered value stays live until its last use, so only small ones are combined;
#: if that needs another copy, only those that are copied in less time than a collective starts.
COLLECTIVE_COMBINING: tuple[CollectiveCombiner, ...] = (
    AllReduceCombiner(),
    ReduceScatterCombiner(),
    AllGatherCombiner(max_bytes=4 << 20),
    AllGatherCombiner(max_bytes=1 << 16, by_dimension=False),
    CollectivePermuteCombiner(),
)

#: For machines that compute while bytes move, with these machines' options (launch/stages/collective_pipelines.py).
FOR_OVERLAP: tuple[type[HloPass], ...] = (
    ExchangePipeliner,
    AsyncCreation,
    AsyncToSync,
    CollectivePipeliner,
    LatencyHidingScheduler,
    WindowedEinsum,
)
