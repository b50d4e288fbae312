"""The one list of device-independent passes: importing this module registers them."""

from __future__ import annotations

from spmd.passes.algebraic_simplifier import AlgebraicSimplifier
from spmd.passes.async_inliner import AsyncInliner
from spmd.passes.attention_expander import AttentionExpander
from spmd.passes.batch_norm_expander import BatchNormExpander
from spmd.passes.bitcast_decomposer import BitcastDecomposer
from spmd.passes.call_inliner import CallInliner
from spmd.passes.common_subexpression_elimination import CommonSubexpressionElimination
from spmd.passes.conditional_operand_simplifier import ConditionalOperandSimplifier
from spmd.passes.conditional_result_simplifier import ConditionalResultSimplifier
from spmd.passes.conditional_simplifier import ConditionalSimplifier
from spmd.passes.conditional_to_select import ConditionalToSelect
from spmd.passes.constant_folding import ConstantFolding
from spmd.passes.dead_code_elimination import DeadCodeElimination
from spmd.passes.defuser import Defuser
from spmd.passes.dynamic_index_splitter import DynamicIndexSplitter
from spmd.passes.dynamic_padder import DynamicPadder
from spmd.passes.dynamic_region_outliner import DynamicRegionOutliner
from spmd.passes.flatten_call_graph import FlattenCallGraph
from spmd.passes.gather_simplifier import GatherSimplifier
from spmd.passes.interface import HloPass
from spmd.passes.library_call_expander import LibraryCallExpander
from spmd.passes.map_inliner import MapInliner
from spmd.passes.optimize_input_output_buffer_alias import OptimizeInputOutputBufferAlias
from spmd.passes.reducer_simplifier import ReducerSimplifier
from spmd.passes.reducer_widener import ReducerWidener
from spmd.passes.rng_expander import RngExpander
from spmd.passes.rng_state_threading import RngStateThreading
from spmd.passes.scan_expander import ScanExpander
from spmd.passes.send_recv_pairing import SendRecvPairing
from spmd.passes.sort_simplifier import SortSimplifier
from spmd.passes.subcomputation_unification import SubcomputationUnification
from spmd.passes.topk_rewriter import TopkRewriter
from spmd.passes.tuple_simplifier import TupleSimplifier
from spmd.passes.update_forwarding import UpdateForwarding
from spmd.passes.while_loop_constant_sinking import WhileLoopConstantSinking
from spmd.passes.while_loop_double_buffer import WhileLoopDoubleBuffer
from spmd.passes.while_loop_invariant_code_motion import WhileLoopInvariantCodeMotion
from spmd.passes.while_loop_overwritten_state import WhileLoopOverwrittenState
from spmd.passes.while_loop_repeated_elements import WhileLoopRepeatedElements
from spmd.passes.while_loop_simplifier import WhileLoopSimplifier
from spmd.passes.while_loop_trip_count_annotator import WhileLoopTripCountAnnotator
from spmd.passes.while_loop_unroller import WhileLoopUnroller
from spmd.passes.zero_sized_hlo_elimination import ZeroSizedHloElimination

#: Passes that run only by name: they pay only with a scheduler.
BY_NAME: tuple[HloPass, ...] = (UpdateForwarding(), WhileLoopUnroller())

#: First passes on a program that another compiler has optimized.
OPENING: tuple[HloPass, ...] = (
    BitcastDecomposer(),
    AsyncInliner(),
    Defuser(),
    LibraryCallExpander(),
)

#: Passes that replace instructions that the runtime does not support.
LEGALIZATION: tuple[HloPass, ...] = (
    CallInliner(),
    ReducerSimplifier(),
    ReducerWidener(),
    SendRecvPairing(),
    DynamicIndexSplitter(),
    DynamicPadder(),
    DynamicRegionOutliner(),
    ScanExpander(),
    RngExpander(),
    RngStateThreading(),
    ConditionalToSelect(),
    MapInliner(),
    BatchNormExpander(),
    AttentionExpander(),
)

#: Simplification, to be run until nothing changes.
SIMPLIFICATION: tuple[HloPass, ...] = (
    AsyncInliner(),
    CallInliner(),
    FlattenCallGraph(),
    SubcomputationUnification(),
    TupleSimplifier(),
    ZeroSizedHloElimination(),
    AlgebraicSimplifier(),
    SortSimplifier(),
    TopkRewriter(),
    ConstantFolding(),
    GatherSimplifier(),
    ConditionalSimplifier(),
    ConditionalOperandSimplifier(),
    ConditionalResultSimplifier(),
    ConditionalToSelect(),
    WhileLoopConstantSinking(),
    WhileLoopInvariantCodeMotion(),
    WhileLoopRepeatedElements(),
    WhileLoopSimplifier(),
    CommonSubexpressionElimination(),
    DeadCodeElimination(),
)

#: Passes that annotate the simplified program: its loops, their memory, and the aliases of parameters and results.
ANNOTATION: tuple[HloPass, ...] = (
    WhileLoopDoubleBuffer(),
    WhileLoopTripCountAnnotator(),
    WhileLoopOverwrittenState(),
    OptimizeInputOutputBufferAlias(),
)
