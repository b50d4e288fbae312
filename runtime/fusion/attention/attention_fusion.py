"""Fuse attention, so that its score matrices are not in memory, neither in the forward pass nor in gradients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from runtime.fusion.attention.fused_scores import FusedScores, OuterValues
from runtime.fusion.attention.groups import Dependences, SinkGroup, sink_groups
from runtime.fusion.attention.maxima import compares_reproducibly, counts_maxima
from runtime.fusion.attention.row_sums import rewrite_row_sums
from runtime.fusion.attention.scores import ScoreRegion, score_regions
from runtime.fusion.attention.sinks import Sink
from runtime.fusion.make_fusions import add_fusion
from spmd.analysis.fusion_emitter import ATTENTION
from spmd.analysis.side_effects import SideEffects
from spmd.builder import Builder, ModuleScope
from spmd.hlo import HloComputation, HloInstruction, HloModule, Opcode, Stage
from spmd.lazy_dataclass import dataclass
from spmd.passes.fuel import Fuel, FueledPass
from spmd.passes.interface import register_pass
from spmd.passes.rewrite import replace_and_prune
from spmd.shape import TupleShape


@register_pass
@dataclass(frozen=True)
class AttentionFusion(FueledPass):
    """Make fusions of attention, which compute the scores of queries and keys block by block.

        s = f32[8,512,512] dot(q, k)
        m = f32[8,512] reduce(s, -inf), dimensions={2}, to_apply=max
        e = f32[8,512,512] exponential(s - broadcast(m))
        l = f32[8,512] reduce(e, 0), dimensions={2}, to_apply=add
        p = f32[8,512,512] divide(e, broadcast(l))
        o = f32[8,512,64] dot(p, v)    =>    o = f32[8,512,64] fusion(q, k, v), kind=kCustom, calls={the above}

    Every product or reduction that contracts the columns or the rows of a score matrix is in a fusion with all
    elementwise operations and products of queries and keys that it needs, masks included. So a gradient computes the
    scores again, from the largest score and the sum of each row, which the forward fusion then returns (T. Dao et al.,
    FlashAttention, 2022). There is one fusion for the softmax and its product with the values, one for the gradient of
    the queries, and one for those of keys and values. The sums of weights times their gradients are computed from the
    output and its gradient.

    Attention of which a score matrix is needed in memory, for example as a result of the program, does not change.
    """

    name: ClassVar[str] = "attention-fusion"
    accepts: ClassVar[tuple[Stage, ...]] = (Stage.PARTITIONED, Stage.OPTIMIZED)

    def rewrite(self, module: HloModule, fuel: Fuel) -> bool:
        spent = fuel.spent
        scope = ModuleScope(module)
        for computation in _scheduled(module):
            _fuse(computation, scope, fuel)
        if fuel.spent > spent:
            module.computations = module.computations_post_order()
        return fuel.spent > spent


def _scheduled(module: HloModule) -> list[HloComputation]:
    """Return the computations that are not those of fusions."""
    fused = {x.to_apply for x in module.all_instructions() if x.opcode is Opcode.FUSION}
    return [one for one in module.computations if one not in fused]


def _regions(order: Iterable[HloInstruction]) -> list[ScoreRegion]:
    """Return the regions of one computation that become fusions."""
    return [region for region in score_regions(order) if compares_reproducibly(region)]


def _fuse(computation: HloComputation, scope: ModuleScope, fuel: Fuel) -> None:
    order = computation.post_order()
    regions = _regions(order)
    if not regions:
        return
    builder = Builder(computation, scope)
    if rewrite_row_sums(regions, builder, fuel):
        order = computation.post_order()
        regions = _regions(order)
    dependences = Dependences.of(order, regions)
    groups = [sink_groups(region, dependences) for region in regions]
    writer = _FusionWriter(builder, order, regions)
    for own in groups:
        outer = OuterValues(builder)
        # A softmax is last: only then it is known which of its rows others still need.
        for group in fuel.enough_for(sorted(own, key=lambda one: one.is_online)):
            writer.replace(group, outer)


class _FusionWriter:
    """Writer of the fusions of one computation, whose instructions ``order`` has before the first one is written."""

    def __init__(
        self, builder: Builder, order: Iterable[HloInstruction], regions: Iterable[ScoreRegion]
    ) -> None:
        self._builder = builder
        self._position = {x: n for n, x in enumerate(order)}
        self._counts = {
            sink for region in regions for sink in region.sinks if counts_maxima(sink, region)
        }
        self._effects = SideEffects()

    def replace(self, group: SinkGroup, outer: OuterValues) -> None:
        """Replace the sinks of ``group`` by the results of one fusion."""
        computation = self._builder.computation
        inner = self._builder.scope.module.new_computation("fused_attention")
        fused = FusedScores(group.region, inner, outer)
        copies = fused.write(group.sinks, self._position)
        sinks = group.sinks
        if group.is_online:
            sinks = _needed_outside(group.sinks, fused.read, self._position)
        results = [copies[sink] for sink in sinks]
        inner.root = results[0]
        if len(results) > 1:
            shape = TupleShape(tuple(x.shape for x in results))
            inner.root = inner.create(Opcode.TUPLE, shape, results)
        inner.remove_unused()
        made = add_fusion(computation, inner, fused.inputs, ATTENTION, sinks[-1].instruction)
        for sink, result in zip(sinks, made, strict=True):
            restored = outer.restored(result, sink)
            if sink in self._counts:
                one = self._builder.full(restored.array_shape, 1)
                restored = self._builder.maximum(restored, one)
            restored.sharding = sink.instruction.sharding
            replace_and_prune(sink.instruction, restored, self._effects)


def _needed_outside(
    sinks: Sequence[Sink],
    read: Iterable[HloInstruction],
    position: Mapping[HloInstruction, int],
) -> tuple[Sink, ...]:
    """Return the ``sinks`` that are still read when a fusion computes all of them.

    read: the instructions of which the fusion has copies.
    """
    unused = {sink.instruction for sink in sinks}
    inside = [x for x in read if x in position and x not in unused]
    for x in sorted(inside, key=position.__getitem__, reverse=True):
        if not x.is_root and all(user in unused for user in x.users):
            unused.add(x)
    return tuple(
        sink
        for sink in sinks
        if sink.instruction.is_root or any(user not in unused for user in sink.instruction.users)
    )
