"""Registries of the partitioner: propagation and partitioning functions of each op.

Keys are opcodes, or targets for custom calls with a sharding meaning.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from partitioner.propagation.op_sharding_rule import OpShardingRule
from spmd.custom_call import custom_call
from spmd.hlo import HloInstruction, Opcode
from spmd.ops.custom_call import custom_call_target
from spmd.registry import Registry

if TYPE_CHECKING:
    from partitioner.partition.context import PartitionContext, ShardedValue
    from partitioner.partition.shard_state import ShardState
    from partitioner.propagation.driver import ValueSharding
    from partitioner.propagation.value_graph import ValueGraph
    from spmd.hlo.opcode import Attrs
    from spmd.shape import ArrayShape

#: Takes an instruction (global shapes), returns its rule; None if the op has no useful factors (it is then replicated).
RuleFn: TypeAlias = "Callable[[HloInstruction], OpShardingRule | None]"
SHARDING_RULES: Registry[Opcode, RuleFn] = Registry("sharding rule")
R = TypeVar("R", bound=RuleFn)

#: Partitioning of an op: emits local instructions, returns the value of each result leaf. None declines, and the
#: generic partitioner is used.
PartitionFn: TypeAlias = (
    "Callable[[PartitionContext, HloInstruction], tuple[ShardedValue, ...] | None]"
)
PARTITIONERS: Registry[Opcode, PartitionFn] = Registry("partitioner")
TARGET_PARTITIONERS: Registry[str, PartitionFn] = Registry("custom-call partitioner")

#: Insertion of an op into the value graph (control flow, tuples, annotations). It returns the sharding of each result
#: leaf.
PropagateFn: TypeAlias = "Callable[[ValueGraph, HloInstruction], tuple[ValueSharding | None, ...]]"
PROPAGATORS: Registry[Opcode, PropagateFn] = Registry("propagator")
TARGET_PROPAGATORS: Registry[str, PropagateFn] = Registry("custom-call propagator")

#: Attributes of the per-device clone if they depend on sizes.
LocalizeFn: TypeAlias = (
    "Callable[[PartitionContext, HloInstruction, list[HloInstruction], list[ArrayShape]], Attrs]"
)
LOCALIZERS: Registry[Opcode, LocalizeFn] = Registry("localizer")

#: Ops whose result may be cheaper to recompute than to move: the cost in bytes on the wire, and the recomputation.
RematerializationCostFn: TypeAlias = (
    "Callable[[PartitionContext, HloInstruction, ShardState], float]"
)
RematerializeFn: TypeAlias = (
    "Callable[[PartitionContext, HloInstruction, ShardState], ShardedValue]"
)
REMATERIALIZERS: Registry[Opcode, tuple[RematerializationCostFn, RematerializeFn]] = Registry(
    "rematerializer"
)


def sharding_rule(*opcodes: Opcode) -> Callable[[R], R]:
    """Register a rule, which may have options besides."""

    def register(rule: R) -> R:
        for opcode in opcodes:
            SHARDING_RULES.add(opcode, rule)
        return rule

    return register


partition = PARTITIONERS.register
partition_target = TARGET_PARTITIONERS.register
propagate_op = PROPAGATORS.register
propagate_target = TARGET_PROPAGATORS.register
localize = LOCALIZERS.register


def partitioner_of(instruction: HloInstruction) -> PartitionFn | None:
    """Return the special partitioning of an instruction: its custom-call target's, else its opcode's."""
    target = custom_call_target(instruction)
    registered = custom_call(target).partition
    if registered is not None:
        return lambda context, call: registered(call, context)
    return TARGET_PARTITIONERS.get(target) or PARTITIONERS.get(instruction.opcode)


def propagator_of(instruction: HloInstruction) -> PropagateFn | None:
    target = custom_call_target(instruction)
    return TARGET_PROPAGATORS.get(target) or PROPAGATORS.get(instruction.opcode)


def rule_of(instruction: HloInstruction) -> OpShardingRule | None:
    make = SHARDING_RULES.get(instruction.opcode)
    return make(instruction) if make is not None else None
