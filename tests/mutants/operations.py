"""Planted bugs in how ops are partitioned: masks, identities, rules, offsets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

from partitioner.ops import (
    chosen_reduce,
    convolution,
    gather_scatter,
    mirrored,
    owned_slices,
    owner,
    reducers,
)
from partitioner.partition import candidates, generic
from partitioner.partition.context import PartitionContext
from partitioner.propagation import projection
from partitioner.propagation.op_sharding_rule import FactorKind
from partitioner.registry import PARTITIONERS, SHARDING_RULES
from spmd.device import ReductionKind
from spmd.hlo import Opcode
from spmd.ops.attrs import DimensionsAttrs
from spmd.ops.reduction import identity_value
from tests.mutants.patching import entry, function, method, mutant


@mutant("padding is not masked before a reduction", first=13)
def no_mask() -> AbstractContextManager[None]:
    return method(PartitionContext, "mask_padding", lambda self, value, dims, fill: value.hlo)


@mutant("the mask keeps one element of padding", first=13)
def mask_off_by_one() -> AbstractContextManager[None]:
    original = PartitionContext.valid

    def valid(self: PartitionContext, value: Any, dims: Any) -> Any:
        b, right = self.builder, self.builder.compare
        b.compare = lambda x, y, direction: right(x, y, "LE" if direction == "LT" else direction)
        try:
            return original(self, value, dims)
        finally:
            del b.compare

    return method(PartitionContext, "valid", valid)


@mutant("padding is masked with 0 whatever the reduction", first=166)
def mask_with_zero() -> AbstractContextManager[None]:
    return function(identity_value, lambda kind, element_type: 0)


@mutant("an init value (or a scatter's input) is counted on every device", first=16)
def init_counted_twice() -> AbstractContextManager[None]:
    return function(generic._only_first, lambda context, value, axes, identity: value.hlo)


@mutant("a contraction over a sharded dimension is not reduced", first=2)
def partial_forgotten() -> AbstractContextManager[None]:
    return function(candidates._partial, lambda rule, assignment: ((), None))


def _with_reductions(rule: Any, kind: ReductionKind) -> Any:
    return replace(
        rule,
        factors=tuple(
            replace(f, reduction=kind) if f.kind is FactorKind.REDUCTION else f
            for f in rule.factors
        ),
    )


@mutant("partial results of a dot combine by maximum", first=9)
def dot_reduced_by_max() -> AbstractContextManager[None]:
    return entry(
        SHARDING_RULES,
        Opcode.DOT,
        lambda rule: lambda dot: _with_reductions(rule(dot), ReductionKind.MAX),
    )


@mutant("a reduction's minimum is taken for a maximum", "reduce", first=5)
def reduce_min_as_max() -> AbstractContextManager[None]:
    original = reducers.reduction_of

    def reduction_of(computation: Any) -> Any:
        kind = original(computation)
        return ReductionKind.MAX if kind is ReductionKind.MIN else kind

    return function(original, reduction_of)


@mutant(
    "a convolution over sharded input features is not reduced but taken as it is", "convolution"
)
@contextmanager
def convolution_not_reduced() -> Iterator[None]:
    original = convolution.spatial_rule

    def rule(conv: Any, *, windowed: bool = True) -> Any:
        found = original(conv, windowed=windowed)
        factors = tuple(
            replace(f, kind=FactorKind.PASS_THROUGH, reduction=None) for f in found.factors
        )
        return replace(found, factors=factors)

    with function(original, rule), entry(SHARDING_RULES, Opcode.CONVOLUTION, lambda _: rule):
        yield


@mutant("a convolution's batch groups are taken for its feature groups", "convolution")
def convolution_groups_swapped() -> AbstractContextManager[None]:
    original = convolution.local_group_counts
    return function(original, lambda *sizes: tuple(reversed(original(*sizes))))


@mutant("the transposed dimensions of a rule are those of the inverse permutation", "transpose")
def transpose_inverted() -> AbstractContextManager[None]:
    def wrap(rule: Any) -> Any:
        def wrong(transpose: Any) -> Any:
            right = rule(transpose)
            dims = transpose.attrs_as(DimensionsAttrs).dimensions
            inverse = tuple(dims.index(d) for d in range(len(dims)))
            mapping = right.operands[0]
            swapped = tuple(mapping[inverse[d]] for d in range(len(dims)))
            return replace(right, results=(swapped,))

        return wrong

    return entry(SHARDING_RULES, Opcode.TRANSPOSE, wrap)


@mutant("every device's iota starts at 0", first=12)
def iota_without_offset() -> AbstractContextManager[None]:
    def wrap(partition: Any) -> Any:
        def wrong(context: Any, iota: Any) -> Any:
            context.offset = lambda state, dim, size: context.coordinate(())
            try:
                return partition(context, iota)
            finally:
                del context.offset

        return wrong

    return entry(PARTITIONERS, Opcode.IOTA, wrap)


@mutant("a split of a merged dimension is kept although its parts do not divide", "reshape")
def reshape_split_not_cut_back() -> AbstractContextManager[None]:
    return function(projection._cut_back, lambda axes, rule, parts, result: False)


@mutant("a reversed dimension is reversed within each tile", "reverse")
def reverse_within_tiles() -> AbstractContextManager[None]:
    return function(mirrored._mirrored, lambda context, value, dim: value.hlo)


@mutant("a mirrored dimension keeps its padding in front", "reverse")
def reverse_padding_in_front() -> AbstractContextManager[None]:
    def swapped(context: Any, value: Any, dim: int) -> Any:
        pairs = mirrored.mirror_pairs(context.axes, value.state.dims[dim])
        return context.builder.collective_permute(value.hlo, pairs)

    return function(mirrored._mirrored, swapped)


@mutant("positions that a tile's top-k finds are not moved by the tile's offset", "topk")
def topk_without_offset() -> AbstractContextManager[None]:
    def wrap(partition: Any) -> Any:
        def wrong(context: Any, topk: Any) -> Any:
            context.offset = lambda state, dim, size: context.coordinate(())
            try:
                return partition(context, topk)
            finally:
                del context.offset

        return wrong

    return entry(PARTITIONERS, Opcode.TOPK, wrap)


@mutant("a sorted dimension is sorted within each tile", "sort")
def sort_within_tiles() -> AbstractContextManager[None]:
    from partitioner.propagation.op_sharding_rule import RuleBuilder

    def rule(sort: Any) -> Any:
        builder = RuleBuilder.for_instruction(sort)
        everywhere = range(sort.num_operands)
        for d, size in enumerate(sort.operand(0).dims):
            builder.factor(size, dict.fromkeys(everywhere, d), dict.fromkeys(everywhere, d))
        return builder.build()

    return entry(SHARDING_RULES, Opcode.SORT, lambda _: rule)


@mutant("the owner of an element is looked for from its successor's offset on", first=1)
def owner_one_tile_off() -> AbstractContextManager[None]:
    original = owner.from_offset

    def from_offset(context: Any, position: Any, state: Any, dim: int, size: int) -> Any:
        found = original(context, position, state, dim, size)
        b = context.builder
        return b.subtract(found, b.broadcast_scalar(b.scalar_like(found, 1), found.dims))

    return function(original, from_offset)


@mutant("devices that do not own an element contribute what they find instead of zero", first=2)
def every_device_is_owner() -> AbstractContextManager[None]:
    def in_tile(context: Any, position: Any, tile: int) -> Any:
        b = context.builder
        return b.compare(position, position, "EQ")

    return function(owner.in_tile, in_tile)


@mutant("a start index is not clamped before its owner is looked for", first=8)
def start_not_clamped() -> AbstractContextManager[None]:
    return function(owner.clamped, lambda context, position, highest: position)


@mutant("a window that lies across tiles is written one element too far", first=8)
def margin_off_by_one() -> AbstractContextManager[None]:
    original = owned_slices._padded_starts

    def starts(
        context: Any, whole: Any, state: Any, positions: Any, margin: Any, split: Any
    ) -> Any:
        return original(context, whole, state, positions, [m + 1 for m in margin], split)

    return function(original, starts)


@mutant("the padding of an argmax's input may be chosen", "argmax", first=9)
def chosen_padding() -> AbstractContextManager[None]:
    return function(chosen_reduce._filled, lambda context, value, init, dims: value.hlo)


@mutant("an argmax is chosen within each shard alone", "argmax")
def chosen_per_shard() -> AbstractContextManager[None]:
    def gather(context: Any, value: Any, axes: Any) -> Any:
        return context.builder.reshape(value.hlo, (1, *value.hlo.dims))

    return function(chosen_reduce._gather_shards, gather)


@mutant("updates of a scatter split along their indices are not combined", "scatter")
def scatter_not_combined() -> AbstractContextManager[None]:
    def passing(rule: Any) -> Any:
        factors = tuple(
            replace(f, kind=FactorKind.PASS_THROUGH, reduction=None) for f in rule.factors
        )
        return replace(rule, factors=factors, identity_operands=())

    return entry(SHARDING_RULES, Opcode.SCATTER, lambda rule: lambda s: passing(rule(s)))


@mutant("batch dimensions of a gather's result are matched to the indices in reverse", "gather")
def gather_batch_reversed() -> AbstractContextManager[None]:
    original = gather_scatter.gather_batch_positions
    return function(original, lambda gather: list(reversed(original(gather))))


@mutant("a conditional runs its branches in reverse", "conditional")
def branches_reversed() -> AbstractContextManager[None]:
    def wrap(partition: Any) -> Any:
        def wrong(context: Any, conditional: Any) -> Any:
            values = partition(context, conditional)
            made = next(
                i for i in reversed(context.target.instructions) if i.opcode is Opcode.CONDITIONAL
            )
            shapes = {c.parameters[0].shape for c in made.called_computations}
            if len(shapes) == 1:
                made.called_computations.reverse()
            return values

        return wrong

    return entry(PARTITIONERS, Opcode.CONDITIONAL, wrap)
