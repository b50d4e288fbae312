"""Operations that only move elements: reshape, transpose, broadcast, reverse.

    transpose  [i, j]          -> [j, i]
    broadcast  [i]             -> [i, j]         j is new: any split is free
    reshape    [i*j, k]        -> [i, j*k]       factors are the common refinement of both lists of sizes
    reverse    [i, r]          -> [i, r]         the tiles of r change places

Letters are factors; a product of letters is one dimension made of several, major first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field

from partitioner.ops.elementwise import all_dimensions_pass
from partitioner.partition.context import PartitionContext, ShardedValue
from partitioner.partition.shard_state import ShardState
from partitioner.propagation.op_sharding_rule import FactorKind, OpShardingRule, RuleBuilder
from partitioner.registry import REMATERIALIZERS, sharding_rule
from partitioner.reshard.cost import LOCAL_COPY
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import DimensionsAttrs


@sharding_rule(Opcode.TRANSPOSE)
def transpose_rule(transpose: HloInstruction) -> OpShardingRule:
    rule = RuleBuilder.for_instruction(transpose)
    for position, d in enumerate(transpose.attrs_as(DimensionsAttrs).dimensions):
        rule.factor(transpose.dims[position], {0: d}, {0: position})
    return rule.build()


@sharding_rule(Opcode.BROADCAST)
def broadcast_rule(broadcast: HloInstruction) -> OpShardingRule:
    """Return the rule of a broadcast. An operand dimension that the broadcast stretches is not split; all others pass,
    new ones have a factor of their own.
    """
    source = {p: d for d, p in enumerate(broadcast.attrs_as(DimensionsAttrs).dimensions)}
    sizes = broadcast.operand(0).dims
    rule = RuleBuilder.for_instruction(broadcast)
    for position, size in enumerate(broadcast.dims):
        d = source.get(position)
        passes = d is not None and sizes[d] == size
        rule.factor(size, {0: d} if d is not None and passes else {}, {0: position})
    return rule.build()


def _broadcast_operand_state(broadcast: HloInstruction, state: ShardState) -> ShardState:
    dimensions = broadcast.attrs_as(DimensionsAttrs).dimensions
    sizes = broadcast.operand(0).dims
    return ShardState(
        tuple(
            state.dims[p] if broadcast.dims[p] == n else ()
            for n, p in zip(sizes, dimensions, strict=True)
        )
    )


def broadcast_cost(
    context: PartitionContext, broadcast: HloInstruction, state: ShardState
) -> float:
    """Return the cost of moving the operand, which is smaller, and of writing the tile."""
    operand = context.value(broadcast.operand(0))
    tile = state.local_shape(broadcast.array_shape, context.axes).byte_size
    move = context.reshard_cost(operand, _broadcast_operand_state(broadcast, state))
    return move + LOCAL_COPY * tile


def make_broadcast(
    context: PartitionContext, broadcast: HloInstruction, state: ShardState
) -> ShardedValue:
    value = context.value(broadcast.operand(0))
    operand = context.reshard(value, _broadcast_operand_state(broadcast, state))
    shape = broadcast.array_shape.without_layout()
    hlo = context.target.create(
        Opcode.BROADCAST,
        state.local_shape(shape, context.axes),
        [operand.hlo],
        broadcast.attrs,
        name=broadcast.name,
        annotations=broadcast.annotations,
    )
    return ShardedValue(hlo, state, shape, broadcast)


REMATERIALIZERS.add(Opcode.BROADCAST, (broadcast_cost, make_broadcast))


@sharding_rule(Opcode.RESHAPE)
def reshape_rule(reshape: HloInstruction) -> OpShardingRule:
    rule = RuleBuilder.for_instruction(reshape)
    for part in refine(reshape.operand(0).dims, reshape.dims):
        operands = {} if part.source is None else {0: part.source}
        results = {} if part.target is None else {0: part.target}
        kind = FactorKind.PASS_THROUGH if part.shared else FactorKind.NEED_REPLICATION
        rule.factor(part.size, operands, results, kind=kind)
    return rule.build()


@sharding_rule(Opcode.BITCAST)
def bitcast_rule(bitcast: HloInstruction) -> OpShardingRule | None:
    """Return the rule of a reshape if both layouts are default, otherwise None: shardings do not describe
    memory order.
    """
    source, target = bitcast.operand(0).array_shape, bitcast.array_shape
    if source.element_type is not target.element_type:
        return None
    if source == target:
        return all_dimensions_pass(bitcast)
    if all(shape.layout is None or shape.layout.is_default for shape in (source, target)):
        return reshape_rule(bitcast)
    return None


@sharding_rule(Opcode.DYNAMIC_RESHAPE)
def dynamic_reshape_rule(_: HloInstruction) -> OpShardingRule | None:
    """Return None: run-time sizes decide the target of each element, so the op is replicated."""
    return None


@dataclass(frozen=True, slots=True)
class Part:
    """One factor of a reshape: ``size`` elements of dimension ``source`` and of dimension ``target``.

    Shared parts have both; the others are blocks whose boundaries do not agree, one side each.
    """

    size: int
    source: int | None
    target: int | None

    @property
    def shared(self) -> bool:
        return self.source is not None and self.target is not None


@dataclass(slots=True)
class _Side:
    """The sizes of one shape not yet consumed, major to minor; ``left`` is the rest of the current dimension."""

    sizes: Sequence[int]
    dim: int = -1
    left: int = field(default=1)

    def advance(self) -> bool:
        """Move to the next dimension larger than 1; return False at the end."""
        while self.left == 1:
            if self.dim + 1 >= len(self.sizes):
                return False
            self.dim += 1
            self.left = self.sizes[self.dim]
        return True


def refine(source: Sequence[int], target: Sequence[int]) -> list[Part]:
    """Return the factors of a reshape, major to minor, in time linear in the ranks.

        [8, 6] -> [2, 4, 6]    2 (0,0)  4 (0,1)  6 (1,2)
        [6, 4] -> [24]         6 (0,0)  4 (1,0)
        [6, 2] -> [4, 3]       2 (0,0)  then 3 (0,-) 2 (1,-) against 2 (-,0) 3 (-,1): these do not refine

    Empty arrays have no factors (their dimensions are not split).
    """
    if math.prod(source) == 0:
        return []
    parts: list[Part] = []
    old, new = _Side(source), _Side(target)
    while old.advance() and new.advance():
        common = math.gcd(old.left, new.left)
        if common == 1:
            parts.extend(_unaligned(old, new))
            continue
        parts.append(Part(common, old.dim, new.dim))
        old.left //= common
        new.left //= common
    return parts


def _unaligned(old: _Side, new: _Side) -> list[Part]:
    """Return the parts from where the sizes stop refining to the next position where both products are equal."""
    parts: list[Part] = []
    old_count = new_count = 1
    while old_count != new_count or old_count == 1:
        side, is_old = (old, True) if old_count <= new_count else (new, False)
        side.advance()
        parts.append(Part(side.left, side.dim if is_old else None, None if is_old else side.dim))
        if is_old:
            old_count *= side.left
        else:
            new_count *= side.left
        side.left = 1
    return parts
