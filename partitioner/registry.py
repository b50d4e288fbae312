"""The two tables of the partitioner: sharding rules, and ops with a partitioning of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from partitioner.rule import OpShardingRule
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.registry import Registry

if TYPE_CHECKING:
    from partitioner.context import PartitionContext, ShardedValue

#: instruction (global shapes) -> its rule; None when the op has no useful factors (it is then replicated).
SHARDING_RULES: Registry[Opcode, Callable[[HloInstruction], OpShardingRule | None]] = Registry("sharding rule")

#: An op's own partitioning: emits local instructions, returns the value of each result leaf; None declines, and the
#: generic partitioner takes over.
PartitionFn: TypeAlias = "Callable[[PartitionContext, HloInstruction], tuple[ShardedValue, ...] | None]"
PARTITIONERS: Registry[Opcode, PartitionFn] = Registry("partitioner")

#: How the generic partitioner makes the per-device clone when shapes alone do not tell it:
#: (context, instruction, local operands, local result shapes) -> clone's attributes.
LOCALIZERS: Registry[Opcode, Callable[..., object]] = Registry("localizer")

sharding_rule = SHARDING_RULES.register
partition = PARTITIONERS.register
localize = LOCALIZERS.register
